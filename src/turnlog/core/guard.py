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

No request is sent twice, at most one compaction is made, and none is asked for that could not shrink the prompt.
"""

import json
from collections.abc import Generator, Iterator, Sequence
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ..errors import ContextOverflow
from . import compaction, history, summaries, tokens
from .compaction import Keep, Plan, Trigger
from .entries import (
    Assistant,
    Compaction,
    Entry,
    Pin,
    Shortened,
    ToolResult,
    Transcript,
    Undo,
    context_tokens,
)
from .history import History, View, cut_content, cuttable

RESULT_SHARE = 0.3
RESULT_MAX_CHARS = 50_000
"""A tool result over 30 % of the window, at most this many characters, is shortened on overflow."""
CHARS_PER_TOKEN = 4
RESCUE_SHARE = 0.5
"""A rescued prompt aims at half of what was refused: the estimate that led there was wrong by an unknown factor."""
DIGEST_SHARE = 0.1
DIGEST_OF_TARGET = 0.25
"""What a digest may take of the window as we believe it to be, and of what a rescued prompt aims at."""


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
    """Summarise plan.fold, check the answer, append the compaction and, in the same append, what goes along."""

    plan: Plan
    trigger: str
    tokens_before: int
    along: list[Entry]
    """A compaction ends shortenings; results that are kept and would be too large again are shortened anew."""


class Rescue(Struct, frozen=True):
    """Append this digest, made without a model."""

    bodies: list[Entry]


Step: TypeAlias = Send | Shorten | Compact | Rescue


class _Climb:
    """What the stages of one ladder tell each other."""

    def __init__(self, compact_first: bool) -> None:
        self.compact_first = compact_first
        self.compacted = False
        self.size: int | None = None
        self.view: View | None = None
        """Size and view of what is to be sent, where the stage has them already."""
        self.refused: ContextOverflow | None = None


Stage: TypeAlias = Generator[Step, Transcript | None, Transcript | None]
"""Makes the transcript ready for its attempt; None: this stage has nothing to offer."""


def protect(
    transcript: Transcript, limits: Limits, *, compact_first: bool = True
) -> Generator[Step, Transcript | None, None]:
    """The ladder for one model call. `compact_first`: whether a trigger that holds is acted on before the call."""
    climb = _Climb(compact_first)
    sent: list[list[history.ApiMessage]] = []
    for name, prepare in _STAGES.items():
        climb.size = climb.view = None
        ready = yield from prepare(transcript, limits, climb)
        if ready is None:
            continue
        transcript = ready
        shown = history.build(transcript, system=limits.system, inject=limits.inject, view=climb.view)
        if shown.messages in sent:
            continue
        sent.append(shown.messages)
        try:
            yield Send(shown, name, measure(transcript, limits) if climb.size is None else climb.size)
        except ContextOverflow as overflow:
            climb.refused = overflow
        else:
            return
    raise ContextOverflow(tokens=measure(transcript, limits), window=limits.window) from climb.refused


def _as_is(transcript: Transcript, limits: Limits, climb: _Climb) -> Stage:
    view = history.survey(transcript)
    size = measure(transcript, limits, view)
    if climb.compact_first and (step := compact_if_due(transcript, limits, size, view)):
        answer = yield step
        climb.compacted = answer is not None
        if answer is not None:
            return answer
    climb.size, climb.view = size, view
    return transcript


def _shortened(transcript: Transcript, limits: Limits, climb: _Climb) -> Stage:
    targets = oversized_results(transcript, limits.result_limit())
    if not targets:
        return None
    return (yield Shorten([Shortened(targets=tuple(targets), limit=limits.result_limit())]))


def _compacted(transcript: Transcript, limits: Limits, climb: _Climb) -> Stage:
    plan = None if climb.compacted else _on_overflow(transcript, limits)
    if plan is None:
        return None
    return (yield Compact(plan, "overflow", measure(transcript, limits), again_shortened(plan)))


def _rescued(transcript: Transcript, limits: Limits, climb: _Climb) -> Stage:
    bodies = rescue(transcript, limits, climb.refused)
    if bodies is None:
        return None
    return (yield Rescue(bodies))


_STAGES = {"as_is": _as_is, "shortened": _shortened, "compacted": _compacted, "rescued": _rescued}


def of_history(shown: History, limits: Limits) -> int:
    return tokens.estimate(
        shown.messages, limits.estimator, system=shown.system, tools=limits.tools, scale=limits.scale
    )


def measure(transcript: Transcript, limits: Limits, view: View | None = None) -> int:
    """The size of the next request: what the provider reported last, plus an estimate of what came after.

    Only the calibrated estimator is anchored; the compatible ones must give the figures of the systems they
    imitate. A report from before the newest compaction, shortening or undo says nothing about the prompt now.
    """
    view = view or history.survey(transcript)
    if limits.estimator == "calibrated" and (anchor := _anchor(transcript, view)):
        seq, reported = anchor
        later: list[history.ApiMessage] = [
            {"role": "user", "content": history.shown_content(entry, view)} for entry in view.tail if entry.seq > seq
        ]
        return reported + tokens.of_messages(later, scale=limits.scale)
    return of_history(history.build(transcript, system=limits.system, inject=limits.inject, view=view), limits)


def _anchor(transcript: Transcript, view: View) -> tuple[int, int] | None:
    shaped = max((e.seq for e in transcript if isinstance(e, Compaction | Shortened | Undo)), default=0)
    for entry in reversed(view.tail):
        if entry.seq <= shaped:
            return None
        if isinstance(entry, Assistant) and (reported := context_tokens(entry.usage)):
            return entry.seq, reported
    return None


def compact_if_due(
    transcript: Transcript, limits: Limits, size: int | None = None, view: View | None = None
) -> Compact | None:
    """What a trigger that holds asks for; None if there is none, or nothing would be gained."""
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


def entry_size(limits: Limits, view: View) -> compaction.Size:
    return compaction.sizer(view, limits.estimator, limits.scale)


def _either(transcript: Transcript, limits: Limits) -> tuple[Plan | None, list[Entry]]:
    """The policy's plan; failing that, the same with what was shortened kept so."""
    if plan := worthwhile(transcript, limits):
        return plan, []
    plan = worthwhile(transcript, limits, shortened=True)
    return plan, again_shortened(plan) if plan else []


def worthwhile(
    transcript: Transcript, limits: Limits, *, shortened: bool = False, refused: bool = False
) -> Plan | None:
    """A plan that is sure to shrink the prompt: its floor is below what there is now, both estimated the same way.

    Once a request was `refused`, the estimate was wrong, and what would be sent decides instead: a coarse estimator
    sees no size at all in short messages.
    """
    size = entry_size(limits, history.survey(transcript))
    plan = compaction.plan(
        transcript, limits.keep, size=size, waiting=limits.waiting, added=added_messages(limits.inject)
    )
    if plan is None or _is_clearly_worthwhile(plan, size):
        return plan
    least = least_after(plan, limits, along=again_shortened(plan) if shortened else ())
    now = history.build(transcript, system=limits.system, inject=limits.inject)
    shrinks = _length(least) < _length(now) if refused else of_history(least, limits) < of_history(now, limits)
    return plan if shrinks else None


CLEARLY_TOKENS = 2_000
"""More than a summary's frame takes by far: where so much is folded, nothing else needs to be measured."""


def _is_clearly_worthwhile(plan: Plan, size: compaction.Size) -> bool:
    """Whether the first few folded messages alone are worth it. Where there are pins, they may stay in the prompt."""
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


def floor(plan: Plan, limits: Limits, *, along: Sequence[Entry] = ()) -> int:
    """The least that would be sent after this plan: system, tools, pins, tail, and next to no summary."""
    return of_history(least_after(plan, limits, along=along), limits)


def least_after(plan: Plan, limits: Limits, *, along: Sequence[Entry] = ()) -> History:
    least = Compaction(summary="-", first_kept=plan.first_kept, covers=plan.covers)
    return _shown_with(plan.transcript, [least, *along], limits)


def _on_overflow(transcript: Transcript, limits: Limits) -> Plan | None:
    view = history.survey(transcript)
    if not compaction.may_compact(transcript, view, window=limits.window, size=entry_size(limits, view), asked=True):
        return None
    # Where the policy's own tail leaves nothing to fold, keep less.
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


def rescue(transcript: Transcript, limits: Limits, refused: ContextOverflow | None) -> list[Entry] | None:
    """The largest end of the tail that is sure to fit, under a digest; tool results in it cut to stubs."""
    view = history.survey(transcript)
    shown = history.build(transcript, system=limits.system, inject=limits.inject, view=view)
    target = _target(of_history(shown, limits), limits, refused)
    found: list[Entry] | None = None
    for bodies in _rescues(transcript, view, limits, target):
        after = _shown_with(transcript, bodies, limits)
        size = of_history(after, limits)
        if _length(after) >= _length(shown):
            continue
        if found is None or size <= target:
            sizes = {"tokens_before": measure(transcript, limits, view), "tokens_after": size}
            found = [replace(bodies[0], **sizes), *bodies[1:]]
        if size <= target:
            break
    return found


def _rescues(transcript: Transcript, view: View, limits: Limits, target: int) -> Iterator[list[Compaction | Shortened]]:
    """From the most that may fit to the least there can be: by the cut, and by the length of the digest."""
    cuts = compaction.seams(view.tail, limits.waiting)
    stubs = _stub_limit(limits)
    room = int(min(limits.window * DIGEST_SHARE, target * DIGEST_OF_TARGET))
    suffix = _suffix_sizes(view, limits, stubs)
    fixed = _fixed_size(limits, view) + room
    fitting = [cut for cut in cuts if fixed + suffix[cut] <= target]
    for cut in dict.fromkeys([*fitting[:1], *cuts[-1:]]):
        plan = compaction.cut_at(transcript, view, cut, added=0)
        assert plan is not None  # a seam is never before the first message
        yield _rescue_bodies(plan, room * CHARS_PER_TOKEN, stubs)
        yield _rescue_bodies(plan, room, stubs)  # for scripts with a token to each character


def size_after(transcript: Transcript, bodies: Sequence[Entry], limits: Limits) -> int:
    """What the prompt would take once these entries are in the log."""
    return of_history(_shown_with(transcript, bodies, limits), limits)


def shrinks(transcript: Transcript, bodies: Sequence[Entry], limits: Limits) -> bool:
    """Whether less would be sent once these entries are in the log, by its length and not by any estimate."""
    now = history.build(transcript, system=limits.system, inject=limits.inject)
    return _length(_shown_with(transcript, bodies, limits)) < _length(now)


def _length(shown: History) -> int:
    return len(shown.system) + len(json.dumps(shown.messages, default=str))


def _rescue_bodies(plan: Plan, digest_chars: int, stubs: int) -> list[Compaction | Shortened]:
    summary = summaries.digest(plan, digest_chars)
    body = compaction.complete(plan, summary, trigger="rescue", tokens_before=0, tokens_after=0)
    long = [e.seq for e in plan.kept if isinstance(e, ToolResult) and len(cuttable(e.content)) > stubs]
    return [body, Shortened(targets=tuple(long), limit=stubs)] if long else [body]


def _shown_with(transcript: Transcript, bodies: Sequence[Entry], limits: Limits) -> History:
    end = transcript[-1].seq
    added = [replace(body, seq=end + n) for n, body in enumerate(bodies, 1)]
    return history.build([*transcript, *added], system=limits.system, inject=limits.inject)


def _stub_limit(limits: Limits) -> int:
    return max(summaries.STUB_CHARS, limits.result_limit() // 10)


def _target(now: int, limits: Limits, refused: ContextOverflow | None) -> int:
    share = RESCUE_SHARE
    if refused is not None and 0 < refused.window < refused.tokens:
        share = min(share, refused.window / refused.tokens * 0.8)
    return min(int(now * share), limits.window - compaction.reserve(16_384, limits.window))


def _fixed_size(limits: Limits, view: View) -> int:
    return tokens.estimate(
        [{"role": "user", "content": history.pins_text(view) or "-"}],
        limits.estimator,
        system=limits.system,
        tools=limits.tools,
        scale=limits.scale,
    )


def _suffix_sizes(view: View, limits: Limits, stub: int) -> Sequence[int]:
    size = entry_size(limits, view)
    sums = [0] * (len(view.tail) + 1)
    for index in range(len(view.tail) - 1, -1, -1):
        entry = view.tail[index]
        shown = replace(entry, content=cut_content(entry.content, stub)) if isinstance(entry, ToolResult) else entry
        sums[index] = sums[index + 1] + size(shown)
    return sums
