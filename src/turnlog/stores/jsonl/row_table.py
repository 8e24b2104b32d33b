"""The rows of one folder in memory: in order of activity, counted by status, and found by key."""

import operator
from collections import Counter

from ...core.session import FOLD, Session
from .index_lines import IndexedRow, IndexLog, is_meant


class RowTable:
    def __init__(self) -> None:
        self.rows: dict[str, IndexedRow] = {}
        """In the order of their last activity while `is_sorted`; the newest is last."""
        self.counts: Counter[str] = Counter()
        self.is_sorted = True
        self._by_key: dict[str, set[str]] | None = None

    def clear(self) -> None:
        self.rows, self.counts, self._by_key = {}, Counter(), None

    def put(self, row: Session, size: int, ino: int) -> None:
        old = self.rows.pop(row.id, None)
        if old is None:
            self.counts[row.status] += 1
            if self._by_key is not None:
                self._by_key.setdefault(row.key, set()).add(row.id)
        elif old.row.status != row.status:
            self.counts[old.row.status] -= 1
            self.counts[row.status] += 1
        if self.is_sorted and self.rows and row.last_at < next(reversed(self.rows.values())).row.last_at:
            self.is_sorted = False
        self.rows[row.id] = IndexedRow(row, size, ino)

    def remove(self, session_id: str) -> None:
        kept = self.rows.pop(session_id, None)
        if kept is not None:
            self.counts[kept.row.status] -= 1
            if self._by_key is not None:
                self._by_key.get(kept.row.key, set[str]()).discard(session_id)

    def sort(self) -> None:
        if not self.is_sorted:
            self.rows = dict(sorted(self.rows.items(), key=lambda item: (item[1].row.last_at, item[0])))
            self.is_sorted = True

    def at_key(self, key: str) -> set[str]:
        if self._by_key is None:
            self._by_key = {}
            for session_id, kept in self.rows.items():
                self._by_key.setdefault(kept.row.key, set()).add(session_id)
        return self._by_key.get(key, set())

    def take(self, log: IndexLog) -> bool:
        """Fills an empty table from a whole log at once. Whether an older version of Turnlog has written rows, which
        must be built again.
        """
        rows = log.rows
        is_outdated = False
        for line in log.rest:
            row = line.row
            if row is not None:
                rows.pop(row.id, None)
                if row.fold == FOLD:
                    rows[row.id] = IndexedRow(row, line.size, line.ino)
                elif row.fold < FOLD:
                    is_outdated = True
            elif line.deleted is not None and (known := rows.get(line.deleted)) is not None and is_meant(line, known):
                del rows[line.deleted]
        self.rows = rows
        self.counts = Counter([kept.row.status for kept in rows.values()])
        times = [kept.row.last_at for kept in rows.values()]
        self.is_sorted = all(map(operator.le, times, times[1:]))
        return is_outdated
