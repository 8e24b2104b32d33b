"""Reads files of the v3 and flat dialects with their codecs: pi, OpenClaw and ZyHive; claw0 in both generations.

A codec reads one line as one entry. This module also keeps the ids and fields that entries have no place for, and
accepts a summary only if it is known what it hides. Files that Turnlog exported are read unchanged.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias, cast

from msgspec.structs import replace

from ...codecs import flat, v3
from ...codecs.lines import OURS, FileContext, Reading
from ...core.entries import Compaction, Entry, Foreign, Opened
from .draft import Draft, RecordReader, SourceRecord
from .plain import without

Understand: TypeAlias = Callable[[dict[str, Any], int, Reading], Entry]

_USED_V3 = ("type", "message", "timestamp", "summary", "tokensBefore", "tokensAfter", "name", "content", OURS)
_USED_FLAT = ("type", "content", "output", "ts", "tool_use_id", "name", "input", OURS)
_USED_MESSAGE = ("role", "content", "model", "usage", "stopReason", "toolCallId", "isError", "timestamp")
_COUNTED = ("input", "output", "cacheRead", "cacheWrite")
_SIGNED = ("textSignature", "thoughtSignature")


def stand_in(kind: str) -> Opened:
    """A placeholder for reading the header of a Turnlog export, which contains everything."""
    return Opened(id="-", key=f"agent:main:{kind}:direct:import", agent="main", channel=kind)


def own_header(raw: Mapping[str, Any], kind: str) -> Opened | None:
    """The first entry of a file that Turnlog exported; None for other files."""
    ours = raw.get(OURS)
    if not isinstance(ours, dict) or "id" not in ours:
        return None
    understand = flat.understand if kind.startswith("claw0") else v3.understand
    entry = understand(dict(raw), 1, Reading(stand_in(kind), FileContext(), kind))
    return entry if isinstance(entry, Opened) else None


class DialectReader(RecordReader):
    def __init__(
        self, draft: Draft, understand: Understand, leftover: Callable[[Mapping[str, Any]], dict[str, Any]]
    ) -> None:
        super().__init__(draft)
        self.understand = understand
        self.leftover = leftover
        self.reading = Reading(stand_in(draft.kind), FileContext(), draft.kind)
        self.seqs = [0, 1]
        """position among the file's entries → seq in the session; a missing header counts too."""
        self.begun = False
        self.line = 0

    def read(self, records: Iterable[SourceRecord]) -> Iterator[None]:
        for record in records:
            self.count_blank_lines(record)
            if (raw := record.fields) is None:
                self.draft.unreadable(record)
                if not record.last:
                    self.seqs.append(self.draft.last_seq)
            elif raw.get("type") == "session":
                self.header(record)
            else:
                self.add(record, raw)
            yield

    def count_blank_lines(self, record: SourceRecord) -> None:
        """Counts blank lines, which are not records, but have positions among the file's entries."""
        number = int(record.place.removeprefix("line "))
        self.seqs += [self.draft.last_seq] * (number - self.line - 1)
        self.line = number

    def header(self, record: SourceRecord) -> None:
        at = record.value.get("timestamp") or record.value.get("createdAt") or record.value.get("created")
        if self.begun or len(self.seqs) > 2:
            self.draft.note("a second header is kept and has no effect", record.place)
            self.seqs.append(self.draft.keep(record.value, at))
        elif not self.draft.exact:
            self.draft.keep({"header": record.value}, at)
        self.begun = True

    def add(self, record: SourceRecord, raw: dict[str, Any]) -> None:
        if not self.begun:
            self.begun = True
            self.draft.note("the file has no header")
        understood = self._understood(record, raw)
        self.seqs.append(self.draft.add(replace(understood, seq=0), understood.ts))
        if not self.draft.exact and not isinstance(understood, Foreign):
            self.draft.rest(record, self.leftover(raw))

    def _understood(self, record: SourceRecord, raw: dict[str, Any]) -> Entry:
        seq = self.draft.last_seq + 1
        entry = self.understand(raw if self.draft.exact else _shifted(raw, self.seqs), seq, self.reading)
        if isinstance(entry, Foreign) and raw.get(OURS) is None and raw.get("customType") != OURS:
            self.draft.note(f"lines of type {raw.get('type')} are kept and not shown", record.place)
        if entry.after is not None and not self.draft.exact:
            self.draft.note("branches are kept; the newest one is shown")
        if self._parent_is_missing(raw):
            self.draft.note("its parent is missing; shown after the line before it", record.place)
        if not isinstance(entry, Compaction) or self.draft.exact:
            return entry
        # The kept extra entries are in between: the summary covers them too.
        entry = replace(entry, covers=(entry.covers[0], entry.first_kept - 1))
        return entry if OURS in raw or raw.get("type") == OURS else self._proven(record, raw, entry)

    def _parent_is_missing(self, raw: Mapping[str, Any]) -> bool:
        parent = raw.get("parentId")
        return isinstance(parent, str) and parent not in self.reading.known.ids

    def _proven(self, record: SourceRecord, raw: dict[str, Any], entry: Compaction) -> Entry:
        kept = raw.get("firstKeptEntryId")
        if kept in self.reading.known.ids or entry.first_kept != entry.seq:
            return replace(entry, trigger="import")
        if "id" in raw and isinstance(kept, str):
            self.draft.note("a summary whose first kept entry is missing is kept and not applied", record.place)
            return Foreign(ts=entry.ts, after=entry.after, raw=raw)
        self.draft.note("a summary is taken to cover everything before it, as its program does", record.place)
        return replace(entry, trigger="import")


def _shifted(raw: dict[str, Any], seqs: list[int]) -> dict[str, Any]:
    """Turnlog's own lines in a file without ids refer to other lines by their position; adjusts these references."""
    out = dict(raw)
    index = raw.get("firstKeptEntryIndex")  # the first version counted lines, from zero
    if isinstance(index, int) and 0 <= index < len(seqs) - 1:
        out["firstKeptEntryIndex"] = seqs[index + 1] - 1
    for name in (OURS, "data", "entry"):
        inner = out.get(name)
        if isinstance(inner, dict) and (name == OURS or OURS in (raw.get("type"), raw.get("customType"))):
            out[name] = {field: _moved(field, value, seqs) for field, value in cast("dict[str, Any]", inner).items()}
    return out


def _moved(field: str, value: Any, seqs: list[int]) -> Any:
    if field in v3.REFERENCES and isinstance(value, int):
        return seqs[value] if 0 < value < len(seqs) else value
    if field in v3.REFERENCE_LISTS and isinstance(value, list):
        return [_moved("to", item, seqs) for item in cast("list[Any]", value)]
    return value


def _leftover_flat(raw: Mapping[str, Any]) -> dict[str, Any]:
    return without(raw, *_USED_FLAT, *(("entry",) if raw.get("type") == OURS else ()))


def _leftover_v3(raw: Mapping[str, Any]) -> dict[str, Any]:
    left = without(raw, *_USED_V3, *(("customType", "data") if raw.get("customType") == OURS else ()))
    found = raw.get("message")
    if isinstance(found, dict):
        message = cast("Mapping[str, Any]", found)
        inner = without(message, *_USED_MESSAGE)
        usage = message.get("usage")
        if isinstance(usage, dict) and (more := without(cast("dict[str, Any]", usage), *_COUNTED)):
            inner["usage"] = more
        if signed := _signatures(message.get("content")):
            inner["signatures"] = signed
        left["message"] = inner or None
    return left


def _signatures(content: Any) -> dict[str, Any]:
    blocks = cast("list[Any]", content) if isinstance(content, list) else []
    found: dict[str, Any] = {}
    for number, block in enumerate(blocks):
        fields = cast("dict[str, Any]", block) if isinstance(block, dict) else {}
        if kept := {name: fields[name] for name in _SIGNED if name in fields}:
            found[str(number)] = kept
    return found


V3Reader = partial(DialectReader, understand=v3.understand, leftover=_leftover_v3)
FlatReader = partial(DialectReader, understand=flat.understand, leftover=_leftover_flat)
