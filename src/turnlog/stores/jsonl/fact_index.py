"""The index of facts of one folder of transcripts: which entry holds each fact, so that a look-up reads one line.

It is a small SQLite database next to the folder's own index, made when facts are first used, and derived: for each
session it says up to which byte of which file it is complete. A process that finds it incomplete reads the file from
that byte on. A process that finds another file, or damage, builds it again. So no crash can leave a wrong answer, and
writing it is never a reason to refuse an append.

The obvious way, a log of names that is read when a session is opened, costs more the more facts there are.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import apsw
from msgspec import Struct

from ...core.entries import Entry
from ...core.facts import ExpectedFact, Fact, FactChange, FactChoice, changes, check_expected, fact_in
from ..disk.files import open_private
from ..disk.syncing import aside
from ..in_memory import FactIndex
from ..sql import key_bytes, key_text, past_bytes
from ..sqlite.connection import SqliteConnection, remove
from .transcript import SessionFile

VERSION = 1
BUSY_TIMEOUT_MS = 10_000
INLINE_SCAN_BYTES = 256 * 1024
INLINE_FACTS = 64
"""More bytes or facts are read in a thread."""
_TABLES = f"""
CREATE TABLE reached (
    session_id TEXT PRIMARY KEY, incarnation TEXT NOT NULL, ino INTEGER NOT NULL, size INTEGER NOT NULL,
    seq INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE facts (
    session_id TEXT NOT NULL, app TEXT NOT NULL, key BLOB NOT NULL, seq INTEGER NOT NULL,
    PRIMARY KEY (session_id, app, key)
) WITHOUT ROWID;
PRAGMA user_version = {VERSION};
"""


class Reached(Struct, frozen=True):
    """How far the index of a session is complete: of which file, up to which byte and entry."""

    incarnation: str
    ino: int
    size: int
    seq: int


NOTHING = Reached("", 0, 0, 0)


def end_of(file: SessionFile) -> Reached:
    assert file.row is not None
    return Reached(file.row.incarnation, file.ino, *file.extent)


class FactIndexes:
    """The indexes of all folders of a store. `place`: the file of a folder's index; None if nothing may be written."""

    def __init__(self, place: Callable[[str], Path | None]) -> None:
        self._place = place
        self._folders: dict[str, FactIndexFile] = {}

    def of(self, folder: str) -> "FactIndexFile":
        if folder not in self._folders:
            self._folders[folder] = FactIndexFile(self._place(folder))
        return self._folders[folder]

    async def up_to_date(self, file: SessionFile) -> "FactIndexFile":
        """The index, complete up to the end of the file as we know it."""
        index = self.of(file.folder)
        while (start := index.behind(file)) is not None:
            end = end_of(file)
            small = end.size - start.size <= INLINE_SCAN_BYTES
            found = scan(file, start, end) if small else await aside(partial(scan, file, start, end))
            index.catch_up(file, start, end, found)
        return index

    async def check(self, file: SessionFile, expected: ExpectedFact) -> None:
        """Under the file's lock: raises Conflict unless the fact is the expected one."""
        app, key, _ = expected
        there = None if file.row is None else (await self.up_to_date(file)).seq_of(file.id, app, key)
        check_expected(expected, there)

    async def find(self, file: SessionFile, wanted: FactChoice) -> list[Fact] | None:
        """None: another process has appended since we looked at the file, and the index knows that already."""
        found = (await self.up_to_date(file)).find(file.id, wanted)
        if file.row is None or any(seq > file.row.last_seq for _, seq in found):
            return None
        if len(found) <= INLINE_FACTS:
            return _facts_in(file, wanted.app, found)
        return await aside(partial(_facts_in, file, wanted.app, found))

    def flush(self) -> None:
        for index in self._folders.values():
            index.flush()

    def close(self) -> None:
        for index in self._folders.values():
            index.close()


def _facts_in(file: SessionFile, app: str, found: Sequence[tuple[str, int]]) -> list[Fact]:
    """Several may be in one entry, which is read once."""
    entries: dict[int, Entry] = {}
    facts: list[Fact] = []
    for key, seq in found:
        if seq not in entries:
            entries[seq] = file.read(seq - 1, seq + 1, None)[0]
        if (fact := fact_in(entries[seq], app, key)) is not None:
            facts.append(fact)
    return facts


class FactIndexFile:
    """`path` None: nothing may be written, so the index is kept in memory."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._db: SqliteConnection | None = None
        self._known: dict[str, Reached] = {}
        """The marks as we last read or moved them; the database may be behind."""
        self._unsaved: set[str] = set()
        self._in_memory: dict[str, tuple[Reached, FactIndex]] = {}

    @property
    def exists(self) -> bool:
        return self._db is not None or (self._path is not None and self._path.exists())

    def _open(self) -> SqliteConnection | None:
        if self._db is None and self._path is not None:
            self._db = _opened(self._path)
        return self._db

    @property
    def is_open(self) -> bool:
        """Whether facts were looked up or changed here: then there are marks to move."""
        return self._db is not None

    def written(self, file: SessionFile, before: Reached, entries_changes: Sequence[FactChange]) -> None:
        """After an append: `before` is where the file ended. Needed if facts change, or if the index is open."""
        if (db := self._open()) is None:
            return
        try:
            if entries_changes:
                with db.transaction():
                    if self._reached(db, file.id, before) == before or not before.size:
                        _apply(db, file.id, entries_changes)
                        self._move(db, file.id, end_of(file))
            elif self._known.get(file.id) == before:
                self._known[file.id] = end_of(file)
                self._unsaved.add(file.id)
        except apsw.Error:
            self._drop(file.id)  # it is behind now; the next look-up reads on

    def flush(self) -> None:
        """Says how far the index reaches in sessions that got only other entries."""
        unsaved, self._unsaved = self._unsaved, set()
        if not unsaved or self._db is None:
            return
        with suppress(apsw.Error), self._db.transaction():
            for session_id in unsaved:
                if session_id in self._known:
                    self._move(self._db, session_id, self._known[session_id])

    def behind(self, file: SessionFile) -> Reached | None:
        """From where the file must be read before a look-up; None if the index is complete."""
        end = end_of(file)
        if (db := self._open()) is None:
            return None if self._in_memory.get(file.id, (NOTHING,))[0] == end else NOTHING
        try:
            reached = self._reached(db, file.id, end)
        except apsw.Error:
            return self._begin_anew()
        if reached == end or _is_ahead(file, reached, end):
            return None
        same = (reached.incarnation, reached.ino) == (end.incarnation, end.ino)
        return reached if same and _continues(file, reached) else NOTHING

    def catch_up(self, file: SessionFile, start: Reached, end: Reached, found: Sequence[FactChange]) -> None:
        """Adds what `scan` found between the two."""
        if (db := self._open()) is None:
            self._in_memory[file.id] = end, FactIndex(found)
            return
        try:
            with db.transaction():
                self._known.pop(file.id, None)
                if _is_ahead(file, self._reached(db, file.id, end), end):
                    return  # another process was faster: its mark never goes back, others rely on it
                if start == NOTHING:
                    db.run("DELETE FROM facts WHERE session_id = ?", (file.id,))
                _apply(db, file.id, found)
                self._move(db, file.id, end)
        except apsw.Error:
            self._begin_anew()
            self._path = None if self._path is None or not os.access(self._path.parent, os.W_OK) else self._path

    def seq_of(self, session_id: str, app: str, key: str) -> int | None:
        if self._db is None:
            return self._in_memory[session_id][1].seq_of(app, key)
        return self._db.one(
            "SELECT seq FROM facts WHERE session_id = ? AND app = ? AND key = ?", (session_id, app, key_bytes(key))
        )

    def find(self, session_id: str, wanted: FactChoice) -> list[tuple[str, int]]:
        """(key, seq) of the facts that are asked for, in order."""
        if self._db is None:
            return self._in_memory[session_id][1].find(wanted)
        if wanted.keys:
            seqs = {key: self.seq_of(session_id, wanted.app, key) for key in wanted.wanted}
            return [(key, seq) for key, seq in seqs.items() if seq is not None][: wanted.limit]
        prefix = key_bytes(wanted.prefix)
        found = self._db.all(
            "SELECT key, seq FROM facts WHERE session_id = ? AND app = ? AND key >= ? AND key < ?"
            f" ORDER BY key{' DESC' if wanted.last else ''} LIMIT ?",
            (session_id, wanted.app, prefix, past_bytes(prefix), -1 if wanted.limit is None else wanted.limit),
        )
        return [(key_text(key), seq) for key, seq in found]

    def deleted(self, session_id: str) -> None:
        self._drop(session_id)
        if self.exists and (db := self._open()) is not None:
            with suppress(apsw.Error), db.transaction():
                for table in ("facts", "reached"):
                    db.run(f"DELETE FROM {table} WHERE session_id = ?", (session_id,))

    def purge(self, session_id: str) -> None:
        """Forgets the names of a session's facts, also in the files; the next look-up reads the transcript again."""
        self.deleted(session_id)
        if self._db is not None:
            with suppress(apsw.Error):
                self._db.all("PRAGMA wal_checkpoint(TRUNCATE)")

    def forget_all(self) -> list[str]:
        """Empties the index; returns the sessions that it knew."""
        if not self.exists or (db := self._open()) is None:
            return []
        try:
            with db.transaction():
                names = [row[0] for row in db.all("SELECT session_id FROM reached")]
                db.run("DELETE FROM facts")
                db.run("DELETE FROM reached")
        except apsw.Error:
            self._begin_anew()
            return []
        self._known.clear()
        return names

    def close(self) -> None:
        self.flush()
        if self._db is not None:
            self._db.close()
            self._db = None
        self._path = None

    def _reached(self, db: SqliteConnection, session_id: str, expected: Reached) -> Reached:
        """The mark; read again if ours is not the expected one, because other processes move it too."""
        if self._known.get(session_id) != expected:
            found = db.all("SELECT incarnation, ino, size, seq FROM reached WHERE session_id = ?", (session_id,))
            self._known[session_id] = Reached(*found[0]) if found else NOTHING
        return self._known[session_id]

    def _move(self, db: SqliteConnection, session_id: str, to: Reached) -> None:
        db.run(
            "INSERT OR REPLACE INTO reached VALUES (?, ?, ?, ?, ?)",
            (session_id, to.incarnation, to.ino, to.size, to.seq),
        )
        self._known[session_id] = to
        self._unsaved.discard(session_id)

    def _drop(self, session_id: str) -> None:
        self._known.pop(session_id, None)
        self._unsaved.discard(session_id)
        self._in_memory.pop(session_id, None)

    def _begin_anew(self) -> Reached:
        """The database is damaged."""
        self._known.clear()
        self._unsaved.clear()
        if self._db is not None and self._path is not None:
            self._db.close()
            self._db = None
            remove(self._path)
        return NOTHING


def scan(file: SessionFile, start: Reached, end: Reached) -> list[FactChange]:
    """The changes in this part of the file. Changes nothing, so it may run in a thread."""
    found: list[FactChange] = []
    for piece in file.scans(start.size, start.seq, end.size):
        found += changes(piece.entries)
    return found


def _apply(db: SqliteConnection, session_id: str, found: Iterable[FactChange]) -> None:
    for change in found:
        place = session_id, change.app, key_bytes(change.key)
        if change.seq is None:
            db.run("DELETE FROM facts WHERE session_id = ? AND app = ? AND key = ?", place)
        else:
            db.run("INSERT OR REPLACE INTO facts VALUES (?, ?, ?, ?)", (*place, change.seq))


def _is_ahead(file: SessionFile, reached: Reached, end: Reached) -> bool:
    """Whether the index knows more of this file than we do: another process has appended to it."""
    same = (reached.incarnation, reached.ino) == (end.incarnation, end.ino)
    if not same or reached.size <= end.size:
        return False
    with suppress(OSError):
        now = os.stat(file.path)
        return now.st_ino == reached.ino and now.st_size >= reached.size
    return False


def _continues(file: SessionFile, reached: Reached) -> bool:
    """Whether the file still has its entry `reached.seq` before that byte: another program may have rewritten it."""
    if reached.size > file.size or reached.seq > file.last_seq:
        return False
    return reached.size == file.size or file.seek(reached.seq + 1) == reached.size


def _opened(path: Path) -> SqliteConnection | None:
    """None: nothing can be written here."""
    for _ in range(2):
        try:
            os.close(open_private(path, os.O_RDWR | os.O_CREAT))
            return _connected(path)
        except (apsw.NotADBError, apsw.CorruptError):
            remove(path)
        except (apsw.Error, OSError):
            return None
    return None


def _connected(path: Path) -> SqliteConnection:
    db = SqliteConnection.with_log(path, synchronous="NORMAL", busy_ms=BUSY_TIMEOUT_MS, secure=True)
    try:
        with db.transaction():
            version = db.pragma("user_version")
            if version != VERSION:
                for (name,) in db.all("SELECT name FROM sqlite_schema WHERE type = 'table'"):
                    db.run(f'DROP TABLE "{name}"')
                db.run(_TABLES)
        return db
    except BaseException:
        db.close()
        raise
