"""How a part of the store speaks to PostgreSQL: every statement is its own transaction, and may be repeated.

No connection keeps state between two statements, so each may go through a pooler in transaction mode. Writes carry a
token that the database recognises, so a call whose connection broke is repeated on another one.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import psycopg

from ...errors import StoreUnavailable, UsageError
from .connections import PostgresConnections
from .errors import RETRIED, lost, mapped
from .wire import PostgresCall, PostgresRow, Values

CALL_S = 30.0
"""A connection without an answer for this long counts as dead."""
PASSES = 3
"""Passes of the event loop until an answer has reached its caller."""
PATIENCE_S = 10.0
"""How long a call is retried after its connection broke: longer than a restart of the database takes."""
PAUSE_FIRST_S = 0.02
PAUSE_MAX_S = 0.5
DEADLOCKS_MAX = 20

T = TypeVar("T")


class PostgresPool:
    def __init__(
        self,
        conninfo: str,
        *,
        schema: str,
        size: int,
        patience_s: float = PATIENCE_S,
        connections: PostgresConnections | None = None,
    ) -> None:
        """`connections`: those of another part, to share them."""
        self.patience_s = patience_s
        self.conninfo = conninfo
        self.schema = schema
        self.connections = connections.share() if connections else PostgresConnections(conninfo, size)
        self._calls: set[asyncio.Future[Any]] = set()
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
        within_s: float = 0.0,
        then: tuple[str, Values] | None = None,
    ) -> list[PostgresRow]:
        """The rows. A cancelled caller leaves at once; a statement that has started runs to its end.

        `changes`: whether an error must say if it is known that nothing was changed. `sending`: called before each
        attempt. `within_s`: it may wait so long for another statement to go along with. `then`: a statement that goes
        out right behind it, whatever becomes of this one, and whose answer nobody needs.
        """
        call = PostgresCall(sql, self.schema, values, call_s, sending)
        if then:
            call.then = PostgresCall(then[0], self.schema, then[1], call_s, None)
        patience_s = self.patience_s if patience_s is None else patience_s
        until: float | None = None
        pause, deadlocks = PAUSE_FIRST_S, 0
        while True:
            try:
                return await self._say(call, within_s)
            except psycopg.Error as error:
                now = time.monotonic()
                until = now + patience_s if until is None else until
                again = error.sqlstate in RETRIED and deadlocks < DEADLOCKS_MAX
                if not again and not (lost(error) and now < until):
                    raise self._told(error, call, changes) from error
                deadlocks += again
            within_s = 0.0
            await asyncio.sleep(pause)
            pause = min(pause * 2, PAUSE_MAX_S)

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

    def _forget(self, task: "asyncio.Future[Any]") -> None:
        self._calls.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved here: callers that still wait have it, the others do not need it

    async def _say(self, call: PostgresCall, within_s: float) -> list[PostgresRow]:
        if self._closed:
            raise StoreUnavailable("the store is closed", hint="Open it again.")
        self.connections.send(call, within_s)
        answer = call.answer
        self._calls.add(answer)
        answer.add_done_callback(self._forget)
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            if not call.begun:  # otherwise cancelled callers would delay the others
                answer.cancel()
            raise

    def _told(self, error: psycopg.Error, call: PostgresCall, changes: bool) -> BaseException:
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

    async def close(self) -> None:
        while self._calls:
            await asyncio.wait(set(self._calls))
            for _ in range(PASSES):  # a caller that was answered just now may have a second statement
                await asyncio.sleep(0)
        self._closed = True
        await self.connections.close()
