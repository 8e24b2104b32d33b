"""What a chat needs of its surroundings, whether they are a terminal or a pipe."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ..core.events import Event
from .telling import Tone

if TYPE_CHECKING:
    from .repl import Chat

Steer: TypeAlias = Callable[[str], Awaitable[None]]
"""What becomes of a line that is typed while a turn runs."""
Stop: TypeAlias = Callable[[], object]


class Front(Protocol):
    def attend(self, chat: "Chat") -> None:
        """This is the chat whose status and sessions are shown and completed from now on."""
        ...

    def show(self, text: str, tone: Tone = "plain") -> None:
        """A line, or several, that stay. Made harmless here, whoever wrote it."""
        ...

    async def ask(self, default: str = "") -> str | None:
        """The next line, or several; None at the end of input. KeyboardInterrupt at Ctrl-C."""
        ...

    async def confirm(self, question: str) -> bool: ...
    async def follow(self, events: AsyncIterator[Event], *, steer: Steer, stop: Stop) -> Event:
        """Shows a turn as it happens, up to its end, which is returned."""
        ...

    @property
    def columns(self) -> int: ...
