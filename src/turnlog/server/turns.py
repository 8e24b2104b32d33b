"""The turns of this process that clients may come back to: those that run, and those that ended a short while ago."""

import asyncio
from collections import OrderedDict

from ..live import Live
from ..queue import Queue

KEPT_S = 300.0
"""How long an ended turn is kept for those who lost their connection near its end; after that its log answers."""
KEPT_MAX = 1_000
"""Ended turns kept at once."""


class Turns:
    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._kept: OrderedDict[tuple[str, int], Live] = OrderedDict()
        queue.on_turn(self.keep)

    def keep(self, live: Live) -> None:
        key = (live.session_id, live.seq)
        self._kept.pop(key, None)
        self._kept[key] = live
        while len(self._kept) > KEPT_MAX and next(iter(self._kept.values())).over:
            self._kept.popitem(last=False)

    def end(self, live: Live) -> None:
        """Its last event was told; from now on it is kept for a while only."""
        asyncio.get_running_loop().call_later(KEPT_S, self._forget, live)

    def _forget(self, live: Live) -> None:
        key = (live.session_id, live.seq)
        if self._kept.get(key) is live:
            del self._kept[key]

    def get(self, session_id: str, seq: int) -> Live | None:
        live = self._kept.get((session_id, seq))
        return None if live is None or (live.fenced and live.over) else live

    def around(self, session_id: str, seq: int) -> Live | None:
        """The turn that a message belongs to: a message that steers is not the one that began it."""
        seqs = [start for session, start in self._kept if session == session_id and start <= seq]
        return self.get(session_id, max(seqs)) if seqs else None

    def running(self, session_id: str) -> Live | None:
        return self._queue.running(session_id)
