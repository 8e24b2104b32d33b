"""Connections to PostgreSQL, and how a statement is said to it.

Each statement is its own transaction, no connection keeps anything between two of them, and none is prepared: so any
of them may go through a pooler in transaction mode. Every statement of the store may be repeated (writes carry a token
that the database recognises), so a call whose connection broke is simply made again on another one.
"""

import asyncio
import os
import socket
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg import AsyncConnection

from ..errors import StoreUnavailable
from .postgres_errors import RETRIED, lost, mapped, unanswered

CALL_S = 30.0
"""Without an answer for so long, the connection is taken for dead."""
PATIENCE_S = 10.0
"""How long a call goes on trying after its connection broke: longer than a restart of the database takes."""
PAUSE_FIRST_S = 0.02
PAUSE_MAX_S = 0.5
DEADLOCKS_MAX = 20

Row: TypeAlias = tuple[Any, ...]
Connection: TypeAlias = AsyncConnection[Row]
Values: TypeAlias = Sequence[Any] | Mapping[str, Any]
T = TypeVar("T")


class Call:
    """One statement. `open_ended`: it was sent at least once, and no answer came."""

    def __init__(self, sql: bytes, values: Values, limit_s: float, room: asyncio.Semaphore) -> None:
        self.sql = sql
        self.values = values
        self.limit_s = limit_s
        self.room = room
        self.begun = False
        self.open_ended = False


class Database:
    def __init__(self, conninfo: str, *, schema: str, size: int) -> None:
        self.conninfo = conninfo
        self.schema = schema
        self._idle: list[Connection] = []
        self._room = asyncio.Semaphore(size)
        self._lane = asyncio.Semaphore(1)
        self._calls: set[asyncio.Task[Any]] = set()
        self._closed = False

    async def all(
        self,
        sql: str,
        values: Values = (),
        *,
        changes: bool = False,
        urgent: bool = False,
        call_s: float = CALL_S,
        patience_s: float = PATIENCE_S,
    ) -> list[Row]:
        """The rows. A caller who is cancelled leaves at once; a statement that was begun runs to its end.

        `changes`: so that an error can say whether it is known that nothing was changed. `urgent`: does not wait
        until others have done with their connections.
        """
        call = Call(qualified(sql, self.schema), values, call_s, self._lane if urgent else self._room)
        task = self.spawn(self._persist(call, changes, patience_s))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not call.begun:  # or those who left would keep those who stayed waiting
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
            task.exception()  # seen; whoever waited has it, and whoever left does not want it

    async def _persist(self, call: "Call", changes: bool, patience_s: float) -> list[Row]:
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
                    raise self._told(error, unknown=changes and call.open_ended) from error
                deadlocks += again
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE_MAX_S)

    def _told(self, error: psycopg.Error, *, unknown: bool) -> BaseException:
        ours = mapped(error)
        if not unknown:
            return ours
        return StoreUnavailable(
            f"{ours}; it is not known whether the change was made",
            hint="Read again before repeating it; it goes on when the database does.",
        )

    async def _say(self, call: "Call") -> list[Row]:
        if self._closed:
            raise StoreUnavailable("the store is closed", hint="Open it again.")
        async with call.room:
            call.begun = True
            connection = self._idle.pop() if self._idle else await connect(self.conninfo)
            alarm = asyncio.get_running_loop().call_later(call.limit_s, _hang_up, connection)
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

    async def _drop(self, connection: Connection, *, broken: bool) -> None:
        """Refusals leave a connection as good as it was. If it broke, those that lay idle most likely did too."""
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


async def connect(conninfo: str) -> Connection:
    """autocommit: a statement is a transaction. No prepared statements: a pooler may answer from another server."""
    return await AsyncConnection.connect(conninfo, autocommit=True, prepare_threshold=None)


def _hang_up(connection: Connection) -> None:
    """Ends a call that gets no answer, as the other side would: cancelling it would wait for that side first."""
    with suppress(OSError, psycopg.Error):
        fd = os.dup(connection.pgconn.socket)
        with socket.socket(fileno=fd) as wire:
            wire.shutdown(socket.SHUT_RDWR)


@lru_cache(maxsize=512)
def qualified(sql: str, schema: str) -> bytes:
    """Statements name their schema, because there is no session to keep a search path in."""
    return sql.replace("turnlog.", f'"{schema}".').encode()
