"""Folds a tail that is larger than any prompt before anything is built of it (`core/oversized`)."""

from ..core import oversized
from ..core.events import CompactionEnd, CompactionStart, Tell
from ..core.guard import Limits
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
    bodies = oversized.fold(await reading.describe_tail(store, row, journal.transcript), limits)
    if bodies:
        await journal.append(*bodies)
    journal.take_tail(await reading.load(store, journal.row))
    if tell:
        tell(CompactionEnd(tokens_before=row.token_estimate, tokens_after=journal.row.token_estimate))
