"""Following a session: woken at once by writers in this process, by a look now and then for those in others."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from ..core.entries import Entry
from ..errors import NotFound

POLL_S = 0.1
POLL_MAX_S = 0.5
"""Where nothing comes for a while, looks grow rarer up to this: an idle listener should cost next to nothing."""


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
        poll_s = self._poll_s
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
                if entries:
                    poll_s = self._poll_s
                else:
                    await _pause(event, poll_s)
                    poll_s = None if poll_s is None else min(poll_s * 1.2, POLL_MAX_S)
        finally:
            waiting = self._events[session_id]
            waiting.discard(event)
            if not waiting:
                del self._events[session_id]


async def _pause(event: asyncio.Event, seconds: float | None) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
