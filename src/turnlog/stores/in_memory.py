"""The store in memory: for tests and throw-away sessions. It ends with its process."""

import asyncio
import heapq
import time
from bisect import bisect_left, insort
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from ..codecs import native
from ..core import erasing, facts as session_facts, keys, query as queries
from ..core.admission import admit
from ..core.earlier_entries import row_after
from ..core.entries import Entry
from ..core.facts import ExpectedFact, Fact, FactChange
from ..core.query import Hit, Page, Query
from ..core.rows import milliseconds
from ..core.search import Candidate, Sought, Wanted, has_all, newest_first
from ..core.searchable import SearchUnit, calls_in, units
from ..core.session import Session, describe
from ..core.words import indexed
from ..errors import Busy
from . import OWN_LEASE_WAIT_S, Appended, Clock, GivenLease, Lease, LedgerFact, Progress, boundary
from .disk import leases
from .disk.leases import FileLease
from .finding import EntryPlace, Searcher, is_allowed
from .stamping import AskedAppend, check_expected, check_incarnation, now_ms, rising, stamp, window
from .watching import Watchers


@boundary.store
class MemoryStore:
    def __init__(self, *, clock: Clock | None = None) -> None:
        self._stamps = rising(clock)
        self._logs: dict[str, list[Entry]] = {}
        self._rows: dict[str, Session] = {}
        self._facts: dict[str, FactIndex] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        self._watchers = Watchers()
        self._searcher = Searcher(self.read)
        self.ledger = MemoryLedger(clock or now_ms)

    async def append(
        self,
        session_id: str,
        bodies: Sequence[Entry],
        *,
        expect: int | None = None,
        expect_fact: ExpectedFact | None = None,
        lease: GivenLease | None = None,
        incarnation: str | None = None,
    ) -> Appended:
        keys.check_session_id(session_id)
        asked = AskedAppend(bodies, expect, expect_fact, incarnation, lease is not None)
        if lease == "own":
            async with self.lease(session_id, wait_s=OWN_LEASE_WAIT_S):
                return self._append(session_id, asked)
        leases.check(lease, session_id)
        return self._append(session_id, asked)

    def _append(self, session_id: str, asked: AskedAppend) -> Appended:
        row = self._rows.get(session_id)
        check_expected(row, session_id, asked)
        index = self._facts.get(session_id) or FactIndex()
        if asked.expect_fact is not None:
            session_facts.check_expected(asked.expect_fact, index.seq_of(*asked.expect_fact[:2]))
        bodies = admit(row, asked.bodies, leased=asked.leased)
        entries = stamp(bodies, row.last_seq if row else 0, self._stamps())
        for entry in entries:
            native.encode_stored(entry)  # the same limits as on disk
        log = self._logs.get(session_id, [])
        row = row_after(
            row,
            entries,
            lambda wanted: [entry for first, last in wanted for entry in log[first - 1 : last]],
            lambda: log,
        )
        self._logs.setdefault(session_id, log).extend(entries)
        self._rows[session_id] = row
        index.apply(session_facts.changes(entries))
        self._facts[session_id] = index
        self._watchers.wake(session_id)
        return Appended(entries, row)

    async def read(
        self,
        session_id: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        incarnation: str | None = None,
    ) -> list[Entry]:
        log = self._log(session_id, incarnation)
        after, before, limit = window(after, before, limit)
        found = log[after : len(log) if before is None else max(0, before - 1)]
        return found if limit is None else found[:limit]

    async def describe(self, session_id: str, *, incarnation: str | None = None) -> Session:
        self._log(session_id, incarnation)
        return self._rows[session_id]

    def _log(self, session_id: str, incarnation: str | None) -> list[Entry]:
        keys.check_session_id(session_id)
        check_incarnation(self._rows.get(session_id), session_id, incarnation)
        return self._logs[session_id]

    async def facts(
        self,
        session_id: str,
        app: str,
        *,
        keys: Sequence[str] = (),
        prefix: str = "",
        last: bool = False,
        limit: int | None = None,
        incarnation: str | None = None,
    ) -> list[Fact]:
        wanted = session_facts.choice(app, keys, prefix, last, limit)
        log = self._log(session_id, incarnation)
        index = self._facts[session_id]
        found = (session_facts.fact_in(log[seq - 1], app, key) for key, seq in index.find(wanted))
        return [fact for fact in found if fact is not None]

    async def find(self, query: Query) -> Page[Session]:
        queries.check(query)
        return page_of(query, list(filter(queries.matcher(query), self._rows.values())))

    async def search(self, words: str, *, scope: Query | None = None, before: int | None = None) -> list[Hit]:
        scope = scope or Query()
        matches = queries.matcher(scope)
        rows = {name: row for name, row in self._rows.items() if matches(row)}
        return await self._searcher.search(words, scope, MemoryLooking(rows, self._logs, before))

    async def delete(self, session_id: str, *, incarnation: str | None = None) -> None:
        self._log(session_id, incarnation)
        del self._logs[session_id], self._rows[session_id], self._facts[session_id]
        self._watchers.wake(session_id)

    async def erase(
        self,
        session_id: str,
        seqs: Sequence[int],
        *,
        redact: bool = False,
        by: str = "",
        lease: Lease | None = None,
        incarnation: str | None = None,
    ) -> list[int]:
        own = self.lease(session_id, wait_s=OWN_LEASE_WAIT_S) if redact else None
        async with leases.held(lease, session_id, own):
            log = self._log(session_id, incarnation)
            plan = erasing.plan(log, seqs, redact=redact, by=by)
            if not plan.emptied:
                return []
            bodies = admit(self._rows[session_id], plan.appended, leased=True)
            there = {e.seq: e for e in [*log, *plan.emptied, *stamp(bodies, len(log), self._stamps())]}
            log[:] = there.values()
            self._rows[session_id] = describe(None, log)
            self._facts[session_id] = FactIndex(session_facts.changes(log))
        self._watchers.wake(session_id)
        return plan.seqs

    @asynccontextmanager
    async def lease(
        self, session_id: str, *, wait_s: float | None = None, with_append: bool = False
    ) -> AsyncGenerator[Lease]:
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

    def watch(self, session_id: str, *, after: int, incarnation: str | None = None) -> AsyncIterator[Entry]:
        return self._watchers.follow(self, session_id, after, incarnation)

    async def reindex(self, progress: Progress | None = None) -> int:
        self._rows = {session_id: describe(None, log) for session_id, log in self._logs.items()}
        self._facts = {session_id: FactIndex(session_facts.changes(log)) for session_id, log in self._logs.items()}
        if progress:
            progress(len(self._rows), len(self._rows))
        return len(self._rows)

    async def close(self) -> None:
        self._logs.clear()
        self._rows.clear()


class FactIndex:
    """The facts of one session by program and name, in memory."""

    def __init__(self, changes: Sequence[FactChange] = ()) -> None:
        self._seqs: dict[str, dict[str, int]] = {}
        self._ordered: dict[str, list[str]] = {}
        self.apply(changes)

    def apply(self, changes: Sequence[FactChange]) -> None:
        for change in changes:
            seqs = self._seqs.setdefault(change.app, {})
            ordered = self._ordered.setdefault(change.app, [])
            if change.seq is not None:
                if change.key not in seqs:
                    insort(ordered, change.key)
                seqs[change.key] = change.seq
            elif seqs.pop(change.key, None) is not None:
                del ordered[bisect_left(ordered, change.key)]

    def seq_of(self, app: str, key: str) -> int | None:
        return self._seqs.get(app, {}).get(key)

    def find(self, wanted: session_facts.FactChoice) -> list[tuple[str, int]]:
        """(key, seq) of the facts that are asked for, in order."""
        seqs = self._seqs.get(wanted.app, {})
        if wanted.keys:
            return [(key, seqs[key]) for key in wanted.wanted if key in seqs][: wanted.limit]
        return [(key, seqs[key]) for key in session_facts.chosen(self._ordered.get(wanted.app, ()), wanted)]


@boundary.ledger
class MemoryLedger:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._facts: dict[tuple[str, str], tuple[Any, int | None]] = {}

    def _live(self, space: str, key: str) -> Any:
        value, expires = self._facts.get((space, key), (None, None))
        return None if expires is not None and expires <= self._clock() else value

    def _put(self, space: str, key: str, value: Any, ttl_s: float | None) -> None:
        self._facts[space, key] = (value, None if ttl_s is None else self._clock() + int(ttl_s * 1000))

    async def get(self, space: str, key: str, *, from_memory: bool = False) -> Any:
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

    async def list(self, space: str, *, prefix: str = "", after: str = "", limit: int = 1000) -> list[LedgerFact]:
        found = sorted(key for name, key in self._facts if name == space and key > after and key.startswith(prefix))
        facts = (LedgerFact(key, self._live(space, key), self._facts[space, key][1]) for key in found)
        return [fact for fact in facts if fact.value is not None][:limit]

    async def delete(self, space: str, key: str) -> bool:
        there = self._live(space, key) is not None
        self._facts.pop((space, key), None)
        return there


def page_of(query: Query, rows: Sequence[Session]) -> Page[Session]:
    """One page of the matching rows. Sorts only as many as it needs."""
    place = queries.place(query)
    ranked = ((queries.rank(query.sort, row), row) for row in rows)
    left = ranked if place is None else (item for item in ranked if item[0] < place)
    found = [row for _, row in heapq.nlargest(query.limit + 1, left, key=lambda item: item[0])]
    return queries.page(query, found, len(rows))


class MemoryLooking:
    """Looks through every entry: there are few in a store that ends with its process."""

    def __init__(self, rows: Mapping[str, Session], logs: Mapping[str, Sequence[Entry]], before: int | None) -> None:
        self._rows = rows
        self._logs = logs
        self._before = before
        self._units: list[tuple[Candidate, SearchUnit, list[str]]] | None = None

    async def candidates(self, step: Sequence[Wanted], sought: Sought) -> list[list[Candidate]]:
        if self._units is None:
            self._units = [found for name in self._rows for found in self._units_of(name)]
        allowed = [(one, tokens) for one, unit, tokens in self._units if is_allowed(one, unit, sought)]
        return [
            newest_first([one for one, tokens in allowed if has_all(tokens, wanted.terms, sought.without)], wanted.most)
            for wanted in step
        ]

    def _units_of(self, session_id: str) -> Iterator[tuple[Candidate, SearchUnit, list[str]]]:
        tools: dict[str, str] = {}
        for entry in self._logs[session_id]:
            tools.update(calls_in(entry))
            if self._before is not None and entry.seq >= self._before:
                return
            for unit in units(entry, tools):
                at = milliseconds(entry.ts)
                yield Candidate(session_id, entry.seq, unit.part, at, unit.role), unit, indexed(unit.text)

    async def rows(self, session_ids: Sequence[str]) -> Mapping[str, Session]:
        return {name: self._rows[name] for name in session_ids}

    async def entries(self, places: Sequence[EntryPlace]) -> Mapping[EntryPlace, Entry]:
        return {(name, seq): self._logs[name][seq - 1] for name, seq in places}
