"""Makes summaries, checks them, adds what they lack, and appends those that pass the checks.

Summary and boundary are one append. A summary that fails, takes too long or does not pass changes nothing, in memory or
on disk: the caller continues without it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from ..core import compaction, guard, summaries, summary_check, tokens
from ..core.compaction import Keep
from ..core.entries import Compaction, Entry, Message, Transcript
from ..core.events import CompactionEnd, CompactionStart, Tell
from ..core.guard import Compact, Limits
from ..core.history import View
from ..core.measuring import CHARS_PER_TOKEN
from ..core.prompt import Prompt
from ..core.rescue import DIGEST_SHARE
from ..errors import ContextOverflow, ProviderError, SummaryRefused, UsageError
from . import retry
from .journal import Journal
from .telemetry import Telemetry

SUMMARY_TIMEOUT_S = 120.0
"""The time limit of one call of the summariser. A turn waits for it, and then continues without it."""
SUMMARY_TRIES = 2
"""How often a summary is requested until one passes the checks."""
LIST_MIN_TOKENS = 40
"""A shorter list of what a summary lacks is not worth its heading."""
CHUNKS_MAX = 64
"""The most calls for one summary. Text that needs more is larger than any window; a rescue works better for it. Who
asks for a compaction gets a summary of the newest part, begun with a digest of what comes before.
"""
UNREAD_NOTE = "[Of {n} earlier messages, only a digest was summarised.]\n"
CHUNK_SHARE = 0.6
"""The share of the summariser's window for the text; the rest is for the previous summary, the answer and errors of the
estimate.
"""
SHRINKS_MAX = 3
"""How often a chunk is halved when the summariser's own window turns out to be smaller than believed."""
WORDS_PER_TOKEN = 0.6
CUT_MIN_CHARS = 40
"""The least length of a manual summary that was cut to make the prompt smaller."""
TOO_LONG = "the prompt would be no smaller with this summary"


CallPurpose: TypeAlias = Literal["turn", "summary"]
OnRequest: TypeAlias = Callable[[CallPurpose, str, Prompt], None]
"""(kind, session id, prompt) of every request before it is sent."""


def unlogged(kind: CallPurpose, session_id: str, prompt: Prompt) -> None:
    """Used if there is no request log."""


class Compactor(Struct, frozen=True, kw_only=True):
    """Makes summaries with one model."""

    summarise: Callable[[Prompt], Awaitable[str]]
    model: str | None = None
    window: int | None = None
    """The summariser's window, if it is not that of the turn's model."""
    words: int | None = None
    chars: int | None = None
    focus: str = ""
    """What every summary should keep, if nothing else is asked for."""
    on_request: OnRequest = unlogged
    timeout_s: float = SUMMARY_TIMEOUT_S
    backoff_s: float = retry.BACKOFF_S
    telemetry: Telemetry = field(default_factory=Telemetry)

    async def compact(self, journal: Journal, step: Compact, limits: Limits, tell: Tell) -> CompactionEnd:
        """Tells its start and its end, and returns the end. If that has an `error`, nothing has changed."""
        before = step.tokens_before
        tell(CompactionStart(tokens_before=before))
        try:
            body = await self.fold(journal.session_id, step, limits)
        except ProviderError as error:
            end = CompactionEnd(tokens_before=before, tokens_after=before, error=str(error))
        else:
            await journal.append(body, *step.along)
            end = CompactionEnd(tokens_before=before, tokens_after=body.tokens_after)
        tell(end)
        return end

    async def fold(self, session_id: str, step: Compact, limits: Limits, focus: str = "") -> Compaction:
        """A compaction whose summary passes the checks, to be appended with `step.along`."""
        with self.telemetry.compaction(session_id, step) as made:
            body = await self._fold(session_id, step, limits, focus or self.focus)
            body = replace(body, tokens_after=guard.size_after(step.plan.transcript, [body, *step.along], limits))
            made(body)
        return body

    async def _fold(self, session_id: str, step: Compact, limits: Limits, focus: str) -> Compaction:
        """If a summary does not pass the checks, another is requested, with the reason.

        Of two that pass, the one that lacks less is taken; what it still lacks is added to it.
        """
        check = _Check(step, limits, self._room(limits))
        why, body, passed = "", self._body(step, "", focus), list[Compaction]()
        for _ in range(SUMMARY_TRIES):
            answer = self._cut(await self._in_chunks(session_id, step, limits, focus, why))
            body = self._body(step, answer, focus)
            why = _refusal(step, body, limits)
            if not why:
                passed.append(body)
                why = check.lacks(body)
            if not why:
                break
        if passed:
            return check.completed(passed)
        if why == TOO_LONG and step.trigger == "manual" and (cut := _cut_to_fit(step, body, limits)):
            return cut
        raise SummaryRefused(why)

    def _room(self, limits: Limits) -> int:
        """The tokens of a summary with everything that is added to it."""
        room = limits.summary_limit()
        return room if self.chars is None else min(room, self.chars // CHARS_PER_TOKEN)

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

    async def _in_chunks(self, session_id: str, step: Compact, limits: Limits, focus: str, why: str) -> str:
        """Summarises each chunk together with the summary of those before it, so that all parts reach the result."""
        plan, window = step.plan, self.window or limits.window
        budget = int(window * CHUNK_SHARE)
        size = compaction.sizer(plan.view, scale=limits.scale, whole=True)
        for _ in range(SHRINKS_MAX):
            pieces = summaries.chunks(plan, size, budget)
            before = plan.previous.summary if plan.previous else ""
            unread = [message for piece in pieces[:-CHUNKS_MAX] for message in piece]
            if unread and step.trigger != "manual":
                raise SummaryRefused(f"the summary would need {len(pieces)} calls; at most {CHUNKS_MAX} are made")
            if unread:
                before = summaries.digest(replace(plan, fold=unread), int(window * DIGEST_SHARE) * CHARS_PER_TOKEN)
            try:
                answer = await self._rolling(session_id, plan.view, before, pieces[-CHUNKS_MAX:], limits, focus, why)
                return UNREAD_NOTE.format(n=len(unread)) + answer if unread and answer.strip() else answer
            except ContextOverflow:
                budget //= 2
        raise SummaryRefused("the text to summarise does not fit the summariser's window, even in small parts")

    async def _rolling(
        self,
        session_id: str,
        view: View,
        summary: str,
        pieces: list[list[Message]],
        limits: Limits,
        focus: str,
        why: str,
    ) -> str:
        """`summary`: of what comes before."""
        for number, piece in enumerate(pieces, 1):
            ask = summaries.ask(
                piece,
                view,
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
                make = partial(self._patiently, session_id, prompt)
                return await self.telemetry.summary(session_id, self.model, prompt.system, prompt.messages, make)
        except TimeoutError as error:
            raise SummaryRefused(f"the summary took longer than {self.timeout_s:g} s") from error

    async def _patiently(self, session_id: str, prompt: Prompt) -> str:
        def ask() -> Awaitable[str]:
            self.on_request("summary", session_id, prompt)
            return self.summarise(prompt)

        return await retry.call(ask, backoff_s=self.backoff_s)


class _Check:
    """What the summaries of one compaction are checked against, beyond what is refused."""

    def __init__(self, step: Compact, limits: Limits, room: int) -> None:
        self._step = step
        self._limits = limits
        self._room = room
        self._size: summary_check.Size = partial(tokens.of_text, scale=limits.scale)
        self._known = summary_check.known(step.plan, self._size) if limits.identifiers == "append" else None

    def lacks(self, body: Compaction) -> str:
        """Why another summary is requested, or "". On overflow there is no time for another."""
        if self._known is None or self._step.trigger == "overflow":
            return ""
        return summary_check.lacks(self._known, body.summary, self._room, self._size)

    def completed(self, passed: list[Compaction]) -> Compaction:
        """The best of them with what it lacks, as far as the whole still passes."""
        if self._known is None:
            return passed[-1]
        best = min(reversed(passed), key=partial(_missing, self._known))
        size = self._size(best.summary)
        room = self._room - size
        while room >= LIST_MIN_TOKENS:
            text = summary_check.completed(self._known, best.summary, size + room, self._size)
            body = replace(best, summary=text)
            if not _refusal(self._step, body, self._limits):
                return body
            room //= 2
        return replace(best, summary=summary_check.completed(self._known, best.summary, 0, self._size))


def _missing(known: summary_check.Known, body: Compaction) -> int:
    return summary_check.missing(known, body.summary)


def _refusal(step: Compact, body: Compaction, limits: Limits) -> str:
    """Why the compaction is refused, or "". Where the policy requires identifiers, a summary without them is refused,
    except on overflow.

    A manual compaction must make the prompt smaller. Other triggers do not require this, because they would request a
    summary again in every turn until one does.
    """
    lenient = step.trigger == "overflow" or limits.identifiers == "append"
    why = summaries.refusal(step.plan, body.summary, lenient=lenient)
    if not why and step.trigger in ("overflow", "manual") and not _is_smaller(step, body, limits):
        return TOO_LONG
    return why


def _is_smaller(step: Compact, body: Compaction, limits: Limits) -> bool:
    bodies = [body, *step.along]
    if not guard.shrinks(step.plan.transcript, bodies, limits):
        return False
    # On overflow the estimate was wrong; and chars4 counts short messages and all framing as almost nothing.
    if step.trigger == "overflow" or limits.estimator == "chars4":
        return True
    return guard.size_after(step.plan.transcript, bodies, limits) < step.tokens_before


def _cut_to_fit(step: Compact, body: Compaction, limits: Limits) -> Compaction | None:
    """Cuts a summary so that the prompt becomes smaller; None if almost nothing would be left, or identifiers are
    missing.
    """
    low, high = CUT_MIN_CHARS - 1, len(body.summary)
    while high - low > 1:
        middle = (low + high) // 2
        fits = _is_smaller(step, replace(body, summary=body.summary[:middle] + "…"), limits)
        low, high = (middle, high) if fits else (low, middle)
    cut = replace(body, summary=body.summary[:low] + "…")
    return cut if low >= CUT_MIN_CHARS and not _refusal(step, cut, limits) else None


async def compact_now(
    journal: Journal, compactor: Compactor, limits: Limits, *, focus: str, dry_run: bool, folded: Sequence[Entry] = ()
) -> list[Compaction]:
    """Compacts because somebody asked for it. Gives the compactions that were stored, or that would be without
    `dry_run`. UsageError if nothing would be gained.

    `folded`: what folds a tail that is larger than any prompt. It is stored in one append with the summary of the rest.
    """
    added = [replace(body, seq=journal.end + n) for n, body in enumerate(folded, 1)]
    bodies = list(folded)
    if step := asked_for([*journal.transcript, *added], limits):
        bodies += [await compactor.fold(journal.session_id, step, limits, focus), *step.along]
    if not bodies:
        raise UsageError("nothing to compact", hint="Continue the conversation first.")
    if not dry_run:
        await journal.append(*bodies)
    return [body for body in bodies if isinstance(body, Compaction)]


def asked_for(transcript: Transcript, limits: Limits) -> Compact | None:
    """A manual compaction also compacts what would fit: if a token budget keeps everything, all but the last turn.

    None if nothing would be gained.
    """
    plan = guard.worthwhile(transcript, limits)
    if plan is None and limits.keep.kind == "tokens":
        plan = guard.worthwhile(transcript, replace(limits, keep=Keep("turns", 1)))
    if plan is None:
        return None
    return Compact(plan, "manual", guard.size_after(transcript, (), limits), guard.again_shortened(plan))
