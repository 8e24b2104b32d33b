"""Finds and reads the lines of a transcript that another program wrote.

The seq of a line is its number (plus one if the file has no header). So a line is found by counting newlines from the
nearer end: the cost of a resume depends only on the tail.
"""

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import msgspec
from msgspec import Struct

from ...codecs.dialects import CODECS, FileDialect
from ...codecs.lines import OURS, FileContext, Reading, dump, is_unfinished, parse
from ...codecs.native import Undecodable
from ...codecs.v3 import id_of, note
from ...core.entries import Entry, Opened, ToolResult
from ..disk.files import read_at
from .lines import (
    CHUNK,
    LINE_MAX_BYTES,
    PROBE,
    Bytes,
    LineScan,
    Scanner,
    end_of_appends,
    is_ended,
    newline_after,
    scan_each,
)

CALL_WITHIN_LINES = 50
"""How far back the call of a result is searched, for the name of its tool."""


class _Id(Struct, gc=False):
    type: Any = None
    id: Any = None


_ids = msgspec.json.Decoder(_Id)


class ForeignLines:
    """`opened` replaces a missing header and names the session."""

    foreign = True
    ready = False

    def __init__(self, written: FileDialect, opened: Opened, file: Bytes) -> None:
        self.codec = CODECS[written.dialect]
        self._style = written.style
        self._opened = opened
        self._file = file
        self._headless: bool | None = None
        self.forget()

    def forget(self) -> None:
        self._headless = None
        self.ready = False
        self._known = FileContext(line_at=self._line_at, fill=self._fill)

    def prepare(self) -> None:
        self._known.complete()
        self.ready = True

    def is_ours(self, torn: bytes) -> bool:
        """Whether this is the beginning of an append of Turnlog that a crash cut off."""
        return is_unfinished(torn.partition(b"\n")[0], self._opened.id)

    def _reading(self, place: int) -> Reading:
        """The state at the line that begins at this position."""
        return Reading(self._opened, self._known, self._style, self._id_before(place))

    def _id_before(self, place: int) -> str | None:
        """The id of the last readable line that ends here."""
        while place > 0:
            begin = _line_start(self._file.fd, place - 1)
            try:
                raw = parse(read_at(self._file.fd, begin, place).rstrip(b"\r\n"))
            except Undecodable:
                place = begin
                continue
            return id_of(cast("dict[str, Any]", raw)) if isinstance(raw, dict) else None
        return None

    def _has_no_header(self) -> bool:
        """Whether the file has no header: then the session entry is not in the file, and the first line is entry 2."""
        if self._headless is None:
            end = newline_after(self._file.fd, 0, LINE_MAX_BYTES) or LINE_MAX_BYTES
            line = read_at(self._file.fd, 0, end)
            try:
                raw = parse(line)
            except Undecodable:
                raw = {"type": "session"}
            headless = not (isinstance(raw, dict) and cast("dict[str, Any]", raw).get("type") == "session")
            if not line:
                return False
            self._headless = headless
        return self._headless

    def scanner(self, start: int, last_seq: int) -> Scanner:
        return partial(self._scan, self._reading(start))

    def _scan(
        self, reading: Reading, data: bytes, start: int, last_seq: int, whole_appends: bool, final: bool
    ) -> LineScan:
        whole = data.rfind(b"\n") + 1
        if final and whole < len(data) and (not whole_appends or _is_object(data[whole:])):
            whole = len(data)  # a last line that only lacks its newline is not torn
        if whole_appends:
            whole = end_of_appends(data, whole, lambda line: is_unfinished(line, self._opened.id))
        stand_in = last_seq == 0 and start == 0 and whole > 0 and self._has_no_header()
        scan = scan_each(
            data[:whole],
            start,
            1 if stand_in else last_seq,
            data[whole:],
            lambda line, seq: self.codec.decode(line, seq, reading),
        ) if whole else LineScan([], start, last_seq, data, [])  # fmt: skip
        if stand_in:
            ts = next((entry.ts for entry in scan.entries if entry.ts), "")
            scan.entries.insert(0, msgspec.structs.replace(self._opened, seq=1, ts=ts))
        return scan

    def encode(self, entries: Sequence[Entry]) -> bytes:
        size, _ = self._file.extent
        self._learn_calls(entries)
        data, _ = self.codec.encode_append(entries, self._reading(size))
        return data

    def erased_line(self, entry: Entry, old: bytes, start: int) -> bytes:
        """The line that stands for an erased entry. It keeps its ids and its place in an append."""
        found = parse(old)
        before: dict[str, Any] = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        data, _ = self.codec.encode_append([entry], self._reading(start))
        self.forget()  # it has learned an id that is not used
        raw: dict[str, Any] = {**parse(data), **{name: before[name] for name in ("id", "parentId") if name in before}}
        ours = before.get(OURS)
        if isinstance(ours, dict) and "until" in ours:
            raw[OURS] = {**raw.pop(OURS, {}), "until": cast("dict[str, Any]", ours)["until"]}
        return dump(raw)

    def _learn_calls(self, entries: Sequence[Entry]) -> None:
        """Learns the names of tools whose results are to be written; their calls are among the last lines."""
        wanted = {entry.tool_use_id for entry in entries if isinstance(entry, ToolResult)}
        _, last_seq = self._file.extent
        aside = FileContext()
        aside.calls = self._known.calls
        for seq in range(last_seq, max(0, last_seq - CALL_WITHIN_LINES), -1):
            if wanted <= self._known.calls.keys():
                return
            with contextlib.suppress(Undecodable):
                self.codec.decode(self._line_at(seq) or b"", seq, Reading(self._opened, aside, self._style))

    def find(self, file: Bytes, seq: int) -> int:
        return self.seek(file, seq)  # lines are counted, so there is nothing to check

    def begins_anew(self, file: Bytes) -> bool:
        return False

    def seek(self, file: Bytes, seq: int) -> int:
        size, last_seq = file.extent
        shift = 1 if self._has_no_header() else 0
        line, lines = seq - shift, last_seq - shift
        if line <= 1:
            return 0
        if line > lines:
            return size
        if line - 1 <= lines - line:
            return _after_newlines(file.fd, 0, size, line - 1)
        newlines = lines if is_ended(file.fd, size) else lines - 1
        return _before_newlines(file.fd, size, newlines - line + 2)

    def _line_at(self, seq: int) -> bytes | None:
        size, last_seq = self._file.extent
        if not 1 <= seq <= last_seq or (seq == 1 and self._has_no_header()):
            return None
        start = self.seek(self._file, seq)
        end = newline_after(self._file.fd, start, size)
        end = size if end is None else end
        return read_at(self._file.fd, start, end) if end - start <= LINE_MAX_BYTES else None

    def _fill(self, known: FileContext) -> None:
        """Every id in the file, with the seq of its line."""
        if self.codec.name != "v3":
            return
        reading = Reading(self._opened, known, self._style)
        seq = 1 if self._has_no_header() else 0
        place, rest = 0, b""
        size, _ = self._file.extent
        while data := read_at(self._file.fd, place, min(size, place + CHUNK)):
            place += len(data)
            lines = (rest + data).split(b"\n")
            rest = lines.pop() if place < size else b""
            for line in lines:
                seq += 1
                _note_id(line, seq, reading)


def _note_id(line: bytes, seq: int, reading: Reading) -> None:
    try:
        found = _ids.decode(line)
        note({"type": found.type, "id": found.id}, seq, reading)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            raw = parse(line)
        except Undecodable:
            return
        if isinstance(raw, dict):
            note(cast("dict[str, Any]", raw), seq, reading)


def _is_object(data: bytes) -> bool:
    try:
        return isinstance(parse(data), dict)
    except Undecodable:
        return False


def _line_start(fd: int, newline: int) -> int:
    """The beginning of the line that ends with the newline (or the last byte) at this position."""
    end = newline
    while end > 0:
        begin = max(0, end - PROBE)
        at = read_at(fd, begin, end).rfind(b"\n")
        if at >= 0:
            return begin + at + 1
        end = begin
    return 0


def _after_newlines(fd: int, place: int, end: int, count: int) -> int:
    """The position after this many newlines."""
    while place < end:
        data = read_at(fd, place, min(end, place + CHUNK))
        there = data.count(b"\n")
        if there >= count:
            at = -1
            for _ in range(count):
                at = data.find(b"\n", at + 1)
            return place + at + 1
        count -= there
        place += len(data)
    return end


def _before_newlines(fd: int, end: int, count: int) -> int:
    """The position after the newline that is this many from the end."""
    while end > 0:
        begin = max(0, end - CHUNK)
        data = read_at(fd, begin, end)
        there = data.count(b"\n")
        if there >= count:
            at = len(data)
            for _ in range(count):
                at = data.rfind(b"\n", 0, at)
            return begin + at + 1
        count -= there
        end = begin
    return 0
