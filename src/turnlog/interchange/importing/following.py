"""Compares an earlier import with the current source.

Both are read in parallel, a page at a time. Entries are compared as native lines; if the source gave no time, times are
ignored, because the store set them.
"""

from msgspec.structs import replace

from ...codecs import native
from ...core.entries import Entry, Foreign, Opened
from ...core.session import Session
from ...sessions.reading import described
from ...stores import Store

PAGE_ENTRIES = 500


class Follower:
    def __init__(self, store: Store, session_id: str, row: Session | None) -> None:
        self._store = store
        self._id = session_id
        self._last = row.last_seq if row else 0
        self.incarnation = row.incarnation if row else None
        self._page: dict[int, Entry] = {}
        self.differs = ""
        """Set if the source differs from what was imported."""
        self._at = 0

    @classmethod
    async def start(cls, store: Store, session_id: str) -> "Follower":
        return cls(store, session_id, await described(store, session_id))

    @property
    def behind(self) -> bool:
        """Whether entries remain to compare with."""
        return self._at < self._last

    async def matches(self, entry: Entry) -> bool:
        """Whether this entry exists already; False and `differs` if another one is in its place."""
        if entry.seq > self._last:
            return False
        self._at = entry.seq
        stored = await self._entry(entry.seq)
        if stored is not None and _same(stored, entry):
            return True
        self.differs = (
            f"the source, or this session, has changed since the last import (from entry {entry.seq} on); "
            "nothing was added"
        )
        return False

    async def closing(self, last_seq: int) -> int:
        """The number of entries that an earlier import added here after the source's entries."""
        if last_seq >= self._last:
            return 0
        match await self._entry(last_seq + 1):
            case Foreign(raw={"import": "end", "then": int(then)}):
                self._at = last_seq + 1 + then
                return 1 + then
            case _:
                return 0

    def more(self, last_seq: int) -> str:
        if last_seq < self._last:
            return "this session was continued here; the source has nothing new"
        return ""

    async def _entry(self, seq: int) -> Entry | None:
        if seq not in self._page:
            found = await self._store.read(self._id, after=seq - 1, limit=PAGE_ENTRIES, incarnation=self.incarnation)
            self._page = {entry.seq: entry for entry in found}
        return self._page.get(seq)


def _same(stored: Entry, entry: Entry) -> bool:
    if isinstance(entry, Opened):  # its label may have been changed in the source's index
        return isinstance(stored, Opened) and stored.id == entry.id
    if not entry.ts:
        stored = replace(stored, ts="")
    return native.encode(stored) == native.encode(entry)
