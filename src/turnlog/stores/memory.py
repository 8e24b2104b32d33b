"""The store without a disk: for tests and throw-away sessions. Ends with its process, as its name says."""

import asyncio
import heapq
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from ..codecs import native
from ..core import keys, query as queries, search
from ..core.admission import admit
from ..core.entries import Entry
from ..core.query import Hit, Page, Query
from ..core.session import Session, describe, needs_whole_log
from ..errors import Busy, NotFound
from . import Clock, Fact, Lease, Progress, leases
from .leases import FileLease
from .stamping import check_expected, now_ms, stamp, window
from .watching import Watchers


class MemoryStore:
    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or now_ms
        self._logs: dict[str, list[Entry]] = {}
        self._rows: dict[str, Session] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        self._watchers = Watchers()
        self.ledger = MemoryLedger(self._clock)

    async def append(
        self, session_id: str, bodies: Sequence[Entry], *, expect: int | None = None, lease: Lease | None = None
    ) -> list[Entry]:
        keys.check_session_id(session_id)
        leased = leases.check(lease, session_id)
        row = self._rows.get(session_id)
        check_expected(row, expect)
        admit(row, bodies, leased=leased)
        entries = stamp(bodies, row.last_seq if row else 0, self._clock())
        for entry in entries:
            native.encode(entry)  # the same limits as on disk
        log = self._logs.get(session_id, [])
        row = describe(None, [*log, *entries]) if needs_whole_log(row, bodies) else describe(row, entries)
        self._logs.setdefault(session_id, log).extend(entries)
        self._rows[session_id] = row
        self._watchers.wake(session_id)
        return entries

    async def read(
        self, session_id: str, *, after: int = 0, before: int | None = None, limit: int | None = None
    ) -> list[Entry]:
        log = self._log(session_id)
        after, before, limit = window(after, before, limit)
        found = log[after : len(log) if before is None else max(0, before - 1)]
        return found if limit is None else found[:limit]

    async def describe(self, session_id: str) -> Session:
        self._log(session_id)
        return self._rows[session_id]

    def _log(self, session_id: str) -> list[Entry]:
        keys.check_session_id(session_id)
        if session_id not in self._logs:
            raise NotFound(f"there is no session {session_id}")
        return self._logs[session_id]

    async def find(self, query: Query) -> Page[Session]:
        queries.check(query)
        return page_of(query, [row for row in self._rows.values() if queries.matches(query, row)])

    async def search(self, words: str, *, scope: Query | None = None) -> list[Hit]:
        scope = queries.check(scope or Query())
        terms = search.terms(words)
        hits: list[Hit] = []
        for row in newest_first(row for row in self._rows.values() if queries.matches(scope, row)):
            hits += hits_in(terms, row.id, self._logs[row.id])
        return hits[: scope.limit]

    async def delete(self, session_id: str) -> None:
        self._log(session_id)
        del self._logs[session_id], self._rows[session_id]
        self._watchers.wake(session_id)

    @asynccontextmanager
    async def lease(self, session_id: str, *, wait_s: float | None = None) -> AsyncGenerator[Lease]:
        keys.check_session_id(session_id)
        turn = self._turns.setdefault(session_id, asyncio.Lock())
        try:
            async with asyncio.timeout(wait_s):
                await turn.acquire()
        except TimeoutError:
            raise Busy(f"a turn is running in session {session_id} (this process)", holder="this process") from None
        lease = FileLease(session_id, time.time_ns())
        try:
            yield lease
        finally:
            lease.live = False
            turn.release()
            if session_id not in self._logs and not turn.locked():
                self._turns.pop(session_id, None)

    async def abandoned(self) -> list[str]:
        return []

    def watch(self, session_id: str, *, after: int) -> AsyncIterator[Entry]:
        return self._watchers.follow(session_id, after, lambda seq: self.read(session_id, after=seq))

    async def reindex(self, progress: Progress | None = None) -> int:
        self._rows = {session_id: describe(None, log) for session_id, log in self._logs.items()}
        if progress:
            progress(len(self._rows), len(self._rows))
        return len(self._rows)

    async def close(self) -> None:
        self._logs.clear()
        self._rows.clear()


class MemoryLedger:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._facts: dict[tuple[str, str], tuple[Any, int | None]] = {}

    def _live(self, space: str, key: str) -> Any:
        value, expires = self._facts.get((space, key), (None, None))
        return None if expires is not None and expires <= self._clock() else value

    def _put(self, space: str, key: str, value: Any, ttl_s: float | None) -> None:
        self._facts[space, key] = (value, None if ttl_s is None else self._clock() + int(ttl_s * 1000))

    async def get(self, space: str, key: str) -> Any:
        return self._live(space, key)

    async def put_if_absent(self, space: str, key: str, value: Any, *, ttl_s: float | None = None) -> Any:
        there = self._live(space, key)
        if there is None:
            self._put(space, key, value, ttl_s)
        return there

    async def cas(self, space: str, key: str, old: Any, new: Any, *, ttl_s: float | None = None) -> bool:
        if self._live(space, key) != old:
            return False
        self._put(space, key, new, ttl_s)
        return True

    async def list(self, space: str, *, prefix: str = "", limit: int = 1000) -> list[Fact]:
        found = sorted(key for name, key in self._facts if name == space and key.startswith(prefix))
        facts = (Fact(key, self._live(space, key), self._facts[space, key][1]) for key in found)
        return [fact for fact in facts if fact.value is not None][:limit]

    async def delete(self, space: str, key: str) -> bool:
        there = self._live(space, key) is not None
        self._facts.pop((space, key), None)
        return there


def newest_first(rows: Any) -> list[Session]:
    return sorted(rows, key=lambda row: (row.last_at, row.id), reverse=True)


def page_of(query: Query, rows: Sequence[Session]) -> Page[Session]:
    """One page of the rows that match. Only as many are put in order as it takes."""
    place = queries.place(query)
    ranked = ((queries.rank(query.sort, row), row) for row in rows)
    left = ranked if place is None else (item for item in ranked if item[0] < place)
    found = [row for _, row in heapq.nlargest(query.limit + 1, left, key=lambda item: item[0])]
    return queries.page(query, found, len(rows))


def hits_in(terms: search.Terms, session_id: str, entries: Sequence[Entry]) -> list[Hit]:
    hits: list[Hit] = []
    for entry in entries:
        text = search.searchable(entry)
        if text and search.found(terms, text):
            hits.append(
                Hit(
                    session_id=session_id,
                    seq=entry.seq,
                    role=search.role_of(entry),
                    snippet=search.snippet(terms, text),
                )
            )
    return hits
