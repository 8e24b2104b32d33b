"""The SQLite store: all sessions in one file, one transaction per append, including the row.

SQLite comes with apsw, because the system's own may have the WAL-reset defect (fixed in 3.51.3). WAL, synchronous FULL
(NORMAL for durability "os"), one writing connection with group commit, and separate readers.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeVar

from ...codecs import native
from ...core import facts as session_facts, keys, query as queries, search
from ...core.admission import admit
from ...core.earlier_entries import row_after
from ...core.entries import Entry, Selected
from ...core.facts import ExpectedFact, Fact
from ...core.keys import check_session_id
from ...core.query import Hit, Page, Query
from ...core.session import Session, marks_of
from ...errors import StoreError
from .. import OWN_LEASE_WAIT_S, Appended, Clock, GivenLease, Lease, Progress, boundary, word_index
from ..disk import leases
from ..disk.files import disk_errors, unavailable
from ..disk.syncing import aside, patience_s
from ..finding import Searcher
from ..index_timer import IndexTimer
from ..stamping import (
    AskedAppend,
    AskedErase,
    check_expected,
    check_incarnation,
    check_named,
    now_ms,
    rising,
    stamp,
    window,
)
from ..watching import Watchers
from . import erasing, opening, searching as searching, statements as statements
from .connection import SqliteConnection
from .entry_rows import EntryRows
from .kept_rows import KeptRows
from .kept_weights import KeptWeights
from .ledger import SqliteLedger
from .writer import SqliteWriter, check_in_place, driver_errors

log = logging.getLogger("turnlog.stores.sqlite")

INLINE_ROWS = 256
"""Larger reads run in a thread."""
ENGINE_INLINE_ROWS = 1_024
"""The same on the engine's own loop, where only calls of stores run, and a change of threads delays each of them."""

T = TypeVar("T")


@boundary.store
class SqliteStore:
    def __init__(self, path: Path, *, durability: str, inject: str, clock: Clock | None, read_only: bool) -> None:
        self._path = path
        self._read_only = read_only
        self._synchronous = "FULL" if durability == "full" else "NORMAL"
        self._summary_role = "assistant" if inject == "assistant" else None
        self._clock = clock or now_ms
        self._stamps = rising(clock)
        self._leases = leases.FileLeases(opening.leases_folder(path), path)
        self._watchers = Watchers(ends=self._ends)
        self._asked: tuple[int, Sequence[str]] = (0, ())
        self._reading = asyncio.Lock()
        self._indexing = IndexTimer(self._index_some)
        self._erase = False
        self._searcher = Searcher(self.read)
        self._rest: SqliteConnection | None = None
        """An index in memory of what the one in the file lacks, where nothing can be written."""
        self._rows = KeptRows()
        self._entry_rows = EntryRows()
        self._weights = KeptWeights()
        self.append_at_once = self._append_at_once

    @classmethod
    async def open(
        cls,
        path: str,
        *,
        durability: str = "full",
        inject: str = "user",
        clock: Clock | None = None,
        read_only: bool = False,
    ) -> "SqliteStore":
        """`read_only`: nothing is written, not even next to the file; every change is refused as StoreUnavailable."""
        place = Path(path).expanduser().absolute()
        store = cls(place, durability=durability, inject=inject, clock=clock, read_only=read_only)
        with disk_errors(f"the store {path} cannot be opened"), driver_errors(str(store._path)):
            await asyncio.to_thread(store._open)
        return store

    def _open(self) -> None:
        path = self._path
        found = opening.open_to_read(path) if self._read_only else opening.open_to_write(path, self._synchronous)
        self._db, self._near, self._far = found
        self._writer = SqliteWriter(self._db, syncs=self._synchronous == "FULL", forget=self._forget)
        self.ledger = SqliteLedger(self._writer, self._near, self._clock)

    def _forget(self) -> None:
        self._rows.compare()
        self._entry_rows.forget()
        self._weights.forget()

    def _drop(self, session_id: str) -> None:
        """Nothing of this session may be kept any more."""
        self._rows.drop(session_id)
        self._weights.drop(session_id)

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
            async with self._leases.take(session_id, OWN_LEASE_WAIT_S):
                return await self._append_with(session_id, asked)
        leases.check(lease, session_id)
        return await self._append_with(session_id, asked)

    async def _append_with(self, session_id: str, asked: AskedAppend) -> Appended:
        check_named(session_id, asked.bodies)
        return self._told(await self._writer.run(lambda db: self._append(db, session_id, asked)))

    def _told(self, appended: Appended) -> Appended:
        self._watchers.wake(appended.row.id)
        self._indexing.written()
        return appended

    def _append_at_once(
        self, session_id: str, bodies: Sequence[Entry], expect: int | None, incarnation: str
    ) -> Appended | None:
        """See `stores.at_once`."""
        if not self._writer.is_free() or (fd := self._leases.enter_now(session_id)) is None:
            return None
        asked = AskedAppend(bodies, expect, None, incarnation, leased=True)
        try:
            try:
                done = self._writer.run_now(lambda db: self._append(db, session_id, asked))
            finally:
                self._leases.leave(None, fd, session_id)
        except OSError as error:
            raise unavailable("append failed", error) from error
        return self._told(done[0]) if done else None

    def _append(self, db: SqliteConnection, session_id: str, asked: AskedAppend) -> Appended:
        saved = self._rows.of(db, session_id)
        before = saved or statements.row_of(db, session_id)
        check_expected(before, session_id, asked)
        if (fact := asked.expect_fact) is not None:
            session_facts.check_expected(fact, statements.seq_of_fact(db, session_id, *fact[:2]))
        bodies = admit(before, asked.bodies, leased=asked.leased)
        entries = stamp(bodies, before.last_seq if before else 0, self._stamps())
        lines = [native.encode_stored(entry).decode() for entry in entries]
        row = row_after(
            before,
            entries,
            lambda wanted: statements.readable_in(db, session_id, wanted),
            lambda: statements.readable(db, session_id),
            lambda wanted: self._weights.of(db, session_id, wanted),
        )
        self._entry_rows.insert(db, session_id, entries, lines, self._summary_role)
        text = statements.save(db, row) if saved is None else statements.update(db, saved, row)
        statements.index_facts(db, session_id, session_facts.changes(entries))
        self._rows.written(row, text)
        self._weights.written(session_id, entries)
        if any(isinstance(entry, Selected) for entry in entries):
            statements.select(db, row)
        if (row.compactions or (before and before.compactions)) and marks_of(entries):
            statements.save_state(db, row)
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
        keys.check_session_id(session_id)
        after, before, limit = window(after, before, limit)

        def look(db: SqliteConnection) -> list[Entry]:
            entries = statements.entries_of(db, session_id, after, before, limit)
            # Checked last: an incarnation that still exists was there all the time.
            check_incarnation(statements.row_of(db, session_id), session_id, incarnation)
            return entries

        inline = _inline_rows()
        if limit is not None and limit <= inline:
            return self._look(look)
        row = await self.describe(session_id, incarnation=incarnation)
        if min(row.last_seq - after, limit or row.last_seq) <= inline:
            return self._look(look)
        return await self._look_aside(look)

    def _look(self, question: Callable[[SqliteConnection], T]) -> T:
        check_in_place(self._db)
        with driver_errors(str(self._path)):
            return question(self._near)

    async def _look_aside(self, question: Callable[[SqliteConnection], T]) -> T:
        check_in_place(self._db)
        async with self._reading:
            with driver_errors(str(self._path)):
                return await aside(lambda: question(self._far))

    async def describe(self, session_id: str, *, incarnation: str | None = None) -> Session:
        keys.check_session_id(session_id)
        row = self._look(lambda db: statements.row_of(db, session_id))
        return check_incarnation(row, session_id, incarnation)

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
        check_session_id(session_id)
        wanted = session_facts.choice(app, keys, prefix, last, limit)

        def look(db: SqliteConnection) -> list[Fact]:
            found = statements.facts_of(db, session_id, wanted)
            # Checked last: an incarnation that still exists was there all the time.
            check_incarnation(statements.row_of(db, session_id), session_id, incarnation)
            return found

        inline = _inline_rows()
        few = len(keys) or limit or inline + 1
        return self._look(look) if few <= inline else await self._look_aside(look)

    async def find(self, query: Query) -> Page[Session]:
        queries.check(query)
        await self._refold_older()

        def look(db: SqliteConnection) -> Page[Session]:
            return statements.find(db, query)

        return self._look(look) if statements.is_quick(query) else await self._look_aside(look)

    async def search(self, words: str, *, scope: Query | None = None, before: int | None = None) -> list[Hit]:
        scope = scope or Query()
        search.understand(words)  # a query that nobody can answer costs nothing
        if self._read_only:
            self._rest = await self._look_aside(lambda db: searching.rest_in_memory(db, self._rest))
        else:
            await self._refold_older()
            while await self._writer.run(searching.index_some, aside=True):
                pass
        looking = searching.SqliteLooking(self._look_aside, scope, before, self._rest)
        return await self._searcher.search(words, scope, looking)

    async def _refold_older(self) -> None:
        """Before a list: an older version does not fill in columns that it does not know."""
        if not self._read_only and self._look(statements.has_older):
            while await self._writer.run(statements.refold_older, aside=True):
                pass

    async def _index_some(self) -> bool:
        more = await self._writer.run(searching.index_some, aside=True)
        if not more and self._erase:
            more = self._erase = await self._writer.run(word_index.erase_some, aside=True)
        return more

    async def delete(self, session_id: str, *, incarnation: str | None = None) -> None:
        keys.check_session_id(session_id)

        def change(db: SqliteConnection) -> None:
            check_incarnation(statements.row_of(db, session_id), session_id, incarnation)
            self._drop(session_id)
            word_index.drop(db, session_id)
            for table in ("session_messages", "session_state", "session_facts", "sessions"):
                db.run(f"DELETE FROM {table} WHERE session_id = ?", (session_id,))
            db.run("DELETE FROM session_index WHERE active_session_id = ?", (session_id,))

        await self._writer.run(change)
        self._watchers.wake(session_id)
        self._erase = True
        self._indexing.soon()

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
        keys.check_session_id(session_id)
        asked = AskedErase(seqs, redact, by, incarnation)

        def change(db: SqliteConnection) -> tuple[list[int], bool]:
            self._drop(session_id)
            return erasing.erase(db, self._entry_rows, session_id, asked, self._stamps)

        own = self._leases.take(session_id, OWN_LEASE_WAIT_S) if redact else None
        async with leases.held(lease, session_id, own):
            erased, words = await self._writer.run(change, aside=True)
        self._watchers.wake(session_id)
        while words and await self._writer.run(word_index.erase_some, aside=True):
            pass
        await self._look_aside(erasing.cut_log)
        return erased

    def lease(
        self, session_id: str, *, wait_s: float | None = None, with_append: bool = False
    ) -> AbstractAsyncContextManager[Lease]:
        return self._leases.take(keys.check_session_id(session_id), wait_s)

    async def abandoned(self) -> list[str]:
        return []

    def watch(self, session_id: str, *, after: int, incarnation: str | None = None) -> AsyncIterator[Entry]:
        return self._watchers.follow(self, session_id, after, incarnation)

    def _ends(self, session_ids: Sequence[str]) -> Mapping[str, object] | None:
        """None if nobody has committed since the same was asked."""
        asked = self._look(lambda db: db.one("PRAGMA data_version")), session_ids
        if asked == self._asked:
            return None
        found = self._look(lambda db: statements.ends_of(db, session_ids))
        self._asked = asked  # only now: a failed query must be repeated
        return found

    async def reindex(self, progress: Progress | None = None) -> int:
        ids = self._look(lambda db: [row[0] for row in db.all("SELECT DISTINCT session_id FROM session_messages")])
        for n, session_id in enumerate(ids, 1):
            await self._writer.run(lambda db, name=session_id: self._refold(db, name), aside=True)
            if progress:
                progress(n, len(ids))
        await self._writer.run(word_index.forget_all, aside=True)
        while await self._writer.run(searching.index_some, aside=True):
            pass
        return len(ids)

    def _refold(self, db: SqliteConnection, session_id: str) -> None:
        self._drop(session_id)
        statements.refold(db, session_id)

    async def close(self) -> None:
        await self._indexing.close()
        try:
            while self._erase:
                self._erase = await self._writer.run(word_index.erase_some, aside=True)
        except StoreError as error:
            log.warning("deleted words not erased from the search index yet: %s", error)
        self._watchers.close()
        self._leases.close()
        self._near.close()  # here: only this thread uses it, and perhaps while the others are being closed
        async with self._reading:
            await aside(self._close)

    def _close(self) -> None:
        self._writer.close()
        for db in (self._far, self._db, self._rest):
            if db is not None:
                db.close()


def _inline_rows() -> int:
    return ENGINE_INLINE_ROWS if patience_s(asyncio.get_running_loop()) else INLINE_ROWS
