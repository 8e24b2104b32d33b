"""Notifies other servers of changes in a session, and receives their notifications: NOTIFY and LISTEN.

Notifications only save time: waiters also poll, so a lost notification, or a pooler that delivers none, only costs
time. A notification is sent after its commit, in a transaction that waits for no disk: inside the transaction of an
append it would make all commits of all servers queue for one lock. The end of a lease is such a transaction, so it
takes along what is unsent; only what is still unsent after a moment gets a statement of its own.
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial

import psycopg

from ...errors import TurnlogError
from ...runtime.background import run_forever
from .errors import mapped
from .pool import PostgresConnection, PostgresPool, connect

GATHER_S = 0.01
"""Notifications within this many seconds are sent together."""
RECONNECT_S = 1.0
MAX_S = 10.0
"""The longest pause between attempts to connect; until then waiters poll."""


class Notifier:
    def __init__(self, db: PostgresPool, *, conninfo: str | None, wake: Callable[[str], None]) -> None:
        self._db = db
        self._conninfo = conninfo
        self._wake = wake
        self.channel = f"turnlog_{db.schema}"
        self._events: dict[str, set[asyncio.Event]] = {}
        self._unsent: set[str] = set()
        self._is_sending = False
        self._listener: asyncio.Task[None] | None = None

    def notify(self, session_id: str) -> None:
        """Notifies of a change in a session; waiters in this process are woken at once."""
        self.wake(session_id)
        self._unsent.add(session_id)
        if not self._is_sending:
            self._is_sending = True
            self._db.spawn(self._send_soon())

    async def _send_soon(self) -> None:
        await asyncio.sleep(GATHER_S)
        self._is_sending = False
        if names := self.take_unsent():
            with suppress(TurnlogError):
                await self._db.all(
                    "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, name)"
                    " FROM unnest(%s::text[]) name",
                    (self.channel, names),
                    patience_s=0,
                )

    def take_unsent(self) -> list[str]:
        """The sessions whose changes the caller notifies of, in a statement that it sends anyway."""
        names, self._unsent = sorted(self._unsent), set()
        return names

    def wake(self, session_id: str) -> None:
        """Wakes the waiters in this process."""
        self._wake(session_id)
        for event in self._events.get(session_id, ()):
            event.set()

    @contextmanager
    def changes(self, session_id: str) -> Generator[asyncio.Event]:
        """An event that is set on every change in the session."""
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
        """Opens the listening connection as soon as somebody waits."""
        if self._conninfo is not None and self._listener is None:
            listen = partial(self._listen, self._conninfo)
            work = run_forever("postgres listener", listen, every_s=RECONNECT_S, first_s=RECONNECT_S, max_s=MAX_S)
            self._listener = asyncio.ensure_future(work)

    async def _listen(self, conninfo: str) -> None:
        try:
            connection = await connect(conninfo)
            try:
                await self._receive(connection)
            finally:
                await connection.close()
        except psycopg.Error as error:
            raise mapped(error) from error

    async def _receive(self, connection: PostgresConnection) -> None:
        await connection.execute(f'LISTEN "{self.channel}"'.encode())
        async for notice in connection.notifies():
            self.wake(notice.payload)

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            with suppress(asyncio.CancelledError):
                await self._listener
