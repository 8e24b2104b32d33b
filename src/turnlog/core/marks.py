"""The few entries that shape a log (marks), and which entries count: those on the live path.

A log is a line that may jump back: `rewind` makes an older entry the predecessor of the next one. So the entries that
count are found by walking back from the end and jumping at each rewind.

A row remembers a bounded number of marks (`Shape`): those of the live path since some entry, what was in effect at that
entry, and the latest marks that were rewound. That is enough to go back, or forward again, at the cost of the skipped
entries. A rewind to further back is reported to the caller, and the shape is rebuilt from all marks.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from .entries import MESSAGES, Compaction, Entry

MARKS_KEPT = 64
"""The most marks in a row; then older and rewound ones are dropped from it, down to half as many. The log
keeps them.
"""
STACK_KEPT = 16
"""The active compactions that a row remembers from before; undoing more reads the whole log once."""

LOOKED_BACK = 50
"""The number of entries before the target of a rewind in which the last message is searched."""

Interval: TypeAlias = tuple[int, int]
MarkKind: TypeAlias = Literal["compaction", "shortened", "pin", "unpin", "rewind", "undo"]


class Mark(Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """One entry that shapes the log. `at` is its target, `to` of a rewind, or `first_kept`."""

    kind: MarkKind
    seq: int
    at: int
    saved: int = 0
    """The tokens that a compaction removed, or that its undo gave back."""


class Route(Struct, frozen=True):
    """The change that a rewind makes to the live path."""

    leaving: list[Interval]
    entering: list[Interval]
    before: list[Interval]
    """The end of the remaining path, newest first: the last message is searched in it."""
    from_start: bool
    """Whether `before` is the whole remaining path."""


class Shape(Struct, frozen=True, gc=False):
    """The marks that a row remembers."""

    marks: tuple[Mark, ...] = ()
    pruned_to: int = 0
    """Up to this seq only the state in effect is known."""
    dead_to: int = 0
    """Up to this seq, rewound marks may be missing."""
    pruned_compactions: int = 0
    """The number of active compactions that are missing."""

    def can_judge(self, mark: Mark) -> bool:
        """Whether the marks are enough to know the newest compaction after this undo, or whether the pinned entry
        counts.
        """
        if mark.kind == "undo" and self.pruned_compactions:
            return len(active(self.marks, mark.seq)) > 1
        return mark.kind != "pin" or mark.at > self.pruned_to

    def add(self, mark: Mark) -> "Shape":
        more = replace(self, marks=(*self.marks, mark))
        return more._pruned(mark.seq) if len(more.marks) > MARKS_KEPT else more

    def _pruned(self, last_seq: int) -> "Shape":
        path = live_path(self.marks, last_seq)
        live = [mark for mark in self.marks if on_path(mark.seq, path)]
        dead = [mark for mark in self.marks if not on_path(mark.seq, path)]
        drop = len(dead) - max(0, MARKS_KEPT // 2 - len(live))
        dead_to = dead[drop - 1].seq if drop > 0 else self.dead_to
        less = replace(self, marks=_in_order(live, dead[max(0, drop) :]), dead_to=max(self.dead_to, dead_to))
        floor = live[-MARKS_KEPT // 2 - 1].seq if len(live) > MARKS_KEPT else 0
        return less._settled_at(floor, live) if floor > self.pruned_to else less

    def _settled_at(self, floor: int, live: Sequence[Mark]) -> "Shape":
        stack = active(live, floor)
        undone = {mark.at for mark in live if mark.kind == "undo" and mark.seq > floor}
        lost = stack[: -STACK_KEPT - sum(mark.seq in undone for mark in stack)]
        kept = {mark.seq for mark in stack[len(lost) :]} | {seq for seq, _ in pinned(live, floor)}
        return Shape(
            marks=tuple(mark for mark in self.marks if mark.seq > floor or mark.seq in kept),
            pruned_to=floor,
            dead_to=max(self.dead_to, floor),
            pruned_compactions=self.pruned_compactions + len(lost),
        )

    def route(self, rewind: Mark, looked_back: int = LOOKED_BACK) -> Route | None:
        """The change of the live path; None if the remembered marks do not reach that far back.

        `looked_back`: the number of entries before the target in which the last message is searched.
        """
        path = live_path(self.marks, rewind.seq - 1)
        entering, meets = self._way_to(min(rewind.at, rewind.seq - 1), path)
        start = max(1, meets - looked_back + 1)
        if meets < 0 or (self.pruned_to and start <= self.pruned_to):
            return None
        leaving = [(max(first, meets + 1), last) for first, last in path if last > meets]
        before = [(max(first, start), min(last, meets)) for first, last in path if first <= meets and last >= start]
        return Route(leaving, entering, before, meets <= looked_back)

    def path_to(self, seq: int, last_seq: int) -> list[Interval] | None:
        """The entries that counted when the log ended at `seq`, newest first, as far as known; None if unknown."""
        path = live_path(self.marks, last_seq)
        entering, meets = self._way_to(seq, path)
        if meets < self.pruned_to:
            return None
        low = self.pruned_to + 1
        stays = [(max(first, low), min(last, meets)) for first, last in path if first <= meets]
        return [*entering, *(stretch for stretch in stays if stretch[0] <= stretch[1])]

    def _way_to(self, seq: int, path: Sequence[Interval]) -> tuple[list[Interval], int]:
        """The intervals that lead there from the live path, newest first, and where they meet it; -1 if unknown."""
        way: list[Interval] = []
        if seq <= 0 or on_path(seq, path):
            return way, seq
        rewinds = [mark for mark in self.marks if mark.kind == "rewind"]
        while seq > 0 and not on_path(seq, path):
            jump = _newest(rewinds, seq)
            begin = jump.seq if jump else 1
            met = _last_below(path, seq)
            first = max(begin, met + 1)
            if max(self.dead_to, self.pruned_to) >= first:
                return way, -1
            way.append((first, seq))
            seq = met if met >= begin else min(jump.at, jump.seq - 1) if jump else 0
        return way, seq


def _in_order(live: Sequence[Mark], dead: Sequence[Mark]) -> tuple[Mark, ...]:
    return tuple(sorted((*live, *dead), key=lambda mark: mark.seq))


def _newest(rewinds: Sequence[Mark], seq: int) -> Mark | None:
    """The last rewind up to this entry; marks are in order of seq."""
    at = bisect_right(rewinds, seq, key=lambda mark: mark.seq)
    return rewinds[at - 1] if at else None


def _last_below(path: Sequence[Interval], seq: int) -> int:
    """The last entry of the path before this one, which is not on it; 0 if there is none."""
    at = bisect_right(path, -seq, key=lambda interval: -interval[1])
    return path[at][1] if at < len(path) else 0


def marks_of(entries: Iterable[Entry]) -> list[Mark]:
    """The marks in order. An entry that follows an older one than its predecessor is also a rewind to that one."""
    marks: list[Mark] = []
    for entry in entries:
        if entry.after is not None:
            marks.append(Mark("rewind", entry.seq, entry.after))
        if not isinstance(entry, MESSAGES) and (mark := mark_of(entry)):
            marks.append(mark)
    return marks


def mark_of(entry: Entry) -> Mark | None:
    if not entry.mark:
        return None
    saved = max(0, entry.tokens_before - entry.tokens_after) if isinstance(entry, Compaction) else 0
    kind = cast("MarkKind", entry.__struct_config__.tag)
    return Mark(kind, entry.seq, getattr(entry, entry.mark), saved)


def live_path(marks: Sequence[Mark], last_seq: int) -> list[Interval]:
    """The entries that count, as intervals, newest first."""
    path: list[Interval] = []
    end = last_seq
    for mark in reversed(marks):  # they are in order of seq
        if mark.kind == "rewind" and mark.seq <= end:
            path.append((mark.seq, end))
            end = min(mark.at, mark.seq - 1)  # a damaged or forged log may point forward
    if end > 0:
        path.append((1, end))
    return path


def joined(intervals: Iterable[Interval]) -> list[Interval]:
    """The same entries, each once, oldest first."""
    found: list[Interval] = []
    for first, last in sorted(intervals):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


def on_path(seq: int, path: Sequence[Interval]) -> bool:
    at = bisect_right(path, -seq, key=lambda interval: -interval[1])
    return at > 0 and path[at - 1][0] <= seq


def path_of(log: Sequence[Entry]) -> list[Interval]:
    """The live path of a whole log, or of a tail."""
    return live_path(marks_of(log), log[-1].seq) if log else []


def live_entries(log: Sequence[Entry]) -> list[Entry]:
    """The entries of a log that count."""
    path = path_of(log)
    return [entry for entry in log if on_path(entry.seq, path)]


def active(marks: Sequence[Mark], last_seq: int) -> list[Mark]:
    """The compactions that count, oldest first: on the live path and not undone there."""
    folds = [mark for mark in marks if mark.kind in ("compaction", "undo")]
    if not folds:
        return []
    path = live_path(marks, last_seq)
    live = [mark for mark in folds if on_path(mark.seq, path)]
    undone = {mark.at for mark in live if mark.kind == "undo"}
    return [mark for mark in live if mark.kind == "compaction" and mark.seq not in undone]


def pinned(marks: Sequence[Mark], last_seq: int) -> tuple[Interval, ...]:
    """The pins at the end of the log: (seq of the pin, seq of its target)."""
    pins = [mark for mark in marks if mark.kind in ("pin", "unpin")]
    if not pins:
        return ()
    path = live_path(marks, last_seq)
    held: dict[int, int] = {}
    for mark in pins:
        if mark.kind == "pin" and on_path(mark.seq, path) and on_path(mark.at, path):
            held[mark.at] = mark.seq
        elif mark.kind == "unpin" and on_path(mark.seq, path):
            held.pop(mark.at, None)
    return tuple(sorted((seq, target) for target, seq in held.items()))


def in_effect(shape: Shape, last_seq: int) -> dict[str, Any]:
    """The fields of a row that follow from its marks."""
    stack = active(shape.marks, last_seq)
    newest = stack[-1] if stack else None
    return {
        "boundary": newest.at if newest else 1,
        "read_from": min(newest.at, newest.seq) if newest else 1,
        "compactions": len(stack) + shape.pruned_compactions,
        "pins": pinned(shape.marks, last_seq),
        "marks": shape.marks,
        "pruned_to": shape.pruned_to,
        "dead_to": shape.dead_to,
        "pruned_compactions": shape.pruned_compactions,
    }
