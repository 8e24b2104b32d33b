"""The PostgreSQL store, shared by many servers.

Every change is one statement, so one transaction, and every statement can be repeated. The database decides inside the
statement whether the change is allowed (does the log end where the caller thinks, is the lease still valid). Nothing is
kept in a database session, so a pooler in transaction mode may be in between.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager

from ...core import facts as session_facts, query as queries, search
from ...core.entries import Entry
from ...core.facts import ExpectedFact, Fact
from ...core.keys import check_session_id
from ...core.query import Hit, Page, Query
from ...core.session import Session
from ...core.wellformed import accepted
from ...errors import NotFound
from .. import OWN_LEASE_WAIT_S, Appended, Clock, GivenLease, Lease, Progress, boundary
from ..disk import leases
from ..finding import Searcher
from ..index_timer import IndexTimer
from ..stamping import AskedAppend, AskedErase, check_incarnation, rising, window
from ..watching import Watchers
from . import erasing, search_index as indexing, statements as statements, unindexed
from .leases import PostgresLeases
from .ledger import PostgresLedger
from .notify import Notifier
from .pool import PostgresPool
from .replica import Replica
from .schema import SchemaAddress, parse, prepare
from .searching import PostgresLooking
from .writer import PostgresWriter

POLL_S = 0.5
"""How often a watcher polls, in case a notification was lost or a pooler delivers none."""
DELETE_S = 300.0
"""A session with millions of entries takes a while."""


_DELETE = """
WITH meant AS (SELECT FROM turnlog.sessions WHERE session_id = %s AND session_no = %s FOR UPDATE)
SELECT turnlog.delete_1(%s, %s) FROM meant
"""
"""Deletes nothing if the session was deleted meanwhile, even if another one has its id now."""


@boundary.store
class PostgresStore:
    def __init__(self, address: SchemaAddress, *, durability: str, inject: str, clock: Clock | None) -> None:
        durable = durability == "full"
        self._clock = rising(clock)
        self._durable = durable
        self._db = PostgresPool(
            address.conninfo, schema=address.schema, size=address.pool, patience_s=address.patience_s
        )
        self._db.connections.offer()
        self._replica = Replica(self._db, address.replica, size=address.pool)
        self._watchers = Watchers(poll_s=POLL_S)
        self._notifier = Notifier(self._db, conninfo=address.listen, wake=self._watchers.wake)
        self._leases = PostgresLeases(self._db, self._notifier, lasting_s=address.lease_s)
        self._writer = PostgresWriter(
            self._db,
            clock=self._clock,
            durable=durable,
            summary_role="assistant" if inject == "assistant" else None,
            written=self._written,
            notification=self._notifier.statement,
            lease_s=address.lease_s,
            granted=self._leases.granted,
        )
        self._searcher = Searcher(self.read)
        self._totals = statements.LargeTotals()
        self._indexing = IndexTimer(lambda: indexing.index_some(self._db), self._db.spawn)
        self.ledger = PostgresLedger(self._db, self._notifier, clock, durable=durable)

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
        self,
        session_id: str,
        bodies: Sequence[Entry],
        *,
        expect: int | None = None,
        expect_fact: ExpectedFact | None = None,
        lease: GivenLease | None = None,
        incarnation: str | None = None,
    ) -> Appended:
        check_session_id(session_id)
        # Before it waits with others: an invalid entry must not fail in the middle of their call.
        checked = [accepted(body) for body in bodies]
        asked = AskedAppend(checked, expect, expect_fact, incarnation, lease is not None)
        if lease == "own":
            async with self._leases.take(session_id, OWN_LEASE_WAIT_S) as own:
                return await self._writer.append(session_id, asked, own)
        return await self._writer.append(session_id, asked, lease)

    def _written(self, session_id: str) -> None:
        self._notifier.wake(session_id)
        self._indexing.written()

    async def read(
        self,
        session_id: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        incarnation: str | None = None,
    ) -> list[Entry]:
        check_session_id(session_id)
        after, before, limit = window(after, before, limit)
        if incarnation is None:
            entries = await statements.entries_of(self._db, session_id, after, before, limit)
        else:
            row, entries = await statements.row_and_entries(self._db, session_id, after, before, limit)
            check_incarnation(row, session_id, incarnation)
        if not entries:
            await self.describe(session_id, incarnation=incarnation)
        return entries

    async def describe(self, session_id: str, *, incarnation: str | None = None) -> Session:
        check_session_id(session_id)
        return check_incarnation(await statements.row_of(self._db, session_id), session_id, incarnation)

    async def facts(
        self,
        session_id: str,
        app: str,
        *,
        keys: Sequence[str] = (),
        prefix: str = "",
        last: bool = False,
        limit: int | None = None,
        incarnation: str | None = None,
    ) -> list[Fact]:
        check_session_id(session_id)
        wanted = session_facts.choice(app, keys, prefix, last, limit)
        found = await statements.facts_of(self._db, session_id, wanted)
        if incarnation is not None or not found:
            # Checked last: an incarnation that still exists was there all the time.
            await self.describe(session_id, incarnation=incarnation)
        return found

    async def find(self, query: Query) -> Page[Session]:
        query = queries.check(query)
        page, older = await self._replica.answer(query, lambda db: statements.find(db, query, self._totals))
        if older:
            await indexing.refold_older(self._db, self._writer.forget)
            page, _ = await statements.find(self._db, query, self._totals)
        return page

    async def search(self, words: str, *, scope: Query | None = None, before: int | None = None) -> list[Hit]:
        scope = queries.check(scope or Query())
        search.understand(words)  # a query that nobody can answer costs nothing
        await indexing.refold_older(self._db, self._writer.forget)
        found = await self._replica.answer(scope, lambda db: self._search(db, words, scope, before))
        if found is not None:
            return found
        await indexing.catch_up(self._db)
        return await self._replica.answer(
            scope, lambda db: self._searcher.search(words, scope, PostgresLooking(db, scope, before, None))
        )

    async def _search(self, db: PostgresPool, words: str, scope: Query, before: int | None) -> list[Hit] | None:
        """None if too much is not indexed yet."""
        left = await unindexed.read(db, scope)
        if left is None:
            return None
        if left:
            self._indexing.soon()  # so that the next search need not look through them
        return await self._searcher.search(words, scope, PostgresLooking(db, scope, before, left))

    async def delete(self, session_id: str, *, incarnation: str | None = None) -> None:
        check_session_id(session_id)
        no = await self._number_of(session_id, incarnation)
        self._writer.forget(session_id)
        gone = await self._db.all(_DELETE, (session_id, no, session_id, self._durable), changes=True, call_s=DELETE_S)
        self._writer.forget(session_id)
        await self._notifier.notify(session_id)
        if not gone:
            raise NotFound(f"there is no session {session_id}")

    async def erase(
        self,
        session_id: str,
        seqs: Sequence[int],
        *,
        redact: bool = False,
        by: str = "",
        lease: Lease | None = None,
        incarnation: str | None = None,
    ) -> list[int]:
        check_session_id(session_id)
        asked = AskedErase(seqs, redact, by, incarnation)
        own = self._leases.take(session_id, OWN_LEASE_WAIT_S) if redact else None
        async with leases.held(lease, session_id, own) as held:
            gone = await erasing.erase(self._db, session_id, asked, held, clock=self._clock, durable=self._durable)
            self._writer.forget(session_id)
            self._written(session_id)
            await self._notifier.notify(session_id)
        await erasing.free_pages(self._db, redact=redact)
        return gone

    async def _number_of(self, session_id: str, incarnation: str | None) -> int:
        """The database's own number of this incarnation."""
        found = await self._db.all(
            "SELECT session_no, meta_json FROM turnlog.sessions WHERE session_id = %s", (session_id,)
        )
        check_incarnation(statements.decode_row(found[0][1]) if found else None, session_id, incarnation)
        return found[0][0]

    def lease(
        self, session_id: str, *, wait_s: float | None = None, with_append: bool = False
    ) -> AbstractAsyncContextManager[Lease]:
        return self._leases.take(check_session_id(session_id), wait_s, with_append=with_append)

    async def abandoned(self) -> list[str]:
        return await self._leases.abandoned()

    def watch(self, session_id: str, *, after: int, incarnation: str | None = None) -> AsyncIterator[Entry]:
        self._notifier.listen()
        return self._watchers.follow(self, session_id, after, incarnation)

    async def reindex(self, progress: Progress | None = None) -> int:
        return await indexing.reindex(self._db, self._writer.forget, progress)

    async def close(self) -> None:
        self._indexing.cancel()  # what runs is waited for with the calls of the pool
        await self._leases.close()
        await self._notifier.close()
        await self._replica.close()
        await self._db.close()
