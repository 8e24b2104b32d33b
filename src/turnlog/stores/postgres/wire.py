"""One connection to PostgreSQL, on which several statements can be under way: they are answered in their order.

A sync follows each statement, so each is a transaction of its own, and the error of one leaves the others alone. The
driver's own connection waits for every statement in a coroutine of its own, which costs several times as much processor
time; here the event loop calls `_read` when the server has answered. No statement is prepared: a pooler may use another
server connection for each.
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias, cast

import psycopg
from psycopg import AsyncConnection, abc, adapt
from psycopg.adapt import PyFormat
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus
from psycopg.pq.abc import PGresult

from .errors import lost, unanswered

PostgresRow: TypeAlias = tuple[Any, ...]
PostgresConnection: TypeAlias = AsyncConnection[PostgresRow]
Values: TypeAlias = Sequence[Any] | Mapping[str, Any]
_PLACEHOLDER = re.compile(r"%(?:\((\w+)\))?([sbt%])")
_transformer = cast("type[abc.Transformer]", adapt.Transformer)  # pyright: ignore - of the driver's compiled part
LOOK_S = 1.0
"""How often a connection is read without being told to while an answer is due. uvloop stops watching a socket that was
reset, and says nothing: a crash of the server would never be noticed.
"""
_FORMATS = {"s": PyFormat.AUTO, "b": PyFormat.BINARY, "t": PyFormat.TEXT}


class PostgresCall:
    """One statement and its answer, the rows. It can be sent again: `answer` is a new future for each attempt."""

    __slots__ = ("answer", "begun", "connected", "formats", "limit_s", "open_ended", "sending", "sql", "then", "values")

    def __init__(
        self, sql: str, schema: str, values: Values, limit_s: float, sending: Callable[[], object] | None
    ) -> None:
        self.sql, self.formats, names = numbered(sql, schema)
        self.values = [values[name] for name in names] if isinstance(values, Mapping) else values
        self.limit_s = limit_s
        self.sending = sending
        self.then: PostgresCall | None = None
        """Goes out right behind it. Nobody waits for its answer."""
        self.answer: asyncio.Future[list[PostgresRow]]
        self.begun = False
        """It was sent at least once."""
        self.connected = False
        """There was a connection for the newest attempt."""
        self.open_ended = False
        """It was sent at least once without an answer."""

    def refuse(self, error: BaseException) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class PostgresWire:
    def __init__(self, connection: PostgresConnection, on_free: "Callable[[PostgresWire], None]") -> None:
        """`on_free`: called when all statements are answered, or when the connection is broken."""
        self._connection = connection
        self._on_free = on_free
        self._pg = connection.pgconn
        self._loop = asyncio.get_running_loop()
        self._sent: deque[tuple[PostgresCall, abc.Transformer]] = deque()
        self._result: PGresult | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._due = 0.0
        """When the first statement must have its answer."""
        self._is_writing = False
        self._is_open = True
        self.is_usable = True
        """False: it is broken, or connected to a server that became read-only."""
        self._pg.nonblocking = 1
        self._pg.enter_pipeline_mode()
        self._socket = self._pg.socket
        self._loop.add_reader(self._socket, self._read)

    @classmethod
    async def open(cls, conninfo: str, on_free: "Callable[[PostgresWire], None]") -> "PostgresWire":
        return cls(await connect(conninfo), on_free)

    def send(self, calls: Iterable[PostgresCall]) -> None:
        """All of them in one piece. `on_free` may be called before this returns."""
        left = deque(calls)
        try:
            while left:
                self._begin(left.popleft())
            self._flush()
        except psycopg.Error as error:
            self._break(error)
            for call in left:
                call.refuse(error)
            return
        if self._sent:
            self._watch_time()
        else:
            self._on_free(self)

    def _begin(self, call: PostgresCall) -> None:
        transformer = _transformer(self._connection)
        call.begun = call.connected = True
        try:
            values = transformer.dump_sequence(call.values, call.formats)
        except Exception as error:  # noqa: BLE001 - it concerns this call alone, which reports it
            call.refuse(error)
            return
        self._sent.append((call, transformer))
        if call.sending is not None:
            call.sending()
        self._pg.send_query_params(call.sql, values, param_types=transformer.types, param_formats=transformer.formats)
        self._pg.pipeline_sync()

    def _flush(self) -> None:
        is_writing = bool(self._pg.flush())
        if is_writing != self._is_writing:
            self._is_writing = is_writing
            if is_writing:
                self._loop.add_writer(self._socket, self._write)
            else:
                self._loop.remove_writer(self._socket)

    def _write(self) -> None:
        try:
            self._flush()
        except psycopg.Error as error:
            self._break(error)

    def _read(self) -> None:
        before = len(self._sent)
        try:
            self._pg.consume_input()
            while self._sent and not self._pg.is_busy():
                self._take(self._pg.get_result())
            if self._is_writing:
                self._flush()
            if self._pg.status == ConnStatus.BAD:
                raise psycopg.OperationalError("the connection was lost")
        except psycopg.Error as error:
            self._break(error)
            return
        if len(self._sent) < before:
            self._watch_time()
            if not self._sent:
                self._on_free(self)

    def _take(self, result: PGresult | None) -> None:
        if result is None:
            return
        if result.status != ExecStatus.PIPELINE_SYNC:
            self._result = result
            return
        call, transformer = self._sent.popleft()
        result, self._result = self._result, None
        if result is None or result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            error = psycopg.InterfaceError("no result") if result is None else error_from_result(result)
            self.is_usable = self.is_usable and not lost(error)
            call.open_ended |= unanswered(error)
            call.refuse(error)
        elif not call.answer.done():
            try:
                transformer.set_pgresult(result)
                call.answer.set_result(transformer.load_rows(0, result.ntuples, tuple))
            except Exception as error:  # noqa: BLE001 - it concerns this call alone, which reports it
                call.refuse(error)

    def _watch_time(self) -> None:
        """The time of a statement begins when those before it are answered."""
        if self._alarm:
            self._alarm.cancel()
        self._alarm = None
        if self._sent:
            self._due = self._loop.time() + self._sent[0][0].limit_s
            self._look_later()

    def _look_later(self) -> None:
        self._alarm = self._loop.call_later(min(LOOK_S, self._due - self._loop.time()), self._look)

    def _look(self) -> None:
        """Ends a call without an answer by closing the connection: cancelling would wait for the other side."""
        first = self._sent[0]
        self._read()
        if not self._sent or self._sent[0] is not first:
            return
        if self._loop.time() < self._due:
            self._look_later()
        else:
            self._break(psycopg.OperationalError(f"no answer for {first[0].limit_s:g} s"))

    def _break(self, error: psycopg.Error) -> None:
        self.close()
        sent, self._sent = self._sent, deque()
        for call, _ in sent:
            call.open_ended = True
            call.refuse(error)
        self._on_free(self)

    def close(self) -> None:
        if self._alarm:
            self._alarm.cancel()
        self.is_usable = False
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._pg.finish()


async def connect(conninfo: str) -> PostgresConnection:
    """autocommit: each statement is a transaction."""
    return await AsyncConnection.connect(conninfo, autocommit=True, prepare_threshold=None)


@lru_cache(maxsize=512)
def numbered(sql: str, schema: str) -> tuple[bytes, list[PyFormat], list[str]]:
    """The statement with the schema's name, because there is no database session with a search path, and with numbers
    for its placeholders; their formats, and their names if they have any.
    """
    formats: list[PyFormat] = []
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        name, kind = found.groups()
        if kind == "%":
            return "%"
        if name in names:
            return f"${names.index(name) + 1}"
        formats.append(_FORMATS[kind])
        if name:
            names.append(name)
        return f"${len(formats)}"

    text = _PLACEHOLDER.sub(number, qualified(sql, schema).decode())
    return text.encode(), formats, names


def qualified(sql: str, schema: str) -> bytes:
    return sql.replace("turnlog.", f'"{schema}".').encode()


def array_of(values: Iterable[str | int]) -> str:
    """An array as PostgreSQL reads it from text: the driver's own way looks at each value several times."""
    quoted = (str(value).replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return "{" + ",".join(f'"{value}"' for value in quoted) + "}"
