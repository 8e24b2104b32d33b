"""Notifies other servers of changes in a session, and receives their notifications: NOTIFY and LISTEN.

Notifications only save time: waiters also poll, so a lost notification, or a pooler that delivers none, only costs
time. A notification is sent after its commit, in a transaction that waits for no disk: inside the transaction of an
append it would make all commits of all servers queue for one lock. It goes out right behind the append, without waiting
for its answer; if nothing was written, those who are woken find nothing.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial

import psycopg

from ...errors import TurnlogError
from ...runtime.background import run_forever
from .errors import mapped
from .pool import PostgresPool
from .wire import PostgresConnection, array_of, connect

LEDGER = "ledger:"
"""The notification of a change in those spaces of the ledger that are kept in memory. No session has such a name."""
ECHO = "echo:"
ECHO_S = 1.0
TRUST_S = 4.0
"""Every change is heard of if a notification of our own came back within this time, on the connection that is open
now. A pooler may take LISTEN and deliver nothing, and a connection may be dead without anybody knowing.
"""
ECHOES = 60
"""Echoes are sent for so long after the last question whether every change is heard of."""
_NOTIFY = """
SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, name) FROM unnest(%s::text[]) name
"""
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
        self._listener: asyncio.Task[None] | None = None
        self._echoing: asyncio.Task[None] | None = None
        self._echoes: dict[str, float] = {}
        """Our own notifications that are under way, and when they were sent."""
        self._wanted_echoes = 0
        self._heard_at = -TRUST_S
        self._times_told = 0
        self._on_told: dict[str, Callable[[], object]] = {}

    def on_told(self, name: str, call: Callable[[], object]) -> None:
        """Calls it whenever this name is notified of, and whenever that may have gone unheard."""
        self._on_told[name] = call

    def heard(self) -> int | None:
        """How often something was told (`on_told`), if everything that was told by now was heard; None if that is not
        known. An equal number later means that nothing was told in between.
        """
        self._wanted_echoes = ECHOES
        self.listen()
        return self._times_told if time.monotonic() < self._heard_at + TRUST_S else None

    def _tell_all(self) -> None:
        for name in self._on_told:
            self.tell(name)

    def tell(self, name: str) -> None:
        """Called with each notification of this name, and with each change of our own: that one is known at once."""
        self._times_told += 1
        self._on_told[name]()

    def statement(self, names: list[str]) -> tuple[str, tuple[str, str]]:
        """Notifies of changes in these sessions; `wake` is for the waiters in this process."""
        return _NOTIFY, (self.channel, array_of(names))

    async def notify(self, session_id: str) -> None:
        self.wake(session_id)
        with suppress(TurnlogError):
            await self._db.all(*self.statement([session_id]), patience_s=0)

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
        self._tell_all()
        self._echoing = asyncio.ensure_future(self._echo())
        try:
            async for notice in connection.notifies():
                self._take(notice.payload)
        finally:
            self._echoing.cancel()
            self._echoes.clear()
            self._heard_at = -TRUST_S

    def _take(self, name: str) -> None:
        if (sent := self._echoes.pop(name, None)) is not None:
            self._heard_at = sent
        elif name in self._on_told:
            self.tell(name)
        else:
            self.wake(name)

    async def _echo(self) -> None:
        """Notifies of something that only we wait for, while somebody wants to know whether everything is heard."""
        while True:
            if self._wanted_echoes > 0:
                self._wanted_echoes -= 1
                name = ECHO + secrets.token_hex(8)
                self._echoes = {name: time.monotonic()}
                with suppress(TurnlogError):
                    await self._db.all("SELECT pg_notify(%s, %s)", (self.channel, name), patience_s=0)
            await asyncio.sleep(ECHO_S)

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            with suppress(asyncio.CancelledError):
                await self._listener
