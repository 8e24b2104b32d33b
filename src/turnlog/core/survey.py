"""Decides which entries of a transcript count, and how each of them is shown: the first half of building a history."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeGuard

from msgspec import Struct
from msgspec.structs import replace

from .entries import (
    MESSAGES,
    REFUSED_CONTENT,
    Assistant,
    Compaction,
    Entry,
    Failed,
    Message,
    Received,
    Shortened,
    ToolResult,
    Transcript,
    Undo,
    User,
)
from .session import live_path, marks_of, on_path, pinned
from .user_content import has_results, parted

LEFT_OUT = "result left out: the model refused it"


_MESSAGE_TYPES = frozenset(MESSAGES)


class View(Struct, frozen=True):
    """The entries that count, and how they are shown."""

    start: int
    """The boundary; without a compaction, the first message there is, rewound or not."""
    tail: list[Message]
    """Messages from the boundary on, in order, without those that are left out; left out results are notes."""
    compaction: Compaction | None
    pins: list[Message]
    """Pinned messages that were compacted, in order."""
    shortened: dict[int, int]
    """seq of a tool result → characters shown of it."""
    oversized: frozenset[int]
    """User entries whose turn failed because they did not fit."""
    received: dict[int, Received]
    failed: tuple[int, ...]
    """The seqs where turns ended without an answer."""
    left_out: dict[int, int]
    """seq of a message that the model refused → seq of the `failed` that says so."""
    plain_to: int
    """Messages up to this seq are shown as plain text; 0: none."""


class SortedEntries(Struct, frozen=True):
    """The entries of a transcript by what they are. A longer transcript needs only its new entries sorted."""

    entries: list[Entry]
    messages: list[Message]
    others: list[Entry]
    jumps: bool
    """Whether an entry continues from another one than the entry before it."""
    parts: bool
    """Whether a user entry holds results, so that it is shown in parts."""


_NOTHING = SortedEntries([], [], [], False, False)


def sort(transcript: Transcript, known: SortedEntries = _NOTHING) -> SortedEntries:
    """`known`: of a transcript that this one may continue. If it does not, everything is sorted."""
    size = len(known.entries)
    if transcript[:size] != known.entries:
        known, size = _NOTHING, 0
    messages, others = known.messages.copy(), known.others.copy()
    jumps, parts = known.jumps, known.parts
    for entry in transcript[size:] if size else transcript:
        # An erased result has no call any more: it was erased too, and is shown as text.
        said = type(entry) in _MESSAGE_TYPES and not (entry.erased and type(entry) is ToolResult)
        (messages if said else others).append(entry)  # type: ignore[arg-type]
        jumps = jumps or entry.after is not None
        parts = parts or (type(entry) is User and type(entry.content) is not str and has_results(entry))
    return SortedEntries(list(transcript), messages, others, jumps, parts)


def survey(transcript: Transcript, sorted_: SortedEntries | None = None) -> View:
    """`sorted_`: the result of `sort` for this transcript, if the caller has it already."""
    known = sorted_ or sort(transcript)
    messages, others = known.messages, known.others
    first = messages[0].seq if messages else 0
    received = {entry.seq: entry for entry in others if isinstance(entry, Received)}
    marks = marks_of(transcript if known.jumps else others)
    last_seq = transcript[-1].seq if transcript else 0
    if any(mark.kind == "rewind" for mark in marks):
        path = live_path(marks, last_seq)
        messages = [entry for entry in messages if on_path(entry.seq, path)]
        others = [entry for entry in others if on_path(entry.seq, path)]
    undone = {entry.target for entry in others if isinstance(entry, Undo)}
    compaction = next(
        (entry for entry in reversed(others) if isinstance(entry, Compaction) and entry.seq not in undone), None
    )
    boundary = compaction.first_kept if compaction else 0
    held = {target for _, target in pinned(marks, last_seq)}
    failed = [entry for entry in others if isinstance(entry, Failed)]
    unaccepted = _unaccepted(messages, failed) if failed else {}
    left_out = {seq: end.seq for seq, end in unaccepted.items() if end.code == REFUSED_CONTENT}
    tail = [entry for entry in messages if entry.seq >= boundary] if boundary else messages
    if known.parts:
        tail = [part for entry in tail for part in parted(entry)]
    if left_out:
        tail = [shown for entry in tail if (shown := _unless_left_out(entry, left_out))]
    return View(
        start=boundary or first,
        tail=tail,
        compaction=compaction,
        pins=[entry for entry in messages if entry.seq in held and entry.seq < boundary] if held else [],
        shortened=_shortened(others, undone, compaction),
        oversized=frozenset(seq for seq, end in unaccepted.items() if end.code == "overflow"),
        received=received,
        failed=tuple(entry.seq for entry in failed),
        left_out=left_out,
        plain_to=max((max(e.targets) for e in others if _is_plain(e) and e.seq not in undone), default=0),
    )


def _is_plain(entry: Entry) -> TypeGuard[Shortened]:
    return isinstance(entry, Shortened) and entry.plain and bool(entry.targets)


def missing(entries: Sequence[Entry], pins: Iterable[tuple[int, int]]) -> list[int]:
    """The earlier seqs that a tail needs: pins and their targets, and the `received` entries of user entries."""
    wanted = {seq for pin in pins for seq in pin}
    wanted.update(seq for entry in entries if isinstance(entry, User) for seq in entry.from_)
    return sorted(wanted.difference(entry.seq for entry in entries))


def _shortened(others: Sequence[Entry], undone: set[int], compaction: Compaction | None) -> dict[int, int]:
    since = compaction.seq if compaction else 0
    limits: dict[int, int] = {}
    for entry in others:
        if isinstance(entry, Shortened) and not entry.plain and entry.seq > since and entry.seq not in undone:
            for target in entry.targets:
                limits[target] = min(entry.limit, limits.get(target, entry.limit))
    return limits


def _unaccepted(messages: Sequence[Message], failed: Sequence[Failed]) -> dict[int, Failed]:
    """Maps user messages and results that no call accepted before their turn failed to that failure.

    An answer accepts everything before it; the partial text of a failed call does not. A turn that a crash cut short
    may run again without a new message: it is over only when the next message comes.
    """
    found: dict[int, Failed] = {}
    turn: list[int] = []
    over = False
    for entry in sorted([*messages, *failed], key=lambda entry: entry.seq):
        match entry:
            case Failed():
                found.update(dict.fromkeys(turn, entry))
                over = True
            case Assistant():
                turn = turn if entry.stop == "error" else []
            case _:
                if over:
                    turn, over = [], False
                turn.append(entry.seq)
    return found


def _unless_left_out(entry: Message, left_out: Mapping[int, int]) -> Message | None:
    """Calls stay, so a result that is left out must stay too: as a note."""
    if entry.seq not in left_out:
        return entry
    return replace(entry, content=LEFT_OUT, is_error=True) if isinstance(entry, ToolResult) else None
