"""The turns of this process that clients may rejoin: those that run, and those that ended a short while ago."""

import asyncio
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeAlias

from msgspec import Struct

from ..core import paging
from ..core.events import Event, TextDelta
from ..core.session import Session
from ..turns.stream import TurnStream

KEPT_S = 300.0
"""How long an ended turn is kept for clients that lost their connection near its end; after that its log answers."""
KEPT_MAX = 1_000
KEPT_BYTES = 64_000_000
"""Ended turns kept at once, by number and by the weight of their events (`core/paging`). Beyond either, those that
ended first are dropped.
"""
TurnName: TypeAlias = tuple[str, int]
"""Session id and seq."""


class _Ended(Struct, frozen=True):
    until: float
    weight: int


class RecentTurns:
    def __init__(self) -> None:
        self._kept: dict[TurnName, TurnStream] = {}
        self._ended: OrderedDict[TurnName, _Ended] = OrderedDict()
        """In the order in which they ended."""
        self._weight = 0
        self._timer: asyncio.TimerHandle | None = None
        """One for all of them: a timer of its own would hold each turn until its time, whatever was dropped."""
        self._awaited: dict[str, set[asyncio.Event]] = {}

    @contextmanager
    def begun(self, session_id: str) -> Generator[asyncio.Event]:
        """An event that is set when a turn begins in this session."""
        event = asyncio.Event()
        waiting = self._awaited.setdefault(session_id, set())
        waiting.add(event)
        try:
            yield event
        finally:
            waiting.discard(event)
            if not waiting and self._awaited.get(session_id) is waiting:
                del self._awaited[session_id]

    def keep(self, stream: TurnStream) -> None:
        for event in self._awaited.get(stream.session_id, ()):
            event.set()
        name = (stream.session_id, stream.seq)
        self._forget(name)
        self._kept[name] = stream

    def end(self, stream: TurnStream) -> None:
        """The turn has ended: it is kept for a while only."""
        name = (stream.session_id, stream.seq)
        if self._kept.get(name) is not stream or name in self._ended:
            return
        weight = sum(map(_weight, stream.events))
        self._ended[name] = _Ended(asyncio.get_running_loop().time() + KEPT_S, weight)
        self._weight += weight
        self._shrink()

    def drop(self, stream: TurnStream) -> None:
        name = (stream.session_id, stream.seq)
        if self._kept.get(name) is stream:
            self._forget(name)

    def _forget(self, name: TurnName) -> None:
        self._kept.pop(name, None)
        if ended := self._ended.pop(name, None):
            self._weight -= ended.weight

    def _shrink(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._ended:
            name, first = next(iter(self._ended.items()))
            if len(self._ended) <= KEPT_MAX and self._weight <= KEPT_BYTES and first.until > now:
                self._timer = self._timer or loop.call_at(first.until, self._shrink_later)
                return
            self._forget(name)

    def _shrink_later(self) -> None:
        self._timer = None
        self._shrink()

    @property
    def running(self) -> int:
        return sum(not stream.over for stream in self._kept.values())

    def get(self, row: Session, seq: int) -> TurnStream | None:
        stream = self._kept.get((row.id, seq))
        if stream is None or stream.incarnation != row.incarnation or (stream.fenced and stream.over):
            return None
        return stream

    def around(self, row: Session, seq: int) -> TurnStream | None:
        """The turn that a message belongs to, which a steering message did not begin."""
        seqs = [start for session_id, start in self._kept if session_id == row.id and start <= seq]
        return self.get(row, max(seqs)) if seqs else None


def _weight(event: Event) -> int:
    if isinstance(event, TextDelta):  # nearly all are: a turn may have thousands
        return paging.FRAME_BYTES + paging.text_bytes(event.text)
    return paging.weight(event)
