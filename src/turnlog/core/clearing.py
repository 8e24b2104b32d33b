"""Decides which old tool results a client wants out of the prompt: they are shown shortened, and the log keeps them."""

from collections.abc import Collection

from msgspec import Struct

from .entries import Assistant, ToolResult, Transcript, tool_uses
from .history import cuttable
from .survey import survey

CLEARED_CHARS = 80
"""What stays of a cleared result: little more than the note that it was shortened."""
KEPT_USES = 3


class ClearRule(Struct, frozen=True, kw_only=True):
    """When results are cleared, and which."""

    over_tokens: int | None = 100_000
    """The size of the prompt above which results are cleared; None: their number decides."""
    over_uses: int = 0
    keep: int = KEPT_USES
    """The newest results, which stay."""
    least: int = 0
    """Nothing is cleared unless this many tokens are saved."""
    excluded: tuple[str, ...] = ()
    """Tools whose results stay."""


def targets(transcript: Transcript, rule: ClearRule, size: int) -> list[int]:
    """The results to clear now; none if the rule does not apply. `size`: of the prompt, in tokens."""
    view = survey(transcript)
    results = [entry for entry in view.tail if isinstance(entry, ToolResult)]
    is_due = len(results) > rule.over_uses if rule.over_tokens is None else size > rule.over_tokens
    if not is_due:
        return []
    kept = _calls_of(view.tail, rule.excluded)
    old = results[: len(results) - rule.keep] if rule.keep else results
    return [
        entry.seq
        for entry in old
        if entry.tool_use_id not in kept
        and len(cuttable(entry.content)) > CLEARED_CHARS
        and view.shortened.get(entry.seq, CLEARED_CHARS + 1) > CLEARED_CHARS
    ]


def _calls_of(tail: Transcript, names: Collection[str]) -> set[str]:
    return {
        str(call.get("id"))
        for entry in tail
        if isinstance(entry, Assistant)
        for call in tool_uses(entry)
        if call.get("name") in names
    }
