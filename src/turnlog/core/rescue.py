"""The last resort when a prompt does not fit: a digest made without a model, and as much of the tail as fits."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from ..errors import ContextOverflow
from . import compaction, history, summaries, tokens
from .compaction import Plan
from .entries import Compaction, Entry, Shortened, ToolResult, Transcript
from .history import View, cut_content, cuttable
from .measuring import CHARS_PER_TOKEN, Limits, entry_size, length, measure, of_history, shown, shown_with

RESCUE_SHARE = 0.5
"""A rescued prompt aims at half of what was refused: the estimate that led there was wrong by an unknown factor."""
DIGEST_SHARE = 0.1
DIGEST_OF_TARGET = 0.25
"""The share of a digest, both of the believed window and of the size that a rescued prompt aims at."""


def target_of(transcript: Transcript, limits: Limits, refused: ContextOverflow | None) -> int:
    """The size that a first rescue aims at."""
    return _target(of_history(shown(transcript, limits), limits), limits, refused)


def rescue(
    transcript: Transcript, limits: Limits, refused: ContextOverflow | None, *, target: int | None = None
) -> list[Entry] | None:
    """The largest end of the tail that certainly fits, after a digest; its tool results are cut to stubs."""
    view = history.survey(transcript)
    now = shown(transcript, limits, view)
    stubs = _stub_limit(limits, target)
    target = _target(of_history(now, limits), limits, refused) if target is None else target
    found: list[Entry] | None = None
    for bodies in _rescues(transcript, view, limits, target, stubs):
        after = shown_with(transcript, bodies, limits)
        size = of_history(after, limits)
        if length(after) >= length(now):
            continue
        if found is None or size <= target:
            sizes = {"tokens_before": measure(transcript, limits, view), "tokens_after": size}
            found = [replace(bodies[0], **sizes), *bodies[1:]]
        if size <= target:
            break
    return found


def _rescues(
    transcript: Transcript, view: View, limits: Limits, target: int, stubs: int
) -> Iterator[list[Compaction | Shortened]]:
    """The candidates from the largest to the smallest: by the cut, and by the length of the digest."""
    cuts = compaction.seams(view.tail, limits.waiting)
    room = int(min(limits.window * DIGEST_SHARE, target * DIGEST_OF_TARGET))
    suffix = _suffix_sizes(view, limits, stubs)
    fixed = _fixed_size(limits, view) + room
    fitting = [cut for cut in cuts if fixed + suffix[cut] <= target]
    for cut in dict.fromkeys([*fitting[:1], *cuts[-1:]]):
        plan = compaction.cut_at(transcript, view, cut, added=0)
        assert plan is not None  # a seam is never before the first message
        yield _rescue_bodies(plan, room * CHARS_PER_TOKEN, stubs)
        yield _rescue_bodies(plan, room, stubs)  # for scripts with one token per character


def _rescue_bodies(plan: Plan, digest_chars: int, stubs: int) -> list[Compaction | Shortened]:
    summary = summaries.digest(plan, digest_chars)
    body = compaction.complete(plan, summary, trigger="rescue", tokens_before=0, tokens_after=0)
    long = [e.seq for e in plan.kept if isinstance(e, ToolResult) and len(cuttable(e.content)) > stubs]
    return [body, Shortened(targets=tuple(long), limit=stubs)] if long else [body]


def _stub_limit(limits: Limits, target: int | None) -> int:
    """The characters shown of a tool result. If the real window is unknown, a share of the size that is aimed at."""
    limit = limits.result_limit() if target is None else min(limits.result_limit(), target * CHARS_PER_TOKEN)
    return max(summaries.STUB_CHARS, limit // 10)


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
