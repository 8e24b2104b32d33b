"""The earlier entries that are needed to compute the row after an append (`core/session`).

Nearly always the row itself is enough. A rewind needs the entries that it skips, and the last message before its
target, which says whose turn it is then. That message is looked for in the two entries before the target first, and
then in fifty.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from msgspec.structs import replace

from .entries import SHAPING, Entry, Erasure
from .marks import LOOKED_BACK, Interval, joined, live_path, marks_of, on_path
from .rows import Session
from .session import describe
from .weights import ANSWERS, step_of

LOOKED_BACK_FIRST = 2
_RESHAPING = SHAPING | {Erasure}


def row_after(
    row: Session | None,
    entries: Sequence[Entry],
    read: Callable[[Sequence[Interval]], Iterable[Entry]],
    read_all: Callable[[], Iterable[Entry]],
) -> Session:
    """The row after these entries. `read` and `read_all` give the readable earlier ones."""
    nearest = needed(row, entries, LOOKED_BACK_FIRST)
    if row is None or nearest is None:
        return describe(row, entries)
    if not nearest or (row.pruned_to and not needed(row, entries)):
        return describe(None, chain(read_all(), entries))
    few = list(read(nearest))
    return describe(row, entries, few if _is_enough(row, entries, few) else read(needed(row, entries) or ()))


def needed(row: Session | None, bodies: Sequence[Entry], looked_back: int = LOOKED_BACK) -> list[Interval] | None:
    """The intervals of the log that `describe` needs as `past` for these entries.

    None: it needs only the row. Empty: it needs everything, as `describe(None, the whole log)`. `looked_back`: the
    number of entries before the target of a rewind.
    """
    if row is None:
        return None
    for body in bodies:
        if body.after is not None or type(body) in _RESHAPING:
            break
    else:
        return None
    if any(isinstance(body, Erasure) for body in bodies):
        return []  # earlier entries are not what they were
    shape = row.shape
    wanted: list[Interval] = []
    for seq, body in enumerate(bodies, row.last_seq + 1):
        for mark in marks_of([body if body.seq else replace(body, seq=seq)]):
            if mark.kind == "rewind":
                if (route := shape.route(mark, looked_back)) is None:
                    return []
                wanted += [*route.leaving, *route.entering, *route.before]
            elif not shape.can_judge(mark):
                return []
            shape = shape.add(mark)
    return joined((first, min(last, row.last_seq)) for first, last in wanted if first <= row.last_seq) or None


def _is_enough(row: Session, entries: Sequence[Entry], few: Sequence[Entry]) -> bool:
    """Whether a message before the target of the only rewind says by itself whose turn it is: nothing before it
    matters then.
    """
    targets = [mark.at for mark in marks_of(entries) if mark.kind == "rewind"]
    if len(targets) != 1 or not on_path(targets[0], live_path(row.marks, row.last_seq)):
        return False
    return any(entry.seq <= targets[0] and step_of(entry) not in (0, ANSWERS) for entry in few)
