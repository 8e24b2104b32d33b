"""Connections to PostgreSQL, and how statements are sent.

Each statement is its own transaction, no connection keeps state between two of them, and none is prepared, so every
statement may go through a pooler in transaction mode. Every statement can be repeated (writes carry a token that the
database recognises), so a call whose connection broke is repeated on another one.
"""

import asyncio
import os
import socket
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg import AsyncConnection

from ...errors import StoreUnavailable, UsageError
from .errors import RETRIED, lost, mapped, unanswered

CALL_S = 30.0
"""A connection without an answer for this long counts as dead."""
PATIENCE_S = 10.0
"""How long a call is retried after its connection broke: longer than a restart of the database takes."""
PAUSE_FIRST_S = 0.02
PAUSE_MAX_S = 0.5
DEADLOCKS_MAX = 20

PostgresRow: TypeAlias = tuple[Any, ...]
PostgresConnection: TypeAlias = AsyncConnection[PostgresRow]
Values: TypeAlias = Sequence[Any] | Mapping[str, Any]
T = TypeVar("T")


class Statement:
    """One statement. `open_ended`: it was sent at least once without an answer."""

    def __init__(self, sql: bytes, values: Values, limit_s: float, sending: Callable[[], object] | None) -> None:
        self.sql = sql
        self.values = values
        self.limit_s = limit_s
        self.sending = sending
        self.begun = False
        self.connected = False
        self.open_ended = False


class PostgresPool:
    def __init__(self, conninfo: str, *, schema: str, size: int, patience_s: float = PATIENCE_S) -> None:
        self.patience_s = patience_s
        self.conninfo = conninfo
        self.schema = schema
        self._idle: list[PostgresConnection] = []
        self._room = asyncio.Semaphore(size)
        self._calls: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def all(
        self,
        sql: str,
        values: Values = (),
        *,
        changes: bool = False,
        call_s: float = CALL_S,
        patience_s: float | None = None,
        sending: Callable[[], object] | None = None,
    ) -> list[PostgresRow]:
        """The rows. A cancelled caller leaves at once; a statement that has started runs to its end.

        `changes`: whether an error must say if it is known that nothing was changed. `sending`: called before each
        attempt.
        """
        call = Statement(qualified(sql, self.schema), values, call_s, sending)
        patience_s = self.patience_s if patience_s is None else patience_s
        task = self.spawn(self._persist(call, changes, patience_s))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not call.begun:  # otherwise cancelled callers would delay the others
                task.cancel()
            raise

    async def one(self, sql: str, values: Values = (), *, changes: bool = False) -> Any:
        """The only value, or the only row, or None."""
        rows = await self.all(sql, values, changes=changes)
        if not rows:
            return None
        return rows[0][0] if len(rows[0]) == 1 else rows[0]

    def spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """A task that closing the store waits for."""
        task = asyncio.ensure_future(work)
        self._calls.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._calls.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved here: callers that still wait have it, the others do not need it

    async def _persist(self, call: "Statement", changes: bool, patience_s: float) -> list[PostgresRow]:
        until: float | None = None
        pause, deadlocks = PAUSE_FIRST_S, 0
        while True:
            try:
                return await self._say(call)
            except psycopg.Error as error:
                now = time.monotonic()
                until = now + patience_s if until is None else until
                again = error.sqlstate in RETRIED and deadlocks < DEADLOCKS_MAX
                if not again and not (lost(error) and now < until):
                    raise self._told(error, call, changes) from error
                deadlocks += again
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE_MAX_S)

    def _told(self, error: psycopg.Error, call: "Statement", changes: bool) -> BaseException:
        ours = mapped(error)
        if isinstance(ours, UsageError) and not call.connected:
            # The store was opened before: it is not the caller's mistake that its address no longer works.
            ours = StoreUnavailable(str(ours), hint=ours.hint)
        if not (changes and call.open_ended):
            return ours
        return StoreUnavailable(
            f"{ours}; it is not known whether the change was made",
            hint="Read again before you repeat it. The store works again when the database does.",
        )

    async def _say(self, call: "Statement") -> list[PostgresRow]:
        if self._closed:
            raise StoreUnavailable("the store is closed", hint="Open it again.")
        async with self._room:
            call.begun = True
            call.connected = False
            connection = self._idle.pop() if self._idle else await connect(self.conninfo)
            call.connected = True
            if call.sending is not None:
                call.sending()
            alarm = asyncio.get_running_loop().call_later(call.limit_s, _close_socket, connection)
            try:
                cursor = await connection.execute(call.sql, call.values)
                rows = await cursor.fetchall() if cursor.description else []
            except psycopg.Error as error:
                call.open_ended |= unanswered(error)
                await self._drop(connection, broken=lost(error))
                raise
            except BaseException:
                await self._drop(connection, broken=True)
                raise
            finally:
                alarm.cancel()
            self._idle.append(connection)
            return rows

    async def _drop(self, connection: PostgresConnection, *, broken: bool) -> None:
        """Refusals do not harm a connection. If it broke, the idle ones probably did too."""
        if not broken and not connection.broken:
            self._idle.append(connection)
            return
        stale, self._idle = [connection, *self._idle], []
        for each in stale:
            with suppress(psycopg.Error):
                await each.close()

    async def close(self) -> None:
        while self._calls:
            await asyncio.wait(set(self._calls))
        self._closed = True
        while self._idle:
            await self._idle.pop().close()


async def connect(conninfo: str) -> PostgresConnection:
    """autocommit: each statement is a transaction. No prepared statements: a pooler may use another server
    connection.
    """
    return await AsyncConnection.connect(conninfo, autocommit=True, prepare_threshold=None)


def _close_socket(connection: PostgresConnection) -> None:
    """Ends a call without an answer by closing the socket, because cancelling would wait for the other side first."""
    with suppress(OSError, psycopg.Error):
        fd = os.dup(connection.pgconn.socket)
        with socket.socket(fileno=fd) as wire:
            wire.shutdown(socket.SHUT_RDWR)


@lru_cache(maxsize=512)
def qualified(sql: str, schema: str) -> bytes:
    """Statements name their schema, because there is no database session with a search path."""
    return sql.replace("turnlog.", f'"{schema}".').encode()
