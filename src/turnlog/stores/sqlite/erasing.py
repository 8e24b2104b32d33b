"""Erases entries of a SQLite store: from the rows, the indexes, the write-ahead log and the free pages of the file.

`secure_delete` overwrites with zeros what a change frees. The write-ahead log still holds earlier pages until it is
copied into the database and cut off, which waits for running readers.
"""

import time
from itertools import chain

from ...codecs import native
from ...core import erasing, facts as session_facts
from ...core.admission import admit
from ...core.outline import for_erasing
from ...core.session import describe
from ...errors import StoreUnavailable
from .. import Clock, word_index
from ..stamping import AskedErase, check_incarnation, stamp
from . import statements
from .connection import SqliteConnection
from .entry_rows import EntryRows

CUT_WAIT_S = 30.0
"""How long the write-ahead log waits for readers of other processes before it is cut off."""


def erase(
    db: SqliteConnection,
    entry_rows: EntryRows,
    session_id: str,
    asked: AskedErase,
    clock: Clock,
) -> tuple[list[int], bool]:
    """The seqs that it erased, and whether any of it was searchable. In a transaction of the caller."""
    row = check_incarnation(statements.row_of(db, session_id), session_id, asked.incarnation)
    # Twice in parts instead of once as a whole, which a large log would not allow.
    plan = erasing.plan(
        [*map(for_erasing, statements.readable(db, session_id))], asked.seqs, redact=asked.redact, by=asked.by
    )
    if not plan.emptied:
        return [], True
    entries = stamp(admit(row, plan.appended, leased=True), row.last_seq, clock())
    row = describe(None, chain(plan.applied(statements.readable(db, session_id)), entries))
    db.many(
        "UPDATE session_messages SET meta_json = ? WHERE session_id = ? AND seq = ?",
        [(native.encode_stored(entry).decode(), session_id, entry.seq) for entry in plan.emptied],
    )
    entry_rows.insert(db, session_id, entries, [native.encode_stored(entry).decode() for entry in entries])
    db.many("DELETE FROM session_facts WHERE session_id = ? AND seq = ?", [(session_id, seq) for seq in plan.seqs])
    statements.index_facts(db, session_id, session_facts.changes(entries))
    statements.save(db, row)
    statements.save_state(db, row)
    return plan.seqs, word_index.drop_entries(db, session_id, plan.seqs)


def cut_log(db: SqliteConnection) -> None:
    """Copies the write-ahead log into the database, and empties it."""
    until = time.monotonic() + CUT_WAIT_S
    while db.all("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]:
        if time.monotonic() > until:
            raise StoreUnavailable(
                "the entries are erased, but the database's log still holds them, because somebody reads it",
                hint="End long readers of the database, then erase the same entries again.",
            )
        time.sleep(0.01)
