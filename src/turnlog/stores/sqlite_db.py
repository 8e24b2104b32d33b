"""One connection to SQLite, cut down to what the store uses, with types the driver's stubs leave open."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import apsw

Row = tuple[Any, ...]


class Database:
    def __init__(self, path: Path | str, *, create: bool = True) -> None:
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
        self._db = apsw.Connection(str(path), flags=flags, statementcachesize=200)

    def run(self, sql: str, values: Sequence[Any] = ()) -> None:
        self._db.execute(sql, values)

    def many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        self._db.executemany(sql, rows)

    def one(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """The only value, or the only row, or None."""
        return self._db.execute(sql, values).get

    def all(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._db.execute(sql, values).fetchall()

    def pragma(self, name: str, value: Any = None) -> Any:
        return self._db.pragma(name) if value is None else self._db.pragma(name, value)

    def wait_when_busy(self, ms: int) -> None:
        self._db.set_busy_timeout(ms)

    @property
    def changes(self) -> int:
        """How many rows this connection has changed so far."""
        return self._db.total_changes()

    @property
    def in_transaction(self) -> bool:
        return not self._db.get_autocommit()

    def close(self) -> None:
        self._db.close()
