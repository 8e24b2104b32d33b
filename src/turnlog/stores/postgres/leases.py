"""Leases as rows with an epoch: a heartbeat keeps them alive, and only the database's clock decides when they expire.

This is how every store keeps a second process from writing into a turn (fencing); stores on disk have the simpler half
of it, because the operating system ends a lock with its process (`disk/leases`).

The obvious way fails: a holder that checks its lease and then writes can be stopped between the two, for as long as the
lease lasts. Another process takes the lease, runs the turn, and then the first one wakes up and writes:

    A  ── lease, epoch 7 ── check: mine ── stopped ······················· write into B's turn
    B                                       expired ── lease, epoch 8 ── turn ──►

So the check is part of the write. Each lease has an epoch, a number that rises with every holder. An append carries
the epoch of its lease, and its transaction locks the row of the lease (`FOR KEY SHARE`) and compares the two:

                     take: no row, or expires_at has passed                      release
        ┌──────┐ ─────────────────────────────────────────► ┌────────────────┐ ──────────► no row
        │ free │                                            │ held, epoch n  │
        └──────┘ ◄───────────────────────────────────────── └────────────────┘ ◄──┐
                     expires_at passes: the row stays        │              │     │ heartbeat: expires_at
                                                             │              └─────┘ moves on
            another process takes it: the row has epoch n+1  ▼
                                            an append with epoch n is `fenced`: Conflict, nothing is written

- Taking an expired lease locks its row `FOR UPDATE`, which waits for an append that holds it, and so reads what that
  append wrote. An append that comes later finds another epoch. There is no moment between the two.
- Only the database's clock decides whether a lease has expired. A holder counts from the moment it *sent* its last
  renewal, by a clock that nobody can set, and takes its lease for dead a little earlier (`heartbeat.DRIFT`). So it
  stops before another can begin; the epoch is for the case in which it does not.
- An expired lease that nobody took is renewed when the database is reachable again, with the same epoch: nothing can
  have been written meanwhile, so the turn goes on (`PostgresLease.regain`).
- Epochs come from a sequence and never repeat, so the row of a lease may go with its turn. An expired row that stays is
  a turn that somebody has to look after (`abandoned`).
"""

import asyncio
import os
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta

from ...errors import Busy, StoreError
from .heartbeat import Heartbeat, PostgresLease, now
from .ledger import new_token
from .notify import Notifier
from .pool import PostgresPool

GATHER_S = 0.01
"""Polls that would fire within this many seconds of each other share one query."""
POLL_FIRST_S = 0.02
POLL_MAX_S = 0.5
ABANDONED_MAX = 100
"""The most that are returned at once; the next call finds the rest."""
PASSES = 3
RELEASE_PATIENCE_S = 1.0
"""How long a release is retried; a lease that is not released expires."""


_RELEASE = """
WITH unflushed AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)),
     freed AS (DELETE FROM turnlog.leases l USING unflushed WHERE l.session_id = %s AND l.token = %s)
SELECT pg_notify(%s, %s) FROM unflushed
"""
"""Not flushed: if the database crashes now, the lease reappears and expires."""


class PostgresLeases:
    def __init__(self, db: PostgresPool, notifier: Notifier, *, lasting_s: float) -> None:
        self._db = db
        self._notifier = notifier
        self._lasting = timedelta(seconds=lasting_s)
        self._heartbeat = Heartbeat(db.conninfo, schema=db.schema, lasting_s=lasting_s)
        self.granted = self._heartbeat.add
        self._queues: dict[str, asyncio.Lock] = {}
        self._wanted: set[str] = set()
        self._look: asyncio.Task[set[str]] | None = None

    @asynccontextmanager
    async def take(
        self, session_id: str, wait_s: float | None, *, with_append: bool = False
    ) -> AsyncGenerator[PostgresLease]:
        """`with_append`: it is given at once, and taken by the first append that it is given to (`writer`)."""
        deadline = None if wait_s is None else time.monotonic() + wait_s
        queue = self._queues.setdefault(session_id, asyncio.Lock())
        try:
            await self._wait_here(queue, session_id, deadline)
            try:
                lease = PostgresLease(session_id, new_token(), me())
                if not with_append:
                    await self._acquire(lease, deadline)
                try:
                    yield lease
                finally:
                    self._heartbeat.drop(lease)
                    if lease.is_asked_for:
                        # A caller that is cancelled must not leave it to its expiry.
                        await asyncio.shield(self._db.spawn(self._release_soon(lease)))
            finally:
                queue.release()
        finally:
            if not queue.locked():  # a waiter still has it; the row keeps them apart anyway
                self._queues.pop(session_id, None)

    async def _wait_here(self, queue: asyncio.Lock, session_id: str, deadline: float | None) -> None:
        """Waits in order within this process, without asking the database."""
        try:
            async with asyncio.timeout(None if deadline is None else max(0.0, deadline - time.monotonic())):
                await queue.acquire()
        except TimeoutError:
            mine = next((lease.holder for lease in self._heartbeat.held() if lease.session_id == session_id), me())
            raise busy(session_id, mine) from None

    async def _acquire(self, lease: PostgresLease, deadline: float | None) -> None:
        epoch, holder, sent = await self._ask(lease)
        while epoch is None:
            await self._wait_there(lease.session_id, deadline, holder or "another process")
            epoch, holder, sent = await self._ask(lease)
        lease.is_asked_for = True
        self.granted(lease, epoch, sent)

    async def _wait_there(self, session_id: str, deadline: float | None, holder: str) -> None:
        """Waits until it seems to be free. It only reads: requesting the lease writes, and many may wait."""
        pause = POLL_FIRST_S
        with self._notifier.changes(session_id) as event:
            while True:
                left = POLL_MAX_S if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    raise busy(session_id, holder)
                await _pause(event, min(pause, left))
                event.clear()
                if await self._is_free(session_id):
                    return
                pause = min(pause * 2, POLL_MAX_S)

    async def _is_free(self, session_id: str) -> bool:
        """Shares one query with all that ask at about the same time: each append wakes everybody who waits for the
        turn.
        """
        self._wanted.add(session_id)
        if self._look is None:
            self._look = self._db.spawn(self._look_soon())
        return session_id not in await asyncio.shield(self._look)

    async def _look_soon(self) -> set[str]:
        await asyncio.sleep(GATHER_S)
        names, self._wanted, self._look = sorted(self._wanted), set(), None
        taken = await self._db.all(
            "SELECT session_id FROM turnlog.leases WHERE session_id = ANY(%s) AND expires_at > clock_timestamp()",
            (names,),
        )
        return {name for (name,) in taken}

    async def _ask(self, lease: PostgresLease) -> tuple[int | None, str | None, float]:
        """The epoch, or the holder of the lease; and when that was asked."""
        sent = [0.0]
        values = (lease.session_id, lease.token, lease.holder, self._lasting)
        asking = self._db.spawn(
            self._db.all("SELECT * FROM turnlog.lease_1(%s, %s, %s, %s)", values, sending=lambda: sent.append(now()))
        )
        try:
            [(epoch, holder)] = await asyncio.shield(asking)
            return epoch, holder, sent[-1]
        except asyncio.CancelledError:
            # It may have been granted although the caller left: release it as soon as that is known.
            asking.add_done_callback(lambda _: self._db.spawn(self._release(lease.session_id, lease.token)))
            raise

    async def _release_soon(self, lease: PostgresLease) -> None:
        """A few passes of the event loop later: what is written at the end of a turn can go along."""
        for _ in range(PASSES):
            await asyncio.sleep(0)
        await self._release(lease.session_id, lease.token)

    async def _release(self, session_id: str, token: int) -> None:
        with suppress(StoreError):
            await self._db.all(
                _RELEASE, (session_id, token, self._notifier.channel, session_id), patience_s=RELEASE_PATIENCE_S
            )
            self._notifier.wake(session_id)

    async def abandoned(self) -> list[str]:
        """Sessions with an expired lease: a released lease has no row, an expired one does until somebody takes it."""
        rows = await self._db.all(
            "SELECT session_id FROM turnlog.leases WHERE expires_at <= clock_timestamp() ORDER BY expires_at LIMIT %s",
            (ABANDONED_MAX,),
        )
        return [name for (name,) in rows]

    async def close(self) -> None:
        await self._heartbeat.close()


async def _pause(event: asyncio.Event, pause_s: float) -> None:
    try:
        async with asyncio.timeout(pause_s):
            await event.wait()
    except TimeoutError:
        return


def me() -> str:
    since = datetime.now(UTC).strftime("%H:%M:%S")
    return f"process {os.getpid()} on {socket.gethostname()}, since {since} UTC"


def busy(session_id: str, holder: str) -> Busy:
    return Busy(f"a turn is running in session {session_id} ({holder})", holder=holder)
