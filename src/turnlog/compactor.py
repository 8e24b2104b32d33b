"""Makes summaries, checks them, and appends those that count.

One append holds summary and boundary. A summary that fails, lingers or does not count changes nothing, in memory or
on disk: whoever asked for it goes on as if it had not been asked for.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from . import retrying
from .core import compaction, guard, summaries
from .core.compaction import Plan
from .core.entries import Compaction, Entry, Message
from .core.events import CompactionEnd, CompactionStart, Event
from .core.guard import Compact, Limits
from .core.prompt import Prompt
from .errors import ContextOverflow, ProviderBusy, ProviderError, TurnlogError
from .journal import Journal

SUMMARY_TIMEOUT_S = 120.0
"""For one call of the summariser. A turn waits for it, and goes on without it."""
SUMMARY_TRIES = 2
"""An answer that does not count is asked for once more."""
CHUNKS_MAX = 64
"""Calls for one summary. A fold that needs more is larger than any window there is; rescue serves it better."""
CHUNK_SHARE = 0.6
"""Of the summariser's window, for what is summarised; the rest is for the previous summary, its answer and error."""
SHRINKS_MAX = 3
"""How often a chunk is halved when the summariser's own window turns out to be smaller than believed."""
WORDS_PER_TOKEN = 0.6


Kind: TypeAlias = Literal["turn", "summary"]
OnRequest: TypeAlias = Callable[[Kind, str, Prompt], None]
"""(kind, session id, prompt) of every request that is about to be sent."""


def unlogged(kind: Kind, session_id: str, prompt: Prompt) -> None:
    """For those who keep no log of requests."""


class Refused(TurnlogError):
    """A summary that does not count."""

    hint = "Nothing was changed. Try again, or name another summary_model."


class Folded(Struct, frozen=True):
    """A compaction that could be appended, and what goes along with it."""

    body: Compaction
    along: list[Entry]


class Compactor(Struct, frozen=True, kw_only=True):
    """Makes summaries with one model."""

    summarise: Callable[[Prompt], Awaitable[str]]
    model: str | None = None
    window: int | None = None
    """The summariser's, where it is not that of the turn's model."""
    words: int | None = None
    chars: int | None = None
    on_request: OnRequest = unlogged
    timeout_s: float = SUMMARY_TIMEOUT_S
    backoff_s: float = retrying.BACKOFF_S

    async def compact(self, journal: Journal, step: Compact, limits: Limits, focus: str = "") -> AsyncIterator[Event]:
        """One append holds summary and boundary; before it, nothing has changed."""
        before = step.tokens_before
        yield CompactionStart(tokens_before=before)
        try:
            folded = await self.fold(journal, step, limits, focus)
        except (Refused, ProviderError) as error:
            yield CompactionEnd(tokens_before=before, tokens_after=before, error=str(error))
            return
        await journal.append(folded.body, *folded.along)
        yield CompactionEnd(tokens_before=before, tokens_after=folded.body.tokens_after)

    async def fold(self, journal: Journal, step: Compact, limits: Limits, focus: str = "") -> Folded:
        """A compaction whose summary counts. An answer that does not is asked for once more, with the reason."""
        why = ""
        for _ in range(SUMMARY_TRIES):
            answer = self._cut(await self._in_chunks(journal.session_id, step.plan, limits, focus, why))
            body = self._body(step, answer, focus)
            why = _refusal(step, body, limits)
            if not why:
                after = guard.size_after(step.plan.transcript, [body, *step.along], limits)
                return Folded(replace(body, tokens_after=after), step.along)
        raise Refused(why)

    def _body(self, step: Compact, summary: str, focus: str) -> Compaction:
        return compaction.complete(
            step.plan,
            summary,
            trigger=step.trigger,
            tokens_before=step.tokens_before,
            tokens_after=0,
            model=self.model,
            focus=focus or None,
        )

    def _cut(self, answer: str) -> str:
        most = self.chars
        return answer if most is None or len(answer) <= most else answer[: most - 1] + "…"

    async def _in_chunks(self, session_id: str, plan: Plan, limits: Limits, focus: str, why: str) -> str:
        """Each chunk with the summary of those before it, so that start, middle and end all reach the result."""
        window = self.window or limits.window
        budget = int(window * CHUNK_SHARE)
        size = compaction.sizer(plan.view, scale=limits.scale, whole=True)
        for _ in range(SHRINKS_MAX):
            pieces = summaries.chunks(plan, size, budget)
            if len(pieces) > CHUNKS_MAX:
                raise Refused(f"the summary would need {len(pieces)} calls; at most {CHUNKS_MAX} are made")
            try:
                return await self._rolling(session_id, plan, pieces, limits, focus, why)
            except ContextOverflow:
                budget //= 2
        raise Refused("what is to be summarised does not fit the summariser's window, not even in small parts")

    async def _rolling(
        self, session_id: str, plan: Plan, pieces: list[list[Message]], limits: Limits, focus: str, why: str
    ) -> str:
        summary = plan.previous.summary if plan.previous else ""
        for number, piece in enumerate(pieces, 1):
            ask = summaries.ask(
                piece,
                plan.view,
                previous=summary,
                focus=focus,
                words=self._words(limits),
                part=(number, len(pieces)),
                refused=why,
            )
            prompt = Prompt(
                system=ask.system,
                messages=[{"role": "user", "content": ask.text}],
                max_output=limits.summary_limit(),
            )
            summary = await self._call(session_id, prompt)
        return summary

    def _words(self, limits: Limits) -> int:
        if self.words is not None:
            return self.words
        if self.chars is not None:
            return self.chars // 7
        return max(50, int(limits.summary_limit() * WORDS_PER_TOKEN))

    async def _call(self, session_id: str, prompt: Prompt) -> str:
        try:
            async with asyncio.timeout(self.timeout_s):
                return await self._patiently(session_id, prompt)
        except TimeoutError as error:
            raise Refused(f"the summary took longer than {self.timeout_s:g} s") from error

    async def _patiently(self, session_id: str, prompt: Prompt) -> str:
        for number in count():
            self.on_request("summary", session_id, prompt)
            try:
                return await self.summarise(prompt)
            except ProviderBusy as error:
                await retrying.pause(error, number, self.backoff_s)
        raise AssertionError("pause() raises in the end")


def _refusal(step: Compact, body: Compaction, limits: Limits) -> str:
    """On overflow only whether it helps counts; by itself a compaction must also have kept what is exact."""
    lenient = step.trigger == "overflow"
    why = summaries.refusal(step.plan, body.summary, lenient=lenient)
    if not why and lenient and not guard.shrinks(step.plan.transcript, [body, *step.along], limits):
        return "the prompt would be no shorter with this summary"
    return why
