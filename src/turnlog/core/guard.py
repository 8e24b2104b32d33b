"""The overflow ladder, as a generator: what to do next, never how.

    as is → (overflow) → oversized tool results shortened → (overflow) → compacted → (overflow) → rescue → give up

The driver carries out each step and sends back the transcript that results; it throws ContextOverflow into the
generator where a Send was refused, and closes the generator once a Send went through:

    steps = guard.protect(transcript, limits)
    step = next(steps)
    while True:
        match step:
            case Send(): try the call; on success stop; on overflow step = steps.throw(error)
            case Shorten() | Rescue(): append step.bodies;  step = steps.send(transcript)
            case Compact(): summarise, check, append;       step = steps.send(transcript, or None if refused)

No request is sent twice, at most one compaction is asked for, and none that could not shrink the prompt.
"""

from collections.abc import Generator, Sequence
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ..errors import ContextOverflow
from . import compaction, history, tokens
from .compaction import Keep, Plan, Trigger
from .entries import (
    Assistant,
    Compaction,
    Entry,
    Message,
    Shortened,
    ToolResult,
    Transcript,
    Undo,
    User,
    context_tokens,
    text_of,
    user_content,
)
from .history import History, View

RESULT_SHARE = 0.3
RESULT_MAX_CHARS = 50_000
"""A tool result over 30 % of the window, at most this many characters, is shortened on overflow."""
CHARS_PER_TOKEN = 4
RESCUE_SHARE = 0.5
"""A rescued prompt aims at half of what was refused: the estimate that led there was wrong by an unknown factor."""
DIGEST_SHARE = 0.1
PIN_SHARE = 0.1


class Limits(Struct, frozen=True, kw_only=True):
    """The numbers of one model and one policy."""

    window: int
    triggers: tuple[Trigger, ...] = (Trigger("window", 16_384),)
    keep: Keep = Keep("tokens", 20_000)
    inject: str = "user"
    estimator: str = "calibrated"
    scale: tokens.Scale = tokens.UNCALIBRATED
    system: str = ""
    tools: tuple[dict[str, Any], ...] = ()
    result_chars: int = 0
    """Characters of a tool result shown after a shortening; 0: 30 % of the window, at most 50,000."""
    summary_tokens: int = 0
    """Room a summary may take; 0: 20 % of the window."""
    waiting: frozenset[str] = frozenset()

    def result_limit(self) -> int:
        share = int(self.window * CHARS_PER_TOKEN * RESULT_SHARE)
        return self.result_chars or min(share, RESULT_MAX_CHARS)

    def summary_limit(self) -> int:
        return self.summary_tokens or self.window // 5


class Send(Struct, frozen=True):
    """Make this call."""

    history: History
    stage: str
    tokens: int


class Shorten(Struct, frozen=True):
    """Append this and go on with what the transcript then is."""

    bodies: list[Entry]


class Compact(Struct, frozen=True):
    """Summarise plan.fold, check the answer, append the compaction."""

    plan: Plan
    trigger: str
    tokens_before: int


class Rescue(Struct, frozen=True):
    """Append this digest, made without a model."""

    bodies: list[Entry]


Step: TypeAlias = Send | Shorten | Compact | Rescue


def protect(
    transcript: Transcript, limits: Limits, *, compact_first: bool = True
) -> Generator[Step, Transcript | None, None]:
    """The ladder for one model call. `compact_first`: whether a trigger that holds is acted on before the call."""
    sent: list[list[history.ApiMessage]] = []
    compacted = False
    size = measure(transcript, limits)
    if compact_first and (trigger := _due(transcript, limits, size)):
        plan = worthwhile(transcript, limits, size)
        if plan is not None:
            answer = yield Compact(plan, str(trigger.kind), size)
            compacted = answer is not None
            transcript = answer if answer is not None else transcript
    refused = yield from _attempt(transcript, limits, "as_is", sent)
    if refused is None:
        return
    if targets := oversized_results(transcript, limits.result_limit()):
        answer = yield Shorten([Shortened(targets=tuple(targets), limit=limits.result_limit())])
        transcript = answer if answer is not None else transcript
        refused = yield from _attempt(transcript, limits, "shortened", sent)
        if refused is None:
            return
    if not compacted and (plan := _on_overflow(transcript, limits)):
        answer = yield Compact(plan, "overflow", measure(transcript, limits))
        if answer is not None:
            transcript = answer
            refused = yield from _attempt(transcript, limits, "compacted", sent)
            if refused is None:
                return
    if bodies := rescue(transcript, limits, refused):
        answer = yield Rescue(bodies)
        transcript = answer if answer is not None else transcript
        refused = yield from _attempt(transcript, limits, "rescued", sent)
        if refused is None:
            return
    raise ContextOverflow(tokens=measure(transcript, limits), window=limits.window) from refused


def _attempt(
    transcript: Transcript, limits: Limits, stage: str, sent: list[list[history.ApiMessage]]
) -> Generator[Step, Transcript | None, ContextOverflow | None]:
    """None if the call went through; otherwise the overflow. The same messages are never sent again."""
    shown = history.build(transcript, system=limits.system, inject=limits.inject)
    if any(shown.messages == before for before in sent):
        return ContextOverflow("the request would be the same as one already refused")
    sent.append(shown.messages)
    try:
        yield Send(shown, stage, of_history(shown, limits))
    except ContextOverflow as overflow:
        return overflow
    return None


def of_history(shown: History, limits: Limits) -> int:
    return tokens.estimate(
        shown.messages, limits.estimator, system=shown.system, tools=limits.tools, scale=limits.scale
    )


def measure(transcript: Transcript, limits: Limits) -> int:
    """The size of the next request: what the provider reported last, plus an estimate of what came after.

    Only the calibrated estimator is anchored; the compatible ones must give the figures of the systems they
    imitate. A report from before the newest compaction, shortening or undo says nothing about the prompt now.
    """
    view = history.survey(transcript)
    if limits.estimator == "calibrated" and (anchor := _anchor(transcript, view)):
        seq, reported = anchor
        later: list[history.ApiMessage] = [
            {"role": "user", "content": _content(entry, view)} for entry in view.tail if entry.seq > seq
        ]
        return reported + tokens.of_messages(later, scale=limits.scale)
    return of_history(history.build(transcript, system=limits.system, inject=limits.inject), limits)


def _anchor(transcript: Transcript, view: View) -> tuple[int, int] | None:
    shaped = max((e.seq for e in transcript if isinstance(e, Compaction | Shortened | Undo)), default=0)
    for entry in reversed(view.tail):
        if entry.seq <= shaped:
            return None
        if isinstance(entry, Assistant) and (reported := context_tokens(entry.usage)):
            return entry.seq, reported
    return None


def _content(entry: Message, view: View) -> Any:
    return user_content(entry, view.received) if isinstance(entry, User) else entry.content


def entry_size(limits: Limits) -> compaction.Size:
    def size(entry: Message) -> int:
        role = "assistant" if isinstance(entry, Assistant) else "user"
        message = {"role": role, "content": entry.content or ""}
        return tokens.estimate([message], limits.estimator, scale=limits.scale)

    return size


def _due(transcript: Transcript, limits: Limits, size: int) -> Trigger | None:
    return compaction.due(transcript, limits.triggers, tokens_now=size, window=limits.window, size=entry_size(limits))


def worthwhile(transcript: Transcript, limits: Limits, size: int) -> Plan | None:
    """A plan that is sure to shrink the prompt: its floor is below what there is now."""
    plan = compaction.plan(
        transcript,
        limits.keep,
        size=entry_size(limits),
        waiting=limits.waiting,
        added=added_messages(limits.inject),
    )
    return plan if plan is not None and floor(plan, limits) < size else None


def added_messages(inject: str) -> int:
    return {"system": 0, "pair": 2}.get(inject, 1)


def floor(plan: Plan, limits: Limits) -> int:
    """The least that would be sent after this plan: system, tools, pins, tail, and next to no summary."""
    least = Compaction(seq=plan.kept[-1].seq + 1, summary="-", first_kept=plan.first_kept, covers=plan.covers)
    shown = history.build([*plan.view.pins, *plan.kept, least], system=limits.system, inject=limits.inject)
    return of_history(shown, limits)


def _on_overflow(transcript: Transcript, limits: Limits) -> Plan | None:
    view = history.survey(transcript)
    if not compaction.may_compact(transcript, view, window=limits.window, size=entry_size(limits), asked=True):
        return None
    size = of_history(history.build(transcript, system=limits.system, inject=limits.inject), limits)
    if plan := worthwhile(transcript, limits, size):
        return plan
    # The policy's own tail is too large to leave anything to fold: keep less.
    return worthwhile(transcript, replace(limits, keep=Keep("from_last_user")), size)


def oversized_results(transcript: Transcript, limit: int) -> list[int]:
    view = history.survey(transcript)
    return [
        entry.seq
        for entry in view.tail
        if isinstance(entry, ToolResult)
        and len(text_of(entry.content)) > limit
        and view.shortened.get(entry.seq, limit + 1) > limit
    ]


def rescue(transcript: Transcript, limits: Limits, refused: ContextOverflow | None) -> list[Entry] | None:
    """The largest end of the tail that is sure to fit, under a digest; tool results in it cut to stubs."""
    view = history.survey(transcript)
    cuts = compaction.seams(view.tail, limits.waiting)
    stubs = _stub_limit(limits)
    target = _target(transcript, limits, refused)
    suffix = _suffix_sizes(view, limits, stubs)
    fixed = _fixed_size(limits, view) + int(limits.window * DIGEST_SHARE)
    fits = [cut for cut in cuts if fixed + suffix[cut] <= target]
    chosen = fits[0] if fits else (cuts[-1] if cuts else 0)
    plan = compaction.cut_at(view, chosen, added=0)
    if plan is None:
        return None
    summary = compaction.digest(plan, int(limits.window * DIGEST_SHARE * CHARS_PER_TOKEN))
    body = compaction.complete(
        plan,
        summary,
        trigger="rescue",
        tokens_before=measure(transcript, limits),
        tokens_after=fixed + suffix[chosen],
    )
    long = [e.seq for e in plan.kept if isinstance(e, ToolResult) and len(text_of(e.content)) > stubs]
    return [body, Shortened(targets=tuple(long), limit=stubs)] if long else [body]


def _stub_limit(limits: Limits) -> int:
    return max(compaction.STUB_CHARS, limits.result_limit() // 10)


def _target(transcript: Transcript, limits: Limits, refused: ContextOverflow | None) -> int:
    size = of_history(history.build(transcript, system=limits.system, inject=limits.inject), limits)
    share = RESCUE_SHARE
    if refused is not None and 0 < refused.window < refused.tokens:
        share = min(share, refused.window / refused.tokens * 0.8)
    return min(int(size * share), limits.window - compaction.reserve(16_384, limits.window))


def _fixed_size(limits: Limits, view: View) -> int:
    return tokens.estimate(
        [{"role": "user", "content": history.pins_text(view) or "-"}],
        limits.estimator,
        system=limits.system,
        tools=limits.tools,
        scale=limits.scale,
    )


def _suffix_sizes(view: View, limits: Limits, stub: int) -> Sequence[int]:
    size = entry_size(limits)
    sums = [0] * (len(view.tail) + 1)
    for index in range(len(view.tail) - 1, -1, -1):
        entry = view.tail[index]
        shown = replace(entry, content=text_of(entry.content)[:stub]) if isinstance(entry, ToolResult) else entry
        sums[index] = sums[index + 1] + size(shown)
    return sums
