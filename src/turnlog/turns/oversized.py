"""Folds a tail that is larger than any prompt before anything is built of it (`core/oversized`)."""

from ..core import oversized
from ..core.entries import Entry
from ..core.events import CompactionEnd, CompactionStart, Tell
from ..core.guard import Limits
from ..sessions import reading
from ..stores import Store
from .journal import Journal


async def bodies_of(journal: Journal, store: Store, limits: Limits) -> list[Entry]:
    """What folds the tail, to be appended; nothing if the journal has all of it, or if it cannot be cut."""
    if not journal.is_partial:
        return []
    return oversized.fold(await reading.describe_tail(store, journal.row, journal.transcript), limits)


async def fold(journal: Journal, store: Store, limits: Limits, tell: Tell | None = None) -> None:
    """Afterwards the journal has its whole tail. One append; a crash before it changes nothing."""
    if not journal.is_partial:
        return
    row = journal.row
    if tell:
        tell(CompactionStart(tokens_before=row.token_estimate))
    if bodies := await bodies_of(journal, store, limits):
        await journal.append(*bodies)
    journal.take_tail(await reading.load(store, journal.row))
    if tell:
        tell(CompactionEnd(tokens_before=row.token_estimate, tokens_after=journal.row.token_estimate))
