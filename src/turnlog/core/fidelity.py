"""Says what became of the identifiers that each compaction covers, and what its summary costs.

An identifier is kept if the prompt right after the compaction has it: in the summary, a pin or the tail. Otherwise it
is searchable if an entry of the log has it in a text that a search looks at. Otherwise it is lost. Covered messages
stay in the log, so nothing should be lost; the figure is counted, not assumed. What a search of the history answered
does not count: it repeats what other entries say.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from msgspec import Struct

from ..errors import UsageError
from . import identifiers, prices, searchable, summaries, summary_check, tokens
from .entries import Compaction, Entry, Message, Transcript, Undo
from .history import View, pins_text, shown_content, survey
from .searchable import calls_in, units

COMPACTIONS_MAX: Final = 100
"""The compactions that are looked at, the newest ones: each needs the log up to it."""


class Fidelity(Struct, frozen=True, kw_only=True):
    """One compaction. `identifiers` = `kept` + `searchable` + `lost`."""

    seq: int
    covers: tuple[int, int]
    trigger: str
    active: bool
    """Whether it was not undone."""
    identifiers: int
    kept: int
    searchable: int
    lost: int
    summary_tokens: int
    """What each later prompt pays for the summary, estimated."""
    read_tokens: int
    """What the summariser read, estimated; 0 for a digest made without a model."""
    cost: float | None
    """US dollars for the call of the summariser, approximately; None if its model has no known price."""


def report(transcript: Transcript, only: int | None = None) -> list[Fidelity]:
    """Oldest first. `only`: the seq of one compaction; UsageError if it is none."""
    places = [
        index for index, entry in enumerate(transcript) if isinstance(entry, Compaction) and only in (None, entry.seq)
    ]
    if only is not None and not places:
        raise UsageError(f"entry {only} is not a compaction", hint="Name the entry of a compaction.")
    places = places[-COMPACTIONS_MAX:]
    undone = {entry.target for entry in transcript if isinstance(entry, Undo)}
    found = _Found()
    figures: list[Fidelity] = []
    done = 0
    for place in places:
        found.add(transcript[done:place])
        done = place
        figures.append(_of(transcript[:place], transcript[place], found, undone))  # type: ignore[arg-type]
    return figures


class _Found:
    """What a search finds in the entries so far."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._texts: list[str] = []
        self._tools: dict[str, str] = {}

    def add(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._tools.update(calls_in(entry))
            for unit in units(entry, self._tools):
                self._texts.append(unit.text)
                self._names.update(identifiers.found_in(unit.text))

    def has(self, name: str) -> bool:
        return name in self._names or any(identifiers.is_in(name, text) for text in self._texts)


def _of(past: Sequence[Entry], entry: Compaction, found: _Found, undone: set[int]) -> Fidelity:
    view = survey(past)
    fold = [message for message in view.tail if message.seq < entry.first_kept]
    said = summary_check.said_in(fold, view)
    previous = view.compaction.summary if view.compaction else ""
    named = chain(summary_check.carried(previous), chain.from_iterable(map(identifiers.found_in, said)))
    names = list(dict.fromkeys(named))
    gone = identifiers.missing_from("\n".join(_shown(survey([*past, entry]))), names)
    findable = sum(map(found.has, gone))
    written = tokens.of_text(entry.summary)
    is_digest = entry.trigger == "rescue"
    read = 0 if is_digest else _record_tokens(fold, view) + tokens.of_text(previous)
    usage = {"input_tokens": read, "output_tokens": written}
    return Fidelity(
        seq=entry.seq,
        covers=entry.covers,
        trigger=entry.trigger,
        active=entry.seq not in undone,
        identifiers=len(names),
        kept=len(names) - len(gone),
        searchable=findable,
        lost=len(gone) - findable,
        summary_tokens=written,
        read_tokens=read,
        cost=0.0 if is_digest else prices.cost(entry.model, usage),
    )


def _record_tokens(fold: Sequence[Message], view: View) -> int:
    """Counted message by message: one text of them all would be as large as the log."""
    return sum(tokens.of_text(summaries.record([message], view)) for message in fold)


def _shown(view: View) -> Iterator[str]:
    """What a prompt shows of the conversation."""
    yield view.compaction.summary if view.compaction else ""
    yield pins_text(view)
    for message in view.tail:
        yield searchable.said(message, shown_content(message, view), {})
