"""Telling other servers that something happened in a session, and hearing it: NOTIFY and LISTEN.

Only to be quicker: whoever waits also looks by himself now and then, so a lost notification, or a pooler that delivers
none, costs time and nothing else. The notification is sent after the commit it tells of, in a transaction of its own:
inside, it would make all commits of all servers queue for one lock.
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

import psycopg

from ..errors import StoreError
from .postgres_pool import Connection, Database, connect

GATHER_S = 0.01
"""Notifications of so long are sent together."""
RECONNECT_S = 1.0


class Bell:
    def __init__(self, db: Database, *, conninfo: str | None, wake: Callable[[str], None]) -> None:
        self._db = db
        self._conninfo = conninfo
        self._wake = wake
        self._channel = f"turnlog_{db.schema}"
        self._events: dict[str, set[asyncio.Event]] = {}
        self._ringing: set[str] = set()
        self._listener: asyncio.Task[None] | None = None

    def ring(self, session_id: str) -> None:
        """Something happened there; here it is heard at once."""
        self._tell(session_id)
        if not self._ringing:
            self._db.spawn(self._ring_soon())
        self._ringing.add(session_id)

    async def _ring_soon(self) -> None:
        await asyncio.sleep(GATHER_S)
        names, self._ringing = sorted(self._ringing), set()
        with suppress(StoreError):
            await self._db.all(
                "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, name)"
                " FROM unnest(%s::text[]) name",
                (self._channel, names),
                patience_s=0,
            )

    def _tell(self, session_id: str) -> None:
        self._wake(session_id)
        for event in self._events.get(session_id, ()):
            event.set()

    @contextmanager
    def heard(self, session_id: str) -> Generator[asyncio.Event]:
        """An event that is set whenever something happens there."""
        self.listen()
        event = asyncio.Event()
        self._events.setdefault(session_id, set()).add(event)
        try:
            yield event
        finally:
            waiting = self._events[session_id]
            waiting.discard(event)
            if not waiting:
                del self._events[session_id]

    def listen(self) -> None:
        """Opens the one connection that listens, as soon as somebody waits for something."""
        if self._conninfo is not None and self._listener is None:
            self._listener = asyncio.ensure_future(self._listen(self._conninfo))

    async def _listen(self, conninfo: str) -> None:
        while True:
            with suppress(psycopg.Error):
                connection = await connect(conninfo)
                try:
                    await self._hear(connection)
                finally:
                    await connection.close()
            await asyncio.sleep(RECONNECT_S)

    async def _hear(self, connection: Connection) -> None:
        await connection.execute(f'LISTEN "{self._channel}"'.encode())
        async for notice in connection.notifies():
            self._tell(notice.payload)

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            with suppress(asyncio.CancelledError):
                await self._listener
