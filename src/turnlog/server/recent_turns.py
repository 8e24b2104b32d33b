"""The turns of this process that clients may rejoin: those that run, and those that ended a short while ago."""

import asyncio
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager

from ..core.session import Session
from ..turns.stream import TurnStream

KEPT_S = 300.0
"""How long an ended turn is kept for clients that lost their connection near its end; after that its log answers."""
KEPT_MAX = 1_000
"""Ended turns kept at once."""


class RecentTurns:
    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int], TurnStream] = OrderedDict()
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
        key = (stream.session_id, stream.seq)
        self._kept.pop(key, None)
        self._kept[key] = stream
        while len(self._kept) > KEPT_MAX and next(iter(self._kept.values())).over:
            self._kept.popitem(last=False)

    def end(self, stream: TurnStream) -> None:
        """The turn has ended: it is kept for a while only."""
        asyncio.get_running_loop().call_later(KEPT_S, self.drop, stream)

    def drop(self, stream: TurnStream) -> None:
        key = (stream.session_id, stream.seq)
        if self._kept.get(key) is stream:
            del self._kept[key]

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
