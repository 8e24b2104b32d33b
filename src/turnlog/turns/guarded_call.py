"""Carries out what the guard asks for: sends, shortens, summarises and rescues until a reply has come.

`run` knows neither the provider nor the edge. Its caller gives it the call to protect, so it serves another program's
agent loop (`Turnlog.guard`) as well as ours.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from msgspec import Struct

from ..core import guard, overflow
from ..core.entries import Assistant, text_of
from ..core.events import Event, GuardStage, Snapshot, Tell, TextDelta
from ..core.guard import Compact, Limits, Rescue, Send, Shorten
from ..core.history import History
from ..core.tokens import input_tokens
from ..errors import ContentRefused, ContextOverflow, ProviderRefused
from .compactor import Compactor
from .journal import Journal

Attempt: TypeAlias = Callable[[History, Tell], Awaitable[Assistant]]
"""Makes one call and returns its answer. Raises ContextOverflow if the prompt does not fit."""
Reported: TypeAlias = Callable[[History, Callable[[Tell], Awaitable[Assistant]], Tell], Awaitable[Assistant]]
"""(history, call, `tell`): makes the call, and reports it to the code that measures calls."""
STOPPED_BY_FILTER = "the answer was stopped by a content filter"


async def unreported(shown: History, make: Callable[[Tell], Awaitable[Assistant]], tell: Tell) -> Assistant:
    """Used where nobody measures calls."""
    return await make(tell)


class FittedReply(Struct, frozen=True):
    reply: Assistant
    window: int = 0
    """The window that the model seems to have, where this call taught it; otherwise 0."""


async def run(
    journal: Journal,
    limits: Limits,
    attempt: Attempt,
    compactor: Compactor,
    tell: Tell,
    *,
    compact_first: bool,
    is_shown: Callable[[], bool] | None = None,
    reported: Reported = unreported,
) -> FittedReply:
    """Raises ContextOverflow or ContentRefused when nothing helped.

    `is_shown`: for callers whose listeners cannot take back what they were shown. Once it says that something was, no
    further step is tried: the answer counts, whatever its size or its stop.
    """
    steps = guard.protect(journal.transcript, limits, compact_first=compact_first, cache=journal.tail_cache)
    calls = _Calls(attempt, limits, tell, is_shown, reported)
    try:
        step = next(steps)
        while True:
            match step:
                case Send():
                    try:
                        return FittedReply(await calls.make(step), step.window)
                    except (ContextOverflow, ContentRefused) as refused:
                        step = steps.throw(refused)
                case Shorten() | Rescue():
                    await journal.append(*step.bodies)
                    step = steps.send(journal.transcript)
                case Compact():
                    end = await compactor.compact(journal, step, limits, tell)
                    step = steps.send(None if end.error else journal.transcript)
    except ContextOverflow:
        if calls.oversized is None:
            raise
        # The model answered each time, only with more input than we believe it can take: that belief may be wrong.
        tell(Snapshot(text=text_of(calls.oversized.content)))
        return FittedReply(calls.oversized)
    finally:
        steps.close()


class _Calls:
    """The calls made for one reply, and what listeners have seen of them."""

    def __init__(
        self, attempt: Attempt, limits: Limits, tell: Tell, is_shown: Callable[[], bool] | None, reported: Reported
    ) -> None:
        self._attempt = attempt
        self._reported = reported
        self._limits = limits
        self._tell = tell
        self._is_shown = is_shown
        self._is_text_shown = False
        self.oversized: Assistant | None = None
        """The newest answer that counts as refused only because of the size that its provider reported."""

    async def make(self, step: Send) -> Assistant:
        if step.stage != "as_is":
            self._tell(GuardStage(stage=step.stage))
        self._take_back_text()
        try:
            reply = await self._reported(step.history, partial(self._attempt, step.history), self._pass_on)
            if self._is_shown is not None and (self._is_shown() or reply.stop == overflow.CONTENT_STOP):
                return reply
            self._check(reply)
        except ContextOverflow as error:
            if self._is_shown is not None and self._is_shown():
                raise ProviderRefused(
                    f"the answer was cut short: {error}", hint="Send a message to continue."
                ) from error
            self._take_back_text()
            raise
        return reply

    def _pass_on(self, event: Event) -> None:
        self._is_text_shown = self._is_text_shown or isinstance(event, TextDelta)
        self._tell(event)

    def _take_back_text(self) -> None:
        if self._is_text_shown:
            self._is_text_shown = False
            self._tell(Snapshot(text=""))

    def _check(self, reply: Assistant) -> None:
        """Some providers cut a prompt that is too large without saying so, or answer until there is no room left.

        A filter may stop an answer in its middle: listeners keep what they saw of it, but it is neither stored as the
        answer nor sent again.
        """
        if reply.stop == overflow.CONTENT_STOP:
            raise ContentRefused(STOPPED_BY_FILTER)
        taken = input_tokens(reply.usage)
        window = self._limits.believed or self._limits.window  # a window that was only learnt may be larger than that
        if overflow.is_silent(input_tokens=taken, window=window, stop=reply.stop):
            self.oversized = reply
            raise ContextOverflow(f"the model read {taken} tokens", tokens=taken, window=window)
