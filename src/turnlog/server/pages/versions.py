"""The versions of a turn: turns that begin after the same message, of which a rewind left all but one.

Somebody who edits a message or asks for another answer rewinds to before the turn and begins another. The turns that
were left stay in the log. Each is shown by looking at the log as it was before the next rewind (`end`); writing there
rewinds to that place.
"""

from collections.abc import Sequence

from msgspec import Struct

from ...core.entries import MESSAGES, Entry, Failed, Rewind
from ...core.marks import live_path, marks_of, on_path
from ...core.turns import Walk

READ_MAX = 5_000
"""The entries in which other versions are looked for; the timeline of the session shows older ones."""


class TurnVersions(Struct, frozen=True):
    """The turns that begin at one place."""

    starts: tuple[int, ...]
    """Their user entries, oldest first."""
    ends: tuple[int, ...]
    """For each, where the newest branch that contains it ends."""
    shown: int
    """The position of the one that is shown, from 1; 0: none of them."""


def find(entries: Sequence[Entry], shown_end: int) -> dict[int, TurnVersions]:
    """By the user entry of each version, where there are several. `shown_end`: the end of the branch that is shown."""
    if not any(isinstance(entry, Rewind) or entry.after is not None for entry in entries):
        return {}
    by_parent: dict[int, list[int]] = {}
    for start, parent in _starts(entries):
        by_parent.setdefault(parent, []).append(start)
    ends = _branch_ends(entries)
    marks = marks_of(entries)
    paths = [(end, live_path(marks, end)) for end in ends]
    shown = live_path(marks, shown_end)
    found: dict[int, TurnVersions] = {}
    for starts in by_parent.values():
        if len(starts) < 2:
            continue
        newest = tuple(max(end for end, path in paths if on_path(start, path)) for start in starts)
        now = next((n for n, start in enumerate(starts, 1) if on_path(start, shown) and start <= shown_end), 0)
        versions = TurnVersions(tuple(starts), newest, now)
        found.update(dict.fromkeys(starts, versions))
    return found


def end_with(entries: Sequence[Entry], seq: int) -> int:
    """Where the newest branch ends that contains this entry."""
    marks = marks_of(entries)
    return max((end for end in _branch_ends(entries) if on_path(seq, live_path(marks, end))), default=seq)


def _starts(entries: Sequence[Entry]) -> list[tuple[int, int]]:
    """(user entry that begins a turn, the message before it on its branch)."""
    walk = Walk()
    said: dict[int, int] = {}
    """The last message up to each entry, along its branch."""
    last = 0
    found: list[tuple[int, int]] = []
    for entry in entries:
        if entry.after is not None:
            last = said.get(entry.after, 0)
        if isinstance(entry, Rewind):
            last = said.get(entry.to, 0)
        if walk.take(entry):
            found.append((entry.seq, last))
        if isinstance(entry, (*MESSAGES, Failed)):
            last = entry.seq
        said[entry.seq] = last
    return found


def _branch_ends(entries: Sequence[Entry]) -> list[int]:
    """The last entry before each rewind, and the end of the log."""
    jumps = [entry.seq - 1 for entry in entries if isinstance(entry, Rewind) or entry.after is not None]
    return [*(end for end in jumps if end > 0), *([entries[-1].seq] if entries else [])]
