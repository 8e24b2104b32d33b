"""Rows of sessions as this store has last written them: an append to one of them need not read and decode it.

When another connection has written, or a transaction failed, the rows are compared with the file before they are used
again: it holds each row as a text, too, and the same text is the same row. Where several processes write to one store,
each to sessions of its own, that is all an append has to read.
"""

from typing import NamedTuple

from ...core.session import Session
from . import statements
from .connection import SqliteConnection

ROWS_MAX = 1_024


class KeptRow(NamedTuple):
    row: Session
    text: str
    """As it is stored."""
    changes: int


class KeptRows:
    def __init__(self) -> None:
        self._rows: dict[str, KeptRow] = {}
        self._changes = 0
        """Of others, as far as they were noticed."""

    def compare(self) -> None:
        """Called when rows in the file may have changed."""
        self._changes += 1

    def drop(self, session_id: str) -> None:
        self._rows.pop(session_id, None)

    def of(self, db: SqliteConnection, session_id: str) -> Session | None:
        kept = self._rows.get(session_id)
        if kept is None:
            return None
        if kept.changes != self._changes and statements.row_text(db, session_id) != kept.text:
            return None
        return kept.row

    def written(self, row: Session, text: str) -> None:
        if len(self._rows) > ROWS_MAX:
            self._rows.clear()
        self._rows[row.id] = KeptRow(row, text, self._changes)
