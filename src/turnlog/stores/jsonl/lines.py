"""Finds and reads the lines of a native transcript, and says what all kinds of lines share (`foreign_lines`).

Native lines name their seq, so a file is bisected: the cost of a resume depends only on the tail.
"""

import os
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from msgspec import Struct

from ...codecs import native
from ...codecs.native import Undecodable
from ...core.entries import Entry
from ..disk.files import read_at

CHUNK = 1 << 20
PROBE = 4096
LINEAR_BYTES = 32 * 1024
"""Below this distance a binary search over bytes costs more than reading."""
LINE_MAX_BYTES = 64 * 1024 * 1024
"""A longer line of another program is damage: a line must fit in memory several times over."""


class LineScan(Struct):
    """The content of a part of a file."""

    entries: list[Entry]
    end: int
    """The end of its last complete append."""
    last_seq: int
    torn: bytes
    """The rest: an incomplete append."""
    damage: list[tuple[int, int, str]]
    """(position of the line, its seq, the error)."""
    extra: list[int] = []
    """The seqs of entries with a line after them that is too many: an earlier entry again, or no entry at all."""


Scanner: TypeAlias = Callable[[bytes, int, int, bool, bool], LineScan]
"""(bytes, their position, last seq before them, complete appends only, nothing follows) → their content."""


class Bytes(Protocol):
    """The part of a SessionFile in which lines are found."""

    @property
    def fd(self) -> int: ...
    @property
    def extent(self) -> tuple[int, int]:
        """(bytes, last seq) of the known part, both of the same moment."""
        ...


class NativeLines:
    foreign = False
    ready = True

    def prepare(self) -> None:
        """Nothing to prepare."""

    def is_ours(self, torn: bytes) -> bool:
        return True

    def scanner(self, start: int, last_seq: int) -> Scanner:
        return _InOrder(last_seq)

    def encode(self, entries: Sequence[Entry]) -> bytes:
        return native.encode_append(entries)

    def erased_line(self, entry: Entry, old: bytes, start: int) -> bytes:
        """The line that stands for an erased entry, with its checksum; without, if the old line has no room for it."""
        if native.decode(old).seq != entry.seq:
            raise Undecodable(f"it is not entry {entry.seq}")
        until = native.until_of(old)
        line = native.encode_stored(entry, until)
        bare = native.encode(entry)
        framed = bare if until is None else b'%b,"until":%d}' % (bare[:-1], until)
        return framed if len(framed) <= len(old) < len(line) else line

    def forget(self) -> None:
        """Nothing to forget."""

    def seek(self, file: Bytes, seq: int) -> int:
        """The position of the first entry with at least this seq, by bisection: lines are in order of seq.

        It trusts the seqs of the lines on its way; `find` does not.
        """
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

    def find(self, file: Bytes, seq: int) -> int:
        """The same by decoding every line before it; a damaged line counts as the next seq."""
        size, _ = file.extent
        place, last = 0, 0
        while place < size and last + 1 < seq:
            newline = newline_after(file.fd, place, size)
            end = size if newline is None else newline + 1
            last = max(last, _seq_of(read_at(file.fd, place, end)) or last + 1)
            if last >= seq:
                return place
            place = end
        return place

    def begins_anew(self, file: Bytes) -> bool:
        """Whether the bytes after the known part go back to earlier entries: another program rewrote the file."""
        size, last_seq = file.extent
        found = _seq_at(file.fd, size, os.fstat(file.fd).st_size)
        return found is not None and found <= last_seq


def _line_after(file: Bytes, place: int, end: int) -> tuple[int, int | None]:
    """The first readable line that begins after `place`, and its seq."""
    while place < end:
        newline = newline_after(file.fd, place, end)
        if newline is None:
            return end, None
        place = newline + 1
        found = _seq_at(file.fd, place, end) if place < end else None
        if found is not None:
            return place, found
    return end, None


def _seq_at(fd: int, place: int, end: int) -> int | None:
    """The seq of the line that begins here; a line that Turnlog did not write is decoded for it."""
    found = native.seq_of(os.pread(fd, native.PEEK_BYTES, place))
    if found is not None:
        return found
    newline = newline_after(fd, place, end)
    return None if newline is None else _seq_of(read_at(fd, place, newline))


def _seq_of(line: bytes) -> int | None:
    try:
        return native.decode(line).seq
    except Undecodable:
        return None


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
        found = _seq_at(fd, place, size)
        if found is not None and found >= seq:
            return place
        newline = newline_after(fd, place, size)
        if newline is None:
            return size
        place = newline + 1
    return size


def _scan_native(data: bytes, start: int, last_seq: int, whole_appends: bool, final: bool) -> LineScan:
    """The complete lines in `data`, or only the complete appends; the rest is torn, or not read yet."""
    whole = data.rfind(b"\n") + 1
    if final and whole < len(data) and _is_written(data[whole:]):
        whole = len(data)
    if whole_appends:
        whole = end_of_appends(data, whole, lambda line: native.until_of(line) is not None)
    torn = data[whole:]
    try:
        entries = native.decode_lines(data[:whole] if torn else data)
        return LineScan(entries, start + whole, entries[-1].seq if entries else last_seq, torn, [])
    except Undecodable:
        return scan_each(data[:whole], start, last_seq, torn, lambda line, seq: native.decode(line))


def _is_written(rest: bytes) -> bool:
    """Whether this end of a file is a line that only lacks its newline, or has another byte in its place.

    That byte is damage: a write that was cut off leaves a part of a line, or NULs, and never anything after a line.
    """
    return _seq_of(rest) is not None or (not rest.endswith(b"\0") and _seq_of(rest[:-1]) is not None)


class _InOrder:
    """Scans piece by piece, and takes out lines that are too many: another program wrote them, or wrote them twice.

    Seqs only grow; of two lines with one seq the first one counts.
    """

    def __init__(self, last_seq: int) -> None:
        self._last = last_seq

    def __call__(self, data: bytes, start: int, last_seq: int, whole_appends: bool, final: bool) -> LineScan:
        scan = _scan_native(data, start, last_seq, whole_appends, final)
        kept: list[Entry] = []
        for entry in scan.entries:
            if entry.seq > self._last:
                kept.append(entry)
                self._last = entry.seq
            else:
                scan.extra.append(self._last)
        if scan.damage:
            there = {entry.seq for entry in kept}
            scan.extra += [seq - 1 for _, seq, _ in scan.damage if seq in there]
            scan.damage = [place for place in scan.damage if place[1] not in there]
        scan.entries = kept
        scan.last_seq = max(scan.last_seq, self._last)
        return scan


def end_of_appends(data: bytes, end: int, unfinished: Callable[[bytes], bool]) -> int:
    """Goes back over lines of an append that the file does not hold completely."""
    while end:
        begin = data.rfind(b"\n", 0, end - 1) + 1
        if not unfinished(data[begin:end]):
            return end
        end = begin
    return 0


def scan_each(data: bytes, start: int, last_seq: int, torn: bytes, decode: Callable[[bytes, int], Entry]) -> LineScan:
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
    return LineScan(entries, start + len(data), last_seq, torn, damage)


def is_ended(fd: int, size: int) -> bool:
    """Whether this part ends with a newline."""
    return size == 0 or os.pread(fd, 1, size - 1) == b"\n"
