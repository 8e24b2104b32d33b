"""One connection to SQLite, reduced to what the store uses, with the types that the driver's stubs leave open; and the
files of a database.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
import os
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from ..disk.files import lock, make_dir, open_private
from .reading import COPY, to_read

Row = tuple[Any, ...]


class SqliteConnection:
    def __init__(self, path: Path | str, *, create: bool = True, read_only: bool = False) -> None:
        self.path = str(path)
        self.read_only = read_only
        self._place = ExitStack()
        if read_only:
            place, how = self._place.enter_context(to_read(Path(path)))
            name = f"file:{quote(str(place))}?{how}"
            flags = apsw.SQLITE_OPEN_URI | (apsw.SQLITE_OPEN_READWRITE if how == COPY else apsw.SQLITE_OPEN_READONLY)
        else:
            name = str(path)
            flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
        try:
            self._db = apsw.Connection(name, flags=flags, statementcachesize=200)
        except BaseException:
            self._place.close()
            raise
        if read_only:
            self._db.pragma("query_only", True)
        self._absolute = os.path.abspath(path)  # the process may change its directory
        self._file = None if read_only else _file_at(self._absolute)

    @classmethod
    def with_log(cls, path: Path | str, *, synchronous: str, busy_ms: int, secure: bool = False) -> "SqliteConnection":
        """With a write-ahead log. `secure`: what a change frees is overwritten with zeros."""
        db = cls(path)
        try:
            db.wait_when_busy(busy_ms)
            db.run("PRAGMA journal_mode = WAL")
            db.run(f"PRAGMA synchronous = {synchronous}")
            if secure:
                db.run("PRAGMA secure_delete = ON")
        except BaseException:
            db.close()
            raise
        return db

    def run(self, sql: str, values: Sequence[Any] = ()) -> None:
        self._db.execute(sql, values)

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        self._db.executemany(sql, rows)

    def one(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """The only value, or the only row, or None."""
        return self._db.execute(sql, values).get

    def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._db.execute(sql, values).fetchall()

    @contextmanager
    def transaction(self) -> Generator[None]:
        self.run("BEGIN IMMEDIATE")
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            if self.in_transaction:  # after damage SQLite has rolled back already
                with suppress(apsw.Error):
                    self.run("ROLLBACK")
            raise

    def pragma(self, name: str, value: Any = None) -> Any:
        return self._db.pragma(name) if value is None else self._db.pragma(name, value)

    def wait_when_busy(self, ms: int) -> None:
        self._db.set_busy_timeout(ms)

    @property
    def data_version(self) -> int:
        """Rises when the database has changed: by this connection with its commit, and by another one with the next
        transaction that this one begins. Reading it takes no statement, as `PRAGMA data_version` does.
        """
        return self._db.data_version()

    @property
    def changes(self) -> int:
        """How many rows this connection has changed so far."""
        return self._db.total_changes()

    @property
    def in_transaction(self) -> bool:
        return not self._db.get_autocommit()

    @property
    def is_in_place(self) -> bool:
        """Whether its file is still the one at its path. SQLite does not ask: what it writes to a file that was removed
        or replaced is gone with the process.
        """
        return self._file is None or _file_at(self._absolute) == self._file

    def close(self) -> None:
        self._db.close()
        self._place.close()


def _file_at(path: str) -> tuple[int, int] | None:
    """None: there is no such file, as for a database in memory."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def alone_in(folder: Path) -> Generator[None]:
    """One process at a time opens or removes the database of this folder."""
    make_dir(folder)
    fd = open_private(folder / ".opening", os.O_RDWR | os.O_CREAT)
    try:
        lock(fd)
        yield
    finally:
        os.close(fd)


def remove(path: Path) -> None:
    """Removes a database with its log."""
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)
