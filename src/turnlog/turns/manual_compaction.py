"""Compacts a session because somebody asked for it, not because a limit was reached."""

from msgspec.structs import replace

from ..core import guard
from ..core.compaction import Keep
from ..core.entries import Compaction
from ..core.guard import Compact, Limits
from ..errors import UsageError
from .agent import Agent
from .journal import Journal
from .recovery import mark_cut_short


async def compact(journal: Journal, agent: Agent, limits: Limits, *, focus: str, dry_run: bool) -> Compaction:
    """The compaction that was stored, or that would be with `dry_run`. UsageError if nothing would be gained."""
    if not dry_run:
        await mark_cut_short(journal)
    folded = await agent.compactor.fold(journal, _asked_for(journal, limits), limits, focus)
    if not dry_run:
        await journal.append(folded.body, *folded.along)
    return folded.body


def _asked_for(journal: Journal, limits: Limits) -> Compact:
    """A manual compaction also compacts what would fit: if a token budget keeps everything, all but the last turn."""
    transcript = journal.transcript
    plan = guard.worthwhile(transcript, limits)
    if plan is None and limits.keep.kind == "tokens":
        plan = guard.worthwhile(transcript, replace(limits, keep=Keep("turns", 1)))
    if plan is None:
        raise UsageError("nothing to compact", hint="Continue the conversation first.")
    return Compact(plan, "manual", guard.size_after(transcript, (), limits), guard.again_shortened(plan))
