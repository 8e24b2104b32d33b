"""Makes a model call fit. A generator that says what to do next; its caller does it.

    as is → (overflow) → oversized tool results shortened → (overflow) → compacted → (overflow) → rescue → give up

If a refusal names no sizes, the real window is unknown. Then each further rescue replaces the one before and aims at
half its size. If one succeeds, the caller should remember that window.

If the content of a call is refused, and the content of the turn before was refused too, an earlier message is the
cause. Then the past is shown as plain text (`plain`); if that is refused as well, it is undone.

The driver carries out each step and sends back the resulting transcript. It throws ContextOverflow or ContentRefused
into the generator if a Send was refused, and closes the generator after a Send succeeded:

    steps = guard.protect(transcript, limits)
    step = next(steps)
    while True:
        match step:
            case Send(): try the call; on success stop; when it is refused step = steps.throw(error)
            case Shorten() | Rescue(): append step.bodies;  step = steps.send(transcript)
            case Compact(): summarise, check, append;       step = steps.send(transcript, or None if refused)

No request is sent twice. There is at most one compaction, and only if it can shrink the prompt.
"""

from collections.abc import Generator, Sequence
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ..errors import ContentRefused, ContextOverflow
from . import compaction, history, tokens
from .compaction import Keep, Plan
from .entries import (
    REFUSED_CONTENT,
    Assistant,
    Compaction,
    Entry,
    Failed,
    Pin,
    Shortened,
    ToolResult,
    Transcript,
    Undo,
)
from .history import History, TailCache, View, cuttable
from .measuring import (
    Limits as Limits,
    entry_size as entry_size,
    length,
    measure as measure,
    of_history as of_history,
    shown,
    shown_with,
    shrinks as shrinks,
    size_after as size_after,
)
from .rescue import rescue as rescue, target_of

FIXED_MAX_SHARE = 0.8
"""The share of the window above which system prompt and tools leave no room for a conversation and its answer."""


class Send(Struct, frozen=True):
    """Make this call."""

    history: History
    stage: str
    tokens: int
    window: int = 0
    """If the call succeeds: the size of the window, if it is smaller than believed; 0: nothing was learnt."""


class Shorten(Struct, frozen=True):
    """Append these bodies and continue with the resulting transcript."""

    bodies: list[Entry]


class Compact(Struct, frozen=True):
    """Summarise plan.fold, check the answer, and append the compaction and `along` in one append."""

    plan: Plan
    trigger: str
    tokens_before: int
    along: list[Entry]
    """A compaction ends shortenings, so kept results that would be too large again are shortened again."""


class Rescue(Struct, frozen=True):
    """Append this digest, made without a model."""

    bodies: list[Entry]


Step: TypeAlias = Send | Shorten | Compact | Rescue


class _CallState:
    """The state that the stages of one call share."""

    def __init__(self, compact_first: bool, cache: TailCache | None) -> None:
        self.compact_first = compact_first
        self.cache = cache
        self.compacted = False
        self.size: int | None = None
        self.view: View | None = None
        """Size and view of the next request, if the stage has computed them already."""
        self.refused: ContextOverflow | None = None
        self.sent: list[list[history.ApiMessage]] = []
        self.accepted = False
        self.unrescued: Transcript | None = None
        """The transcript before the first rescue."""
        self.aim = 0
        """The size that the newest rescue aimed at."""


Stage: TypeAlias = Generator[Step, Transcript | None, Transcript | None]
"""Prepares the transcript for its attempt; returns None if this stage cannot help."""


def protect(
    transcript: Transcript, limits: Limits, *, compact_first: bool = True, cache: TailCache | None = None
) -> Generator[Step, Transcript | None, None]:
    """The steps for one model call. `compact_first`: whether a trigger that fires is acted on before the call.
    `cache`: the session's, for what was built at earlier calls.
    """
    state = _CallState(compact_first, cache)
    for name, prepare in _STAGES:
        state.size = state.view = None
        ready = yield from prepare(transcript, limits, state)
        if ready is None:
            continue
        transcript = ready
        transcript = yield from _send_or_make_plain(transcript, limits, state, name)
        if state.accepted:
            return
    raise _overflow(transcript, limits, state.refused) from state.refused


def _overflow(transcript: Transcript, limits: Limits, refused: ContextOverflow | None) -> ContextOverflow:
    """Says so if system prompt and tools are the cause: then a shorter message would not help."""
    size = measure(transcript, limits)
    window = min(limits.window, refused.window if refused and refused.window else limits.window)
    fixed = tokens.estimate([], "calibrated", system=limits.system, tools=limits.tools, scale=limits.scale)
    if fixed < FIXED_MAX_SHARE * window:
        return ContextOverflow(tokens=size, window=window)
    return ContextOverflow(
        f"the system prompt and the tools alone take about {fixed:,} of the {window:,} tokens of the model's window",
        hint="Shorten the agent's system prompt, give it fewer tools, or use a model with a larger window.",
        tokens=size,
        window=window,
    )


def _send_or_make_plain(
    transcript: Transcript, limits: Limits, state: _CallState, name: str
) -> Generator[Step, Transcript | None, Transcript]:
    """Returns the transcript that was tried last: the given one, or one with its past as plain text."""
    try:
        yield from _send(transcript, limits, state, name)
        return transcript
    except ContentRefused as error:
        refused = error
    transcript = yield from _made_plain(transcript, limits, refused)
    state.size = state.view = None
    try:
        yield from _send(transcript, limits, state, "plain")
    except ContentRefused as again:
        newest = max(entry.seq for entry in transcript if isinstance(entry, Shortened) and entry.plain)
        yield Shorten([Undo(target=newest)])
        raise ContentRefused(str(again), hint=REFUSED_AGAIN) from again
    return transcript


def _send(transcript: Transcript, limits: Limits, state: _CallState, name: str) -> Generator[Step, Any, None]:
    """Does not repeat a request that was refused already."""
    past = shown(transcript, limits, state.view, state.cache)
    if past.messages in state.sent:
        return
    state.sent.append(past.messages)
    try:
        size = measure(transcript, limits) if state.size is None else state.size
        learnt = max(size, state.aim) if state.aim and state.refused and not _has_numbers(state.refused) else 0
        yield Send(past, name, size, learnt if learnt < limits.window else 0)
        state.accepted = True
    except ContextOverflow as overflow:
        state.refused = overflow


REFUSED_AGAIN = (
    "It is left out of the prompt from now on. If other messages are refused as well, an earlier message is the "
    "cause: go back with /rewind or `turnlog sessions rewind SESSION SEQ`, or fork from before it."
)


def _made_plain(
    transcript: Transcript, limits: Limits, refused: ContentRefused
) -> Generator[Step, Transcript | None, Transcript]:
    """The transcript with its past as plain text; raises the refusal if there is no reason for that or no
    difference.
    """
    last = _last_before_turn(transcript)
    if last is None:
        raise refused
    body = Shortened(targets=(last,), limit=0, plain=True)
    if shown_with(transcript, [body], limits).messages == shown(transcript, limits).messages:
        raise ContentRefused(str(refused), hint=REFUSED_AGAIN) from refused
    ready = yield Shorten([body])
    if ready is None:
        raise refused
    return ready


def _last_before_turn(transcript: Transcript) -> int | None:
    """The last message before the newest turn, if no call was accepted since another turn's content was refused."""
    view = history.survey(transcript)
    starts = compaction.turn_starts(view)
    if not starts:
        return None
    turn = view.tail[starts[-1]].seq
    accepted = max((e.seq for e in view.tail if isinstance(e, Assistant) and e.stop != "error"), default=0)
    codes = {e.seq: e.code for e in transcript if isinstance(e, Failed)}
    if not any(accepted < seq < turn and codes[seq] == REFUSED_CONTENT for seq in view.failed):
        return None
    return max((entry.seq for entry in view.tail if entry.seq < turn), default=None)


def _as_is(transcript: Transcript, limits: Limits, state: _CallState) -> Stage:
    view = state.cache.survey(transcript) if state.cache else history.survey(transcript)
    size = measure(transcript, limits, view, state.cache)
    if state.compact_first and (step := compact_if_due(transcript, limits, size, view)):
        answer = yield step
        state.compacted = answer is not None
        if answer is not None:
            return answer
    state.size, state.view = size, view
    return transcript


def _shortened(transcript: Transcript, limits: Limits, state: _CallState) -> Stage:
    targets = oversized_results(transcript, limits.result_limit())
    if not targets:
        return None
    return (yield Shorten([Shortened(targets=tuple(targets), limit=limits.result_limit())]))


def _compacted(transcript: Transcript, limits: Limits, state: _CallState) -> Stage:
    plan = None if state.compacted else on_overflow(transcript, limits)
    if plan is None:
        return None
    return (yield Compact(plan, "overflow", measure(transcript, limits), again_shortened(plan)))


def _rescued(transcript: Transcript, limits: Limits, state: _CallState) -> Stage:
    if state.unrescued is not None:
        return (yield from _rescued_further(transcript, limits, state))
    state.unrescued = transcript
    bodies = rescue(transcript, limits, state.refused)
    ready = (yield Rescue(bodies)) if bodies else None
    if ready is not None:
        state.aim = target_of(transcript, limits, state.refused)
    return ready


def _rescued_further(transcript: Transcript, limits: Limits, state: _CallState) -> Stage:
    """Replaces the previous rescue by one of half its size, as long as no refusal says what would fit."""
    if not state.aim or state.unrescued is None or state.refused is None or _has_numbers(state.refused):
        return None
    state.aim //= 2
    bodies = rescue(state.unrescued, limits, None, target=state.aim)
    newest = max(entry.seq for entry in transcript if isinstance(entry, Compaction))
    instead = [Undo(target=newest), *(bodies or ())]
    if not bodies or not shrinks(transcript, instead, limits):
        return None
    return (yield Rescue(instead))


def _has_numbers(refused: ContextOverflow) -> bool:
    return refused.window > 0


RESCUES_MAX = 5
"""The most calls with a rescued prompt: the last is at 1/32 of the size that was refused first."""

_STAGES = (
    ("as_is", _as_is),
    ("shortened", _shortened),
    ("compacted", _compacted),
    *(("rescued", _rescued),) * RESCUES_MAX,
)


def compact_if_due(
    transcript: Transcript, limits: Limits, size: int | None = None, view: View | None = None
) -> Compact | None:
    """The compaction that a trigger asks for; None if no trigger fires, or nothing would be gained."""
    view = view or history.survey(transcript)
    size = measure(transcript, limits, view) if size is None else size
    trigger = compaction.due(
        transcript,
        limits.triggers,
        tokens_now=size,
        window=limits.window,
        size=entry_size(limits, view),
        view=view,
    )
    plan, along = _either(transcript, limits) if trigger else (None, [])
    return Compact(plan, trigger.kind, size, along) if trigger and plan else None


def _either(transcript: Transcript, limits: Limits) -> tuple[Plan | None, list[Entry]]:
    """The policy's plan; if there is none, the plan that keeps shortened results shortened."""
    if plan := worthwhile(transcript, limits):
        return plan, []
    plan = worthwhile(transcript, limits, shortened=True)
    return plan, again_shortened(plan) if plan else []


def worthwhile(
    transcript: Transcript, limits: Limits, *, shortened: bool = False, refused: bool = False
) -> Plan | None:
    """A plan that certainly shrinks the prompt: its minimum is below the current size, both estimated the same way.

    After a request was `refused`, the estimate was wrong. Then the length of what would be sent decides instead,
    because a coarse estimator counts short messages as nothing.
    """
    size = entry_size(limits, history.survey(transcript))
    plan = compaction.plan(
        transcript, limits.keep, size=size, waiting=limits.waiting, added=added_messages(limits.inject)
    )
    if plan is None or _is_clearly_worthwhile(plan, size):
        return plan
    least = least_after(plan, limits, along=again_shortened(plan) if shortened else ())
    now = shown(transcript, limits)
    shrinks = length(least) < length(now) if refused else of_history(least, limits) < of_history(now, limits)
    return plan if shrinks else None


CLEARLY_TOKENS = 2_000
"""Far more than the frame of a summary: if this much is compacted, nothing else needs to be measured."""


def _is_clearly_worthwhile(plan: Plan, size: compaction.MessageSize) -> bool:
    """Whether the first few messages to compact are worth it alone. With pins this is unknown: they may stay in the
    prompt.
    """
    if any(isinstance(entry, Pin) for entry in plan.transcript):
        return False
    return sum(size(entry) for entry in plan.fold[:CLEARLY_LOOKED_AT]) > CLEARLY_TOKENS


CLEARLY_LOOKED_AT = 200


def again_shortened(plan: Plan) -> list[Entry]:
    kept = {entry.seq for entry in plan.kept}
    limits = {limit for seq, limit in plan.view.shortened.items() if seq in kept}
    return [
        Shortened(targets=tuple(s for s, n in plan.view.shortened.items() if s in kept and n == limit), limit=limit)
        for limit in sorted(limits)
    ]


def added_messages(inject: str) -> int:
    return {"system": 0, "pair": 2}.get(inject, 1)


def floor(plan: Plan, limits: Limits) -> int:
    """The minimum size after this plan: system prompt, tools, pins, tail, and almost no summary."""
    return of_history(least_after(plan, limits), limits)


def least_after(plan: Plan, limits: Limits, *, along: Sequence[Entry] = ()) -> History:
    least = Compaction(summary="-", first_kept=plan.first_kept, covers=plan.covers)
    return shown_with(plan.transcript, [least, *along], limits)


def on_overflow(transcript: Transcript, limits: Limits) -> Plan | None:
    view = history.survey(transcript)
    if not compaction.may_compact(transcript, view, window=limits.window, size=entry_size(limits, view), asked=True):
        return None
    # If the tail that the policy keeps leaves nothing to compact, keep less.
    less = replace(limits, keep=Keep("from_last_user"))
    return worthwhile(transcript, limits, shortened=True, refused=True) or worthwhile(
        transcript, less, shortened=True, refused=True
    )


def oversized_results(transcript: Transcript, limit: int) -> list[int]:
    view = history.survey(transcript)
    return [
        entry.seq
        for entry in view.tail
        if isinstance(entry, ToolResult)
        and len(cuttable(entry.content)) > limit
        and view.shortened.get(entry.seq, limit + 1) > limit
    ]
