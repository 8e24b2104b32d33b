"""What has become of an entry: it is in the tail, a compaction covers it, or it was rewound."""

from collections.abc import Sequence

from .marks import Mark, live_path, on_path
from .rows import Session
from .search import SearchState


class LogStates:
    """Judges the entries of one log. `marks`: all of them, where the row does not remember enough (`is_known`)."""

    def __init__(self, row: Session, marks: Sequence[Mark] | None = None) -> None:
        marks = row.marks if marks is None else marks
        self._path = live_path(marks, row.last_seq)
        self._boundary = row.boundary
        self._undone = {mark.at for mark in marks if mark.kind == "undo" and on_path(mark.seq, self._path)}

    def of(self, seq: int) -> SearchState:
        if seq in self._undone or not on_path(seq, self._path):
            return "rewound"
        return "compacted" if seq < self._boundary else "tail"


def is_known(row: Session, seq: int) -> bool:
    """Whether the row remembers enough to judge this entry."""
    return seq > max(row.pruned_to, row.dead_to)
