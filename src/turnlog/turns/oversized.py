"""Folds a tail that is larger than any prompt before anything is built of it (`core/oversized`)."""

from ..core import oversized
from ..core.entries import Compaction, Entry
from ..core.events import CompactionEnd, CompactionStart, Tell
from ..core.guard import Limits
from ..core.session import Session, active
from ..errors import Corrupt
from ..sessions import reading
from ..stores import Store
from .journal import Journal


async def fold(journal: Journal, store: Store, limits: Limits, tell: Tell | None = None) -> None:
    """Afterwards the journal has its whole tail. One append; a crash before it changes nothing."""
    if not journal.is_partial:
        return
    row = journal.row
    if tell:
        tell(CompactionStart(tokens_before=row.token_estimate))
    stack = active(row.marks, row.last_seq)
    previous = await _entries(store, row, stack[-1].seq) if stack else []
    first = await _entries(store, row, row.boundary if row.boundary > 1 else row.first_message)
    newest = next((entry for entry in previous if isinstance(entry, Compaction)), None)
    bodies = oversized.fold(row, journal.transcript, first, newest, limits)
    if bodies:
        await journal.append(*bodies)
    journal.take_tail(await reading.load(store, journal.row))
    if tell:
        tell(CompactionEnd(tokens_before=row.token_estimate, tokens_after=journal.row.token_estimate))


async def _entries(store: Store, row: Session, seq: int) -> list[Entry]:
    """This entry with those that it names; nothing if it cannot be read."""
    try:
        return await reading.with_named(store, row, await reading.read(store, row, after=seq - 1, limit=1))
    except Corrupt:
        return []
