"""Checks a summary against what it replaces, and adds what it lacks: corrections, and a list of identifiers.

A summary cannot hold all that was said. What it drops silently is decided by a model, so what matters is written after
it: the corrections of what the summary still claims, then the identifiers, the newest and most used first, as many as
there is room for. The rest stays in the log, where the search finds it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from . import corrections, identifiers, summaries
from .compaction import Plan
from .corrections import Corrected
from .entries import Assistant, Message, User, clean
from .history import View, whole_content
from .plain import sentences
from .searchable import calls_in, said
from .session import marks_of, pinned

LIST_MAX_TOKENS: Final = 8_000
"""The most tokens of what is added, however large the window: every later prompt pays for it."""
LIST_SHARE: Final = 0.5
"""The most that is added, as a share of what the summary replaces: a compaction must save tokens."""
CORRECTED_SHARE: Final = 0.75
"""The most of the room that corrections take; identifiers get the rest."""
NAMED_IN_REASON: Final = 20
"""The identifiers that a second request names."""
SEPARATOR: Final = "; "

Size = Callable[[str], int]
"""The tokens of a text."""


class Known(Struct, frozen=True):
    """What a summary is checked against."""

    names: tuple[str, ...]
    """Identifiers that the prompt would otherwise not show, the most important first."""
    corrected: Corrected
    replaced: int
    """The tokens that the summary replaces."""
    shown: str = ""
    """What pins and the tail show."""


def known(plan: Plan, size: Size) -> Known:
    """What the messages to be compacted and the previous summary hold. What the prompt shows anyway is left out."""
    previous = plan.previous.summary if plan.previous else ""
    texts = list(said_in(plan.fold, plan.view))
    spoken = [text for entry, text in zip(plan.fold, texts, strict=True) if isinstance(entry, User | Assistant)]
    before, earlier = _split_off_corrections(previous)
    found = corrections.corrected(spoken, before, earlier)
    weights = identifiers.weighed(texts, carried(previous), half=max(1, len(texts) // 2))
    held = {target for _, target in pinned(marks_of(plan.transcript), plan.transcript[-1].seq)}
    pins = [*plan.view.pins, *(entry for entry in plan.fold if entry.seq in held)]
    shown = "\n".join((*said_in(plan.kept, plan.view), *said_in(pins, plan.view)))
    names = identifiers.missing_from(shown, (name for name in weights if name not in found.stale and "; " not in name))
    replaced = sum(size(summaries.words_of(entry, plan.view)) for entry in plan.fold) + size(previous)
    return Known(tuple(names), found, replaced, shown)


def said_in(messages: Sequence[Message], view: View) -> Iterator[str]:
    """The text of each message, without what a search of the history answered or was asked for."""
    tools = {call: tool for message in messages for call, tool in calls_in(message).items()}
    return (clean(said(message, whole_content(message, view), tools)) for message in messages)


def carried(previous: str) -> Iterator[str]:
    """The identifiers of the previous summary; its own list may hold some that have no form of their own any more."""
    for line in previous.splitlines():
        listed = line.removeprefix(LIST_LEAD)
        yield from listed.split(SEPARATOR) if listed != line else identifiers.found_in(line)


def _split_off_corrections(previous: str) -> tuple[list[str], list[str]]:
    """The statements of a summary, and the corrections that were added to it."""
    body, _, added = previous.partition(f"{CORRECTED_HEADING}\n")
    lines = [line.removeprefix("- ") for line in added.splitlines() if not line.startswith(LIST_LEAD)]
    return sentences(body), [line for line in lines if line.strip()]


CORRECTED_HEADING: Final = "Corrected since (the newer value holds):"
LIST_LEAD: Final = "Also mentioned: "


def lacks(of: Known, summary: str, room: int, size: Size) -> str:
    """Why a summary should be written again, or "": it lacks more than half of the identifiers that matter."""
    wanted = list(_within(of.names, _room(of, room), size))
    absent = identifiers.missing_from(summary, wanted)
    if len(absent) * 2 <= len(wanted):
        return ""
    named = ", ".join(absent[:NAMED_IN_REASON])
    return f"the summary lacks {len(absent)} of {len(wanted)} identifiers that matter, {named} among them"


def missing(of: Known, summary: str) -> int:
    """How many identifiers it lacks."""
    return len(identifiers.missing_from(summary, of.names))


def completed(of: Known, summary: str, room: int, size: Size) -> str:
    """The summary with the corrections and identifiers that it lacks, as many as fit into `room` tokens with it. If a
    correction does not fit, the value that it corrects is taken out of the summary.
    """
    left = _room(of, room - size(summary))
    mended = [f"- {one}" for one in _within(_uncorrected(of, summary), int(left * CORRECTED_SHARE), size)]
    for old, correction in of.corrected.replaced.items():
        if f"- {correction}" not in mended and corrections.is_alone(old, correction, summary):
            summary = corrections.without(old, summary)
    if mended:
        mended.insert(0, CORRECTED_HEADING)
        left -= sum(size(line) + 1 for line in mended)
    so_far = "\n".join((summary, *mended))
    names = list(_within(identifiers.missing_from(so_far, of.names), left - size(LIST_LEAD), size))
    listed = [LIST_LEAD + SEPARATOR.join(names)] if names else []
    return "\n".join((summary.rstrip(), "", *mended, *listed)) if mended or listed else summary


def _uncorrected(of: Known, summary: str) -> list[str]:
    """The corrections that a prompt with this summary needs: first of what it shows word for word, then the newest."""
    whole = f"{of.shown}\n{summary}"
    replaced = of.corrected.replaced.items()
    alone = {correction for old, correction in replaced if corrections.is_alone(old, correction, whole)}
    fixed = {correction for old, correction in replaced if corrections.is_alone(old, correction, of.shown)}
    newest_first = reversed(of.corrected.sentences)
    needed = [one for one in newest_first if one in alone or corrections.lacking(whole, one)]
    return sorted(needed, key=lambda one: one not in fixed)


def _room(of: Known, room: int) -> int:
    return max(0, min(room, LIST_MAX_TOKENS, int(of.replaced * LIST_SHARE)))


def _within(texts: Sequence[str], room: int, size: Size) -> Iterator[str]:
    for text in texts:
        need = size(text) + 1
        if need > room:
            return
        room -= need
        yield text
