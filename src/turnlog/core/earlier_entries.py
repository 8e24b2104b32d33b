"""The earlier entries that are needed to compute the row after an append (`core/session`).

Nearly always the row itself is enough. A rewind needs the entries that it skips, and the last message before its
target, which says whose turn it is then. That message is looked for in the two entries before the target first, and
then in fifty.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from msgspec.structs import replace

from .entries import SHAPING, Entry, Erasure, Rewind
from .marks import LOOKED_BACK, Interval, Mark, Route, in_effect, joined, live_path, marks_of, on_path
from .rows import Session, milliseconds
from .session import describe
from .weights import ANSWERS, Weights, role_at, size_on, step_in, step_of, weight_of

LOOKED_BACK_FIRST = 2
_RESHAPING = SHAPING | {Erasure}


def row_after(
    row: Session | None,
    entries: Sequence[Entry],
    read: Callable[[Sequence[Interval]], Iterable[Entry]],
    read_all: Callable[[], Iterable[Entry]],
    weigh: Callable[[Sequence[Interval]], Weights] | None = None,
) -> Session:
    """The row after these entries. `read` and `read_all` give the readable earlier ones, and `weigh` the weights of
    those that `read` would give, if the store knows them without reading.
    """
    back = None if row is None else _way_back(row, entries)
    if row is not None and back is not None:
        mark, route = back
        wanted = joined([*route.leaving, *route.before])
        weights = weigh(wanted) if weigh else weights_of(read(wanted))
        if _decides(route, weights):
            return _after_rewind(row, mark, entries[0].ts, route, weights)
    nearest = needed(row, entries, LOOKED_BACK if back else LOOKED_BACK_FIRST)
    if row is None or nearest is None:
        return describe(row, entries)
    if not nearest or (row.pruned_to and not needed(row, entries)):
        return describe(None, chain(read_all(), entries))
    few = list(read(nearest))
    return describe(row, entries, few if back or _is_enough(row, entries, few) else read(needed(row, entries) or ()))


def weights_of(entries: Iterable[Entry]) -> Weights:
    return {entry.seq: weight_of(entry) for entry in entries}


def _way_back(row: Session, entries: Sequence[Entry]) -> tuple[Mark, Route] | None:
    """For a single rewind to an entry of the live path: what it skips, and the two entries there. None for anything
    else, and if the fold needs more marks than the row has.
    """
    entry = entries[0] if len(entries) == 1 else None
    if not isinstance(entry, Rewind) or entry.after is not None or row.lacks_copies:
        return None
    if row.pruned_to and entry.to - LOOKED_BACK < row.pruned_to:
        return None
    mark = Mark("rewind", entry.seq, entry.to)
    route = row.shape.route(mark, LOOKED_BACK_FIRST)
    return None if route is None or route.entering else (mark, route)


def _decides(route: Route, weights: Weights) -> bool:
    """Whether a message at the end of the route says by itself whose turn it is: nothing before it matters then."""
    near = (weights.get(seq, 0) for first, last in route.before for seq in range(first, last + 1))
    return any(step_in(weight) not in (0, ANSWERS) for weight in near)


def _after_rewind(row: Session, mark: Mark, ts: str, route: Route, weights: Weights) -> Session:
    """`RowFold` is the rule. This gives the same result in half of the time; property tests compare the two."""
    return replace(
        row,
        token_estimate=max(0, row.token_estimate - size_on(route.leaving, weights, row.marks)),
        last_role=role_at(route, weights),
        waiting=False,
        approvals=(),
        last_seq=mark.seq,
        last_at=max(row.last_at, milliseconds(ts)) if ts else row.last_at,
        **in_effect(row.shape.add(mark), mark.seq),
    )


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
