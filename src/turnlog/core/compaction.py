"""Decides when to compact and where to cut, and says how each entry is covered.

A compaction is one entry: a summary of everything before `first_kept`. The plan proves that no message is lost: the
messages to summarise begin at the previous boundary and end right before the new one.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from ..errors import UsageError
from . import approvals, tokens
from .entries import MESSAGES, Assistant, Compaction, Entry, Message, ToolResult, Transcript, Undo, kind_of
from .history import View, shown_content, survey, whole_content
from .marks import on_path, path_of
from .pairing import pair
from .turns import Role, after, begins

FRACTION_KEPT_MIN = 4
"""The number of messages that `keep = "fraction:…"` always keeps."""
GROWTH_SHARE = 0.1
"""The share of the window that new messages must fill before the same turn, or a user who undid a compaction, gets
another one.
"""

MessageSize: TypeAlias = Callable[[Message], int]


class Keep(Struct, frozen=True):
    """How much is kept word for word."""

    kind: Literal["from_last_user", "turns", "messages", "fraction", "tokens"]
    n: float = 0

    def __str__(self) -> str:
        return self.kind if self.kind == "from_last_user" else f"{self.kind}:{self.n:g}"


class Trigger(Struct, frozen=True):
    """When to compact automatically."""

    kind: Literal["tokens", "messages", "window", "overflow", "manual"]
    n: int = 0

    def __str__(self) -> str:
        return f"{self.kind}:{self.n}" if self.n else self.kind


class Plan(Struct, frozen=True):
    """What a compaction would do."""

    first_kept: int
    covers: tuple[int, int]
    fold: list[Message]
    kept: list[Message]
    previous: Compaction | None
    view: View
    transcript: Transcript


class Coverage(Struct, frozen=True):
    """How one entry is shown to the model."""

    seq: int
    type: str
    state: Literal["tail", "pinned", "compacted", "left_out", "rewound", "erased", "none"]
    by: int | None = None
    """The compaction that covers it, or the `failed` entry that left it out."""


def parse_keep(text: str) -> Keep:
    name, _, number = text.partition(":")
    match name:
        case "from_last_user" if not number:
            return Keep("from_last_user")
        case "turns" | "messages" | "tokens" if number.isdecimal() and int(number) > 0:
            return Keep(name, int(number))
        case "fraction" if _is_fraction(number):
            return Keep("fraction", float(number))
        case _:
            raise UsageError(
                f"{text!r} is not a way to keep messages",
                hint="Write from_last_user, turns:20, messages:24, fraction:0.5 or tokens:20000.",
            )


def _is_fraction(text: str) -> bool:
    try:
        return 0 < float(text) < 1
    except ValueError:
        return False


def parse_trigger(text: str) -> Trigger:
    name, _, number = text.partition(":")
    match name:
        case "overflow" | "manual" if not number:
            return Trigger(name)
        case "tokens" | "messages" | "window" if number.isdecimal() and int(number) > 0:
            return Trigger(name, int(number))
        case _:
            raise UsageError(
                f"{text!r} is not a compaction trigger",
                hint="Write tokens:80000, messages:40, window:16384, overflow or manual.",
            )


def plan(
    transcript: Transcript,
    keep: Keep,
    *,
    size: MessageSize | None = None,
    waiting: Collection[str] = (),
    added: int = 1,
) -> Plan | None:
    """Where to cut, or None if a compaction would gain nothing.

    Calls that wait for a person's approval are never compacted; `waiting`: the ids of more such calls. `added`: the
    number of messages that the summary itself adds; compacting no more than that many cannot shrink the prompt.
    """
    view = survey(transcript)
    wanted = _wanted(view, keep, size or sizer(view))
    if wanted is None:
        return None
    open_calls = {*waiting, *approvals.open_calls(transcript)}
    cut = _settle(view, wanted, keep.kind in ("messages", "fraction"), open_calls)
    return cut_at(transcript, view, cut, added=added) if cut else None


def cut_at(transcript: Transcript, view: View, cut: int, *, added: int = 1) -> Plan | None:
    """The plan that compacts the first `cut` messages of the tail."""
    if cut <= (0 if view.compaction else added):
        return None
    tail = view.tail
    first_kept = tail[cut].seq
    covers = (view.start, first_kept - 1)
    return Plan(first_kept, covers, tail[:cut], tail[cut:], view.compaction, view, transcript)


def _wanted(view: View, keep: Keep, size: MessageSize) -> int | None:
    """The index of the first message that `keep` asks for, before it is checked whether the tail may be cut there."""
    tail = view.tail
    count = len(tail)
    match keep.kind:
        case "from_last_user":
            starts = turn_starts(view)
            return starts[-1] if starts else None
        case "turns":
            starts = turn_starts(view)
            return starts[-int(keep.n)] if len(starts) > keep.n else None
        case "messages":
            return count - int(keep.n) if count > keep.n else None
        case "fraction":
            kept = max(FRACTION_KEPT_MIN, int(count * 0.2))
            fold = min(max(2, int(count * (1 - keep.n))), count - kept)
            return fold if fold >= 2 else None
        case _:
            return _fitting(tail, int(keep.n), size)


def _fitting(tail: Sequence[Message], budget: int, size: MessageSize) -> int | None:
    """The longest end of the tail that fits the budget, but at least the last message."""
    for index in range(len(tail) - 1, -1, -1):
        budget -= size(tail[index])
        if budget < 0:
            return min(index + 1, len(tail) - 1)
    return None


def turn_starts(view: View) -> list[int]:
    """Indexes of the user messages that began a turn."""
    role: Role = ""
    failed = list(reversed(view.failed))
    found: list[int] = []
    for index, entry in enumerate(view.tail):
        while failed and failed[-1] < entry.seq:
            failed.pop()
            role = "failed"
        if begins(role, entry):
            found.append(index)
        role = after(role, entry)
    return found


def seams(tail: Sequence[Message], waiting: Collection[str] = ()) -> list[int]:
    """The ascending indexes before which the tail may be cut: a cut never separates a call from its result or its
    thinking.
    """
    places = {entry.seq: index for index, entry in enumerate(tail)}
    barred = [0] * (len(tail) + 1)
    last = len(tail) - 1
    for seq, call in pair(tail).pairs():
        if call.result is not None:
            ends = sorted((places[seq], places[call.result.seq]))
            barred[ends[0] + 1] += 1
            barred[ends[1] + 1] -= 1
        if call.id in waiting or call.block["id"] in waiting:
            last = min(last, places[seq])
    found: list[int] = []
    depth = 0
    for index in range(last + 1):
        depth += barred[index]
        entry = tail[index]
        joined = isinstance(entry, Assistant) and index > 0 and isinstance(tail[index - 1], Assistant)
        if index and not depth and not isinstance(entry, ToolResult) and not joined:
            found.append(index)
    return found


def _settle(view: View, wanted: int, whole_turns: bool, waiting: Collection[str]) -> int:
    """Moves the cut to an allowed place so that more is kept: to a turn's start, if that still compacts at least half
    of what was wanted.
    """
    allowed = [index for index in seams(view.tail, waiting) if index <= wanted]
    if whole_turns:
        starts = set(turn_starts(view))
        whole = [index for index in allowed if index in starts]
        if whole and whole[-1] * 2 >= wanted:
            return whole[-1]
    return allowed[-1] if allowed else 0


def sizer(
    view: View, estimator: str = "calibrated", scale: tokens.Scale = tokens.UNCALIBRATED, *, whole: bool = False
) -> MessageSize:
    """Estimates the tokens of one message as the model sees it, or with `whole` as a summariser sees it."""
    content_of = whole_content if whole else shown_content

    def size(entry: Message) -> int:
        role = "assistant" if isinstance(entry, Assistant) else "user"
        return tokens.estimate([{"role": role, "content": content_of(entry, view)}], estimator, scale=scale)

    return size


def due(
    transcript: Transcript,
    triggers: Sequence[Trigger],
    *,
    tokens_now: int,
    window: int,
    size: MessageSize | None = None,
    view: View | None = None,
) -> Trigger | None:
    """The first automatic trigger that fires, unless a rule against endless loops forbids a compaction now."""
    view = view or survey(transcript)
    reached = next((trigger for trigger in triggers if _holds(trigger, view, tokens_now, window)), None)
    if reached and may_compact(transcript, view, window=window, size=size or sizer(view), asked=False):
        return reached
    return None


def _holds(trigger: Trigger, view: View, tokens_now: int, window: int) -> bool:
    match trigger.kind:
        case "tokens":
            return tokens_now > trigger.n
        case "messages":
            return len(view.tail) > trigger.n
        case "window":
            return tokens_now > window - reserve(trigger.n, window)
        case _:
            return False


def reserve(wanted: int, window: int) -> int:
    """The tokens reserved for the answer, at most a quarter of the window."""
    return min(wanted, window // 4)


def may_compact(transcript: Transcript, view: View, *, window: int, size: MessageSize, asked: bool) -> bool:
    """Whether new messages fill another 10 % of the window since a compaction of this turn, or since the user undid
    one.
    """
    starts = turn_starts(view)
    turn = view.tail[starts[-1]].seq if starts else 0  # 0: its beginning is compacted already
    since = view.compaction.seq if view.compaction and view.tail and view.compaction.seq > turn else 0
    if not asked:
        since = max([since, *(_undone_compactions(transcript, view))])
    if not since:
        return True
    grown = sum(size(entry) for entry in view.tail if entry.seq > since)
    return grown >= window * GROWTH_SHARE


def _undone_compactions(transcript: Transcript, view: View) -> list[int]:
    folded = {entry.seq for entry in transcript if isinstance(entry, Compaction)}
    newest = view.compaction.seq if view.compaction else 0
    undos = [e.seq for e in transcript if isinstance(e, Undo) and e.target in folded and e.seq > newest]
    if not undos:
        return []
    path = path_of(transcript)
    return [seq for seq in undos if on_path(seq, path)]


def complete(
    plan: Plan,
    summary: str,
    *,
    trigger: str,
    tokens_before: int,
    tokens_after: int,
    model: str | None = None,
    focus: str | None = None,
) -> Compaction:
    return Compaction(
        summary=summary.strip(),
        first_kept=plan.first_kept,
        covers=plan.covers,
        tokens_before=tokens_before,
        tokens_after=tokens_after,
        trigger=trigger,
        model=model,
        focus=focus,
    )


def explain(transcript: Transcript) -> list[Coverage]:
    """Says for every entry of a whole transcript how it is shown to the model."""
    path = path_of(transcript)
    view = survey(transcript)
    undone = {entry.target for entry in transcript if isinstance(entry, Undo) and on_path(entry.seq, path)}
    stack = [
        entry
        for entry in transcript
        if isinstance(entry, Compaction) and entry.seq not in undone and on_path(entry.seq, path)
    ]
    shown = {entry.seq for entry in view.tail}
    return [_coverage(entry, on_path(entry.seq, path), shown, view, stack) for entry in transcript]


def _coverage(entry: Entry, live: bool, shown: set[int], view: View, stack: Sequence[Compaction]) -> Coverage:
    kind = kind_of(entry)
    if not live:
        return Coverage(entry.seq, kind, "rewound")
    if not isinstance(entry, MESSAGES):
        return Coverage(entry.seq, kind, "none")
    if any(pin.seq == entry.seq for pin in view.pins):
        by = next((fold.seq for fold in stack if entry.seq < fold.first_kept), None)
        return Coverage(entry.seq, kind, "pinned", by)
    if entry.seq in view.left_out:
        return Coverage(entry.seq, kind, "left_out", view.left_out[entry.seq])
    if entry.seq in shown:
        return Coverage(entry.seq, kind, "tail")
    if entry.erased and entry.seq >= view.start:
        return Coverage(entry.seq, kind, "erased")
    return Coverage(entry.seq, kind, "compacted", next((e.seq for e in stack if entry.seq < e.first_kept), None))
