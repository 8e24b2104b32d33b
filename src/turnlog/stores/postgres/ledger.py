"""The ledger of the PostgreSQL store: one table, each change one call that may be repeated.

Unless the caller has its own clock, the database's clock decides what has expired: servers may disagree on the time.
"""

import os
from typing import Any

import msgspec

from .. import Clock, LedgerFact, boundary, facts
from ..stamping import now_ms
from .notify import LEDGER, Notifier
from .pool import PostgresPool

TOLD_SPACES = ("tokens", "cookies")
"""Spaces that are read with every request and seldom change: a trigger notifies of their changes (0008_told.sql)."""
KEPT_MAX = 10_000
"""Facts in memory; beyond that, all of them are read again."""
PURGE_EVERY = 1_000
"""The number of changes between two removals of expired facts."""

_NOW = "coalesce(%s::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)"
_LIVE = f"value_json IS NOT NULL AND (expires_at IS NULL OR expires_at > {_NOW})"


@boundary.ledger
class PostgresLedger:
    def __init__(self, db: PostgresPool, notifier: Notifier, clock: Clock | None, *, durable: bool) -> None:
        self._db = db
        self._notifier = notifier
        self._kept: dict[tuple[str, str], tuple[Any, int | None]] = {}
        """(space, key) → (value, expiry), as long as every change is heard of."""
        notifier.on_told(LEDGER, self._kept.clear)
        self._clock = clock
        self._durable = durable
        self._changes = 0

    def _now(self) -> int | None:
        return self._clock() if self._clock else None

    async def get(self, space: str, key: str, *, from_memory: bool = False) -> Any:
        if from_memory and space in TOLD_SPACES:
            return await self._remembered(space, key)
        text = await self._text(space, key)
        return None if text is None else facts.decode(text)

    async def _remembered(self, space: str, key: str) -> Any:
        """A fact that was read since the last change, unless a change could have gone unheard. Absent ones are asked
        for: anybody can invent a name.
        """
        told = self._notifier.heard()
        known = self._kept.get((space, key)) if told is not None else None
        if known is None:
            sql = f"SELECT value_json, expires_at FROM turnlog.ledger WHERE space = %s AND key = %s AND {_LIVE}"
            found = await self._db.one(sql, (space, key, self._now()))
            if found is None:
                return None
            known = facts.decode(found[0]), found[1]
            if told is not None and told == self._notifier.heard():  # otherwise it may be what was there before
                if len(self._kept) >= KEPT_MAX:
                    self._kept.clear()
                self._kept[space, key] = known
        value, until = known
        return None if until is not None and until <= (self._clock or now_ms)() else value

    async def _text(self, space: str, key: str) -> str | None:
        sql = f"SELECT value_json FROM turnlog.ledger WHERE space = %s AND key = %s AND {_LIVE}"
        return await self._db.one(sql, (space, key, self._now()))

    async def put_if_absent(self, space: str, key: str, value: Any, *, ttl_s: float | None = None) -> Any:
        there = await self._replace(space, key, None, value, ttl_s)
        return None if there is None else facts.decode(there)

    async def cas(self, space: str, key: str, old: Any, new: Any, *, ttl_s: float | None = None) -> bool:
        # Compared as JSON here and as text in the database: different texts may be equal JSON.
        there = await self._text(space, key)
        while (None if there is None else facts.decode(there)) == old:
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
        """Returns the previous value, which is replaced if it is `old`."""
        await self._purge()
        text = None if new is None else msgspec.json.encode(new).decode()
        ttl_ms = None if ttl_s is None else int(ttl_s * 1000)
        try:
            return await self._db.one(
                "SELECT turnlog.ledger_1(%s, %s, %s, %s, %s, %s, %s, %s)",
                (space, key, old, text, ttl_ms, self._now(), new_token(), self._durable),
                changes=True,
            )
        finally:
            if space in TOLD_SPACES:
                self._notifier.tell(LEDGER)

    async def _purge(self) -> None:
        self._changes += 1
        if self._changes % PURGE_EVERY == 0:
            await self._db.all(f"DELETE FROM turnlog.ledger WHERE expires_at <= {_NOW}", (self._now(),))

    async def list(self, space: str, *, prefix: str = "", after: str = "", limit: int = 1000) -> list[LedgerFact]:
        rows = await self._db.all(
            f"SELECT key, value_json, expires_at FROM turnlog.ledger WHERE space = %s AND key ^@ %s AND key > %s"
            f" AND {_LIVE} ORDER BY key LIMIT %s",
            (space, prefix, after, self._now(), limit),
        )
        return [LedgerFact(key, facts.decode(value), until) for key, value, until in rows]


def new_token() -> int:
    """A unique name of one change; positive, because 0 means nobody."""
    return int.from_bytes(os.urandom(8), "big") >> 1 | 1
