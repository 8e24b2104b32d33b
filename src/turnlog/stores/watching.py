"""Following a session: woken at once by writers in this process, by a look now and then for those in others.

Where a store can say of many sessions at once how far they have come, one look serves all who follow: a thousand idle
listeners then cost as much as one.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from ..core.entries import Entry
from ..errors import NotFound, TurnlogError

LOOK_S = 0.1
"""Between two looks for all."""
POLL_GROWTH = 1.2
POLL_MAX_S = 2.0
"""Where each looks for itself and nothing comes for a while, looks grow rarer up to this."""

Ends = Callable[[Sequence[str]], Mapping[str, object] | None]
"""Sessions → something for each that changes with its log; None: nothing has changed since the last question."""


class Watchers:
    def __init__(self, *, poll_s: float | None = None, ends: Ends | None = None) -> None:
        """`poll_s`: each looks for itself, at first so often. With neither, only `wake` tells."""
        self._poll_s = poll_s
        self._ends = ends
        self._looking: asyncio.Task[None] | None = None
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
        self._look_from_now_on()
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
                    poll_s = None if poll_s is None else min(poll_s * POLL_GROWTH, POLL_MAX_S)
        finally:
            waiting = self._events[session_id]
            waiting.discard(event)
            if not waiting:
                del self._events[session_id]

    def _look_from_now_on(self) -> None:
        if self._ends is not None and self._looking is None:
            self._looking = asyncio.create_task(self._look(self._ends))

    async def _look(self, ends: Ends) -> None:
        known: Mapping[str, object] = {}
        while self._events:
            with suppress(TurnlogError):  # who reads is told; here it is tried again
                found = ends(list(self._events))
                if found is not None:
                    for session_id in list(self._events):
                        if session_id not in known or known[session_id] != found.get(session_id):
                            self.wake(session_id)
                    known = found
            await asyncio.sleep(LOOK_S)
        self._looking = None


async def _pause(event: asyncio.Event, seconds: float | None) -> None:
    if seconds is None:
        await event.wait()
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
