"""Decides which session a client's request continues, from its words alone.

The name that a client gives picks the place; the words pick the session there. Without a name, a session is recognised
only by what only it can know: an answer that this server gave in it. Whatever is decided, the prompt that follows holds
exactly the words of the request: everything else of the session is rewound, or left in the session that was forked.
Two exceptions: a result that the client replaced by something much shorter is shown shortened, and a session that is
named by its id keeps what others said in it.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import Literal, TypeAlias, TypedDict

from msgspec import Struct

from . import atoms
from .atoms import Atom
from .path import Path

MatchKind: TypeAlias = Literal["new", "continued", "rewound", "forked", "replayed", "joined"]
PRUNED_TO = 4
"""A client that prunes old results leaves at most this fraction: 1 / PRUNED_TO. A longer text is another result."""


class Words(Struct, frozen=True):
    """What a request says."""

    atoms: Sequence[Atom]
    keys: Sequence[bytes]
    ask: str
    """The digest of everything that is asked: words, head, model, parameters."""
    text: Callable[[int], str]
    """The text of an atom, which is needed only where it may be the beginning of a longer one."""
    asks: bool = True
    """Whether an answer is asked for."""


class PlacedSession(Struct, frozen=True):
    """A session at the place of the request."""

    path: Path
    is_busy: bool = False
    """Whether it runs another call."""
    is_open: bool = False
    """Whether its newest call may still be asked for again: the client that asked went away before it had the answer.
    """


class Decision(Struct, frozen=True):
    kind: MatchKind
    path: Path | None = None
    """None: a new session."""
    to: int | None = None
    """The entry to go back to, or at which to fork; None: the tip."""
    kept: int = 0
    """The atoms of the path that stay."""
    rest: int = 0
    """The first atom of the request that is to be appended."""
    shortened: tuple[tuple[int, int], ...] = ()
    """(entry, limit): results that the client pruned."""
    restored: tuple[int, ...] = ()
    """Shortenings to undo: the client sends more of these results than it did."""
    turn: int = 0
    """For a repeat: the call whose answer is told again."""
    branch: int = 0
    """The client's path within the session; -1: one that begins here."""
    compared: Sequence[int] | None = None
    """The atoms of the path that the request was compared with; None: all."""


class _Common(Struct, frozen=True):
    """What a request has in common with a session."""

    candidate: PlacedSession
    indexes: Sequence[int] | None
    """The atoms of the path that were compared; None: all."""
    branch: int
    equal: int
    """Atoms that are equal, some of them only loosely."""
    exact: int
    """Atoms before the first of which the client knows only the beginning."""
    is_whole: bool
    """Whether all atoms that were compared are equal."""
    pruned: tuple[tuple[int, int], ...] = ()


def decide(candidates: Sequence[PlacedSession], words: Words, *, named: bool, by_id: bool = False) -> Decision:
    """`candidates`: newest first. `by_id`: the request names the session itself, which is the only candidate."""
    for candidate in candidates:
        call = candidate.path.call
        if candidate.is_open and call is not None and call.ask == words.ask:
            return Decision("replayed", candidate.path, turn=call.turn)
    found = [
        common
        for candidate in candidates
        for common in _compared(candidate, words, by_id)
        if common.equal and (named or by_id or _is_known(common, words))
    ]
    if not found:
        return _join(candidates[0]) if by_id else Decision("new")
    return _outcome(max(found, key=lambda common: (common.is_whole, common.equal)), words)  # the first of equal ones


def _compared(candidate: PlacedSession, words: Words, by_id: bool) -> list[_Common]:
    path = candidate.path
    if not path.keys or path.is_lost:
        return []
    found = [_compare(candidate, words, None, path.branches[-1] if not by_id else 0)]
    branches = sorted(set(path.branches)) if by_id else []
    if len(branches) > 1:
        found += [_compare(candidate, words, _indexes(path, branch), branch) for branch in branches]
    return found


def _indexes(path: Path, branch: int) -> list[int]:
    return [n for n, one in enumerate(path.branches) if one == branch]


def _compare(candidate: PlacedSession, words: Words, indexes: Sequence[int] | None, branch: int) -> _Common:
    path = candidate.path
    keys = path.keys if indexes is None else [path.keys[n] for n in indexes]
    most = _answering_alike(path.atoms if indexes is None else [path.atoms[n] for n in indexes], words.atoms)
    equal = min(atoms.common(keys, words.keys), most)
    exact, pruned, n, first_pruned = equal, list[tuple[int, int]](), equal, len(keys)
    is_exact = True
    while n < min(len(keys), len(words.keys)):
        if n == most:
            break
        at = n if indexes is None else indexes[n]
        ours, theirs = path.atoms[at], words.atoms[n]
        if keys[n] == theirs.key:
            pass
        elif _is_beginning(ours, theirs, words, n):
            is_exact = False
        elif ours.kind == theirs.kind == "result" and theirs.size * PRUNED_TO <= ours.size:
            first_pruned = min(first_pruned, n)
            pruned.append((path.seqs[at], max(1, theirs.size)))
        else:
            break
        n += 1
        exact = n if is_exact else exact
    else:
        return _Common(candidate, indexes, branch, n, exact, n == len(keys), tuple(pruned))
    n = min(n, first_pruned)  # what follows differs, so that is an edited result, and not a pruned one
    return _Common(candidate, indexes, branch, n, min(exact, n), False)


def _answering_alike(ours: Sequence[Atom], theirs: Sequence[Atom]) -> int:
    """The number of atoms before the first result that answers another call here than there. Ids may differ, but not
    those of results without a call before them: a later call may claim such a result by its id.
    """
    shorter = min(len(ours), len(theirs))
    if [atom.id for atom in ours[:shorter]] == [atom.id for atom in theirs[:shorter]]:
        return shorter
    ids: dict[str, str] = {}
    known: set[str] = set()
    early: set[str] = set()
    for n in range(shorter):
        our, their = ours[n], theirs[n]
        if their.kind == "call":
            if their.id != our.id and not early.isdisjoint((their.id, our.id)):
                return n
            ids[their.id] = our.id
            known.add(our.id)
        elif their.kind == "result":
            has_call = their.id in ids or our.id in known
            if our.id != (ids.get(their.id) if has_call else their.id):
                return n
            if not has_call:
                early.add(our.id)
    return shorter


def _is_beginning(ours: Atom, theirs: Atom, words: Words, n: int) -> bool:
    if ours.kind != "assistant" or theirs.kind != "assistant" or ours.partial is None:
        return False
    return ours.partial.startswith(words.text(n))


def _is_known(common: _Common, words: Words) -> bool:
    """Whether the request holds an answer of this very session. One that a client also brought along proves nothing."""
    path = common.candidate.path
    if any(atom.own is not None for atom in path.atoms[: common.equal]):
        return True
    return any(key in path.own and key not in path.told for key in words.keys[common.equal :])


def _outcome(common: _Common, words: Words) -> Decision:
    path = common.candidate.path
    asks_more = common.equal < len(words.keys)
    is_enough = asks_more or path.is_unanswered or not words.asks
    stays = common.is_whole and common.exact == common.equal and is_enough
    if not stays or common.candidate.is_busy:
        return _go_back(common, words)
    return Decision(
        "continued",
        path,
        kept=len(path.keys),
        rest=common.equal,
        **_prunings(common, len(path.keys)),
        branch=common.branch,
        compared=common.indexes,
    )


class _Prunings(TypedDict, total=False):
    shortened: tuple[tuple[int, int], ...]
    restored: tuple[int, ...]


def _prunings(common: _Common, kept: int, to: int | None = None) -> _Prunings:
    """What must change so that each result is shown as long as the client sends it."""
    path = common.candidate.path
    before = path.pruned(to)
    if not common.pruned and not before:
        return {}
    wanted = dict(common.pruned)
    compared = range(common.equal) if common.indexes is None else common.indexes[: common.equal]
    seqs = {path.seqs[n] for n in compared if n < kept} - {0}  # a fork does not hold what its summary stands for
    undone = tuple(
        entry.seq
        for entry in before
        if all(seq in seqs and wanted.get(seq, inf) > entry.limit for seq in entry.targets)
    )
    known = path.shortened(to, without=undone)
    new = tuple((seq, limit) for seq, limit in common.pruned if seq in seqs and known.get(seq, inf) > limit)
    return {"shortened": new, "restored": undone}


def _go_back(common: _Common, words: Words) -> Decision:
    """To the last end of a turn before the first difference, so that something is left to ask."""
    path, indexes = common.candidate.path, common.indexes
    most = min(common.exact, len(words.keys) - words.asks)
    if indexes is not None and most < len(indexes):
        most = indexes[most]
    elif indexes is not None:
        most = len(path.keys)
    end = next(end for end in reversed(path.ends) if end.kept <= most)
    return Decision(
        "forked" if common.candidate.is_busy else "continued" if _is_all(common, words) else "rewound",
        path,
        to=end.seq,
        kept=end.kept,
        rest=end.kept if indexes is None else sum(n < end.kept for n in indexes),
        **_prunings(common, end.kept, end.seq),
        branch=common.branch,
        compared=indexes,
    )


def _is_all(common: _Common, words: Words) -> bool:
    """Whether the client knows everything, though of one answer only the beginning."""
    return common.is_whole and common.exact < common.equal < len(words.keys)


def _join(candidate: PlacedSession) -> Decision:
    """A client that has nothing in common with the session that it names goes on at its tip."""
    path = candidate.path
    if path.is_lost and not candidate.is_busy:
        return Decision("rewound", path, to=1)  # whatever it said, the request says it again
    if not candidate.is_busy:
        return Decision("joined", path, kept=len(path.keys), branch=-1)
    end = path.ends[-1]
    return Decision("forked", path, to=end.seq, kept=end.kept, branch=-1)
