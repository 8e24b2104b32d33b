"""What a chat shows and asks through: a terminal (`terminal`) or a pipe (`plain`)."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ...core.events import Event
from .notes import Tone

if TYPE_CHECKING:
    from .loop import Chat

PROMPT = "You > "
YES = ("y", "yes", "是", "好")
"""Answers that confirm a question."""
Steer: TypeAlias = Callable[[str], Awaitable[None]]
"""Takes a line that is typed while a turn runs."""
Stop: TypeAlias = Callable[[], object]


class Console(Protocol):
    def attach(self, chat: "Chat") -> None:
        """Shows the status of this chat, and completes its sessions, from now on."""
        ...

    def show(self, text: str, tone: Tone = "plain", hang: int | None = None) -> None:
        """Prints one or several lines, escaped. `hang`: the indent where a line goes on; by default its own."""
        ...

    @property
    def shows_others(self) -> bool:
        """Whether messages of others can be shown while this console waits for a line."""
        ...

    async def show_other(self, text: str) -> None:
        """Prints a message of somebody else, above the line that is being typed."""
        ...

    async def show_other_answer(self, text: str) -> None: ...
    async def ask(self, default: str = "") -> str | None:
        """The next line, or several; None at the end of input. KeyboardInterrupt at Ctrl-C."""
        ...

    async def confirm(self, question: str) -> bool: ...
    async def follow(self, events: AsyncIterator[Event], *, steer: Steer, stop: Stop) -> Event:
        """Shows a turn as it happens, up to its end, which is returned."""
        ...

    @property
    def columns(self) -> int: ...
