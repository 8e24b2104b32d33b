"""Leases as rows with an epoch: kept alive by a heartbeat, ended by their expiry, judged by the database's clock alone.

A lease is taken over only after it expired, and then has a new epoch; an append looks at the epoch in its own
transaction. So a holder that was stopped, cut off or delayed cannot write once somebody else has had the turn,
whatever it believes. One that expired and that nobody took is simply renewed: nothing can have happened meanwhile.
"""

import asyncio
import os
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta

from ..errors import Busy, StoreError
from .postgres_bell import Bell
from .postgres_ledger import new_token
from .postgres_pool import Database

BEATS = 4
"""In the time a lease lasts: three may get lost."""
GATHER_S = 0.01
"""Looks of so long are made together."""
POLL_FIRST_S = 0.02
POLL_MAX_S = 0.5
ABANDONED_MAX = 100
"""Told at once; the next look finds the rest."""
RELEASE_PATIENCE_S = 1.0
"""A lease that cannot be given back expires by itself."""


class PostgresLease:
    def __init__(self, session_id: str, epoch: int, token: int, holder: str) -> None:
        self.session_id = session_id
        self.epoch = epoch
        self.token = token
        self.holder = holder
        self.live = True


class PostgresLeases:
    def __init__(self, db: Database, bell: Bell, *, lasting_s: float) -> None:
        self._db = db
        self._bell = bell
        self._lasting = timedelta(seconds=lasting_s)
        self._beat_s = lasting_s / BEATS
        self._held: dict[int, PostgresLease] = {}
        self._queues: dict[str, asyncio.Lock] = {}
        self._heart: asyncio.Task[None] | None = None
        self._wanted: set[str] = set()
        self._look: asyncio.Task[set[str]] | None = None

    @asynccontextmanager
    async def take(self, session_id: str, wait_s: float | None) -> AsyncGenerator[PostgresLease]:
        deadline = None if wait_s is None else time.monotonic() + wait_s
        queue = self._queues.setdefault(session_id, asyncio.Lock())
        try:
            await self._wait_here(queue, session_id, deadline)
            try:
                lease = await self._acquire(session_id, deadline)
                try:
                    yield lease
                finally:
                    lease.live = False
                    self._held.pop(lease.epoch, None)
                    await self._release(lease.session_id, lease.token)
            finally:
                queue.release()
        finally:
            if not queue.locked():  # who still waits has it in hand; the row keeps them apart all the same
                self._queues.pop(session_id, None)

    async def _wait_here(self, queue: asyncio.Lock, session_id: str, deadline: float | None) -> None:
        """In order within this process, without asking the database."""
        try:
            async with asyncio.timeout(None if deadline is None else max(0.0, deadline - time.monotonic())):
                await queue.acquire()
        except TimeoutError:
            mine = next((lease.holder for lease in self._held.values() if lease.session_id == session_id), me())
            raise _busy(session_id, mine) from None

    async def _acquire(self, session_id: str, deadline: float | None) -> PostgresLease:
        token, myself = new_token(), me()
        epoch, holder = await self._ask(session_id, token, myself)
        while epoch is None:
            await self._wait_there(session_id, deadline, holder or "another process")
            epoch, holder = await self._ask(session_id, token, myself)
        return self._hold(PostgresLease(session_id, epoch, token, myself))

    async def _wait_there(self, session_id: str, deadline: float | None, holder: str) -> None:
        """Until it seems to be free. Only looks: asking for it writes, and so many may wait."""
        pause = POLL_FIRST_S
        with self._bell.heard(session_id) as event:
            while True:
                left = POLL_MAX_S if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    raise _busy(session_id, holder)
                await _pause(event, min(pause, left))
                event.clear()
                if await self._is_free(session_id):
                    return
                pause = min(pause * 2, POLL_MAX_S)

    async def _is_free(self, session_id: str) -> bool:
        """Asked together with all who ask at about the same time: each append wakes whoever waits for the turn."""
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

    async def _ask(self, session_id: str, token: int, myself: str) -> tuple[int | None, str | None]:
        asking = self._db.spawn(
            self._db.one("SELECT * FROM turnlog.lease_1(%s, %s, %s, %s)", (session_id, token, myself, self._lasting))
        )
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            # It may have been granted to nobody: give it back as soon as that is known.
            asking.add_done_callback(lambda _: self._db.spawn(self._release(session_id, token)))
            raise

    def _hold(self, lease: PostgresLease) -> PostgresLease:
        self._held[lease.epoch] = lease
        if self._heart is None or self._heart.done():
            self._heart = asyncio.ensure_future(self._beat())
        return lease

    async def _beat(self) -> None:
        pause_s = self._beat_s
        while self._held:
            await asyncio.sleep(pause_s)
            try:
                await self._renew(list(self._held.values()))
                pause_s = self._beat_s
            except StoreError:  # tried again soon; if all fail, the lease ends, as it should
                pause_s = self._beat_s / BEATS

    async def _renew(self, held: list[PostgresLease]) -> None:
        kept = await self._db.all(
            "UPDATE turnlog.leases l SET expires_at = clock_timestamp() + %s"
            " FROM unnest(%s::text[], %s::bigint[]) AS h (id, epoch)"
            " WHERE l.session_id = h.id AND l.epoch = h.epoch RETURNING l.epoch",
            (self._lasting, [lease.session_id for lease in held], [lease.epoch for lease in held]),
            urgent=True,
            call_s=self._beat_s * 2,
            patience_s=0,
        )
        living = {epoch for (epoch,) in kept}
        for lease in held:
            if lease.epoch not in living:
                lease.live = False
                self._held.pop(lease.epoch, None)

    async def _release(self, session_id: str, token: int) -> None:
        with suppress(StoreError):
            # Not flushed: if the database crashes now, the lease comes back and expires.
            await self._db.all(
                "WITH unflushed AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))"
                " DELETE FROM turnlog.leases l USING unflushed WHERE l.session_id = %s AND l.token = %s",
                (session_id, token),
                patience_s=RELEASE_PATIENCE_S,
            )
            self._bell.ring(session_id)

    async def abandoned(self) -> list[str]:
        """A lease that is given back leaves no row; one that ran out does, until somebody takes it."""
        rows = await self._db.all(
            "SELECT session_id FROM turnlog.leases WHERE expires_at <= clock_timestamp() ORDER BY expires_at LIMIT %s",
            (ABANDONED_MAX,),
        )
        return [name for (name,) in rows]

    async def close(self) -> None:
        if self._heart is not None:
            self._heart.cancel()
            with suppress(asyncio.CancelledError):
                await self._heart


async def _pause(event: asyncio.Event, pause_s: float) -> None:
    try:
        async with asyncio.timeout(pause_s):
            await event.wait()
    except TimeoutError:
        return


def me() -> str:
    since = datetime.now(UTC).strftime("%H:%M:%S")
    return f"process {os.getpid()} on {socket.gethostname()}, since {since} UTC"


def _busy(session_id: str, holder: str) -> Busy:
    return Busy(f"a turn is running in session {session_id} ({holder})", holder=holder)
