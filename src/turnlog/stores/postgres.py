"""The PostgreSQL store: many servers, one truth.

Every change is one statement and so one transaction, and every statement may be repeated. Whether it is allowed (does
the log end where we think, is the lease still ours) is decided inside it, by the database. Nothing is kept in a
database session, so a pooler in transaction mode may stand in between.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager

from ..core import keys, query as queries, search
from ..core.entries import Entry
from ..core.query import Hit, Page, Query
from ..core.session import Session
from ..errors import NotFound, StoreError
from . import Clock, Lease, Progress, postgres_indexing as indexing, postgres_statements as statements
from .postgres_bell import Bell
from .postgres_lease import PostgresLeases
from .postgres_ledger import PostgresLedger
from .postgres_pool import Database
from .postgres_schema import Address, parse, prepare
from .postgres_writer import Writer
from .stamping import now_ms, window
from .watching import Watchers

log = logging.getLogger("turnlog.stores.postgres")

POLL_S = 0.5
"""How often a watcher looks by itself, in case a notification was lost or a pooler delivers none."""
INDEX_AFTER_S = 0.5
"""Without an append: making messages searchable costs more than storing them, and a search does it if need be."""
INDEX_LATEST_S = 5.0
"""Where appends do not pause: from then on both are done, or there would be ever more to do for a search."""
READ_PAGE = 1_000
DELETE_S = 300.0
"""A session of millions of entries takes its time."""


class PostgresStore:
    def __init__(self, address: Address, *, durability: str, inject: str, clock: Clock | None) -> None:
        durable = durability == "full"
        self._durable = durable
        self._db = Database(address.conninfo, schema=address.schema, size=address.pool)
        self._watchers = Watchers(poll_s=POLL_S)
        self._bell = Bell(self._db, conninfo=address.listen, wake=self._watchers.wake)
        self._leases = PostgresLeases(self._db, self._bell, lasting_s=address.lease_s)
        self._writer = Writer(
            self._db,
            clock=clock or now_ms,
            durable=durable,
            summary_role="assistant" if inject == "assistant" else None,
            written=self._written,
        )
        self._indexing: asyncio.TimerHandle | None = None
        self._written_at = 0.0
        self.ledger = PostgresLedger(self._db, clock, durable=durable)

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        durability: str = "full",
        inject: str = "user",
        clock: Clock | None = None,
    ) -> "PostgresStore":
        address = parse(url)
        await prepare(address)
        return cls(address, durability=durability, inject=inject, clock=clock)

    async def append(
        self, session_id: str, bodies: Sequence[Entry], *, expect: int | None = None, lease: Lease | None = None
    ) -> list[Entry]:
        keys.check_session_id(session_id)
        return await self._writer.append(session_id, bodies, expect, lease)

    def _written(self, session_id: str) -> None:
        self._bell.ring(session_id)
        self._written_at = time.monotonic()
        self._index_later(self._written_at + INDEX_LATEST_S)

    async def read(
        self, session_id: str, *, after: int = 0, before: int | None = None, limit: int | None = None
    ) -> list[Entry]:
        keys.check_session_id(session_id)
        after, before, limit = window(after, before, limit)
        entries = await statements.entries_of(self._db, session_id, after, before, limit)
        if not entries:
            await self.describe(session_id)
        return entries

    async def describe(self, session_id: str) -> Session:
        keys.check_session_id(session_id)
        row = await statements.row_of(self._db, session_id)
        if row is None:
            raise NotFound(f"there is no session {session_id}")
        return row

    async def find(self, query: Query) -> Page[Session]:
        return await statements.find(self._db, queries.check(query))

    async def search(self, words: str, *, scope: Query | None = None) -> list[Hit]:
        scope = queries.check(scope or Query())
        terms = search.terms(words)
        await indexing.catch_up(self._db)
        return await statements.search_in(self._db, terms, scope)

    def _index_later(self, latest: float) -> None:
        if self._indexing is None:
            self._indexing = asyncio.get_running_loop().call_later(INDEX_AFTER_S, self._index_in_time, latest)

    def _index_in_time(self, latest: float) -> None:
        now = time.monotonic()
        if now < latest and now < self._written_at + INDEX_AFTER_S:
            self._indexing = None
            self._index_later(latest)
        else:
            self._index_now(now)

    def _index_now(self, since: float) -> None:
        async def some() -> None:
            more = False
            try:
                more = await indexing.index_some(self._db)
            except StoreError as error:  # a search tries again, and then says so
                log.warning("messages not made searchable yet: %s", error)
            self._indexing = None
            if more:
                self._index_later(since)

        self._db.spawn(some())

    async def delete(self, session_id: str) -> None:
        keys.check_session_id(session_id)
        self._writer.forget(session_id)
        [(gone,)] = await self._db.all(
            "SELECT turnlog.delete_1(%s, %s)", (session_id, self._durable), changes=True, call_s=DELETE_S
        )
        self._writer.forget(session_id)
        self._bell.ring(session_id)
        if not gone:
            raise NotFound(f"there is no session {session_id}")

    def lease(self, session_id: str, *, wait_s: float | None = None) -> AbstractAsyncContextManager[Lease]:
        return self._leases.take(keys.check_session_id(session_id), wait_s)

    async def abandoned(self) -> list[str]:
        return await self._leases.abandoned()

    def watch(self, session_id: str, *, after: int) -> AsyncIterator[Entry]:
        self._bell.listen()
        return self._watchers.follow(session_id, after, lambda seq: self.read(session_id, after=seq, limit=READ_PAGE))

    async def reindex(self, progress: Progress | None = None) -> int:
        return await indexing.reindex(self._db, self._writer.forget, progress)

    async def close(self) -> None:
        if self._indexing is not None:
            self._indexing.cancel()
        await self._leases.close()
        await self._bell.close()
        await self._db.close()
