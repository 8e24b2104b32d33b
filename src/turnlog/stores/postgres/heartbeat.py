"""Sends the heartbeats of leases from a thread with its own event loop and connection.

So a holder whose event loop is busy or blocked keeps its leases. A lease that could not be renewed in time is dead for
its holder before the database lets anybody else take it: both count from the time a renewal was sent, the holder by a
monotonic clock. If the database later confirms that nobody took it, it is live again.
"""

import asyncio
import math
import threading
import time
from contextlib import suppress
from datetime import timedelta

from ...runtime.background import Loop
from ..disk.syncing import aside
from .pool import PostgresPool

NOT_TAKEN = 0
"""The epoch of a lease that its first append takes. Those of the database begin with 1."""
BEATS = 4
"""Heartbeats during the lifetime of a lease: three may get lost."""
DRIFT = 0.01
"""The clocks of two machines differ by less than this share; the holder considers its lease dead earlier by as much."""
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Seconds, including the time that the machine sleeps."""
    return time.clock_gettime(_CLOCK)


class PostgresLease:
    def __init__(self, session_id: str, token: int, holder: str) -> None:
        """Not taken yet."""
        self.session_id = session_id
        self.epoch = NOT_TAKEN
        self.token = token
        self.holder = holder
        self.is_asked_for = False
        """Whether the database may have granted it."""
        self._until = math.inf
        self._is_over = False
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    @property
    def live(self) -> bool:
        return not self._is_over and now() < self._until

    @property
    def is_lapsed(self) -> bool:
        """Whether it was not renewed in time, and as far as known not taken by another process."""
        return not self._is_over and not self.live

    def renew(self, until: float) -> None:
        """Can be called from any thread, like `end`."""
        self._until = until
        self._tell()

    def end(self) -> None:
        self._is_over = True
        self._tell()

    def _tell(self) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile; nobody waits any more
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def regain(self) -> bool:
        """Waits for the next renewal; False if there will be none."""
        while not self._is_over:
            await self._news.wait()
            if self.live:
                return True
        return False


class Heartbeat:
    def __init__(self, conninfo: str, *, schema: str, lasting_s: float) -> None:
        self._conninfo = conninfo
        self._schema = schema
        self._lasting_s = lasting_s
        self._beat_s = lasting_s / BEATS
        self._held: dict[int, PostgresLease] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news: asyncio.Event | None = None

    def until(self, sent: float) -> float:
        """When a lease ends for its holder, if it was granted or renewed by a call sent at `sent`."""
        return sent + self._lasting_s * (1 - DRIFT)

    def add(self, lease: PostgresLease, epoch: int, sent: float) -> None:
        """It was granted by a call sent at `sent`."""
        lease.epoch = epoch
        lease.renew(self.until(sent))
        with self._lock:
            self._held[lease.epoch] = lease
            if self._thread is None and not self._is_closing:
                self._thread = threading.Thread(target=self._work, name="turnlog-heartbeat", daemon=True)
                self._thread.start()
        self._wake()

    def drop(self, lease: PostgresLease) -> None:
        with self._lock:
            self._held.pop(lease.epoch, None)
        lease.end()

    def held(self) -> list[PostgresLease]:
        with self._lock:
            return list(self._held.values())

    def _wake(self) -> None:
        loop, news = self._loop, self._news
        if loop is not None and news is not None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(news.set)

    def _work(self) -> None:
        asyncio.run(self._beat())

    async def _beat(self) -> None:
        self._news, self._loop = asyncio.Event(), asyncio.get_running_loop()
        db = PostgresPool(self._conninfo, schema=self._schema, size=1)
        soon_s = self._beat_s / BEATS
        try:
            with Loop("postgres heartbeat", first_s=soon_s, max_s=soon_s) as loop:
                pause_s = self._beat_s
                while not self._is_closing:
                    await self._until_held()
                    await self._pause(pause_s)
                    pause_s = await self._try(db, loop) if self.held() else self._beat_s
        finally:
            await db.close()

    async def _until_held(self) -> None:
        assert self._news is not None  # this runs in its loop
        while not self._is_closing and not self.held():
            self._news.clear()
            if not self.held():
                await self._news.wait()

    async def _pause(self, pause_s: float) -> None:
        """Pauses; a new lease does not delay the next heartbeat of the others."""
        assert self._news is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                while not self._is_closing:
                    self._news.clear()
                    await self._news.wait()

    async def _try(self, db: PostgresPool, loop: Loop) -> float:
        loop.begin()
        try:
            await self._renew(db, self.held())
        except Exception as error:  # noqa: BLE001 - retried soon; until then the leases lapse, as they should
            return loop.failed(error)
        loop.succeeded()
        return self._beat_s

    async def _renew(self, db: PostgresPool, held: list[PostgresLease]) -> None:
        sent = now()
        kept = await db.all(
            "UPDATE turnlog.leases l SET expires_at = clock_timestamp() + %s"
            " FROM unnest(%s::text[], %s::bigint[]) AS h (id, epoch)"
            " WHERE l.session_id = h.id AND l.epoch = h.epoch RETURNING l.epoch",
            (
                timedelta(seconds=self._lasting_s),
                [lease.session_id for lease in held],
                [lease.epoch for lease in held],
            ),
            call_s=self._beat_s * 2,
            patience_s=0,
        )
        living = {epoch for (epoch,) in kept}
        for lease in held:
            if lease.epoch in living:
                lease.renew(self.until(sent))
            else:
                self.drop(lease)

    async def close(self) -> None:
        """Stops renewing, and tells everybody who waits for a renewal."""
        self._is_closing = True
        for lease in self.held():
            self.drop(lease)
        self._wake()
        if self._thread is not None:
            await aside(self._thread.join)
            self._thread = None
