"""Writes entries to `session_messages`, with ids that rise with every commit and are never used again.

The word index reads what follows the highest id that it has seen, so an entry must never get a lower id, not even after
the newest session was deleted. SQLite's AUTOINCREMENT gives such ids, but keeps the highest one in a table of its own,
which is a page more to write in every commit. So ids are reserved, some at a time, by raising the number in that table:
SQLite leaves the table alone if an entry comes with an id that is not above the number.

Where the highest id may have changed unseen (another connection wrote, a transaction failed, the store was opened),
`forget` is called, and the next entries are inserted without ids: SQLite then gives them those above the number, which
is above all ids that any process has reserved. Ids are reserved again by an append only if no other process has written
before it: where several processes write in turns, each would reserve some and use few. Reserved ids that were not used
are left out.
"""

from collections.abc import Sequence

from ...core.entries import Entry
from .. import sql
from .connection import SqliteConnection

RESERVED = 256
"""The ids that are reserved at once."""
_HIGHEST = (
    "SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'session_messages'), 0),"
    " coalesce((SELECT max(id) FROM session_messages), 0))"
)
_INSERT = "INSERT INTO session_messages (id, session_id, seq, role, created_at, meta_json) VALUES (?, ?, ?, ?, ?, ?)"


class EntryRows:
    def __init__(self) -> None:
        self._free = range(0)
        self._is_first = True
        """Whether no entry was inserted since others may have written."""

    def forget(self) -> None:
        """Called when the ids that this store has reserved may not be the highest ones any more."""
        self._free = range(0)
        self._is_first = True

    def insert(
        self,
        db: SqliteConnection,
        session_id: str,
        entries: Sequence[Entry],
        lines: Sequence[str],
        summary_role: str | None = None,
    ) -> None:
        """`lines`: the entries as they are stored."""
        rows = zip(self._ids(db, len(entries)), entries, lines, strict=True)
        db.many(_INSERT, [(id_, session_id, e.seq, sql.role_of(e, summary_role), e.ts, line) for id_, e, line in rows])

    def _ids(self, db: SqliteConnection, count: int) -> Sequence[int | None]:
        """None: SQLite gives one."""
        if self._is_first:
            self._is_first = False
            return [None] * count
        if len(self._free) < count:
            self._free = _reserved(db, count)
        ids, self._free = self._free[:count], self._free[count:]
        return ids


def _reserved(db: SqliteConnection, count: int) -> range:
    highest: int = db.one(_HIGHEST)
    last = highest + max(count, RESERVED)
    before = db.changes
    db.run("UPDATE sqlite_sequence SET seq = ? WHERE name = 'session_messages'", (last,))
    if db.changes == before:  # nothing was ever inserted
        db.run("INSERT INTO sqlite_sequence (name, seq) VALUES ('session_messages', ?)", (last,))
    return range(highest + 1, last + 1)
