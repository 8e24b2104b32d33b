"""Carries out what the guard asks for: sends, shortens, summarises, rescues, until a reply has come.

`climb` knows neither provider nor edge: it is given the call to protect, so that it serves an agent loop of somebody
else's as well as ours.
"""

from collections.abc import AsyncIterator, Callable
from typing import TypeAlias

from .compactor import Compactor
from .core import guard, overflow
from .core.entries import Assistant, text_of
from .core.events import Event, GuardStage, Snapshot, TextDelta
from .core.guard import Compact, Limits, Rescue, Send, Shorten
from .core.history import History
from .core.tokens import input_tokens
from .errors import ContextOverflow
from .journal import Journal

Attempt: TypeAlias = Callable[[History], AsyncIterator[Event | Assistant]]
"""Makes one call: events on the way, and the answer at the end. Raises ContextOverflow if it does not fit."""


async def climb(
    journal: Journal, limits: Limits, attempt: Attempt, compactor: Compactor, *, compact_first: bool
) -> AsyncIterator[Event | Assistant]:
    """Events, and at the end the answer. Raises ContextOverflow when nothing helped."""
    steps = guard.protect(journal.transcript, limits, compact_first=compact_first)
    silent: Assistant | None = None
    try:
        step = next(steps)
        while True:
            match step:
                case Send():
                    if step.stage != "as_is":
                        yield GuardStage(stage=step.stage)
                    sent = _Sent()
                    async for event in _send(step, attempt, limits, sent):
                        yield event
                    if sent.refused is None and sent.reply is not None:
                        yield sent.reply
                        return
                    silent = sent.reply or silent
                    step = steps.throw(sent.refused or ContextOverflow())
                case Shorten() | Rescue():
                    await journal.append(*step.bodies)
                    step = steps.send(journal.transcript)
                case Compact():
                    before = journal.end, len(journal.held)
                    async for event in compactor.compact(journal, step, limits):
                        yield event
                    changed = (journal.end, len(journal.held)) != before
                    step = steps.send(journal.transcript if changed else None)
    except ContextOverflow:
        if silent is None:
            raise
        # It answered each time, only with more input than we believe it can take: that belief may be wrong.
        yield Snapshot(text=text_of(silent.content))
        yield silent
    finally:
        steps.close()


class _Sent:
    """What came of one call."""

    def __init__(self) -> None:
        self.reply: Assistant | None = None
        self.refused: ContextOverflow | None = None


async def _send(step: Send, attempt: Attempt, limits: Limits, sent: _Sent) -> AsyncIterator[Event]:
    shown = False
    try:
        async for item in attempt(step.history):
            if isinstance(item, Assistant):
                sent.reply = item
                continue
            shown = shown or isinstance(item, TextDelta)
            yield item
    except ContextOverflow as error:
        sent.refused = error
    if sent.reply is not None:
        sent.refused = _silently(sent.reply, limits)
    if sent.refused is not None and shown:
        yield Snapshot(text="")  # what was streamed so far is not the answer


def _silently(reply: Assistant, limits: Limits) -> ContextOverflow | None:
    """Some providers cut a prompt that is too large without saying so, or answer until there is no room left."""
    taken = input_tokens(reply.usage)
    if overflow.is_silent(input_tokens=taken, window=limits.window, stop=reply.stop):
        return ContextOverflow(f"the model took {taken} tokens in", tokens=taken, window=limits.window)
    return None
