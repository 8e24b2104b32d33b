"""The index of words of a JSONL store: an SQLite file next to the transcripts, shared by all processes.

It is derived. Each session has a mark: up to which entry it is indexed, and of which file. If the file is another one,
is shorter, or has other bytes before the mark, it was rewritten, and is indexed again from its beginning. A damaged
index is removed and built again. Where it cannot be written, it is kept in memory.
"""

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias, TypeVar

import apsw

from ...core.entries import Entry
from ...core.rows import Session
from ...errors import NotFound, StoreError
from .. import word_index
from ..disk.files import open_private, read_at
from ..finding import TOOLS_LOOKED_BACK
from ..sqlite import connection
from ..sqlite.connection import SqliteConnection
from ..word_index import Indexer
from .index_lines import IndexedRow
from .lines import newline_after
from .transcript import Home, SessionFile

log = logging.getLogger("turnlog.stores.jsonl")

ENTRIES_AT_ONCE = 200
"""Entries that are indexed in one transaction: other processes wait for it."""
BUSY_MS = 30_000
TAIL_BYTES = 512
UNFINISHED = -1
"""The size in the mark of a session that is not indexed to its end yet."""

KnownFile: TypeAlias = tuple[IndexedRow, Home]
IndexMark: TypeAlias = tuple[str, int, int, int]
"""(incarnation, inode, size, last entry)."""
T = TypeVar("T")


class WordFile:
    """Everything here may take long, so it runs in a thread; one call at a time."""

    def __init__(self, folder: Path | None) -> None:
        """`folder`: where the file is, or None to keep the index in memory."""
        self._folder = folder
        self._db: SqliteConnection | None = None
        self._ino = 0
        self._marks: dict[str, IndexMark] = {}
        self._version: object = None
        self.is_closing = False
        """Set from outside: then what is left of a long session is left for the next search."""

    @property
    def _path(self) -> Path | None:
        return self._folder and self._folder / "words.db"

    def ask(self, question: Callable[[SqliteConnection], T], rows: Callable[[], Sequence[KnownFile]]) -> T:
        """Brings these sessions up to date, then asks. An index that is damaged is built again, once."""
        for last in (False, True):
            try:
                db = self._open()
                self._update(db, rows())
                return question(db)
            except (apsw.Error, OSError) as error:
                if isinstance(error, apsw.BusyError | apsw.InterruptError) or (last and self._folder is None):
                    raise StoreError(f"the index of words cannot be used ({error})", hint="Try again.") from error
                log.warning("the index of words is built anew (%s)", error)
                self.begin_anew(in_memory=last)
        self._update(db := self._open(), rows())
        return question(db)

    def drop(self, session_id: str) -> None:
        """Removes the words of a session, also from the file."""

        def drop(db: SqliteConnection) -> bool:
            word_index.drop(db, session_id)
            return True

        self._remove(session_id, drop)

    def drop_entries(self, session_id: str, seqs: Sequence[int]) -> None:
        """The same for some entries of it."""
        self._remove(session_id, lambda db: word_index.drop_entries(db, session_id, seqs))

    def _remove(self, session_id: str, drop: Callable[[SqliteConnection], bool]) -> None:
        """`drop`: returns whether it removed anything."""
        if self._db is None and (self._path is None or not self._path.exists()):
            return
        try:
            db = self._open()
            self._marks.pop(session_id, None)
            with db.transaction():
                dropped = drop(db)
            if not dropped:
                return
            while word_index.erase_some(db):
                pass
            if self._folder is not None:
                db.all("PRAGMA wal_checkpoint(TRUNCATE)")
        except (apsw.Error, OSError) as error:
            log.warning("the index of words is removed (%s)", error)
            self.begin_anew()

    def _open(self) -> SqliteConnection:
        path = self._path
        if self._db is not None and (path is None or _inode(path) == self._ino):
            return self._db
        self.close()
        if path is None:
            db = SqliteConnection(":memory:")
            word_index.prepare(db)
        else:
            assert self._folder is not None
            with connection.alone_in(self._folder):
                os.close(open_private(path, os.O_RDWR | os.O_CREAT))
                # Not synced: after a power failure it is built again.
                db = SqliteConnection.with_log(path, synchronous="OFF", busy_ms=BUSY_MS, secure=True)
                try:
                    with db.transaction():
                        word_index.prepare(db)
                except BaseException:
                    db.close()
                    raise
                self._ino = _inode(path)
        self._db, self._version = db, None
        return db

    def begin_anew(self, *, in_memory: bool = False) -> None:
        """Removes the index; the next question builds it again."""
        self.close()
        folder, path = self._folder, self._path
        if folder is not None and path is not None:
            with suppress(OSError), connection.alone_in(folder):
                connection.remove(path)
        if in_memory:
            self._folder = None

    def close(self) -> None:
        if self._db is not None:
            with suppress(apsw.Error):
                self._db.close()
        self._db, self._marks, self._version = None, {}, None

    def _update(self, db: SqliteConnection, rows: Sequence[KnownFile]) -> None:
        self._read_marks(db)
        for kept, home in rows:
            if self.is_behind(kept):
                self._index(db, kept, home)

    def is_behind(self, kept: IndexedRow) -> bool:
        """As far as is known here."""
        mark = kept.row.incarnation, kept.ino, kept.size, kept.row.last_seq
        return self._marks.get(kept.row.id) != mark

    def forget_gone(self, db: SqliteConnection, is_there: Callable[[str], bool]) -> None:
        """Removes sessions that were deleted while nobody was here to do it."""
        for session_id in [name for name in self._marks if not is_there(name)]:
            with db.transaction():
                word_index.drop(db, session_id)
            del self._marks[session_id]

    def _read_marks(self, db: SqliteConnection) -> None:
        """Marks that other processes have moved meanwhile."""
        version = db.one("PRAGMA data_version")
        if version != self._version:
            found = db.all("SELECT session_id, incarnation, ino, size, done FROM search_sessions")
            self._marks = {name: (incarnation, ino, size, done) for name, incarnation, ino, size, done in found}
            self._version = version

    def _index(self, db: SqliteConnection, kept: IndexedRow, home: Home) -> None:
        try:
            file = SessionFile.open(home, create=False)
        except (NotFound, StoreError):
            return
        try:
            file.adopt(kept.row, kept.size, kept.ino)
            file.refresh()  # another process may have indexed more than this one has seen
            if (row := file.row) is not None:
                while _index_some(db, file, row):
                    if self.is_closing:
                        return
                self._marks[row.id] = row.incarnation, file.ino, file.size, file.last_seq
        except StoreError as error:
            log.warning("session %s is searched only in part (%s)", kept.row.id, error)
        finally:
            file.close()


def _index_some(db: SqliteConnection, file: SessionFile, row: Session) -> bool:
    """Indexes the next entries of a session; returns whether there are more. Another process may be ahead of us."""
    with db.transaction():
        done = _begin(db, file, row)
        last = min(file.last_seq, done + ENTRIES_AT_ONCE)
        no = word_index.number_of(db, row.id)
        indexer = Indexer(db, no, lambda call, seq: "")
        first = max(1, done + 1 - TOOLS_LOOKED_BACK)
        for entry in file.readable([(first, last)]) if first <= last else ():
            if entry.seq > done:
                indexer.add(entry)
            else:
                indexer.note(entry)
        finished = last >= file.last_seq
        size, tail = (file.size, _digest(file, file.size)) if finished else (UNFINISHED, "")
        db.run(
            "UPDATE search_sessions SET incarnation = ?, ino = ?, size = ?, done = ?, tail = ? WHERE no = ?",
            (row.incarnation, file.ino, size, last, tail, no),
        )
    return not finished


def _begin(db: SqliteConnection, file: SessionFile, row: Session) -> int:
    """The last entry that is indexed; 0 after everything was dropped because the file is another one."""
    found = db.all("SELECT incarnation, ino, size, done, tail FROM search_sessions WHERE session_id = ?", (row.id,))
    for incarnation, ino, size, done, tail in found:
        same = (incarnation, ino) == (row.incarnation, file.ino) and done <= file.last_seq
        if same and (size == UNFINISHED or (size <= file.size and _digest(file, size) == tail)):
            return done
        word_index.drop(db, row.id)
    return 0


def _digest(file: SessionFile, size: int) -> str:
    """Of the bytes before a place: they change if another program rewrites the file."""
    return hashlib.sha256(read_at(file.fd, max(0, size - TAIL_BYTES), size)).hexdigest()[:16]


def _inode(path: Path) -> int:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return -1


def _line_at(file: SessionFile, seq: int) -> Iterable[Entry]:
    """The entry of one line: where the next line begins need not be looked for."""
    start = file.seek(seq)
    newline = newline_after(file.fd, start, file.size)
    for scan in file.scans(start, seq - 1, file.size if newline is None else newline + 1):
        yield from (entry for entry in scan.entries if entry.seq == seq)


def entries_at(homes: Mapping[str, KnownFile], places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], Entry]:
    """The entries at these places that can be read."""
    found: dict[tuple[str, int], Entry] = {}
    wanted: dict[str, list[int]] = {}
    for session_id, seq in places:
        wanted.setdefault(session_id, []).append(seq)
    for session_id, seqs in wanted.items():
        if session_id not in homes:
            continue
        kept, home = homes[session_id]
        try:
            file = SessionFile.open(home, create=False)
        except (NotFound, StoreError):
            continue
        try:
            file.adopt(kept.row, kept.size, kept.ino)
            if file.row is None:
                file.refresh()
            for seq in seqs:
                found.update({(session_id, entry.seq): entry for entry in _line_at(file, seq)})
        except StoreError:
            continue
        finally:
            file.close()
    return found
