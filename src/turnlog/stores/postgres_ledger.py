"""The ledger of the PostgreSQL store: one table, each change one call that may be repeated.

Without a clock of the caller's own, the database's decides what has ceased to hold: servers may disagree on the time.
"""

import os
from typing import Any

import msgspec

from . import Clock, Fact
from .postgres_pool import Database

PURGE_EVERY = 1_000
"""Changes between two sweeps of facts that have ceased to hold."""

_NOW = "coalesce(%s::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)"
_LIVE = f"value_json IS NOT NULL AND (expires_at IS NULL OR expires_at > {_NOW})"


class PostgresLedger:
    def __init__(self, db: Database, clock: Clock | None, *, durable: bool) -> None:
        self._db = db
        self._clock = clock
        self._durable = durable
        self._changes = 0

    def _now(self) -> int | None:
        return self._clock() if self._clock else None

    async def get(self, space: str, key: str) -> Any:
        text = await self._text(space, key)
        return None if text is None else msgspec.json.decode(text)

    async def _text(self, space: str, key: str) -> str | None:
        sql = f"SELECT value_json FROM turnlog.ledger WHERE space = %s AND key = %s AND {_LIVE}"
        return await self._db.one(sql, (space, key, self._now()))

    async def put_if_absent(self, space: str, key: str, value: Any, *, ttl_s: float | None = None) -> Any:
        there = await self._replace(space, key, None, value, ttl_s)
        return None if there is None else msgspec.json.decode(there)

    async def cas(self, space: str, key: str, old: Any, new: Any, *, ttl_s: float | None = None) -> bool:
        # Compared as JSON here and as text there: what was written differently may still be equal.
        there = await self._text(space, key)
        while (None if there is None else msgspec.json.decode(there)) == old:
            before = there
            there = await self._replace(space, key, before, new, ttl_s)
            if there == before:
                return True
        return False

    async def delete(self, space: str, key: str) -> bool:
        there = await self._text(space, key)
        while there is not None:
            before = there
            there = await self._replace(space, key, before, None, None)
            if there == before:
                return True
        return False

    async def _replace(self, space: str, key: str, old: str | None, new: Any, ttl_s: float | None) -> str | None:
        """What was there; it is replaced if that is `old`."""
        await self._purge()
        text = None if new is None else msgspec.json.encode(new).decode()
        ttl_ms = None if ttl_s is None else int(ttl_s * 1000)
        return await self._db.one(
            "SELECT turnlog.ledger_1(%s, %s, %s, %s, %s, %s, %s, %s)",
            (space, key, old, text, ttl_ms, self._now(), new_token(), self._durable),
            changes=True,
        )

    async def _purge(self) -> None:
        self._changes += 1
        if self._changes % PURGE_EVERY == 0:
            await self._db.all(f"DELETE FROM turnlog.ledger WHERE expires_at <= {_NOW}", (self._now(),))

    async def list(self, space: str, *, prefix: str = "", limit: int = 1000) -> list[Fact]:
        rows = await self._db.all(
            f"SELECT key, value_json, expires_at FROM turnlog.ledger WHERE space = %s AND key ^@ %s AND {_LIVE}"
            " ORDER BY key LIMIT %s",
            (space, prefix, self._now(), limit),
        )
        return [Fact(key, msgspec.json.decode(value), until) for key, value, until in rows]


def new_token() -> int:
    """Names one change for ever; positive, so that 0 is nobody's."""
    return int.from_bytes(os.urandom(8), "big") >> 1 | 1
