"""Checks one transcript of any program: torn and unreadable lines, ids, parents, headers, tools, size.

The readers of the import interpret the lines; this module only counts. A file is read once, in bounded memory.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...core.entries import Assistant, Entry, ToolResult, User, text_of, tool_uses
from ...core.session import cut_title
from ...core.turns import Role, after, begins
from ...errors import TurnlogError
from ..importing import READERS, documents, lines
from ..importing.detect import Source
from ..importing.draft import Draft, SourceRecord
from .entries import EntryChecks
from .findings import AS_ABOVE, NONE_NEEDED, Finding, Fix

LINE_LARGE_BYTES = 8 * 1024 * 1024
"""One program cannot read its own session if a line is longer."""
FILE_LARGE_BYTES = 256 * 1024 * 1024
"""Programs that read the whole file to resume become slow long before this size."""
PLACES_MAX = 100
"""The problems of one kind listed per file; further ones are counted."""
_IDS = {"pi": "id", "openclaw": "id", "zyhive": "id", "claude-code": "uuid"}
_PARENTS = {"pi": "parentId", "openclaw": "parentId", "claude-code": "parentUuid"}


class FileScan:
    """The content of one file, for its problems and for its index."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.findings: list[Finding] = []
        self.header: dict[str, Any] = {}
        self.records = 0
        self.messages = 0
        self.turns = 0
        self.first_ts = ""
        self.last_ts = ""
        self.title = ""
        self._counts: dict[str, int] = {}

    def found(self, place: str, what: str, repair: str, fix: Fix | None = None) -> None:
        kind = what.partition(":")[0]
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if self._counts[kind] <= PLACES_MAX or fix:
            where = f"{self.source.path}, {place}" if place else str(self.source.path)
            self.findings.append(Finding.of(where, what, repair, *([fix] if fix else [])))

    def finish(self) -> None:
        for kind, count in self._counts.items():
            if count > PLACES_MAX:
                more = f"{kind}: {count - PLACES_MAX:,} more"
                self.findings.append(Finding.of(self.source.path, more, AS_ABOVE))


def scan(source: Source) -> FileScan:
    result = FileScan(source)
    watch = _Watch(result)
    draft = Draft(source.kind, exact=source.opened is not None)
    draft.skip(1)
    try:
        blanks = source.kind == "native"  # there an empty line is damage
        records = (
            lines.records(source.path, blanks=blanks) if source.form == "lines" else documents.records(source.path)
        )
        for _ in READERS[source.kind](draft).read(watch.records(records)):
            for entry in draft.take():
                watch.entry(entry)
        for entry in draft.take():
            watch.entry(entry)
        watch.finish()
    except TurnlogError as error:
        result.found("", f"cannot be read: {error}", "none: look at it yourself")
    result.finish()
    return result


class _Watch:
    """Checks records on their way into a reader, and the entries that come out."""

    def __init__(self, result: FileScan) -> None:
        self.result = result
        self.path: Path = result.source.path
        self.kind = result.source.kind
        self.place = ""
        self.ids: dict[str, str] = {}
        """id → place of its line."""
        self.last_id = ""
        self.parents: list[tuple[int, str]] = []
        self.calls: dict[str, str] = {}
        """Calls without a result yet → place."""
        self.role: Role = ""
        self.early: dict[str, str] = {}
        """Results without a call yet → place."""
        self.entries = EntryChecks(result.found) if self.kind == "native" else None

    def records(self, records: Iterator[SourceRecord]) -> Iterator[SourceRecord]:
        for record in records:
            self.place = record.place
            if not record.field:
                self._record(record)
            yield record

    def _record(self, record: SourceRecord) -> None:
        raw = record.fields
        if raw is None:
            self._unreadable(record)
            return
        self.result.records += 1
        if record.problem:
            self.result.found(record.place, f"not UTF-8: {record.problem}", NONE_NEEDED)
        if self.entries:
            self.entries.add(raw, record.place)
        elif raw.get("type") == "session":
            self._header(record, raw)
        else:
            self._ids(record, raw)

    def _unreadable(self, record: SourceRecord) -> None:
        if not record.last:
            if self.entries and record.problem != lines.EMPTY_LINE:  # which may be one line too many
                self.entries.skip()
            self.result.found(record.place, f"unreadable line: {record.problem}", "none: its content is lost")
        elif self.kind == "native":
            self.result.found(
                record.place, "torn line: the end was not written", "none needed: the next append cuts it off"
            )
        elif self.result.source.form == "lines":
            fix = Fix(path=self.path, drop_last=True)
            self.result.found(
                record.place, "torn line: the next line its program writes would be lost", "cut it off", fix
            )
        else:
            self.result.found(record.place, f"torn document: {record.problem}", "none: copy or export it again")

    def _header(self, record: SourceRecord, raw: dict[str, Any]) -> None:
        if self.result.header:
            self.result.found(record.place, "second header: two sessions share this file", NONE_NEEDED)
        else:
            self.result.header = raw

    def _ids(self, record: SourceRecord, raw: dict[str, Any]) -> None:
        own = raw.get(_IDS.get(self.kind, ""))
        parent = raw.get(_PARENTS.get(self.kind, ""))
        if isinstance(parent, str) and parent not in self.ids:
            self._dangling(record, parent)
        if isinstance(own, str) and own:
            if own in self.ids:
                what = f"duplicate id: {own} is also in {self.ids[own]}"
                self.result.found(record.place, what, "none: only its writer knows which is meant")
            self.ids.setdefault(own, record.place)
            self.last_id = own

    def _dangling(self, record: SourceRecord, parent: str) -> None:
        what = f"dangling parent: there is no {parent}, so its program shows nothing before this line"
        if self.kind == "claude-code" or not self.last_id:
            self.result.found(record.place, what, NONE_NEEDED)
            return
        number = int(record.place.removeprefix("line "))
        fix = Fix(path=self.path, parents=((number, self.last_id),))
        self.result.found(record.place, what, f"let it follow {self.last_id}, the line before it", fix)

    def entry(self, entry: Entry) -> None:
        self.result.first_ts = self.result.first_ts or entry.ts
        self.result.last_ts = entry.ts or self.result.last_ts
        self.result.turns += begins(self.role, entry)
        self.role = after(self.role, entry)
        match entry:
            case User():
                self.result.messages += 1
                self.result.title = self.result.title or cut_title(text_of(entry.content))
            case Assistant():
                self.result.messages += 1
                for block in tool_uses(entry):
                    self._call(str(block.get("id")))
            case ToolResult():
                if self.calls.pop(entry.tool_use_id, None) is None:
                    self.early[entry.tool_use_id] = self.place
            case _:
                pass

    def _call(self, call_id: str) -> None:
        if call_id in self.early:
            place = self.early.pop(call_id)
            self.result.found(place, f"result before its call: {call_id}", NONE_NEEDED)
        elif call_id in self.calls:
            self.result.found(
                self.place, f"call written twice: {call_id} is also in {self.calls[call_id]}", NONE_NEEDED
            )
        else:
            self.calls[call_id] = self.place

    def finish(self) -> None:
        for call_id, place in self.calls.items():
            self.result.found(place, f"call without a result: {call_id}", NONE_NEEDED)
        for call_id, place in self.early.items():
            self.result.found(place, f"result without a call: {call_id}", NONE_NEEDED)
        if self.entries:
            self.entries.finish()
        if self.kind in ("pi", "openclaw", "zyhive") and not self.result.header:
            self.result.found("", "no header: its program may not list this session", NONE_NEEDED)
        if self.result.source.form == "lines":
            self._ending()

    def _ending(self) -> None:
        with lines.opened(self.path) as fd:
            size, longest, ended = _measure(lines.chunks(fd, self.path, None))
        if size > FILE_LARGE_BYTES:
            self.result.found("", f"bloat: {size:,} bytes in one file", "none needed: start a new session")
        if longest > LINE_LARGE_BYTES:
            self.result.found("", f"bloat: a line of {longest:,} bytes", "none needed: its program may fail")
        torn = any(fix.drop_last for finding in self.result.findings for fix in finding.fixes)
        if not ended and not torn and self.kind != "native":
            fix = Fix(path=self.path, end_last=True)
            self.result.found("", "no newline at the end: the next line would be joined to the last", "add it", fix)


def _measure(data: Iterator[bytes]) -> tuple[int, int, bool]:
    """(size, longest line, whether it ends with a newline)."""
    size = longest = current = 0
    ended = True
    for piece in data:
        size += len(piece)
        first, *others = piece.split(b"\n")
        current += len(first)
        for part in others:
            longest, current = max(longest, current), len(part)
        ended = piece.endswith(b"\n")
    return size, max(longest, current), ended
