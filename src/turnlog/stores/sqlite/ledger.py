"""The ledger of the SQLite store: one table, changed by the store's writer."""

from typing import Any

import msgspec

from .. import Clock, LedgerFact, boundary, facts
from .connection import SqliteConnection
from .writer import SqliteWriter, driver_errors

PURGE_EVERY = 1_000
"""The number of changes between two removals of expired facts."""


@boundary.ledger
class SqliteLedger:
    def __init__(self, writer: SqliteWriter, reader: SqliteConnection, clock: Clock) -> None:
        self._writer = writer
        self._reader = reader
        self._clock = clock
        self._changes = 0

    async def get(self, space: str, key: str, *, from_memory: bool = False) -> Any:
        return _get(self._reader, space, key, self._clock())

    async def put_if_absent(self, space: str, key: str, value: Any, *, ttl_s: float | None = None) -> Any:
        now = self._clock()

        def change(db: SqliteConnection) -> Any:
            there = _get(db, space, key, now)
            if there is None:
                _put(db, space, key, value, now, ttl_s)
            return there

        return await self._change(change, now)

    async def cas(self, space: str, key: str, old: Any, new: Any, *, ttl_s: float | None = None) -> bool:
        now = self._clock()

        def change(db: SqliteConnection) -> bool:
            if _get(db, space, key, now) != old:
                return False
            _put(db, space, key, new, now, ttl_s)
            return True

        return await self._change(change, now)

    async def list(self, space: str, *, prefix: str = "", after: str = "", limit: int = 1000) -> list[LedgerFact]:
        with driver_errors(self._reader.path):
            rows = self._reader.all(
                "SELECT key, CAST(value_json AS BLOB), expires_at FROM ledger"
                " WHERE space = ? AND key >= ? AND key > ? AND substr(key, 1, ?) = ?"
                " AND (expires_at IS NULL OR expires_at > ?) ORDER BY key LIMIT ?",
                (space, prefix, after, len(prefix), prefix, self._clock(), limit),
            )
        return [LedgerFact(key, facts.decode(value), until) for key, value, until in rows]

    async def delete(self, space: str, key: str) -> bool:
        now = self._clock()

        def change(db: SqliteConnection) -> bool:
            there = _get(db, space, key, now) is not None
            db.run("DELETE FROM ledger WHERE space = ? AND key = ?", (space, key))
            return there

        return await self._change(change, now)

    async def _change(self, change: Any, now: int) -> Any:
        self._changes += 1
        if self._changes % PURGE_EVERY == 0:
            await self._writer.run(lambda db: db.run("DELETE FROM ledger WHERE expires_at <= ?", (now,)))
        return await self._writer.run(change)


def _get(db: SqliteConnection, space: str, key: str, now: int) -> Any:
    found = db.one(
        "SELECT CAST(value_json AS BLOB) FROM ledger"
        " WHERE space = ? AND key = ? AND (expires_at IS NULL OR expires_at > ?)",
        (space, key, now),
    )
    return None if found is None else facts.decode(found)


def _put(db: SqliteConnection, space: str, key: str, value: Any, now: int, ttl_s: float | None) -> None:
    if value is None:
        db.run("DELETE FROM ledger WHERE space = ? AND key = ?", (space, key))
        return
    expires = None if ttl_s is None else now + int(ttl_s * 1000)
    db.run(
        "INSERT OR REPLACE INTO ledger VALUES (?, ?, ?, ?)", (space, key, msgspec.json.encode(value).decode(), expires)
    )
