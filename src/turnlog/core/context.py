"""What fills the context window: the size of a prompt by its parts, and how far away the next compaction is.

The total is the guard's own measure, so people see the number that decides. The other parts are estimated, and the tail
is the rest of the total. If the provider reported less than the estimates of the other parts, all of them are scaled
down, so the parts always add up. `uncounted`: the estimator does not count system prompt and tools, so the total does
not include them. All numbers are estimates and must be shown as such.
"""

import json

from msgspec import Struct

from . import compaction, guard, history, tokens
from .compaction import Trigger
from .entries import Transcript
from .guard import Limits
from .history import View

MESSAGES_ONLY = ("chars4", "bytes4")
"""Estimators of systems that count only messages: system prompt and tools are shown separately from their total."""
FORECAST_TURNS = 5
"""The number of newest turns that predict how fast a session grows; older turns may have been about something else."""


class Split(Struct, frozen=True, kw_only=True):
    """Tokens, all estimated."""

    system: int
    tools: int
    pins: int
    summary: int
    tail: int
    total: int
    window: int
    messages: int
    """The number of messages in the tail."""
    uncounted: bool = False
    """System prompt and tools are not part of the total."""

    @property
    def share(self) -> float:
        return self.total / self.window


def split(transcript: Transcript, limits: Limits) -> Split:
    view = history.survey(transcript)
    total = guard.measure(transcript, limits)
    system, tools = _part(limits.system, limits), _tools(limits)
    pins, summary = (
        _part(history.pins_text(view), limits),
        _part(view.compaction.summary if view.compaction else "", limits),
    )
    uncounted = limits.estimator in MESSAGES_ONLY
    counted = {"pins": pins, "summary": summary} | ({} if uncounted else {"system": system, "tools": tools})
    if sum(counted.values()) > total:
        counted = _scaled(counted, total, _tail(view, limits))
    return Split(
        **{"system": system, "tools": tools, **counted},
        tail=total - sum(counted.values()),
        total=total,
        window=limits.window,
        messages=len(view.tail),
        uncounted=uncounted,
    )


def _scaled(parts: dict[str, int], total: int, tail: int) -> dict[str, int]:
    """The same parts, scaled so that they and the tail add up to the total."""
    whole = sum(parts.values()) + tail
    return {name: size * total // whole for name, size in parts.items()}


def _tail(view: View, limits: Limits) -> int:
    size = guard.entry_size(limits, view)
    return sum(map(size, view.tail))


def _part(text: str, limits: Limits) -> int:
    return tokens.estimate([{"role": "user", "content": text}], limits.estimator, scale=limits.scale) if text else 0


def _tools(limits: Limits) -> int:
    if limits.estimator == "calibrated":
        return tokens.of_messages([], tools=limits.tools, scale=limits.scale)
    return sum(_part(json.dumps(tool, ensure_ascii=False, default=str), limits) for tool in limits.tools)


def turns_left(transcript: Transcript, limits: Limits, size: int) -> int | None:
    """About how many more turns fit before a trigger fires; None if nothing compacts automatically, or nothing is
    known.

    `size`: the size of the prompt now. Future turns are assumed to be as long as the newest ones.
    """
    view = history.survey(transcript)
    starts = compaction.turn_starts(view)[-FORECAST_TURNS:]
    if not starts:
        return None
    recent = view.tail[starts[0] :]
    measure = guard.entry_size(limits, view)
    tokens_each = max(1, sum(map(measure, recent)) // len(starts))
    messages_each = max(1, len(recent) // len(starts))
    room = [
        left
        for trigger in limits.triggers
        if (left := _room(trigger, limits, size, len(view.tail), tokens_each, messages_each)) is not None
    ]
    return max(0, min(room)) if room else None


def _room(
    trigger: Trigger, limits: Limits, size: int, messages: int, tokens_each: int, messages_each: int
) -> int | None:
    match trigger.kind:
        case "tokens":
            return (trigger.n - size) // tokens_each
        case "window":
            return (limits.window - compaction.reserve(trigger.n, limits.window) - size) // tokens_each
        case "messages":
            return (trigger.n - messages) // messages_each
        case _:
            return None
