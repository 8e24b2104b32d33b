"""How the lines of a transcript are found and read: native ones name their seq, those of other dialects are counted.

A native file is bisected. In a foreign one the seq of a line is its number (one more where it has no header), so
a line is found by counting newlines, from whichever end is nearer: a resume still costs the tail.
"""

import contextlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias, cast

import msgspec
from msgspec import Struct

from ..codecs import native
from ..codecs.dialects import CODECS, Written
from ..codecs.lines import Known, Reading, is_unfinished, parse
from ..codecs.native import Undecodable
from ..codecs.v3 import id_of, note
from ..core.entries import Entry, Opened, ToolResult
from .files import read_at

CHUNK = 1 << 20
PROBE = 4096
LINEAR_BYTES = 32 * 1024
"""Below this distance a binary search over bytes costs more than reading on."""
CALL_WITHIN_LINES = 50
"""How far back the call of a result is looked for, for the name of its tool."""
LINE_MAX_BYTES = 64 * 1024 * 1024
"""A longer line of another tool is damage: it must fit in memory several times over."""


class Scan(Struct):
    """What a stretch of a file holds."""

    entries: list[Entry]
    end: int
    """Where its last whole append ends."""
    last_seq: int
    torn: bytes
    """What follows: an append that is not whole."""
    damage: list[tuple[int, int, str]]
    """(place of the line, seq it stands at, what is wrong)."""


Scanner: TypeAlias = Callable[[bytes, int, int, bool, bool], Scan]
"""(bytes, where they begin, last seq before them, whole appends only, nothing follows) → what they hold."""


class Bytes(Protocol):
    """The part of a SessionFile that lines are found in."""

    @property
    def fd(self) -> int: ...
    @property
    def extent(self) -> tuple[int, int]:
        """(bytes, last seq) of what is known, always of the same moment."""
        ...


class NativeLines:
    foreign = False
    ready = True

    def prepare(self) -> None:
        """Nothing needs to be known."""

    def is_ours(self, torn: bytes) -> bool:
        return True

    def scanner(self, start: int, last_seq: int) -> Scanner:
        return _scan_native

    def encode(self, entries: Sequence[Entry]) -> bytes:
        return native.encode_append(entries)

    def forget(self) -> None:
        """Nothing is remembered."""

    def seek(self, file: Bytes, seq: int) -> int:
        """Where the first entry with at least this seq begins, by bisection: lines are in order of seq."""
        size, _ = file.extent
        low, high = 0, size
        if seq <= 1:
            return 0
        while high - low > LINEAR_BYTES:
            middle = (low + high) // 2
            place, found = _line_after(file, middle, high)
            if found is None or found >= seq:
                high = middle
            else:
                low = place
        return _walk(file.fd, low, size, seq)


def _line_after(file: Bytes, place: int, end: int) -> tuple[int, int | None]:
    """The first readable line that begins after `place`, and its seq."""
    while place < end:
        newline = newline_after(file.fd, place, end)
        if newline is None:
            return end, None
        place = newline + 1
        found = native.seq_of(os.pread(file.fd, native.PEEK_BYTES, place)) if place < end else None
        if found is not None:
            return place, found
    return end, None


def newline_after(fd: int, place: int, end: int) -> int | None:
    step = PROBE
    while place < end:
        data = os.pread(fd, min(step, end - place), place)
        if not data:
            return None
        at = data.find(b"\n")
        if at >= 0:
            return place + at
        place += len(data)
        step = min(step * 4, CHUNK)
    return None


def _walk(fd: int, place: int, size: int, seq: int) -> int:
    while place < size:
        found = native.seq_of(os.pread(fd, native.PEEK_BYTES, place))
        if found is not None and found >= seq:
            return place
        newline = newline_after(fd, place, size)
        if newline is None:
            return size
        place = newline + 1
    return size


def _scan_native(data: bytes, start: int, last_seq: int, whole_appends: bool, final: bool) -> Scan:
    """The whole lines in `data`, or only the whole appends; what follows them is torn, or not read yet."""
    whole = data.rfind(b"\n") + 1
    if whole_appends:
        whole = _whole_appends(data, whole, lambda line: native.until_of(line) is not None)
    torn = data[whole:]
    try:
        entries = native.decode_lines(data[:whole] if torn else data)
        if len(entries) != data.count(b"\n", 0, whole):  # an empty line is damage too
            raise Undecodable
        return Scan(entries, start + whole, entries[-1].seq if entries else last_seq, torn, [])
    except Undecodable:
        return _scan_each(data[:whole], start, last_seq, torn, lambda line, seq: native.decode(line))


def _whole_appends(data: bytes, end: int, unfinished: Callable[[bytes], bool]) -> int:
    """Goes back over lines that announce a later seq than the file has."""
    while end:
        begin = data.rfind(b"\n", 0, end - 1) + 1
        if not unfinished(data[begin:end]):
            return end
        end = begin
    return 0


def _scan_each(data: bytes, start: int, last_seq: int, torn: bytes, decode: Callable[[bytes, int], Entry]) -> Scan:
    entries: list[Entry] = []
    damage: list[tuple[int, int, str]] = []
    place = start
    lines = data.split(b"\n")
    for line in lines[:-1] if data.endswith(b"\n") else lines:
        try:
            entry = decode(line, last_seq + 1)
            entries.append(entry)
            last_seq = entry.seq
        except Undecodable as error:
            last_seq += 1
            damage.append((place, last_seq, f"not a readable entry ({error})"))
        place += len(line) + 1
    return Scan(entries, start + len(data), last_seq, torn, damage)


class _Id(Struct, gc=False):
    type: Any = None
    id: Any = None


_ids = msgspec.json.Decoder(_Id)


class ForeignLines:
    """`opened` stands in for a header, and says which session this is."""

    foreign = True
    ready = False

    def __init__(self, written: Written, opened: Opened, file: Bytes) -> None:
        self.codec = CODECS[written.dialect]
        self._style = written.style
        self._opened = opened
        self._file = file
        self._headless: bool | None = None
        self.forget()

    def forget(self) -> None:
        self._headless = None
        self.ready = False
        self._known = Known(line_at=self._line_at, fill=self._fill)

    def prepare(self) -> None:
        self._known.complete()
        self.ready = True

    def is_ours(self, torn: bytes) -> bool:
        """Whether this is the beginning of an append that a crash of ours cut off."""
        return is_unfinished(torn.partition(b"\n")[0], self._opened.id)

    def _reading(self, place: int) -> Reading:
        """At the line that begins at this place."""
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
        """Then the session entry is ours alone, and the first line is entry 2."""
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

    def _scan(self, reading: Reading, data: bytes, start: int, last_seq: int, whole_appends: bool, final: bool) -> Scan:
        whole = data.rfind(b"\n") + 1
        if final and whole < len(data) and (not whole_appends or _is_object(data[whole:])):
            whole = len(data)  # a last line that only lacks its newline is not torn
        if whole_appends:
            whole = _whole_appends(data, whole, lambda line: is_unfinished(line, self._opened.id))
        stand_in = last_seq == 0 and start == 0 and whole > 0 and self._has_no_header()
        scan = _scan_each(
            data[:whole],
            start,
            1 if stand_in else last_seq,
            data[whole:],
            lambda line, seq: self.codec.decode(line, seq, reading),
        ) if whole else Scan([], start, last_seq, data, [])  # fmt: skip
        if stand_in:
            ts = next((entry.ts for entry in scan.entries if entry.ts), "")
            scan.entries.insert(0, msgspec.structs.replace(self._opened, seq=1, ts=ts))
        return scan

    def encode(self, entries: Sequence[Entry]) -> bytes:
        size, _ = self._file.extent
        self._learn_calls(entries)
        data, _ = self.codec.encode_append(entries, self._reading(size))
        return data if self._is_ended(size) else b"\n" + data

    def _learn_calls(self, entries: Sequence[Entry]) -> None:
        """The names of tools whose results are about to be written; their calls are among the last lines."""
        wanted = {entry.tool_use_id for entry in entries if isinstance(entry, ToolResult)}
        _, last_seq = self._file.extent
        aside = Known()
        aside.calls = self._known.calls
        for seq in range(last_seq, max(0, last_seq - CALL_WITHIN_LINES), -1):
            if wanted <= self._known.calls.keys():
                return
            with contextlib.suppress(Undecodable):
                self.codec.decode(self._line_at(seq) or b"", seq, Reading(self._opened, aside, self._style))

    def _is_ended(self, size: int) -> bool:
        return size == 0 or os.pread(self._file.fd, 1, size - 1) == b"\n"

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
        newlines = lines if self._is_ended(size) else lines - 1
        return _before_newlines(file.fd, size, newlines - line + 2)

    def _line_at(self, seq: int) -> bytes | None:
        size, last_seq = self._file.extent
        if not 1 <= seq <= last_seq or (seq == 1 and self._has_no_header()):
            return None
        start = self.seek(self._file, seq)
        end = newline_after(self._file.fd, start, size)
        end = size if end is None else end
        return read_at(self._file.fd, start, end) if end - start <= LINE_MAX_BYTES else None

    def _fill(self, known: Known) -> None:
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
    """Where the line begins that ends with the newline (or the last byte) at this place."""
    end = newline
    while end > 0:
        begin = max(0, end - PROBE)
        at = read_at(fd, begin, end).rfind(b"\n")
        if at >= 0:
            return begin + at + 1
        end = begin
    return 0


def _after_newlines(fd: int, place: int, end: int, count: int) -> int:
    """The place after so many newlines."""
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
    """The place after the newline that is so many from the end."""
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
