"""The global memory of an opened Turnlog."""

import asyncio
from collections.abc import Sequence

from ..core import keys
from ..core.entries import Assistant, Entry, User, text_of
from ..core.session import Session
from ..memory import Memory, is_there, open_memory, owner_of, place_of
from ..sessions.checking import checked_methods
from ..settings import Settings
from ..stores import Clock
from .on_demand import UntilClosed


@checked_methods
class LazyMemory(UntilClosed):
    """The global memory, opened at first use: most processes never use it."""

    def __init__(self, settings: Settings, clock: Clock | None, *, create: bool) -> None:
        super().__init__()
        place = place_of(settings.store_url())
        self._place = place if create or is_there(place) else ":memory:"
        self._clock = clock
        self._create = create
        self._opening = asyncio.Lock()
        self._memory: Memory | None = None

    async def get(self) -> Memory:
        self.check_open()
        async with self._opening:
            if self._memory is None:
                self._memory = await self.enter_async_context(
                    open_memory(self._place, clock=self._clock, create=self._create)
                )
            return self._memory

    async def save(self, row: Session, turn: Sequence[Entry]) -> None:
        """Saves question and answer of a turn, if no session keeps them."""
        said = [text_of(entry.content) for entry in turn if isinstance(entry, User)]
        reply = next((text_of(entry.content) for entry in reversed(turn) if isinstance(entry, Assistant)), "")
        memory = await self.get()
        words = f"User: {' '.join(said)}\nAssistant: {reply}"
        await memory.save(row.agent, owner_of(keys.parse(row.key)), words)

    async def recall(self, agent: str, key: str, words: str) -> list[str]:
        memory = await self.get()
        return [memo.text for memo in await memory.recall(agent, owner_of(keys.parse(key)), words)]
