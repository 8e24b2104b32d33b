"""The paths of the sessions that clients use now, kept in memory, and brought up to date by what was appended since."""

from collections import OrderedDict
from collections.abc import Sequence

from ..core import history, paging, path as paths
from ..core.atoms import Atom
from ..core.entries import Compaction, Entry, Undo
from ..core.history import TailCache
from ..core.path import Path
from ..core.session import Session
from ..sessions import Loaded, Sessions, forking
from ..stores import Store
from .journal import Journal

ATOMS_KEPT = 500_000
"""Atoms of all paths in memory, about 150 bytes each; the sessions used longest ago are forgotten first."""
TAIL_BYTES_KEPT = 64_000_000
"""The weight of all tails in memory (`core/paging`)."""


class WarmPaths:
    def __init__(self, store: Store, sessions: Sessions) -> None:
        self._store = store
        self._sessions = sessions
        self._paths: OrderedDict[tuple[str, str], Path] = OrderedDict()
        self._tails: OrderedDict[tuple[str, str], list[Entry]] = OrderedDict()
        self._weights: dict[tuple[str, str], tuple[int, int]] = {}
        """Up to which entry a tail was weighed, and the result."""
        self._written: dict[tuple[str, str], TailCache] = {}
        """The messages that were built of a tail."""

    async def of(self, row: Session) -> Path:
        """The path of the log as far as this row knows it, or further."""
        known = self._paths.get(_name(row))
        if known is not None and known.last_seq < row.last_seq:
            later = (await self._sessions.transcript(row.id, after=known.last_seq, incarnation=row.incarnation)).entries
            known = self.grown(row, later)
        if known is None:
            whole = await self._sessions.transcript(row.id, incarnation=row.incarnation)
            known = await forking.path_of(self._store, row, whole.entries)
            self.keep(row, known)
        else:
            self._paths.move_to_end(_name(row))
        return known

    async def begin(self, row: Session, log: Sequence[Entry], said: Sequence[Atom] | None) -> None:
        """Keeps the path of a new log; `said`: what was said before it begins, if the caller knows it."""
        known = paths.of_log(row.id, log, said) if said is not None else None
        self.keep(row, known or await forking.path_of(self._store, row, list(log)))

    def keep(self, row: Session, path: Path) -> None:
        self._paths[_name(row)] = path
        self._paths.move_to_end(_name(row))
        total = sum(len(one.keys) for one in self._paths.values())
        while total > ATOMS_KEPT and len(self._paths) > 1:
            _, dropped = self._paths.popitem(last=False)
            total -= len(dropped.keys)

    def grown(self, row: Session, entries: Sequence[Entry]) -> Path | None:
        """The path after what was appended; None if it must be read again."""
        path = self._paths.get(_name(row))
        if path is None:
            return None
        later = [entry for entry in entries if entry.seq > path.last_seq]
        if (later and later[0].seq != path.last_seq + 1) or not path.grow(later):
            del self._paths[_name(row)]
            return None
        return path

    async def tail(self, row: Session) -> Loaded:
        """What a turn needs of the log: from memory, if the row says that nothing is missing there."""
        held = self._tails.pop(_name(row), None)
        if held and held[-1].seq == row.last_seq and is_enough(held, row):
            return Loaded(row, held)
        return await self._sessions.load(row)

    def tail_cache(self, row: Session) -> TailCache | None:
        return self._written.pop(_name(row), None)

    def keep_tail(self, journal: Journal) -> None:
        row, entries = journal.row, journal.stored
        if any(isinstance(entry, Compaction | Undo) for entry in entries):
            self._written.pop(_name(row), None)
            return  # what is compacted need not stay in memory
        self._tails[_name(row)] = entries
        self._written[_name(row)] = journal.tail_cache
        end, weight = self._weights.get(_name(row), (0, 0))
        self._weights[_name(row)] = row.last_seq, weight + paging.weight_after(entries, end)
        while len(self._tails) > 1 and sum(self._weights[name][1] for name in self._tails) > TAIL_BYTES_KEPT:
            name, _ = self._tails.popitem(last=False)
            self._written.pop(name, None)
            self._weights.pop(name)


def _name(row: Session) -> tuple[str, str]:
    return row.id, row.incarnation


def is_enough(entries: Sequence[Entry], row: Session) -> bool:
    """Whether these entries are all that history needs of this log."""
    named = [*row.pins, *((seq, seq) for seq in (*row.received, *row.heard))]
    is_contiguous = entries[-1].seq - entries[0].seq + 1 == len(entries)
    return is_contiguous and entries[0].seq <= row.read_from and not history.missing(entries, named)
