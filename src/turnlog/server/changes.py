"""Which sessions have changed: one look at the newest rows serves every browser that listens.

Turns of this process and the page's own forms cause a look at once. What other processes write is found by looking
every second. A look that takes long, in a store with very many sessions, is made less often.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress

from msgspec import Struct

from ..core.query import Page, Query
from ..core.session import Session
from ..runtime.background import Loop

LOOK_S = 1.0
LOOK_MAX_S = 30.0
SHARE = 20
"""Looks take at most one part in this many of the time."""
ROWS = 50
FAILED_MAX_S = 5.0

Find = Callable[[Query], Awaitable[Page[Session]]]


class SessionChange(Struct, frozen=True):
    row: Session
    """As it is now; as it was, if it is gone."""
    is_gone: bool = False


class SessionChanges:
    def __init__(self, find: Find) -> None:
        """`find`: all sessions, newest first; each listener decides what it may tell."""
        self._find = find
        self._listeners: set[asyncio.Queue[SessionChange]] = set()
        self._known: dict[str, Session] = {}
        """The newest sessions at the last look."""
        self._since = 0
        self._asked = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Something was written here just now."""
        self._asked.set()

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def follow(self) -> AsyncGenerator[SessionChange]:
        """Every session that changes or is deleted from now on."""
        changed: asyncio.Queue[SessionChange] = asyncio.Queue()
        if not self._listeners:
            await self._learn()
        self._listeners.add(changed)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        try:
            while True:
                yield await changed.get()
        finally:
            self._listeners.discard(changed)

    async def _watch(self) -> None:
        pause_s = LOOK_S
        with Loop("session list", first_s=LOOK_S, max_s=FAILED_MAX_S) as loop:
            while self._listeners:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._asked.wait()
                self._asked.clear()
                loop.begin()
                start = time.monotonic()
                try:
                    changed = await self._learn()
                    loop.succeeded()
                    pause_s = min(LOOK_MAX_S, max(LOOK_S, SHARE * (time.monotonic() - start)))
                except Exception as error:  # noqa: BLE001 - the store may be away; the next look tells all of it
                    pause_s = loop.failed(error)
                    continue
                for change in changed:
                    for listener in self._listeners:
                        listener.put_nowait(change)

    async def _learn(self) -> list[SessionChange]:
        """What has changed since the last look, oldest change first."""
        found: dict[str, Session] = {}
        cursor: str | None = None
        oldest = 0
        while True:
            page = await self._find(Query(limit=ROWS, cursor=cursor))
            found |= {row.id: row for row in page.items}
            cursor = page.next
            oldest = page.items[-1].last_at if cursor is not None else -1
            # Rows with the time of the last look may have been written after it.
            if not self._since or oldest < self._since:
                break
        known, self._known = self._known, found
        self._since = max((row.last_at for row in found.values()), default=self._since)
        gone = [row for row in known.values() if row.id not in found and row.last_at > oldest]
        changed = [row for row in found.values() if _state(row) != _state(known.get(row.id))]
        return [*(SessionChange(row, True) for row in gone), *(SessionChange(row) for row in reversed(changed))]


def _state(row: Session | None) -> tuple[int, str] | None:
    return (row.last_seq, row.incarnation) if row else None
