"""Decides how a session continues for a request that names the place: after an answer, after an entry, or at the tip.

Such a request brings only what is new, so nothing is compared to find its session. It is compared with what follows
that place, so that a request that is sent again after a crash is not stored again.
"""

from bisect import bisect_right

from . import atoms
from .matching import Decision, PlacedSession, Words
from .path import Path


def after_answer(placed: PlacedSession, words: Words, seq: int, *, is_live: bool) -> Decision:
    """Behind the answer with this seq: at the tip, or in a fork. `is_live`: whether the answer is on the live path."""
    if repeated := _repeated(placed, words):
        return repeated
    path = placed.path
    kept = bisect_right(path.seqs, seq)
    if is_live and not placed.is_busy:
        later = path.keys[kept:]
        if not later:
            return Decision("continued", path, kept=len(path.keys), branch=_branch(path))
        if later == list(words.keys) and path.is_unanswered:
            return _again(path, words)
    return Decision("forked", path, to=seq, kept=kept, branch=_branch(path))


def at_tip(placed: PlacedSession, words: Words) -> Decision:
    """The caller waits while the session runs another call."""
    if repeated := _repeated(placed, words):
        return repeated
    path = placed.path
    if not placed.is_busy and path.is_unanswered and path.call is not None and path.call.ask == words.ask:
        return _again(path, words)
    return Decision("continued", path, kept=len(path.keys), branch=_branch(path))


def after_entry(placed: PlacedSession, words: Words, seq: int, *, is_live: bool) -> Decision:
    """Behind everything up to the entry with this seq. What the client says again of the rest is not stored again."""
    if repeated := _repeated(placed, words):
        return repeated
    path = placed.path
    start = bisect_right(path.seqs, seq)
    if not is_live:
        return Decision("forked", path, to=seq, kept=start, branch=_branch(path))
    equal = atoms.common(path.keys[start:], words.keys)
    compared = range(start, start + equal)
    is_all = start + equal == len(path.keys)
    if is_all and not placed.is_busy and (equal < len(words.keys) or path.is_unanswered or not words.asks):
        return Decision("continued", path, kept=len(path.keys), rest=equal, branch=_branch(path), compared=compared)
    most = start + min(equal, max(0, len(words.keys) - words.asks))
    end = next((end for end in reversed(path.ends) if start < end.kept <= most), None)
    to, kept = (end.seq, end.kept) if end else (seq, start)
    return Decision(
        "forked" if placed.is_busy else "rewound",
        path,
        to=to,
        kept=kept,
        rest=kept - start,
        branch=_branch(path),
        compared=compared,
    )


def _repeated(placed: PlacedSession, words: Words) -> Decision | None:
    call = placed.path.call
    if placed.is_open and call is not None and call.ask == words.ask:
        return Decision("replayed", placed.path, turn=call.turn)
    return None


def _again(path: Path, words: Words) -> Decision:
    """The words are stored already, and were never answered."""
    return Decision("continued", path, kept=len(path.keys), rest=len(words.keys), branch=_branch(path))


def _branch(path: Path) -> int:
    return path.branches[-1] if path.branches else 0
