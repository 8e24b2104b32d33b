"""The SQLite store: all sessions in one file, one transaction an append, the index row in the same one.

SQLite comes with apsw, because the system's own may carry the WAL-reset defect (fixed in 3.51.3). WAL, synchronous
FULL (NORMAL for durability "os"), one writing connection with group commit, readers beside it.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import apsw
import msgspec

from ..codecs import native
from ..core import keys, query as queries, search
from ..core.entries import Assistant, Compaction, Entry, Opened, Selected, ToolResult, User
from ..core.query import Hit, Page, Query
from ..core.session import Session, active, admit, describe, mark_of, needs_whole_log
from ..errors import Corrupt, NotFound, StoreError, UsageError
from . import Clock, Lease, Progress, leases
from .files import disk_errors, lock, make_dir, open_private
from .sqlite_ledger import SqliteLedger
from .sqlite_writer import Writer, mapped
from .stamping import check_expected, now_ms, stamp, window
from .watching import Watchers

APPLICATION_ID = 0x54524E4C
INLINE_ROWS = 256
"""Larger reads leave the event loop."""
INDEX_ROWS = 500
"""Messages made searchable in one go."""
INDEX_AFTER_S = 0.5

T = TypeVar("T")
_row_encoder = msgspec.json.Encoder()
_row_decoder = msgspec.json.Decoder(Session)


class SqliteStore:
    def __init__(self, path: Path, *, durability: str, inject: str, clock: Clock | None) -> None:
        self._path = path
        self._synchronous = "FULL" if durability == "full" else "NORMAL"
        self._summary_role = "assistant" if inject == "assistant" else None
        self._clock = clock or now_ms
        self._leases = leases.FileLeases(path.with_name(f"{path.name}-leases"))
        self._watchers = Watchers()
        self._reading = asyncio.Lock()
        self._indexing: asyncio.TimerHandle | None = None
        self._to_index = True

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
        self._db.execute("PRAGMA secure_delete = ON")
        self._near = self._connect()
        self._far = self._connect()
        self._writer = Writer(self._db)
        self.ledger = SqliteLedger(self._writer, self._near, self._clock)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Switching a new database to WAL is refused, not delayed, while another process does the same."""
        folder = self._path.with_name(f"{self._path.name}-leases")
        make_dir(folder)
        fd = open_private(folder / ".opening", os.O_RDWR | os.O_CREAT)
        try:
            lock(fd)
            yield
        finally:
            os.close(fd)

    def _connect(self) -> apsw.Connection:
        db = apsw.Connection(str(self._path), statementcachesize=200)
        db.set_busy_timeout(30_000)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {self._synchronous}")
        db.execute("PRAGMA foreign_keys = ON")
        return db

    async def append(
        self, session_id: str, bodies: Sequence[Entry], *, expect: int | None = None, lease: Lease | None = None
    ) -> list[Entry]:
        keys.check_session_id(session_id)
        leased = leases.check(lease, session_id)
        if bodies and isinstance(bodies[0], Opened) and bodies[0].id != session_id:
            raise UsageError(f"the session entry says {bodies[0].id}, not {session_id}")

        def change(db: apsw.Connection) -> list[Entry]:
            return self._append(db, session_id, bodies, expect, leased)

        entries = await self._writer.run(change)
        self._watchers.wake(session_id)
        self._index_later()
        return entries

    def _append(
        self, db: apsw.Connection, session_id: str, bodies: Sequence[Entry], expect: int | None, leased: bool
    ) -> list[Entry]:
        before = _row(db, session_id)
        check_expected(before, expect)
        admit(before, bodies, leased=leased)
        entries = stamp(bodies, before.last_seq if before else 0, self._clock())
        lines = [native.encode(entry).decode() for entry in entries]
        if needs_whole_log(before, bodies):
            row = describe(None, [*_entries(db, session_id, 0, None, None), *entries])
        else:
            row = describe(before, entries)
        db.executemany(
            "INSERT INTO session_messages (session_id, seq, role, created_at, meta_json) VALUES (?, ?, ?, ?, ?)",
            [(session_id, e.seq, self._role(e), e.ts, line) for e, line in zip(entries, lines, strict=True)],
        )
        _save(db, row)
        for entry in entries:
            if isinstance(entry, Selected):
                db.execute("INSERT OR REPLACE INTO session_index VALUES (?, ?, ?)", (row.key, row.id, row.last_at))
        if any(mark_of(entry) for entry in entries):
            _save_state(db, row)
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

        def look(db: apsw.Connection) -> list[Entry]:
            return _entries(db, session_id, after, before, limit)

        row = self._look(lambda db: _row(db, session_id))
        if row is None:
            raise NotFound(f"there is no session {session_id}")
        if min(row.last_seq - after, limit or row.last_seq) <= INLINE_ROWS:
            return self._look(look)
        return await self._look_aside(look)

    def _look(self, question: Callable[[apsw.Connection], T]) -> T:
        with driver_errors():
            return question(self._near)

    async def _look_aside(self, question: Callable[[apsw.Connection], T]) -> T:
        async with self._reading:
            with driver_errors():
                return await asyncio.to_thread(question, self._far)

    async def describe(self, session_id: str) -> Session:
        keys.check_session_id(session_id)
        row = self._look(lambda db: _row(db, session_id))
        if row is None:
            raise NotFound(f"there is no session {session_id}")
        return row

    async def find(self, query: Query) -> Page[Session]:
        queries.check(query)
        return self._look(lambda db: _find(db, query))

    async def search(self, words: str, *, scope: Query | None = None) -> list[Hit]:
        scope = queries.check(scope or Query())
        terms = search.terms(words)
        while await self._writer.run(_index_some, aside=True):
            pass
        return await self._look_aside(lambda db: _search(db, terms, scope))

    def _index_later(self) -> None:
        if self._indexing is None:
            self._indexing = asyncio.get_running_loop().call_later(INDEX_AFTER_S, self._index_now)

    def _index_now(self) -> None:
        async def some() -> None:
            more = await self._writer.run(_index_some, aside=True)
            self._indexing = None
            if more:
                self._index_later()

        self._index_task = asyncio.ensure_future(some())

    async def delete(self, session_id: str) -> None:
        keys.check_session_id(session_id)

        def change(db: apsw.Connection) -> None:
            if _row(db, session_id) is None:
                raise NotFound(f"there is no session {session_id}")
            db.execute(
                "DELETE FROM session_search WHERE rowid IN (SELECT id FROM session_messages WHERE session_id = ?)",
                (session_id,),
            )
            for table in ("session_messages", "session_state", "sessions"):
                db.execute(f"DELETE FROM {table} WHERE session_id = ?", (session_id,))
            db.execute("DELETE FROM session_index WHERE active_session_id = ?", (session_id,))

        await self._writer.run(change)
        self._watchers.wake(session_id)

    def lease(self, session_id: str, *, wait_s: float | None = None) -> AbstractAsyncContextManager[Lease]:
        return self._leases.take(keys.check_session_id(session_id), wait_s)

    def watch(self, session_id: str, *, after: int) -> AsyncIterator[Entry]:
        return self._watchers.follow(session_id, after, lambda seq: self.read(session_id, after=seq, limit=1000))

    async def reindex(self, progress: Progress | None = None) -> int:
        ids = self._look(lambda db: [row[0] for row in db.execute("SELECT DISTINCT session_id FROM session_messages")])
        for n, session_id in enumerate(ids, 1):
            await self._writer.run(lambda db, name=session_id: _refold(db, name), aside=True)
            if progress:
                progress(n, len(ids))
        await self._writer.run(_forget_search, aside=True)
        while await self._writer.run(_index_some, aside=True):
            pass
        return len(ids)

    async def close(self) -> None:
        if self._indexing is not None:
            self._indexing.cancel()
        if (task := getattr(self, "_index_task", None)) is not None and not task.done():
            await asyncio.wait([task])
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._writer.close()
        for db in (self._near, self._far, self._db):
            db.close()


@contextmanager
def driver_errors() -> Iterator[None]:
    try:
        yield
    except apsw.Error as error:
        raise mapped(error) from error


def migrate(db: apsw.Connection, where: str) -> None:
    """Numbered .sql files, in order, in one transaction with the version they lead to."""
    steps = migrations()
    db.execute("BEGIN IMMEDIATE")
    try:
        version = db.pragma("user_version")
        _check_ours(db, version, len(steps), where)
        for number, script in enumerate(steps[version:], version + 1):
            db.execute(script)
            db.pragma("application_id", APPLICATION_ID)
            db.pragma("user_version", number)
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def look_first(path: Path) -> None:
    """Before anything is changed, the switch to WAL included: is it ours, and do we know its schema?"""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        db.set_busy_timeout(30_000)
        _check_ours(db, db.pragma("user_version"), len(migrations()), str(path))
    finally:
        db.close()


def _check_ours(db: apsw.Connection, version: int, known: int, where: str) -> None:
    ours = db.pragma("application_id") == APPLICATION_ID
    if not ours and db.execute("SELECT count(*) FROM sqlite_schema").get:
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


def _row(db: apsw.Connection, session_id: str) -> Session | None:
    found = db.execute("SELECT meta_json FROM sessions WHERE session_id = ?", (session_id,)).get
    return None if found is None else _row_decoder.decode(found)


def _save(db: apsw.Connection, row: Session) -> None:
    db.execute(
        "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            row.id,
            row.key,
            row.agent,
            row.channel,
            row.label,
            row.status,
            _storable(row.title),
            row.message_count,
            row.turn_count,
            row.token_estimate,
            row.compactions,
            row.last_seq,
            row.boundary,
            row.created_at,
            row.last_at,
            _storable(queries.haystack(row)),
            native.encode_plain(row).decode(),
        ),
    )


def _storable(text: str) -> str:
    """These columns are only looked at; the entry itself keeps lone surrogates."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _save_state(db: apsw.Connection, row: Session) -> None:
    stack = active(row.marks, row.last_seq)
    if not stack:
        db.execute("DELETE FROM session_state WHERE session_id = ?", (row.id,))
        return
    newest = stack[-1]
    summary = db.execute(
        "SELECT json_extract(meta_json, '$.summary') FROM session_messages WHERE session_id = ? AND seq = ?",
        (row.id, newest.seq),
    ).get
    last = db.execute(
        "SELECT max(id) FROM session_messages WHERE session_id = ? AND seq < ? AND role IS NOT NULL"
        " AND json_extract(meta_json, '$.type') <> 'compaction'",
        (row.id, newest.at),
    ).get
    for name, value in (("compaction_after_message_id", last), ("compaction_summary", summary)):
        db.execute(
            "INSERT OR REPLACE INTO session_state VALUES (?, ?, ?)",
            (row.id, name, msgspec.json.encode(value).decode()),
        )


def _entries(
    db: apsw.Connection, session_id: str, after: int, before: int | None, limit: int | None
) -> list[Entry]:
    rows = db.execute(
        "SELECT meta_json FROM session_messages WHERE session_id = ? AND seq > ? AND seq < ? ORDER BY seq LIMIT ?",
        (session_id, after, 1 << 62 if before is None else before, -1 if limit is None else limit),
    ).fetchall()
    try:
        entries = native.decode_lines("\n".join([row[0] for row in rows]))
    except native.Undecodable:
        entries = [_decode(session_id, after + n, row[0]) for n, row in enumerate(rows, 1)]
    if entries and entries[-1].seq != after + len(entries):
        last = next(n for n, entry in enumerate(entries, after + 1) if entry.seq != n) - 1
        following = next(entry.seq for entry in entries if entry.seq > last)
        raise Corrupt(
            f"session {session_id}: entries {last + 1} to {following - 1} are missing", after=last, before=following
        )
    if after == 0 and entries:
        native.check_version(entries[0], f"session {session_id}")
    return entries


def _decode(session_id: str, seq: int, line: str) -> Entry:
    try:
        return native.decode(line.encode())
    except native.Undecodable as error:
        raise Corrupt(
            f"session {session_id}, entry {seq}: not a readable entry ({error})",
            path=f"session_messages of {session_id}",
            line=seq,
            after=seq - 1,
            before=seq + 1,
        ) from error


def _find(db: apsw.Connection, query: Query) -> Page[Session]:
    where, values = _conditions(query)
    total = db.execute(f"SELECT count(*) FROM sessions{_where(where)}", values).get
    if query.cursor is not None:
        where = [*where, "(updated_at, session_id) < (?, ?)"]
        values = [*values, *queries.place(query.cursor)]
    found = db.execute(
        f"SELECT meta_json FROM sessions{_where(where)} ORDER BY updated_at DESC, session_id DESC LIMIT ?",
        (*values, query.limit + 1),
    ).fetchall()
    rows = [_row_decoder.decode(item[0]) for item in found]
    items = rows[: query.limit]
    return Page(items, queries.cursor_after(items[-1]) if len(rows) > query.limit else None, total)


def _where(conditions: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _conditions(query: Query) -> tuple[list[str], list[Any]]:
    where: list[str] = []
    values: list[Any] = []
    columns = (
        ("session_key", query.key),
        ("agent_id", query.agent),
        ("channel", query.channel),
        ("label", query.label),
        ("status", query.status),
    )
    for column, value in columns:
        if value is not None:
            where.append(f"{column} = ?")
            values.append(value)
    if query.ids:
        where.append(f"session_id IN ({', '.join('?' * len(query.ids))})")
        values += query.ids
    if query.prefix is not None:
        begins = "substr({}, 1, ?) = ?"
        where.append(f"({' OR '.join(begins.format(c) for c in ('session_id', 'session_key', 'label'))})")
        values += [len(query.prefix), query.prefix] * 3
    for word in (query.q or "").casefold().split():
        where.append("instr(haystack, ?) > 0")
        values.append(word)
    return where, values


def _search(db: apsw.Connection, terms: search.Terms, scope: Query) -> list[Hit]:
    where, values = _conditions(scope)
    phrases = " ".join(_phrase(term) for term in terms)
    inside = f" AND m.session_id IN (SELECT session_id FROM sessions{_where(where)})" if where else ""
    found = db.execute(
        "SELECT m.session_id, m.meta_json FROM session_search s JOIN session_messages m ON m.id = s.rowid"
        f" WHERE s.words MATCH ?{inside} ORDER BY s.rowid DESC LIMIT ?",
        (phrases, *values, scope.limit),
    ).fetchall()
    hits: list[Hit] = []
    for session_id, line in found:
        entry = native.decode(line.encode())
        text = search.searchable(entry)
        hits.append(
            Hit(
                session_id=session_id,
                seq=entry.seq,
                role=search.role_of(entry),
                snippet=search.snippet(terms, text),
            )
        )
    return hits


def _phrase(term: search.Term) -> str:
    """Tokens hold letters and digits only, so there is nothing to escape."""
    return f'"{" ".join(term.tokens)}"' + ("*" if term.open_ended else "")


def _index_some(db: apsw.Connection) -> bool:
    """Makes the next messages searchable; whether there may be more."""
    done = db.execute("SELECT value FROM store_facts WHERE name = 'search_indexed_to'").get
    rows = db.execute(
        "SELECT id, meta_json FROM session_messages WHERE id > ? ORDER BY id LIMIT ?", (done, INDEX_ROWS)
    ).fetchall()
    if not rows:
        return False
    words = [(number, " ".join(search.tokenise(_searchable(line)))) for number, line in rows]
    db.executemany("INSERT INTO session_search (rowid, words) VALUES (?, ?)", [w for w in words if w[1]])
    db.execute("UPDATE store_facts SET value = ? WHERE name = 'search_indexed_to'", (rows[-1][0],))
    return len(rows) == INDEX_ROWS


def _searchable(line: str) -> str:
    try:
        return search.searchable(native.decode(line.encode()))
    except native.Undecodable:
        return ""


def _forget_search(db: apsw.Connection) -> None:
    db.execute("DELETE FROM session_search")
    db.execute("UPDATE store_facts SET value = 0 WHERE name = 'search_indexed_to'")


def _refold(db: apsw.Connection, session_id: str) -> None:
    row = describe(None, _entries(db, session_id, 0, None, None))
    _save(db, row)
    _save_state(db, row)
    if row.selected_n:
        current = db.execute("SELECT active_session_id FROM session_index WHERE session_key = ?", (row.key,)).get
        other = _row(db, current) if current else None
        if other is None or other.selected_n <= row.selected_n:
            db.execute("INSERT OR REPLACE INTO session_index VALUES (?, ?, ?)", (row.key, row.id, row.last_at))
