"""Weights (`core/weights`) of entries near the end of sessions that were rewound: the next rewind then reads nothing.

A program that takes back one item after the other needs, for each of them, the entries before it. They are read a few
ahead, and those that are written later are added. What is kept is forgotten with the rows that the store keeps: when
another connection has written, and when words were erased.
"""

from collections.abc import Sequence

from ...core.earlier_entries import weights_of
from ...core.entries import Entry
from ...core.marks import Interval, joined
from ...core.weights import Weights, weight_of
from . import statements
from .connection import SqliteConnection

AHEAD = 16
"""The entries that are read before those that are needed."""
SESSIONS_MAX = 256
WEIGHTS_MAX = 512
"""The most of one session. A rewind over more is read anew."""


class KeptWeights:
    def __init__(self) -> None:
        self._sessions: dict[str, dict[int, int]] = {}

    def forget(self) -> None:
        self._sessions.clear()

    def drop(self, session_id: str) -> None:
        self._sessions.pop(session_id, None)

    def of(self, db: SqliteConnection, session_id: str, wanted: Sequence[Interval]) -> Weights:
        """The weights of these entries, and perhaps of more."""
        if sum(last - first + 1 for first, last in wanted) > WEIGHTS_MAX // 2:
            return weights_of(statements.readable_in(db, session_id, wanted))
        known = self._sessions.get(session_id, {})
        missing = [(seq, seq) for first, last in wanted for seq in range(first, last + 1) if seq not in known]
        if not missing:
            return known
        low = missing[0][0]
        read = joined([(max(1, low - AHEAD), low), *missing])
        found = {**weights_of(statements.readable_in(db, session_id, read))}
        if len(self._sessions) >= SESSIONS_MAX:
            self._sessions.clear()
        whole = {**known, **found}
        self._sessions[session_id] = whole if len(whole) <= WEIGHTS_MAX else found
        return whole

    def written(self, session_id: str, entries: Sequence[Entry]) -> None:
        """Entries that this store has appended."""
        known = self._sessions.get(session_id)
        if known is None:
            return
        if len(known) + len(entries) > WEIGHTS_MAX:
            self.drop(session_id)
            return
        for entry in entries:
            known[entry.seq] = weight_of(entry)
