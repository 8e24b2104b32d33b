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
LOOK_MAX_S = 0.5
"""Between two looks for all. Where nothing comes for a while they grow rarer: a server at rest costs nothing."""
POLL_MAX_S = 2.0
"""The same where each looks for itself."""
GROWTH = 1.2

Ends = Callable[[Sequence[str]], Mapping[str, object] | None]
"""Sessions → something for each that changes with its log; None: nothing has changed since the last question."""


class Watchers:
    def __init__(self, *, poll_s: float | None = None, ends: Ends | None = None) -> None:
        """`poll_s`: each looks for itself, at first so often. With neither, only `wake` tells."""
        self._poll_s = poll_s
        self._ends = ends
        self._looking: asyncio.Task[None] | None = None
        self._events: dict[str, set[asyncio.Event]] = {}
        self._closed = False

    def close(self) -> None:
        """All who follow are told that nothing more comes."""
        self._closed = True
        for session_id in list(self._events):
            self.wake(session_id)

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
            while not self._closed:
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
                    poll_s = None if poll_s is None else min(poll_s * GROWTH, POLL_MAX_S)
        finally:
            waiting = self._events[session_id]
            waiting.discard(event)
            if not waiting:
                del self._events[session_id]

    def _look_from_now_on(self) -> None:
        if self._ends is not None and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._look(self._ends))

    async def _look(self, ends: Ends) -> None:
        known: Mapping[str, object] = {}
        pause_s = LOOK_S
        while self._events and not self._closed:
            pause_s = min(pause_s * GROWTH, LOOK_MAX_S)
            with suppress(TurnlogError, OSError):  # who reads is told; here it is tried again
                found = ends(list(self._events))
                if found is not None:
                    if self._wake_changed(known, found):
                        pause_s = LOOK_S
                    known = found
            await asyncio.sleep(pause_s)
        self._looking = None

    def _wake_changed(self, known: Mapping[str, object], found: Mapping[str, object]) -> bool:
        changed = [name for name in self._events if name not in known or known[name] != found.get(name)]
        for session_id in changed:
            self.wake(session_id)
        return bool(changed)


async def _pause(event: asyncio.Event, seconds: float | None) -> None:
    if seconds is None:
        await event.wait()
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
