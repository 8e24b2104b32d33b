"""The SQLite store: all sessions in one file, one transaction an append, the index row in the same one.

SQLite comes with apsw, because the system's own may carry the WAL-reset defect (fixed in 3.51.3). WAL, synchronous
FULL (NORMAL for durability "os"), one writing connection with group commit, readers beside it.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from importlib import resources
from pathlib import Path
from typing import TypeVar

import apsw

from ..codecs import native
from ..core import keys, query as queries, search
from ..core.admission import admit
from ..core.entries import Assistant, Compaction, Entry, Opened, Selected, ToolResult, User
from ..core.query import Hit, Page, Query
from ..core.session import Session, describe, marks_of, needs_whole_log
from ..errors import NotFound, StoreError, UsageError
from . import Clock, Lease, Progress, leases, sqlite_statements as statements
from .files import disk_errors, lock, make_dir, open_private
from .sqlite_db import Database
from .sqlite_ledger import SqliteLedger
from .sqlite_writer import Writer, mapped
from .stamping import check_expected, now_ms, stamp, window
from .syncing import aside
from .watching import Watchers

log = logging.getLogger("turnlog.stores.sqlite")

APPLICATION_ID = 0x54524E4C
INLINE_ROWS = 256
"""Larger reads leave the event loop."""
INDEX_AFTER_S = 0.5
ROWS_KEPT = 1_024

T = TypeVar("T")


class SqliteStore:
    def __init__(self, path: Path, *, durability: str, inject: str, clock: Clock | None) -> None:
        self._path = path
        self._synchronous = "FULL" if durability == "full" else "NORMAL"
        self._summary_role = "assistant" if inject == "assistant" else None
        self._clock = clock or now_ms
        self._leases = leases.FileLeases(path.with_name(f"{path.name}-leases"))
        self._watchers = Watchers(ends=self._ends)
        self._asked: tuple[int, Sequence[str]] = (0, ())
        self._reading = asyncio.Lock()
        self._indexing: asyncio.TimerHandle | None = None
        self._erase = False
        self._rows: dict[str, Session] = {}
        """Rows as the writer last left them; good until another connection commits."""

    @classmethod
    async def open(
        cls, path: str, *, durability: str = "full", inject: str = "user", clock: Clock | None = None
    ) -> "SqliteStore":
        store = cls(Path(path).expanduser().absolute(), durability=durability, inject=inject, clock=clock)
        with disk_errors(f"the store {path} cannot be opened"), driver_errors():
            await asyncio.to_thread(store._open)
        return store

    def _open(self) -> None:
        make_dir(self._path.parent)
        # Made by us, so that it and its -wal and -shm files are private from the first byte.
        os.close(open_private(self._path, os.O_RDWR | os.O_CREAT))
        if self._path.stat().st_size:
            look_first(self._path)
        with self._alone():
            self._db = self._connect()
            migrate(self._db, str(self._path))
        self._db.run("PRAGMA secure_delete = ON")
        self._near = self._connect()
        self._far = self._connect()
        self._writer = Writer(self._db, syncs=self._synchronous == "FULL", forget=self._rows.clear)
        self.ledger = SqliteLedger(self._writer, self._near, self._clock)

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Switching a new database to WAL is refused, not delayed, while another process does the same."""
        folder = self._path.with_name(f"{self._path.name}-leases")
        make_dir(folder)
        fd = open_private(folder / ".opening", os.O_RDWR | os.O_CREAT)
        try:
            lock(fd)
            yield
        finally:
            os.close(fd)

    def _connect(self) -> Database:
        db = Database(self._path)
        db.wait_when_busy(30_000)
        db.run("PRAGMA journal_mode = WAL")
        db.run(f"PRAGMA synchronous = {self._synchronous}")
        db.run("PRAGMA foreign_keys = ON")
        return db

    async def append(
        self, session_id: str, bodies: Sequence[Entry], *, expect: int | None = None, lease: Lease | None = None
    ) -> list[Entry]:
        keys.check_session_id(session_id)
        leased = leases.check(lease, session_id)
        if bodies and isinstance(bodies[0], Opened) and bodies[0].id != session_id:
            raise UsageError(f"the session entry says {bodies[0].id}, not {session_id}")

        def change(db: Database) -> list[Entry]:
            return self._append(db, session_id, bodies, expect, leased)

        entries = await self._writer.run(change)
        self._watchers.wake(session_id)
        self._index_later()
        return entries

    def _append(
        self, db: Database, session_id: str, bodies: Sequence[Entry], expect: int | None, leased: bool
    ) -> list[Entry]:
        before = self._rows.get(session_id) or statements.row_of(db, session_id)
        check_expected(before, expect)
        admit(before, bodies, leased=leased)
        entries = stamp(bodies, before.last_seq if before else 0, self._clock())
        lines = [native.encode(entry).decode() for entry in entries]
        if needs_whole_log(before, bodies):
            row = describe(None, [*statements.entries_of(db, session_id, 0, None, None), *entries])
        else:
            row = describe(before, entries)
        db.many(
            "INSERT INTO session_messages (session_id, seq, role, created_at, meta_json) VALUES (?, ?, ?, ?, ?)",
            [(session_id, e.seq, self._role(e), e.ts, line) for e, line in zip(entries, lines, strict=True)],
        )
        statements.save(db, row)
        if len(self._rows) > ROWS_KEPT:
            self._rows.clear()
        self._rows[session_id] = row
        for entry in entries:
            if isinstance(entry, Selected):
                db.run("INSERT OR REPLACE INTO session_index VALUES (?, ?, ?)", (row.key, row.id, row.last_at))
        if marks_of(entries):
            statements.save_state(db, row)
        return entries

    def _role(self, entry: Entry) -> str | None:
        match entry:
            case User():
                return "user"
            case Assistant():
                return "assistant"
            case ToolResult():
                return "tool"
            case Compaction():
                return self._summary_role
            case _:
                return None

    async def read(
        self, session_id: str, *, after: int = 0, before: int | None = None, limit: int | None = None
    ) -> list[Entry]:
        keys.check_session_id(session_id)
        after, before, limit = window(after, before, limit)

        def look(db: Database) -> list[Entry]:
            return statements.entries_of(db, session_id, after, before, limit)

        row = self._look(lambda db: statements.row_of(db, session_id))
        if row is None:
            raise NotFound(f"there is no session {session_id}")
        if min(row.last_seq - after, limit or row.last_seq) <= INLINE_ROWS:
            return self._look(look)
        return await self._look_aside(look)

    def _look(self, question: Callable[[Database], T]) -> T:
        with driver_errors():
            return question(self._near)

    async def _look_aside(self, question: Callable[[Database], T]) -> T:
        async with self._reading:
            with driver_errors():
                return await aside(lambda: question(self._far))

    async def describe(self, session_id: str) -> Session:
        keys.check_session_id(session_id)
        row = self._look(lambda db: statements.row_of(db, session_id))
        if row is None:
            raise NotFound(f"there is no session {session_id}")
        return row

    async def find(self, query: Query) -> Page[Session]:
        queries.check(query)

        def look(db: Database) -> Page[Session]:
            return statements.find(db, query)

        return self._look(look) if statements.is_quick(query) else await self._look_aside(look)

    async def search(self, words: str, *, scope: Query | None = None) -> list[Hit]:
        scope = queries.check(scope or Query())
        terms = search.terms(words)
        while await self._writer.run(statements.index_some, aside=True):
            pass
        return await self._look_aside(lambda db: statements.search_in(db, terms, scope))

    def _index_later(self) -> None:
        if self._indexing is None:
            self._indexing = asyncio.get_running_loop().call_later(INDEX_AFTER_S, self._index_now)

    def _index_now(self) -> None:
        async def some() -> None:
            more = False
            try:
                more = await self._writer.run(statements.index_some, aside=True)
                if not more and self._erase:
                    more = self._erase = await self._writer.run(statements.erase_some, aside=True)
            except StoreError as error:  # a search tries again, and then says so
                log.warning("messages not made searchable yet: %s", error)
            self._indexing = None
            if more:
                self._index_later()

        self._index_task = asyncio.ensure_future(some())

    async def delete(self, session_id: str) -> None:
        keys.check_session_id(session_id)

        def change(db: Database) -> None:
            if statements.row_of(db, session_id) is None:
                raise NotFound(f"there is no session {session_id}")
            self._rows.pop(session_id, None)
            db.run(
                "DELETE FROM session_search WHERE rowid IN (SELECT id FROM session_messages WHERE session_id = ?)",
                (session_id,),
            )
            for table in ("session_messages", "session_state", "sessions"):
                db.run(f"DELETE FROM {table} WHERE session_id = ?", (session_id,))
            db.run("DELETE FROM session_index WHERE active_session_id = ?", (session_id,))

        await self._writer.run(change)
        self._watchers.wake(session_id)
        self._erase = True
        self._index_later()

    def lease(self, session_id: str, *, wait_s: float | None = None) -> AbstractAsyncContextManager[Lease]:
        return self._leases.take(keys.check_session_id(session_id), wait_s)

    async def abandoned(self) -> list[str]:
        return []

    def watch(self, session_id: str, *, after: int) -> AsyncIterator[Entry]:
        return self._watchers.follow(session_id, after, lambda seq: self.read(session_id, after=seq, limit=1000))

    def _ends(self, session_ids: Sequence[str]) -> Mapping[str, object] | None:
        """Unless nobody has committed since the same was asked."""
        asked = self._look(lambda db: db.one("PRAGMA data_version")), session_ids
        if asked == self._asked:
            return None
        found = self._look(lambda db: statements.ends_of(db, session_ids))
        self._asked = asked  # only now: what was not answered must be asked again
        return found

    async def reindex(self, progress: Progress | None = None) -> int:
        ids = self._look(lambda db: [row[0] for row in db.all("SELECT DISTINCT session_id FROM session_messages")])
        for n, session_id in enumerate(ids, 1):
            await self._writer.run(lambda db, name=session_id: self._refold(db, name), aside=True)
            if progress:
                progress(n, len(ids))
        await self._writer.run(statements.forget_search, aside=True)
        while await self._writer.run(statements.index_some, aside=True):
            pass
        return len(ids)

    def _refold(self, db: Database, session_id: str) -> None:
        self._rows.pop(session_id, None)
        statements.refold(db, session_id)

    async def close(self) -> None:
        if self._indexing is not None:
            self._indexing.cancel()
        if (task := getattr(self, "_index_task", None)) is not None and not task.done():
            await asyncio.wait([task])
        try:
            while self._erase:
                self._erase = await self._writer.run(statements.erase_some, aside=True)
        except StoreError as error:
            log.warning("deleted words not erased from the search index yet: %s", error)
        self._watchers.close()
        self._leases.close()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._writer.close()
        for db in (self._near, self._far, self._db):
            db.close()


@contextmanager
def driver_errors() -> Generator[None]:
    try:
        yield
    except apsw.Error as error:
        raise mapped(error) from error


def migrate(db: Database, where: str) -> None:
    """Numbered .sql files, in order, in one transaction with the version they lead to."""
    steps = migrations()
    db.run("BEGIN IMMEDIATE")
    try:
        version = db.pragma("user_version")
        _check_ours(db, version, len(steps), where)
        for number, script in enumerate(steps[version:], version + 1):
            db.run(script)
            db.pragma("application_id", APPLICATION_ID)
            db.pragma("user_version", number)
        db.run("COMMIT")
    except BaseException:
        db.run("ROLLBACK")
        raise


def look_first(path: Path) -> None:
    """Before anything is changed, the switch to WAL included: is it ours, and do we know its schema?"""
    db = Database(path, create=False)
    try:
        db.wait_when_busy(30_000)
        _check_ours(db, db.pragma("user_version"), len(migrations()), str(path))
    finally:
        db.close()


def _check_ours(db: Database, version: int, known: int, where: str) -> None:
    ours = db.pragma("application_id") == APPLICATION_ID
    if not ours and db.one("SELECT count(*) FROM sqlite_schema"):
        raise UsageError(f"{where} is a database of another program", hint="Choose another path for the store.")
    if version > known:
        raise StoreError(
            f"{where} was made by a newer Turnlog (schema {version}; this one knows {known})",
            hint="Upgrade Turnlog. Nothing was changed.",
        )


def migrations() -> list[str]:
    folder = resources.files("turnlog.stores") / "sql"
    files = sorted((item for item in folder.iterdir() if item.name.endswith(".sql")), key=lambda item: item.name)
    return [item.read_text(encoding="utf-8") for item in files]
