"""Which entries a fork takes over from its source: the whole past, or only what counts of it.

With a compaction, a prompt needs a summary and what follows. A fork that takes over only that costs the same however
long the past is. The rest stays in the source, where the fork finds it: `Origin.compaction` names the summary there.
"""

from collections.abc import Container, Iterable, Sequence

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from . import tokens
from .entries import (
    MESSAGES,
    Compaction,
    Entry,
    Failed,
    Foreign,
    Message,
    Pin,
    Received,
    Shortened,
    Title,
    Transcript,
    Undo,
    User,
    kind_of,
    text_of,
)
from .marks import live_entries, marks_of, pinned
from .survey import survey
from .user_content import with_words


def inherited(past: Iterable[Entry], taken: Container[int]) -> list[Entry]:
    """The entries that a fork takes over from these, which are not the session entry. Entries that concerned only the
    source become inert, but keep their place, so that seqs still match.

    A message that waits in the source is not taken over; if a turn has taken it, the fork has its content in that turn.
    `taken`: the messages that turns have taken in the whole past.
    """
    return [_inert(entry) if _is_the_sources(entry, taken) else entry for entry in past]


def taken_in(past: Iterable[Entry]) -> set[int]:
    return {seq for entry in past if isinstance(entry, User) for seq in entry.from_}


def _is_the_sources(entry: Entry, taken: Container[int]) -> bool:
    return not entry.inherited or (isinstance(entry, Received) and entry.seq not in taken)


def _inert(entry: Entry) -> Entry:
    return Foreign(ts=entry.ts, raw=to_builtins(entry))


class CutPast(Struct, frozen=True):
    """What a fork takes over if a summary stands for the rest."""

    entries: list[Entry]
    """From the entry after the session entry on."""
    numbers: dict[int, int]
    """The seq of an entry in the source → its seq in the fork."""
    compaction: Compaction
    """As it is in the source."""

    @property
    def last(self) -> int:
        """The seq of the last copy."""
        return len(self.entries) + 1


def cut(log: Transcript, title: Title | None = None) -> CutPast | None:
    """What counts at the end of this log; None if all of it must be taken over.

    `log`: as history needs it, from the newest compaction on, and with the entries that it names.
    """
    view = survey(log)
    compaction = view.compaction
    if compaction is None or view.plain_to:
        return None
    live = live_entries(with_words(log))
    copies = _Copies(2)
    copies.add(*([title] if title else []))
    held = {entry.seq for entry in view.pins}
    copies.add(*(entry for entry in live if entry.seq in held))
    copies.add(_in_front(compaction, copies.next, view.pins))
    undone = {entry.target for entry in live if isinstance(entry, Undo)}
    ended = {entry.seq for entry in live if isinstance(entry, Shortened) and entry.seq < compaction.seq} | undone
    copies.add_shown(entry for entry in live if entry.seq >= compaction.first_kept and entry.seq not in ended)
    copies.pin(target for _, target in pinned(marks_of(log), log[-1].seq))
    return CutPast(copies.entries, copies.numbers, compaction)


def whole_again(before: Transcript, log: Transcript, first: int) -> list[Entry]:
    """What a fork appends to have the originals back: everything that its summary stood for, and what came after it.

    `before`: the messages of the source that were not copied. `log`: the fork's. `first`: the seq of the first body.
    """
    live = live_entries(with_words(log))
    summary = next(entry.seq for entry in live if isinstance(entry, Compaction))
    copies = _Copies(first)
    copies.add_shown(before)
    found = {words_of(entry): seq for seq, entry in enumerate(before, first)}
    pins = [entry for entry in live if entry.seq < summary]
    copies.numbers = {entry.seq: found[name] for entry in pins if (name := words_of(entry)) in found}
    undone = {entry.target for entry in live if isinstance(entry, Undo)}
    copies.add_shown(entry for entry in live if entry.seq > summary and entry.seq not in undone)
    copies.pin(target for _, target in pinned(marks_of(log), log[-1].seq))
    return copies.entries


def words_of(entry: Entry) -> tuple[str, str, str]:
    """Equal for an entry and its copy, whatever their seqs."""
    said = entry.summary if isinstance(entry, Compaction) else getattr(entry, "content", None)
    return kind_of(entry), entry.ts, repr(said)


def before_summary(log: Transcript, compaction: Compaction) -> list[Entry]:
    """The messages that counted when this log ended, and that a summary stands for."""
    before = (entry for entry in live_entries(with_words(log)) if entry.seq < compaction.first_kept)
    return [entry for entry in before if isinstance(entry, (*MESSAGES, Failed))]


def _in_front(compaction: Compaction, first: int, pins: Sequence[Message]) -> Compaction:
    """The summary, before everything that follows it: its size is its own, and not that of the tail too."""
    size = tokens.quick(compaction.summary) + sum(tokens.quick(text_of(pin.content)) for pin in pins)
    saved = max(0, compaction.tokens_before - compaction.tokens_after)
    return replace(compaction, first_kept=first, covers=(1, first - 1), tokens_before=size + saved, tokens_after=size)


class _Copies:
    """Entries that are written again, with new numbers."""

    def __init__(self, first: int) -> None:
        self.entries: list[Entry] = []
        self.numbers: dict[int, int] = {}
        self._first = first

    @property
    def next(self) -> int:
        return self._first + len(self.entries)

    def add(self, *entries: Entry) -> None:
        for entry in entries:
            self.numbers[entry.seq] = self.next
            body = replace(entry, from_=()) if isinstance(entry, User) else entry
            self.entries.append(replace(body, seq=0, after=None))

    def add_shown(self, entries: Iterable[Entry]) -> None:
        """Messages, and what decides how they are shown."""
        for entry in entries:
            if isinstance(entry, (*MESSAGES, Failed)):
                self.add(entry)
            elif isinstance(entry, Shortened):
                targets = tuple(self.numbers[seq] for seq in entry.targets if seq in self.numbers)
                self.add(*([replace(entry, targets=targets)] if targets else []))

    def pin(self, targets: Iterable[int]) -> None:
        self.entries += [Pin(target=self.numbers[target]) for target in targets if target in self.numbers]
