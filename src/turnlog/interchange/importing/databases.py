"""Opens foreign SQLite databases so that no file next to them is written."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ...errors import Corrupt, StoreUnavailable, TurnlogError
from ...stores.sqlite.reading import COPY, to_read

if TYPE_CHECKING:
    import apsw

MAGIC = b"SQLite format 3\0"
BUSY_MS = 5_000


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

    with to_read(path) as (place, how):
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
