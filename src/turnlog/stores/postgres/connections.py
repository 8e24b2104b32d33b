"""The connections of a process to one database: which statement goes out on which, and with which others.

A statement gets a connection of its own while there is one. If all are busy, those that wait go out together on the
next free one. A statement that has a moment of time (`within_s`) goes along with the next one that is sent, and alone
only when its time is over: so what nobody waits for costs no round trip of its own.
"""

import asyncio
from asyncio import AbstractEventLoop
from collections import deque
from weakref import WeakKeyDictionary, WeakValueDictionary

from .wire import PostgresCall, PostgresRow, PostgresWire

TOGETHER_MAX = 32
"""Statements that go out together."""
LATER_S = 0.02
"""When the next one that has time is sent, if it could not go along with the one before it."""
LONG_S = 60.0
"""Nothing goes out behind a statement that may take so long."""


_of_stores: WeakKeyDictionary[AbstractEventLoop, WeakValueDictionary[str, "PostgresConnections"]] = WeakKeyDictionary()


class PostgresConnections:
    def __init__(self, conninfo: str, size: int) -> None:
        self.conninfo = conninfo
        self._size = size
        self._idle: list[PostgresWire] = []
        self._open = 0
        """Connections in use, idle, or being made."""
        self._waiting: deque[PostgresCall] = deque()
        self._later: deque[PostgresCall] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._opening = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._quiet: asyncio.Future[None] | None = None
        """Done when no connection is in use."""
        self._users = 1

    def offer(self) -> None:
        """From now on the parts beside this store share its connections."""
        _of_stores.setdefault(asyncio.get_running_loop(), WeakValueDictionary())[self.conninfo] = self

    @staticmethod
    def offered(conninfo: str) -> "PostgresConnections | None":
        stores = _of_stores.get(asyncio.get_running_loop())
        found = stores.get(conninfo) if stores else None
        return found if found and found._users else None

    def share(self) -> "PostgresConnections":
        self._users += 1
        return self

    def send(self, call: PostgresCall, within_s: float = 0.0) -> None:
        """Its `answer` is a new future."""
        loop = asyncio.get_running_loop()
        call.answer = loop.create_future()
        call.connected = False
        if call.then:
            call.then.answer = loop.create_future()
            call.then.answer.add_done_callback(_retrieve)
        if within_s > 0:
            self._later.append(call)
            self._send_later_at(loop.time() + within_s)
        else:
            self._waiting.append(call)
            self._serve()

    def _send_later_at(self, when: float) -> None:
        if self._timer is None or when < self._timer.when():
            if self._timer:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_at(when, self._send_later)

    def _send_later(self) -> None:
        self._timer = None
        if self._later:
            self._waiting.append(self._later.popleft())
            self._serve()
        if self._later:  # those that could not go along
            self._send_later_at(asyncio.get_running_loop().time() + LATER_S)

    def _serve(self) -> None:
        while self._waiting and self._idle:
            self._fill(self._idle.pop())
        for _ in range(min(len(self._waiting) - self._opening, self._size - self._open)):
            self._open += 1
            self._opening += 1
            task = asyncio.ensure_future(self._connect())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _fill(self, wire: PostgresWire) -> None:
        """Those that wait go out together only if no other connection can take them."""
        alone = bool(self._idle) or self._open < self._size
        calls = self._taken(self._waiting, 1 if alone else TOGETHER_MAX)
        if calls and calls[-1].limit_s < LONG_S:
            calls += self._taken(self._later, TOGETHER_MAX)
            if self._timer and not self._later:
                self._timer.cancel()
                self._timer = None
        if calls:
            wire.send([each for call in calls for each in (call, call.then) if each])
        else:
            self._idle.append(wire)

    def _taken(self, queue: deque[PostgresCall], most: int) -> list[PostgresCall]:
        """The next ones whose callers still wait; a long one only as the last."""
        taken: list[PostgresCall] = []
        while queue and len(taken) < most and not (taken and taken[-1].limit_s >= LONG_S):
            call = queue.popleft()
            if not call.answer.done():
                taken.append(call)
        return taken

    async def _connect(self) -> None:
        try:
            wire = await PostgresWire.open(self.conninfo, self._freed)
        except Exception as error:  # noqa: BLE001 - the call that waits for this connection reports it
            self._open -= 1
            self._opening -= 1
            for call in self._taken(self._waiting, 1):
                call.refuse(error)
            self._serve()
            self._tell_if_quiet()
        else:
            self._opening -= 1
            self._freed(wire)

    def _freed(self, wire: PostgresWire) -> None:
        if wire.is_usable:
            self._idle.append(wire)
        else:
            if wire not in self._idle:
                self._idle.append(wire)
            self._drop_idle()  # the others probably broke as well
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._serve)
        self._tell_if_quiet()

    def _tell_if_quiet(self) -> None:
        if self._quiet and not self._quiet.done() and self._open == len(self._idle):
            self._quiet.set_result(None)

    def _drop_idle(self) -> None:
        idle, self._idle = self._idle, []
        for wire in idle:
            wire.close()
            self._open -= 1

    async def close(self) -> None:
        """Called when nobody waits for an answer any more; what was sent is waited for."""
        self._users -= 1
        if self._users:
            return
        if self._open > len(self._idle):
            self._quiet = asyncio.get_running_loop().create_future()
            await self._quiet
        if self._timer:
            self._timer.cancel()
        self._drop_idle()


def _retrieve(answer: "asyncio.Future[list[PostgresRow]]") -> None:
    """Nobody waits for it, so nobody else would."""
    if not answer.cancelled():
        answer.exception()
