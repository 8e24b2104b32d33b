"""The log that a foreign file becomes: entries with their seqs, and notes on what could not be carried over.

A draft is a function of the file alone, record by record. So the draft of a file that has grown begins with the draft
of the file as it was, and an import can be repeated. Nothing here runs anything: a foreign tool call is history.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from ..codecs import native
from ..codecs.lines import timestamp
from ..core.entries import (
    MESSAGES,
    Compaction,
    Entry,
    Foreign,
    Pin,
    Rewind,
    Selected,
    Shortened,
    Undo,
    Unpin,
)
from ..core.session import Mark, active, live_path, marks_of, on_path
from ..errors import UsageError

NOTE_PLACES = 5
"""How many places a note names; the rest is counted."""
REWINDS_MAX = 9_000
"""A store admits 10,000 marks in a session; compactions must still find room."""
EXCERPT_CHARS = 2_000
"""What is kept of a line that cannot be read."""


class Record(Struct, frozen=True, gc=False):
    """One line, message or row of a source. `problem` says why there is no value."""

    place: str
    value: Any
    problem: str = ""
    last: bool = False
    """Nothing comes after it in the file; what is unreadable there is torn, or still being written."""
    field: str = ""
    """Not a record of the conversation but a field of the document around it."""

    @property
    def fields(self) -> dict[str, Any] | None:
        value: object = self.value
        return cast("dict[str, Any]", value) if isinstance(value, dict) else None


class Draft:
    def __init__(self, kind: str, *, exact: bool = False) -> None:
        self.kind = kind
        self.exact = exact
        """The source is a file of ours: seqs are those of the file, and nothing is put beside its entries."""
        self.last_seq = 0
        self.first_message = 0
        self.ts = ""
        """When the last entry happened: what has no time of its own is taken to have happened then."""
        self._entries: list[Entry] = []
        self._marks: list[Mark] = []
        self._notes: dict[str, list[str]] = {}
        self._counts: dict[str, int] = {}
        self._known: dict[str, Any] = {}
        self._after: int | None = None

    def add(self, body: Entry, at: Any = None) -> int:
        """Its seq. `at`: when it happened, in any form."""
        self.ts = timestamp(at) or self.ts
        self.last_seq += 1
        after, self._after = self._after, None
        if isinstance(body, Selected):  # an import never takes a key away from another session
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
        """Why no store would admit it. Here it costs this entry; there it would cost the whole import."""
        if entry.after is not None and not 1 <= entry.after < entry.seq:
            return f"it follows entry {entry.after}"
        match entry:
            case Compaction():
                return self._gap(entry)
            case Undo(target=target):
                stack = active(self._marks, self.last_seq - 1)
                held = {mark.seq for mark in self._marks if mark.kind == "shortened"} | {stack[-1].seq if stack else 0}
                return "" if target in held and target else f"it undoes entry {target}"
            case Pin(target=target) | Unpin(target=target) | Rewind(to=target):
                return "" if 1 <= target < entry.seq else f"it names entry {target}"
            case Shortened(targets=targets):
                return "" if all(1 <= target < entry.seq for target in targets) else "it names entries after it"
            case _:
                return ""

    def _gap(self, entry: Compaction) -> str:
        """Why its summary cannot stand for what it hides."""
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
        """Entries that an earlier import wrote behind what the source had then."""
        self.last_seq += count

    def keep(self, raw: Any, at: Any = None) -> int:
        """A record that we do not understand, or that must have no effect here."""
        return self.add(Foreign(raw=raw), at)

    def rest(self, record: Record, fields: Mapping[str, Any], *, steady: Iterable[str] = ()) -> None:
        """Fields of a record that its entries have no place for. Steady ones are kept where they change."""
        left = {name: value for name, value in fields.items() if value is not None}
        for name in steady:
            if name in left and self._known.get(name) == left[name]:
                del left[name]
            elif name in left:
                self._known[name] = left[name]
        if left:
            self.keep({"of": self.last_seq, "at": record.place, "fields": left})

    def unreadable(self, record: Record) -> None:
        if record.last:
            self.note(f"the end is torn or still being written ({record.problem}); it was left out", record.place)
            return
        self.note(f"not readable ({record.problem})", record.place)
        self.keep({"at": record.place, "unreadable": str(record.value or "")[:EXCERPT_CHARS]})

    def follow(self, to: int, place: str = "") -> None:
        """The next entry follows `to`, as it did in the source; what lies between is another branch."""
        if to >= self.last_seq:
            return
        if sum(mark.kind == "rewind" for mark in self._marks) >= REWINDS_MAX:
            self.note("too many branches; this one is shown as if it followed the line before it", place)
            return
        self.note("branches are kept; the newest one is shown")
        self._after = max(1, to)

    def rewind(self, to: int) -> None:
        """The source took back everything after `to`."""
        self.add(Rewind(to=max(1, to)))

    def compact(self, summary: str, first_kept: int | None, *, at: Any = None, tokens_before: Any = 0) -> bool:
        """A summary of the source, if it provably covers what it hides. `first_kept` None: all before it."""
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
        """What no store would take (too large, too deep, fields of a wrong kind) keeps its place, not its content."""
        try:
            native.decode(native.encode(entry))
        except (UsageError, native.Undecodable, OverflowError) as error:
            self.note(f"could not be stored and is left out: {error}", f"entry {entry.seq}")
            return Foreign(seq=entry.seq, ts=entry.ts, raw={"left out": str(error)[:200]})
        return entry

    def take(self) -> list[Entry]:
        """What was added since; what happened before the first known time is taken to have happened then."""
        entries, self._entries = self._entries, []
        first = next((entry.ts for entry in entries if entry.ts), "")
        return [entry if entry.ts or not first else replace(entry, ts=first) for entry in entries]
