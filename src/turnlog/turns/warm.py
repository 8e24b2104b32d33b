"""The tails of sessions that had a turn in this process, kept in memory for their next one."""

from collections import OrderedDict

from msgspec import Struct
from msgspec.structs import replace

from ..core import paging
from ..core.entries import Entry
from ..core.events import CompactionEnd
from ..core.history import TailCache
from ..core.session import Session
from ..sessions import Loaded, Sessions
from ..stores import Store
from .turn import Turn

WARM_SESSIONS = 256
WARM_BYTES = 64_000_000
"""Tails kept in memory between turns, by number and by weight (`core/paging`). Beyond either, the one used longest
ago is read again for its next turn.
"""


class _Warm(Struct, frozen=True):
    """The tail of a log as the last turn left it, and the window it was made for."""

    row: Session
    entries: list[Entry]
    window: int
    incarnation: str
    tail_cache: TailCache
    weight: int
    failed: CompactionEnd | None = None
    """A compaction that failed after `done`, when nobody listened any more: the next turn tells it first."""

    def fits(self, row: Session) -> bool:
        return (self.end, self.incarnation) == (row.last_seq, row.incarnation) and not row.received

    @property
    def end(self) -> int:
        return self.row.last_seq


class WarmTails:
    def __init__(self, store: Store, sessions: Sessions) -> None:
        self._store = store
        self._sessions = sessions
        self._warm: OrderedDict[str, _Warm] = OrderedDict()
        self._weight = 0

    def forget(self, session_id: str) -> None:
        self._pop(session_id)

    def tail_cache(self, session_id: str) -> TailCache | None:
        """What was built of its tail for earlier calls."""
        warm = self._warm.get(session_id)
        return warm.tail_cache if warm else None

    async def load(self, session_id: str, incarnation: str | None = None) -> Loaded:
        """A session's row and tail; the tail from memory, if nothing was written since the last turn here."""
        row = await self._store.describe(session_id, incarnation=incarnation)
        warm = self._warm.get(session_id)
        return Loaded(row, warm.entries) if warm and warm.fits(row) else await self._cold(row)

    def row(self, session_id: str) -> Session | None:
        """The row as the last turn here left it, if a new turn could begin there: others may have written since."""
        warm = self._warm.get(session_id)
        return warm.row if warm and self.is_warm(warm.row) else None

    def is_warm(self, row: Session) -> bool:
        """Whether `as_of` finds the tail in memory."""
        if row.under_way or row.received or row.heard:
            return False
        warm = self._warm.get(row.id)
        return warm.fits(row) if warm else not row.first_message

    async def as_of(self, row: Session) -> Loaded | None:
        """The tail of a log that ends where this row says; None if the log may have grown since, or has to be read
        first.
        """
        if row.under_way or row.received or row.heard:
            return None
        if not row.first_message:
            return Loaded(row, [])
        if warm := self._warm.get(row.id):
            if warm.fits(row):
                return Loaded(row, warm.entries)
            if warm.end > row.last_seq:
                return None  # the row is older than the last turn here
        loaded = await self._cold(row)
        return loaded if loaded.entries and loaded.entries[-1].seq == row.last_seq else None

    async def _cold(self, row: Session) -> Loaded:
        return await self._sessions.load(row, may_be_partial=True)

    def keep(self, turn: Turn, failed: CompactionEnd | None) -> None:
        journal = turn.journal
        before = self._pop(journal.session_id)
        if not journal.reshaped and not journal.damage:
            since = before.end if before and before.incarnation == journal.incarnation else 0
            weight = before.weight if before and since else 0
            weight += paging.weight_after(journal.stored, since)
            self._warm[journal.session_id] = _Warm(
                journal.row, journal.stored, turn.limits.window, journal.incarnation, journal.tail_cache, weight, failed
            )
            self._weight += weight
        while len(self._warm) > WARM_SESSIONS or (self._weight > WARM_BYTES and len(self._warm) > 1):
            self._pop(next(iter(self._warm)))

    def _pop(self, session_id: str) -> _Warm | None:
        gone = self._warm.pop(session_id, None)
        self._weight -= gone.weight if gone else 0
        return gone

    def is_resumed(self, turn: Turn) -> bool:
        """The first call of this process in this session, or the first with a smaller window."""
        warm = self._warm.get(turn.journal.session_id)
        return warm is None or warm.incarnation != turn.journal.incarnation or warm.window > turn.limits.window

    def take_failure(self, turn: Turn) -> CompactionEnd | None:
        """The compaction that failed after the last turn here, once."""
        warm = self._warm.get(turn.journal.session_id)
        if warm is None or warm.incarnation != turn.journal.incarnation:
            return None
        self._warm[turn.journal.session_id] = replace(warm, failed=None)
        return warm.failed
