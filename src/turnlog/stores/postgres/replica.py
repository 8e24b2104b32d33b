"""A read replica for lists and searches, which turns never ask.

A replica is behind the primary, mostly by milliseconds. So it answers only what people look through: lists and searches
over sessions that the question does not name. Everything that names a session, its key or its label, and all that
decides what is done next (unfinished turns, waiting approvals), is asked of the primary, and so is a list by id, which
is made to miss no session (a backup, an erasure). The primary also answers while the replica cannot be reached.
"""

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...core.query import Query
from ...errors import StoreError
from .pool import PostgresPool

T = TypeVar("T")
PAUSE_S = 30.0
"""After a failure the replica is left alone for so long: a list must not wait for it again and again."""
PATIENCE_S = 1.0
_LOOKED_THROUGH = frozenset(("agent", "channel", "status", "homes", "q", "peer", "sort", "limit", "cursor"))


def may_answer(query: Query) -> bool:
    """Whether the answer may be a moment old."""
    default = Query()
    given = {name for name in Query.__struct_fields__ if getattr(query, name) != getattr(default, name)}
    return given <= _LOOKED_THROUGH and query.sort != "id"


class Replica:
    def __init__(self, primary: PostgresPool, conninfo: str | None, *, size: int) -> None:
        self._primary = primary
        self._pool: PostgresPool | None = None
        if conninfo:
            self._pool = PostgresPool(conninfo, schema=primary.schema, size=size, patience_s=PATIENCE_S)
        self._failed_at = -PAUSE_S

    async def answer(self, query: Query, ask: Callable[[PostgresPool], Awaitable[T]]) -> T:
        """From the replica if it may answer; otherwise, or if it fails, from the primary."""
        if self._pool and may_answer(query) and time.monotonic() >= self._failed_at + PAUSE_S:
            try:
                return await ask(self._pool)
            except StoreError:
                self._failed_at = time.monotonic()
        return await ask(self._primary)

    async def close(self) -> None:
        if self._pool:
            await self._pool.close()
