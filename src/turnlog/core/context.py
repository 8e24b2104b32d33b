"""What fills the window: the size of a prompt by its parts, and how far away the next compaction is.

The total is the guard's own measure, so that what a person is shown is what decides. The parts are estimated; the tail
is what remains of the total, so that they add up. All of it is an estimate and must be shown as one.
"""

import json

from msgspec import Struct

from . import compaction, guard, history, tokens
from .compaction import Trigger
from .entries import Transcript
from .guard import Limits
from .history import View

MESSAGES_ONLY = ("chars4", "bytes4")
"""Estimators of systems that count messages alone: system prompt and tools are shown beside their total."""
FORECAST_TURNS = 5
"""The newest turns say how fast a session grows; older ones may have been about something else."""


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
    """How many there are in the tail."""

    @property
    def share(self) -> float:
        return self.total / self.window


def split(transcript: Transcript, limits: Limits) -> Split:
    view = history.survey(transcript)
    total = guard.measure(transcript, limits)
    system, tools = _part(limits.system, limits), _tools(limits)
    pins, summary = _part(history.pins_text(view), limits), _part(_summary(view), limits)
    beside = 0 if limits.estimator in MESSAGES_ONLY else system + tools
    return Split(
        system=system,
        tools=tools,
        pins=pins,
        summary=summary,
        tail=max(0, total - beside - pins - summary),
        total=total,
        window=limits.window,
        messages=len(view.tail),
    )


def _part(text: str, limits: Limits) -> int:
    return tokens.estimate([{"role": "user", "content": text}], limits.estimator, scale=limits.scale) if text else 0


def _tools(limits: Limits) -> int:
    if limits.estimator == "calibrated":
        return tokens.of_messages([], tools=limits.tools, scale=limits.scale)
    return sum(_part(json.dumps(tool, ensure_ascii=False, default=str), limits) for tool in limits.tools)


def _summary(view: View) -> str:
    return view.compaction.summary if view.compaction else ""


def turns_left(transcript: Transcript, limits: Limits, size: int) -> int | None:
    """About how many more turns fit before a trigger holds; None where nothing compacts by itself, or nothing is known.

    `size`: what the prompt takes now. Turns to come are taken to be as long as the newest ones.
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
