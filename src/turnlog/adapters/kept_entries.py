"""Entries that were read from a store, kept in memory so that the next call reads only what is new.

An entry never changes, so one that was read once is right for as long as its session lives. The one exception leaves an
entry of its own (`Erasure`): before anything kept is used, all entries that were written since are read, those of
other processes too, and after an erasure nothing of the session is kept. So each call costs a look at the
row, and gives the answer that reading everything would give.

What is kept is bounded: the sessions that were not used for the longest time are forgotten first.
"""

import sys
from collections import OrderedDict
from collections.abc import Sequence
from weakref import WeakKeyDictionary

from ..core import paging
from ..core.entries import Entry, Erasure, Rewind
from ..core.session import Session
from ..library import Turnlog
from ..stores import Appended

KEPT_BYTES = 64 * 1024 * 1024
SESSION_BYTES = 16 * 1024 * 1024
"""A session that is larger is read anew each time."""
NEW_MAX = 256
"""If more entries were written since the last call, the session is read anew."""
READ_AHEAD = 16
"""Who asked for an entry often asks for the ones before it next."""
ENTRY_BYTES = 400
"""About what an entry takes in memory besides its words."""


class KeptSession:
    """Entries of one session by their seqs. After an erasure it is replaced, so that a read that began before adds
    nothing to its successor.
    """

    def __init__(self, row: Session) -> None:
        self.entries: dict[int, Entry] = {}
        self.row = row
        """Nothing that is kept was erased up to its end."""
        self.size = 0

    def add(self, entries: Sequence[Entry]) -> None:
        known, size = self.entries, 0
        for entry in entries:
            if entry.seq in known:
                continue
            known[entry.seq] = entry
            content = getattr(entry, "content", None)
            is_plain = content.__class__ is str and entry.raw is None
            size += ENTRY_BYTES
            if is_plain:
                size += sys.getsizeof(content)
            elif not isinstance(entry, Rewind) or entry.raw is not None:
                size += paging.weight(entry)
        self.size += size


def _is_plain(entry: Entry) -> bool:
    """Whether all that it holds is a text or a number."""
    return entry.raw is None and (isinstance(entry, Rewind) or getattr(entry, "content", None).__class__ is str)


class KeptEntries:
    """Of the sessions of one store."""

    def __init__(self, most: int = KEPT_BYTES, session_most: int = SESSION_BYTES) -> None:
        self._most = most
        self._session_most = session_most
        self._sessions: OrderedDict[tuple[str, str], KeptSession] = OrderedDict()
        """By id and incarnation, the latest used last."""
        self._size = 0

    async def read(self, t: Turnlog, row: Session, first: int, last: int) -> list[Entry]:
        """The entries from `first` to `last`, of the session as this row describes it."""
        place = row.id, row.incarnation
        kept = self._sessions.get(place)
        if kept is None or kept.row != row:
            kept = await self._renewed(t, row, kept)
        there = [*map(kept.entries.get, range(first, last + 1))] if kept.entries else []
        found = [entry for entry in there if entry is not None]
        if found and len(found) == len(there):
            if place in self._sessions:
                self._sessions.move_to_end(place)
            return found
        if not found:
            begin = max(1, min(first, last + 1 - READ_AHEAD))
            self._add(place, kept, read := await _read(t, row, begin, last))
            return read[first - begin :]
        low, high = first + there.index(None), last - there[::-1].index(None)
        begin = low if low > first else max(1, min(low, high + 1 - READ_AHEAD))
        self._add(place, kept, read := await _read(t, row, begin, high))
        whole = {entry.seq: entry for entry in (*found, *read)}
        return [whole[seq] for seq in range(first, last + 1)]

    async def _renewed(self, t: Turnlog, row: Session, kept: KeptSession | None) -> KeptSession:
        """With what was written since the last look."""
        place = row.id, row.incarnation
        if kept is not None and kept.row.last_seq < row.last_seq <= kept.row.last_seq + NEW_MAX:
            new = await _read(t, row, kept.row.last_seq + 1, row.last_seq)
            if not any(isinstance(entry, Erasure) for entry in new):
                self._add(place, kept, new)
                kept.row = row
                return kept
        self._forget(place)
        fresh = self._sessions[place] = KeptSession(row)
        return fresh

    def written(self, appended: Appended) -> None:
        """What this process has appended, where it is sure to be read back as it was given."""
        row = appended.row
        kept = self._sessions.get((row.id, row.incarnation))
        if kept is not None and kept.row.last_seq + 1 == appended[0].seq and all(map(_is_plain, appended)):
            self._add((row.id, row.incarnation), kept, appended)
            kept.row = row

    def _add(self, place: tuple[str, str], kept: KeptSession, entries: Sequence[Entry]) -> None:
        before = kept.size
        kept.add(entries)
        if self._sessions.get(place) is not kept:
            return  # it was replaced or forgotten meanwhile
        self._size += kept.size - before
        self._sessions.move_to_end(place)
        if kept.size > self._session_most:
            self._forget(place)
        while self._size > self._most:
            self._forget(next(iter(self._sessions)))

    def _forget(self, place: tuple[str, str]) -> None:
        if (kept := self._sessions.pop(place, None)) is not None:
            self._size -= kept.size


async def _read(t: Turnlog, row: Session, first: int, last: int) -> list[Entry]:
    return await t.store.read(
        row.id, after=first - 1, before=last + 1, limit=last - first + 1, incarnation=row.incarnation
    )


_kept: WeakKeyDictionary[Turnlog, KeptEntries] = WeakKeyDictionary()


def kept_entries(t: Turnlog) -> KeptEntries:
    """Of the store that this Turnlog has open."""
    found = _kept.get(t)
    if found is None:
        found = _kept[t] = KeptEntries()
    return found
