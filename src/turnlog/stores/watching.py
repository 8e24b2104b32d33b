"""Follows sessions: writers in this process wake followers at once; writers in other processes are found by polling.

If a store can say for many sessions at once how far they have come, one poll serves all followers: a thousand idle
listeners cost as much as one.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from ..core.entries import Entry
from ..core.session import Session
from ..errors import NotFound
from ..runtime.background import Loop

LOOK_S = 0.1
LOOK_MAX_S = 0.5
"""The longest pause between two shared polls. Pauses grow while nothing happens, so an idle server costs nothing."""
POLL_MAX_S = 2.0
"""The same if each follower polls for itself."""
GROWTH = 1.2
PAGE = 1_000
"""The entries read at once."""

Ends = Callable[[Sequence[str]], Mapping[str, object] | None]
"""Sessions → a value for each that changes with its log; None: nothing has changed since the last call."""


class Followed(Protocol):
    """The part of a store that is polled."""

    async def describe(self, session_id: str, *, incarnation: str | None = None) -> Session: ...
    async def read(
        self,
        session_id: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        incarnation: str | None = None,
    ) -> list[Entry]: ...


class Watchers:
    def __init__(self, *, poll_s: float | None = None, ends: Ends | None = None) -> None:
        """`poll_s`: each follower polls, at first this often. Without `poll_s` and `ends`, only `wake`
        wakes followers.
        """
        self._poll_s = poll_s
        self._ends = ends
        self._looking: asyncio.Task[None] | None = None
        self._events: dict[str, set[asyncio.Event]] = {}
        self._closed = False

    def close(self) -> None:
        """Tells all followers that nothing more comes."""
        self._closed = True
        for session_id in list(self._events):
            self.wake(session_id)

    def wake(self, session_id: str) -> None:
        if self._events:
            for event in self._events.get(session_id, ()):
                event.set()

    async def follow(
        self, store: Followed, session_id: str, after: int, incarnation: str | None
    ) -> AsyncIterator[Entry]:
        """Without an `incarnation`, follows the session that has the id now."""
        event = asyncio.Event()
        poll_s = self._poll_s
        self._events.setdefault(session_id, set()).add(event)
        self._look_from_now_on()
        try:
            while not self._closed:
                event.clear()
                try:
                    incarnation = incarnation or (await store.describe(session_id)).incarnation
                    entries = await store.read(session_id, after=after, limit=PAGE, incarnation=incarnation)
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
        with Loop("watching", first_s=LOOK_S, max_s=POLL_MAX_S) as loop:
            while self._events and not self._closed:
                pause_s = min(pause_s * GROWTH, LOOK_MAX_S)
                loop.begin()
                try:
                    found = ends(list(self._events))
                    if found is not None:
                        if self._wake_changed(known, found):
                            pause_s = LOOK_S
                        known = found
                    loop.succeeded()
                except Exception as error:  # noqa: BLE001 - the reader gets the error; here it is retried
                    pause_s = loop.failed(error)
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
