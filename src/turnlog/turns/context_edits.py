"""What a client asks to be done to its context before it is answered: compact, and clear old tool results.

All of it is ordinary entries: visible, and undone like any other compaction or shortening.
"""

from msgspec import Struct
from msgspec.structs import replace

from ..core import clearing, guard, tokens
from ..core.clearing import CLEARED_CHARS, ClearRule
from ..core.compaction import Trigger
from ..core.entries import Assistant, Compaction, Shortened
from ..core.guard import Limits
from .agent import Agent
from .compactor import asked_for
from .journal import Journal
from .relay_call import CompactionNote, RelayCall

COMPACTED = "compaction"
"""The stop reason of an answer that is only a compaction. The client is told it, but only the compaction is stored."""


class ContextEdits(Struct, frozen=True, kw_only=True):
    compact_at: int | None = None
    """Compact if the prompt has more tokens than this."""
    focus: str = ""
    """What the summary should keep."""
    compacts_now: bool = False
    """Compact, and give no answer."""
    pauses: bool = False
    """Give no answer if there was a compaction."""
    clear: ClearRule | None = None

    def limits(self, limits: Limits) -> Limits:
        if self.compact_at is None:
            return limits
        return replace(limits, triggers=(Trigger("tokens", self.compact_at), *limits.triggers))

    def agent(self, agent: Agent) -> Agent:
        return replace(agent, compactor=replace(agent.compactor, focus=self.focus)) if self.focus else agent


NO_EDITS = ContextEdits()


async def apply(
    call: RelayCall, journal: Journal, agent: Agent, limits: Limits, edits: ContextEdits
) -> Assistant | None:
    """The answer, if the edits are all that is wanted."""
    if edits.clear is not None:
        await _clear(call, journal, limits, edits.clear)
    if edits.compacts_now:
        return await _compact_now(call, journal, agent, limits)
    if edits.pauses and (step := guard.compact_if_due(journal.transcript, limits)):
        end = await agent.compactor.compact(journal, step, limits, call.tell)
        if not end.error:
            return _told(call, journal, limits)
    return None


async def _clear(call: RelayCall, journal: Journal, limits: Limits, rule: ClearRule) -> None:
    transcript = journal.transcript
    size = guard.measure(transcript, limits)
    chosen = clearing.targets(transcript, rule, size)
    if not chosen:
        return
    body = Shortened(targets=tuple(chosen), limit=CLEARED_CHARS)
    saved = size - guard.size_after(transcript, [body], limits)
    if saved > 0 and saved >= rule.least:
        await journal.append(body)
        call.cleared = (len(chosen), saved)


async def _compact_now(call: RelayCall, journal: Journal, agent: Agent, limits: Limits) -> Assistant:
    """If nothing would be gained, the answer stands for everything that there is."""
    step = asked_for(journal.transcript, limits)
    if step is None:
        size = guard.measure(journal.transcript, limits)
        call.compaction = CompactionNote(journal.end, size, size)
        return Assistant(content=[], stop=COMPACTED, usage={"input_tokens": size, "output_tokens": 0})
    await journal.append(await agent.compactor.fold(journal.session_id, step, limits), *step.along)
    return _told(call, journal, limits)


def _told(call: RelayCall, journal: Journal, limits: Limits) -> Assistant:
    made = next(entry for entry in reversed(journal.stored) if isinstance(entry, Compaction))
    call.note_compaction(made)
    call.guard = "compacted"
    return answer_of(made, limits)


def answer_of(made: Compaction, limits: Limits | None = None) -> Assistant:
    """Its usage is an estimate, because a summariser reports none."""
    written = tokens.of_text(made.summary, scale=limits.scale) if limits else tokens.of_text(made.summary)
    usage = {"input_tokens": made.tokens_before, "output_tokens": written}
    return Assistant(content=[], stop=COMPACTED, usage=usage)
