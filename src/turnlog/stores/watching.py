"""Following a session: woken at once by writers in this process, by a look now and then for those in others."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from ..core.entries import Entry
from ..errors import NotFound

POLL_S = 0.1


class Watchers:
    def __init__(self, poll_s: float | None = POLL_S) -> None:
        self._poll_s = poll_s
        self._events: dict[str, set[asyncio.Event]] = {}

    def wake(self, session_id: str) -> None:
        if self._events:
            for event in self._events.get(session_id, ()):
                event.set()

    async def follow(
        self, session_id: str, after: int, read: Callable[[int], Awaitable[list[Entry]]]
    ) -> AsyncIterator[Entry]:
        """`read(after)` gives what is there now."""
        event = asyncio.Event()
        self._events.setdefault(session_id, set()).add(event)
        try:
            while True:
                event.clear()
                try:
                    entries = await read(after)
                except NotFound:
                    return
                for entry in entries:
                    after = entry.seq
                    yield entry
                if not entries:
                    await self._pause(event)
        finally:
            waiting = self._events[session_id]
            waiting.discard(event)
            if not waiting:
                del self._events[session_id]

    async def _pause(self, event: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(self._poll_s):
                await event.wait()
        except TimeoutError:
            return
