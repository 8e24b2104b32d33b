"""The log that a foreign file becomes: entries with seqs, and notes on what could not be carried over.

A draft is a function of the file alone, record by record. So the draft of a grown file begins with the draft of the
file as it was, and an import can be repeated. Nothing is executed: a foreign tool call is history.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from ...codecs import native
from ...codecs.lines import timestamp
from ...core import content as contents, wellformed
from ...core.entries import MESSAGES, Compaction, Entry, Foreign, Rewind, Selected, Undo, User, named_by
from ...core.session import Mark, active, live_path, marks_of, on_path
from ...errors import UsageError

NOTE_PLACES = 5
"""The number of places that a note names; further ones are counted."""
REWINDS_MAX = 9_000
"""A store accepts 10,000 marks in a session; compactions need some of them."""
EXCERPT_CHARS = 2_000
"""The part of an unreadable line that is kept."""


class SourceRecord(Struct, frozen=True, gc=False):
    """One line, message or row of a source. `problem` says why there is no value."""

    place: str
    value: Any
    problem: str = ""
    last: bool = False
    """Whether it is the last of the file; an unreadable last record is torn, or still being written."""
    field: str = ""
    """The name of a field of the document, if this is not a record of the conversation."""

    @property
    def fields(self) -> dict[str, Any] | None:
        value: object = self.value
        return cast("dict[str, Any]", value) if isinstance(value, dict) else None


class Draft:
    def __init__(self, kind: str, *, exact: bool = False) -> None:
        self.kind = kind
        self.exact = exact
        """Whether the source is a file of Turnlog: seqs are those of the file, and no extra entries are added."""
        self.last_seq = 0
        self.first_message = 0
        self.ts = ""
        """The time of the last entry; an entry without a time gets it."""
        self._entries: list[Entry] = []
        self._marks: list[Mark] = []
        self._notes: dict[str, list[str]] = {}
        self._counts: dict[str, int] = {}
        self._known: dict[str, Any] = {}
        self._after: int | None = None

    def add(self, body: Entry, at: Any = None) -> int:
        """Adds an entry and returns its seq. `at`: its time, in any form."""
        self.ts = timestamp(at) or self.ts
        self.last_seq += 1
        after, self._after = self._after, None
        if isinstance(body, Selected):  # an import never deselects another session
            body = Foreign(after=body.after, raw=to_builtins(body))
        entry = replace(body, seq=self.last_seq, ts=self.ts, after=body.after if after is None else after)
        if why := self._refusal(entry):
            self.note(f"kept and without effect: {why}", f"entry {entry.seq}")
            entry = Foreign(seq=entry.seq, ts=entry.ts, raw=to_builtins(entry))
        self._entries.append(entry)
        if not self.first_message and isinstance(entry, MESSAGES):
            self.first_message = self.last_seq
        self._marks += marks_of([entry])
        return self.last_seq

    def _refusal(self, entry: Entry) -> str:
        """Why no store would accept it. Refused here, only this entry is lost; refused by the store, the
        whole import.
        """
        if entry.after is not None and not 1 <= entry.after < entry.seq:
            return f"it follows entry {entry.after}"
        match entry:
            case Compaction():
                return self._gap(entry)
            case Undo(target=target):
                stack = active(self._marks, self.last_seq - 1)
                held = {mark.seq for mark in self._marks if mark.kind == "shortened"} | {stack[-1].seq if stack else 0}
                return "" if target in held and target else f"it undoes entry {target}"
            case User():
                return ""
            case _:
                wrong = [target for target in named_by(entry) if not 1 <= target < entry.seq]
                return f"it names entry {wrong[0]}" if wrong else ""

    def _gap(self, entry: Compaction) -> str:
        """Why its summary does not cover what it hides."""
        marks = self._marks if entry.after is None else [*self._marks, Mark("rewind", entry.seq, entry.after)]
        stack = active(marks, entry.seq)
        boundary = stack[-1].at if stack else 1
        start = boundary if boundary > 1 else max(1, self.first_message)
        first, last = entry.covers
        if not entry.summary.strip():
            return "it has no summary"
        if not boundary < entry.first_kept <= entry.seq or not on_path(entry.first_kept, live_path(marks, entry.seq)):
            return f"its summary reaches to entry {entry.first_kept}, which is not in the part it could fold"
        return "" if first <= start and last == entry.first_kept - 1 else "its summary leaves a gap"

    def skip(self, count: int) -> None:
        """Skips entries that an earlier import added after the source's entries."""
        self.last_seq += count

    def keep(self, raw: Any, at: Any = None) -> int:
        """Keeps a record that Turnlog does not understand, or that must have no effect."""
        return self.add(Foreign(raw=raw), at)

    def rest(self, record: SourceRecord, fields: Mapping[str, Any], *, steady: Iterable[str] = ()) -> None:
        """Keeps the fields of a record that its entries have no place for. Steady fields are kept only when they
        change.
        """
        left = {name: value for name, value in fields.items() if value is not None}
        for name in steady:
            if name in left and self._known.get(name) == left[name]:
                del left[name]
            elif name in left:
                self._known[name] = left[name]
        if left:
            self.keep({"of": self.last_seq, "at": record.place, "fields": left})

    def hide(self, what: str, record: SourceRecord, at: Any = None) -> None:
        """Keeps a record that is not shown, and says so. `what`: the kind of such records."""
        self.note(f"{what} kept and not shown", record.place)
        self.keep(record.value, at)

    def unreadable(self, record: SourceRecord) -> None:
        if record.last:
            self.note(f"the end is torn or still being written ({record.problem}); it was left out", record.place)
            return
        self.note(f"not readable ({record.problem})", record.place)
        self.keep({"at": record.place, "unreadable": str(record.value or "")[:EXCERPT_CHARS]})

    def follow(self, to: int, place: str = "") -> None:
        """The next entry follows `to`, as in the source; the entries between are another branch."""
        if to >= self.last_seq:
            return
        if sum(mark.kind == "rewind" for mark in self._marks) >= REWINDS_MAX:
            self.note("too many branches; this one is shown as if it followed the line before it", place)
            return
        self.note("branches are kept; the newest one is shown")
        self._after = max(1, to)

    def rewind(self, to: int) -> None:
        """The source rewound to `to`."""
        self.add(Rewind(to=max(1, to)))

    def compact(self, summary: str, first_kept: int | None, *, at: Any = None, tokens_before: Any = 0) -> bool:
        """Adds a summary of the source, if it provably covers what it hides. `first_kept` None: everything
        before it.
        """
        seq = self.last_seq + 1
        kept = seq if first_kept is None else first_kept
        stack = active(self._marks, self.last_seq)
        start = stack[-1].at if stack else max(1, self.first_message)
        before = tokens_before if isinstance(tokens_before, int) and tokens_before > 0 else 0
        covers = (min(start, kept - 1), kept - 1)
        body = Compaction(summary=summary, first_kept=kept, covers=covers, tokens_before=before, trigger="import")
        if self._gap(replace(body, seq=seq)):
            return False
        self.add(body, at)
        return True

    def note(self, what: str, place: str = "") -> None:
        places = self._notes.setdefault(what, [])
        self._counts[what] = self._counts.get(what, 0) + 1
        if place and len(places) < NOTE_PLACES:
            places.append(place)

    def notes(self) -> tuple[str, ...]:
        return tuple(self._told(what, places) for what, places in self._notes.items())

    def _told(self, what: str, places: list[str]) -> str:
        if not places:
            return what
        more = self._counts[what] - len(places)
        return f"{', '.join(places)}{f' and {more} more' if more else ''}: {what}"

    def storable(self, entry: Entry) -> Entry:
        """Replaces the content of an entry that no store accepts (too large, too deep, wrong fields), but keeps its
        place.
        """
        try:
            entry = wellformed.accepted(entry if self.exact else self._with_known_blocks(entry))
            native.decode(native.encode(entry))
        except (UsageError, native.Undecodable, OverflowError) as error:
            self.note(f"could not be stored and is left out: {error}", f"entry {entry.seq}")
            return Foreign(seq=entry.seq, ts=entry.ts, raw={"left out": str(error)[:200]})
        return entry

    def _with_known_blocks(self, entry: Entry) -> Entry:
        if not isinstance(entry, MESSAGES) or isinstance(entry.content, str | None):
            return entry
        try:
            return replace(entry, content=contents.accepted(entry.content))
        except UsageError:
            native.encode(entry)  # an entry that is too large or too deep is left out as a whole
            self.note("blocks of unknown kinds are kept as text", f"entry {entry.seq}")
            return replace(entry, content=contents.salvaged(entry.content))

    def take(self) -> list[Entry]:
        """The entries added since the last call; those before the first known time get that time."""
        entries, self._entries = self._entries, []
        first = next((entry.ts for entry in entries if entry.ts), "")
        return [entry if entry.ts or not first else replace(entry, ts=first) for entry in entries]


class RecordReader:
    """Turns the records of a source into the entries of a draft, step by step."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft

    def read(self, records: Iterable[SourceRecord]) -> Iterator[None]:
        for record in records:
            if record.field:
                self.field(record)
            elif (found := record.fields) is None:
                self.draft.unreadable(record)
            else:
                self.add(record, found)
            yield
        self.finish()

    def add(self, record: SourceRecord, fields: dict[str, Any], /) -> None:
        raise NotImplementedError

    def field(self, record: SourceRecord) -> None:
        """Another field of a document than its messages."""
        self.draft.keep({record.field: record.value})

    def finish(self) -> None:
        """After the last record."""
