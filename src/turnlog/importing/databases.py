"""Foreign SQLite databases, opened so that nothing beside them is written.

Without a write-ahead log nobody is writing: the file is opened as immutable, which creates no `-shm`. With a log and
its `-shm` the owner is at work, and a read-only connection reads beside it. A log without `-shm` was left by a crash;
opening it in place would create one, so a private copy is read instead.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ..errors import Corrupt, StoreUnavailable, TurnlogError
from ..stores.files import unavailable

if TYPE_CHECKING:
    import apsw

MAGIC = b"SQLite format 3\0"
BUSY_MS = 5_000
COPY = "mode=rw"


class Reader:
    """A read-only connection."""

    def __init__(self, db: "apsw.Connection", path: Path) -> None:
        self._db = db
        self._path = path

    def rows(self, sql: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        import apsw

        try:
            yield from self._db.execute(sql, values)
        except apsw.Error as error:
            raise mapped(self._path, error) from error

    def one(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """The first column of the first row, or None."""
        return next((row[0] for row in self.rows(sql, values)), None)

    def columns(self, table: str) -> set[str]:
        """Empty if there is no such table."""
        return {row[0] for row in self.rows("SELECT name FROM pragma_table_info(?)", (table,))}


@contextmanager
def reading(path: Path) -> Generator[Reader]:
    import apsw

    with _place(path) as (place, how):
        access = apsw.SQLITE_OPEN_READWRITE if how == COPY else apsw.SQLITE_OPEN_READONLY
        flags = access | apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_NOFOLLOW
        try:
            db = apsw.Connection(f"file:{quote(str(place))}?{how}", flags=flags)
        except apsw.Error as error:
            raise mapped(path, error) from error
        try:
            db.set_busy_timeout(BUSY_MS)
            yield Reader(db, path)
        finally:
            db.close()


def mapped(path: Path, error: Exception) -> TurnlogError:
    import apsw

    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return Corrupt(
            f"{path} is damaged: {error}", path=str(path), hint="Restore it from a backup; nothing was changed."
        )
    return StoreUnavailable(
        f"{path} cannot be read: {error}", hint="Close the program that holds it, or check the file."
    )


@contextmanager
def _place(path: Path) -> Generator[tuple[Path, str]]:
    path = (
        path.parent.resolve() / path.name
    )  # the file itself is not followed; its directory may be a link of the user's
    wal, shm = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    if not wal.exists() or not wal.stat().st_size:
        yield path, "mode=ro&immutable=1"
    elif shm.exists():
        yield path, "mode=ro"
    else:
        with tempfile.TemporaryDirectory(prefix="turnlog-") as folder:
            yield _copied(path, wal, Path(folder)), COPY


def _copied(path: Path, wal: Path, folder: Path) -> Path:
    os.chmod(folder, 0o700)
    try:
        shutil.copyfile(path, folder / path.name, follow_symlinks=False)
        shutil.copyfile(wal, folder / wal.name, follow_symlinks=False)
    except OSError as error:
        raise unavailable(f"{path} cannot be copied for reading", error) from error
    return folder / path.name
