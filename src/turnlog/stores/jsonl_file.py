"""One transcript as a file: where its whole appends end, what damage lies in it, and how bytes get there.

Nothing here awaits. `refresh` needs no lock: a reader simply does not see an append that is not whole yet. Writing
needs the file's lock, and begins by dropping what a crash tore off at the end.
"""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from msgspec import Struct
from msgspec.structs import replace

from ..codecs import native
from ..core.entries import Entry, Opened
from ..core.session import Session, describe, needs_whole_log
from ..errors import Corrupt, NotFound
from .files import lock, open_private, read_at, unavailable, unlock, write_all

CHUNK = 1 << 20
PROBE = 4096
LINEAR_BYTES = 32 * 1024
"""Below this distance a binary search over bytes costs more than reading on."""


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


class SessionFile:
    def __init__(self, path: Path, session_id: str, fd: int) -> None:
        self.path = path
        self.agent = path.parent.parent.name
        self.id = session_id
        self.fd = fd
        self.ino = os.fstat(fd).st_ino
        self.size = 0
        self.row: Session | None = None
        self.last_seq = 0
        self.torn = b""
        self.refreshing = asyncio.Lock()
        self._users = 0
        self._closing = False

    @classmethod
    def open(cls, path: Path, session_id: str, *, create: bool) -> "SessionFile":
        try:
            fd = open_private(path, os.O_RDWR | os.O_APPEND | (os.O_CREAT if create else 0))
        except FileNotFoundError:
            raise NotFound(f"there is no session {session_id}") from None
        except OSError as error:
            raise unavailable(f"the transcript of {session_id} cannot be opened", error) from error
        return cls(path, session_id, fd)

    def close(self) -> None:
        """At once, or when the last user is done: a thread must never read from a number that was given away."""
        self._closing = True
        if not self._users and self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def in_use(self) -> "SessionFile":
        """`with file.in_use(): …` keeps it open; cheaper than a generator, and this is in every append."""
        return self

    def __enter__(self) -> "SessionFile":
        self._users += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._users -= 1
        if self._closing:
            self.close()

    def gone(self) -> bool:
        return os.fstat(self.fd).st_nlink == 0

    def try_lock(self) -> bool:
        return lock(self.fd, wait=False)

    def unlock(self) -> None:
        unlock(self.fd)

    def adopt(self, row: Session, size: int, ino: int) -> None:
        """Takes the index's word for everything up to `size`, if it is about this very file."""
        whole = 0 < size <= os.fstat(self.fd).st_size and os.pread(self.fd, 1, size - 1) == b"\n"
        if ino == self.ino and whole:
            self.row, self.size, self.last_seq = row, size, row.last_seq

    def behind(self) -> int:
        """Bytes not looked at yet; all of them if the file shrank; -1 if the session has been deleted."""
        there = os.fstat(self.fd)
        if there.st_nlink == 0:
            return -1
        if there.st_size < self.size:
            self.row, self.size, self.last_seq = None, 0, 0
        return there.st_size - self.size

    def refresh(self) -> None:
        """Brings the row up to date with what anybody appended."""
        if self.behind() <= 0:
            self.torn = b""
            return
        whole_log = False
        for scan in self.scans(self.size, self.last_seq):
            if scan.entries:
                whole_log = whole_log or needs_whole_log(self.row, scan.entries)
                self.row = describe(self.row, self._with_header(scan.entries))
            self.size, self.last_seq, self.torn = scan.end, scan.last_seq, scan.torn
        if whole_log:
            self.row = describe(None, self.everything())
        if self.row and self.row.last_seq != self.last_seq:
            self.row = replace(self.row, last_seq=self.last_seq)

    def everything(self) -> list[Entry]:
        """All readable entries, for the rare questions that the row cannot answer."""
        entries = [entry for scan in self.scans(0, 0, self.size) for entry in scan.entries]
        return self._with_header(entries, first=True) if entries else []

    def _with_header(self, entries: list[Entry], *, first: bool = False) -> list[Entry]:
        if self.row is not None and not first:
            return entries
        opened = entries[0]
        native.check_version(opened, str(self.path))
        if not isinstance(opened, Opened):
            return [self._stand_in(opened), *entries]
        # A file that was renamed or copied by hand is found under its name, whatever its first line says.
        return entries if opened.id == self.id else [replace(opened, id=self.id), *entries[1:]]

    def _stand_in(self, first: Entry) -> Entry:
        """A header for a row whose own is damaged, so that the session is listed and the rest can be read."""
        key = f"agent:{self.agent}:damaged:direct:{self.id}"
        return Opened(seq=1, ts=first.ts, id=self.id, key=key, agent=self.agent, channel="damaged")

    def write(self, data: bytes) -> int:
        """Appends under the lock; where it begins. On failure the file is as it was."""
        start = self.size
        if self.torn:
            os.ftruncate(self.fd, start)
            self.torn = b""
        try:
            write_all(self.fd, data)
        except OSError:
            os.ftruncate(self.fd, start)
            raise
        return start

    def roll_back(self, start: int) -> None:
        """Cuts off what was written and never counted; a reader may have seen it meanwhile, so all is read anew."""
        os.ftruncate(self.fd, start)
        self.row, self.size, self.last_seq = None, 0, 0

    def scans(self, start: int, last_seq: int, end: int | None = None) -> Iterator[Scan]:
        """From a line's beginning on, in bounded pieces. Without `end`, up to the last whole append there is."""
        stop = os.fstat(self.fd).st_size if end is None else end
        rest = b""
        while (place := start + len(rest)) < stop:
            data = rest + read_at(self.fd, place, min(stop, place + max(CHUNK, len(rest))))
            final = start + len(data) >= stop or len(data) == len(rest)
            scan = scan_lines(data, start, last_seq, whole_appends=end is None)
            if not final:
                scan.torn = b""
            if scan.end > start or final:
                yield scan
            if final:
                return
            rest = data[scan.end - start :]
            start, last_seq = scan.end, scan.last_seq

    def seek(self, seq: int) -> int:
        """Where the first entry with at least this seq begins, by bisection: lines are in order of seq."""
        low, high = 0, self.size
        if seq <= 1:
            return 0
        while high - low > LINEAR_BYTES:
            middle = (low + high) // 2
            place, found = self._line_after(middle, high)
            if found is None or found >= seq:
                high = middle
            else:
                low = place
        return self._walk(low, seq)

    def _line_after(self, place: int, end: int) -> tuple[int, int | None]:
        """The first readable line that begins after `place`, and its seq."""
        while place < end:
            newline = self._newline(place, end)
            if newline is None:
                return end, None
            place = newline + 1
            found = native.seq_of(os.pread(self.fd, native.PEEK_BYTES, place)) if place < end else None
            if found is not None:
                return place, found
        return end, None

    def _newline(self, place: int, end: int) -> int | None:
        step = PROBE
        while place < end:
            data = os.pread(self.fd, min(step, end - place), place)
            at = data.find(b"\n")
            if at >= 0:
                return place + at
            place += len(data)
            step = min(step * 4, CHUNK)
        return None

    def _walk(self, place: int, seq: int) -> int:
        while place < self.size:
            found = native.seq_of(os.pread(self.fd, native.PEEK_BYTES, place))
            if found is not None and found >= seq:
                return place
            newline = self._newline(place, self.size)
            if newline is None:
                return self.size
            place = newline + 1
        return self.size

    def read(self, after: int, before: int | None, limit: int | None) -> list[Entry]:
        start = self.seek(after + 1)
        end = self.size if before is None else self.seek(before)
        found: list[Entry] = []
        last = after
        for scan in self.scans(start, after, end):
            scan.damage = [place for place in scan.damage if before is None or place[1] < before]
            _in_order(self, scan, last, limit and limit - len(found))
            found += scan.entries
            last = scan.last_seq
            if limit is not None and len(found) >= limit:
                return found[:limit]
        return found

    def line_number(self, place: int) -> int:
        lines = 1
        for start in range(0, place, CHUNK):
            lines += read_at(self.fd, start, min(place, start + CHUNK)).count(b"\n")
        return lines


def _in_order(file: SessionFile, scan: Scan, last: int, limit: int | None) -> None:
    """Raises Corrupt for a damaged line or a gap among the first `limit` entries."""
    entries = scan.entries
    if not scan.damage and (not entries or (entries[0].seq == last + 1 and entries[-1].seq == last + len(entries))):
        return
    wanted = entries if limit is None else entries[:limit]
    for entry in wanted:
        if entry.seq != last + 1:
            _corrupt(file, scan, last, entry.seq)
        last = entry.seq
    if scan.damage and (limit is None or len(wanted) < limit):
        _corrupt(file, scan, last, None)


def _corrupt(file: SessionFile, scan: Scan, last: int, following: int | None) -> NoReturn:
    for place, seq, what in scan.damage:
        if seq > last and (following is None or seq < following):
            line = file.line_number(place)
            raise Corrupt(
                f"{file.path}, line {line}: {what}", path=str(file.path), line=line, after=last, before=following
            )
    raise Corrupt(
        f"{file.path}: entries {last + 1} to {(following or 0) - 1} are missing",
        path=str(file.path),
        after=last,
        before=following,
    )


def scan_lines(data: bytes, start: int, last_seq: int, *, whole_appends: bool) -> Scan:
    """The whole lines in `data`, or only the whole appends; what follows them is torn, or not read yet."""
    whole = data.rfind(b"\n") + 1
    if whole_appends:
        whole = _whole_appends(data, whole)
    torn = data[whole:]
    try:
        entries = native.decode_lines(data[:whole] if torn else data)
        if len(entries) != data.count(b"\n", 0, whole):  # an empty line is damage too
            raise native.Undecodable
        return Scan(entries, start + whole, entries[-1].seq if entries else last_seq, torn, [])
    except native.Undecodable:
        scan = _scan_each(data[:whole], start, last_seq)
        scan.torn = torn
        return scan


def _whole_appends(data: bytes, end: int) -> int:
    """Goes back over lines that announce a later seq than the file has."""
    while end:
        begin = data.rfind(b"\n", 0, end - 1) + 1
        line = data[begin:end]
        if native.until_of(line) is None:
            return end
        end = begin
    return 0


def _scan_each(data: bytes, start: int, last_seq: int) -> Scan:
    entries: list[Entry] = []
    damage: list[tuple[int, int, str]] = []
    place = start
    for line in data.split(b"\n")[:-1]:
        try:
            entry = native.decode(line)
            entries.append(entry)
            last_seq = entry.seq
        except native.Undecodable as error:
            last_seq += 1
            damage.append((place, last_seq, f"not a readable entry ({error})"))
        place += len(line) + 1
    return Scan(entries, place, last_seq, b"", damage)
