"""One transcript as a file: where its complete appends end, where it is damaged, and how it is written.

Nothing here awaits. `refresh` needs no lock: a reader ignores an append that is not complete yet. Writing needs the
file's lock, and begins by dropping what a crash left incomplete at the end.
"""

import asyncio
import errno
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from msgspec import Struct
from msgspec.structs import replace

from ...codecs import native
from ...codecs.dialects import HEAD_BYTES, NATIVE, FileDialect, detect
from ...core.earlier_entries import needed, row_after
from ...core.entries import Entry, Opened
from ...core.session import Interval, Session, describe
from ...errors import Busy, Corrupt, NotFound
from ..disk.files import lock, open_private, read_at, unavailable, unlock, write_all
from .foreign_lines import ForeignLines
from .lines import CHUNK, LINE_MAX_BYTES, PROBE, LineScan, NativeLines, is_ended, newline_after

_INCARNATION = re.compile(rb'"incarnation"\s*:\s*"([0-9a-f]*)"')
SETTLED_S = 3.0
"""Another program may still be writing an incomplete line that is younger than this."""


class Home(Struct, frozen=True):
    """What the place of a file says about its session before the file is read."""

    path: Path
    folder: str
    opened: Opened
    """Replaces a missing or damaged header."""
    written: FileDialect = NATIVE
    """How a new file is written; an existing file is continued in its own dialect."""


class SessionFile:
    def __init__(self, home: Home, fd: int) -> None:
        self.path = home.path
        self.folder = home.folder
        self.opened = home.opened
        self.id = home.opened.id
        self.fd = fd
        self.ino = os.fstat(fd).st_ino
        self.extent = (0, 0)
        self.row: Session | None = None
        self.torn = b""
        self.ended = True
        """Whether the known part ends with a newline; other programs may leave out the last one."""
        self.refreshing = asyncio.Lock()
        self._users = 0
        self._closing = False
        written = _dialect(fd) or home.written
        self.lines = NativeLines() if written.dialect == "native" else ForeignLines(written, home.opened, self)

    @classmethod
    def open(cls, home: Home, *, create: bool) -> "SessionFile":
        name = home.opened.id
        try:
            fd = _open(home.path, os.O_RDWR | os.O_APPEND | (os.O_CREAT if create else 0))
        except FileNotFoundError:
            raise NotFound(f"there is no session {name}") from None
        except OSError as error:
            raise unavailable(f"the transcript of {name} cannot be opened", error) from error
        return cls(home, fd)

    @property
    def size(self) -> int:
        return self.extent[0]

    @property
    def last_seq(self) -> int:
        return self.extent[1]

    def close(self) -> None:
        """Closes at once, or after the last user is done: a thread must never read from a reused descriptor."""
        self._closing = True
        if not self._users and self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def in_use(self) -> "SessionFile":
        """`with file.in_use(): …` keeps it open; faster than a generator, and used in every append."""
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
        """Trusts the index for everything up to `size`, if it is about this file.

        The inode of a deleted file may be reused, so the first line must name the same incarnation.
        """
        whole = 0 < size <= os.fstat(self.fd).st_size and os.pread(self.fd, 1, size - 1) == b"\n"
        if ino == self.ino and whole and _stamped(self.fd) == row.stamped:
            self.row, self.extent = row, (size, row.last_seq)

    def behind(self) -> int:
        """The number of unread bytes; all of them if the file shrank; -1 if the session was deleted."""
        there = os.fstat(self.fd)
        if there.st_nlink == 0:
            return -1
        if there.st_size < self.size:
            self._start_anew()
        return there.st_size - self.size

    def _start_anew(self) -> None:
        self.row, self.extent, self.ended = None, (0, 0), True
        self.lines.forget()

    def refresh(self, tell: Callable[[int], None] | None = None) -> None:
        """Updates the row with everything that was appended. `tell` is called with the number of bytes read."""
        if self.behind() <= 0:
            self.torn = b""
            return
        if self.size and (not is_ended(self.fd, self.size) or self.lines.begins_anew(self)):
            self._start_anew()  # another program may have continued the last line, or rewritten the file
        whole_log = False
        for scan in self.scans(self.size, self.last_seq):
            if scan.entries:
                wanted = needed(self.row, scan.entries)
                whole_log = whole_log or wanted == []
                self.row = describe(self.row, self._with_header(scan.entries), self.readable(wanted or ()))
            if tell is not None:
                tell(scan.end - self.size)
            self.extent, self.torn = (scan.end, scan.last_seq), scan.torn
        if whole_log:
            self.row = describe(None, self.everything())
        self.ended = is_ended(self.fd, self.size)
        if self.row and self.row.last_seq != self.last_seq:
            self.row = replace(self.row, last_seq=self.last_seq)

    def row_after(self, entries: list[Entry]) -> Session:
        """The row after these entries are written."""
        return row_after(self.row, entries, self.readable, self.everything)

    def everything(self) -> Iterator[Entry]:
        """All readable entries, for the rare questions that the row cannot answer."""
        first = True
        for scan in self.scans(0, 0, self.size):
            if scan.entries:
                yield from self._with_header(scan.entries, first=True) if first else scan.entries
                first = False

    def readable(self, wanted: Sequence[Interval]) -> Iterator[Entry]:
        """The readable entries in these intervals."""
        for first, last in wanted:
            for scan in self.scans(self.seek(first), first - 1, self.seek(last + 1)):
                yield from scan.entries

    def _with_header(self, entries: list[Entry], *, first: bool = False) -> list[Entry]:
        if self.row is not None and not first:
            return entries
        opened = entries[0]
        native.check_version(opened, str(self.path))
        if not isinstance(opened, Opened):
            # The session must be listed, so that the rest of it can be read.
            return [replace(self.opened, seq=1, ts=opened.ts), *entries]
        # A file that was renamed or copied by hand is found by its name, whatever its first line says.
        return entries if opened.id == self.id else [replace(opened, id=self.id), *entries[1:]]

    def unsettled_s(self) -> float:
        """How long to wait before a torn end may be cut off: other programs take no lock while they write."""
        if not self.torn or self.lines.is_ours(self.torn):
            return 0.0
        return SETTLED_S - (time.time() - os.fstat(self.fd).st_mtime)

    def check_unchanged(self) -> None:
        if os.fstat(self.fd).st_size != self.size + len(self.torn):
            raise Busy(f"another program is writing {self.path}", hint="Close that program, then try again.")

    def encode(self, entries: Sequence[Entry]) -> bytes:
        """The bytes of one append, to be written after the known part."""
        data = self.lines.encode(entries)
        return data if self.ended else b"\n" + data

    def write(self, data: bytes) -> int:
        """Appends under the lock; returns where it begins. After a failure the file is unchanged."""
        start = self.size
        if self.torn:
            os.ftruncate(self.fd, start)
            self.torn = b""
        try:
            write_all(self.fd, data)
        except OSError:
            os.ftruncate(self.fd, start)
            raise
        self.ended = True
        return start

    def roll_back(self, start: int) -> None:
        """Cuts off an append that does not count; a reader may have seen it, so everything is read again."""
        os.ftruncate(self.fd, start)
        self._start_anew()

    def scans(self, start: int, last_seq: int, end: int | None = None) -> Iterator[LineScan]:
        """Scans from the beginning of a line on, in limited pieces; without `end`, up to the last complete append."""
        stop = os.fstat(self.fd).st_size if end is None else end
        scanner = self.lines.scanner(start, last_seq)
        rest = b""
        while (place := start + len(rest)) < stop:
            if len(rest) > LINE_MAX_BYTES and self.lines.foreign:
                scan, rest = self._skip_line(start, last_seq, stop), b""
                yield scan
                start, last_seq = scan.end, scan.last_seq
                continue
            data = rest + read_at(self.fd, place, min(stop, place + max(CHUNK, len(rest))))
            final = start + len(data) >= stop or len(data) == len(rest)
            scan = scanner(data, start, last_seq, end is None, final)
            if not final:
                scan.torn = b""
            if scan.end > start or final:
                yield scan
            if final:
                return
            rest = data[scan.end - start :]
            start, last_seq = scan.end, scan.last_seq

    def _skip_line(self, start: int, last_seq: int, stop: int) -> LineScan:
        newline = newline_after(self.fd, start, stop)
        end = stop if newline is None else newline + 1
        return LineScan([], end, last_seq + 1, b"", [(start, last_seq + 1, f"longer than {LINE_MAX_BYTES:,} bytes")])

    def seek(self, seq: int) -> int:
        return self.lines.seek(self, seq)

    def read(self, after: int, before: int | None, limit: int | None) -> list[Entry]:
        size, last_seq = self.extent
        stop = last_seq + 1 if before is None else min(before, last_seq + 1)
        start = self.seek(after + 1)
        end = size if before is None else self.seek(before)
        if not end and not after and before is not None and before > 1 and size:
            return self.read(0, None, 1)  # before the first line there is only the header, which is not in the file
        try:
            return self._read(start, end, after, stop, limit)
        except Corrupt:
            found = self.lines.find(self, after + 1), size if before is None else self.lines.find(self, before)
            if found == (start, end):
                raise
            return self._read(*found, after, stop, limit)  # a damaged line misled the search

    def _read(self, start: int, end: int, after: int, stop: int, limit: int | None) -> list[Entry]:
        found: list[Entry] = []
        last = after
        extra: list[int] = []
        for scan in self.scans(start, after, end):
            scan.damage = [place for place in scan.damage if place[1] < stop]
            scan.extra = extra = [seq for seq in (*extra, *scan.extra) if seq > after]
            _in_order(self, scan, last, limit and limit - len(found))
            if not last and scan.entries:
                native.check_version(scan.entries[0], str(self.path))
            found += scan.entries
            last = scan.last_seq
            if limit is not None and len(found) >= limit:
                return found[:limit]
        if last + 1 < stop:
            _corrupt(self, LineScan([], end, last, b"", []), last, stop)
        return found

    def line_number(self, place: int) -> int:
        lines = 1
        for start in range(0, place, CHUNK):
            lines += read_at(self.fd, start, min(place, start + CHUNK)).count(b"\n")
        return lines


def _in_order(file: SessionFile, scan: LineScan, last: int, limit: int | None) -> None:
    """Raises Corrupt for a damaged line or a gap among the first `limit` entries."""
    entries = scan.entries
    if (
        not scan.damage
        and not scan.extra
        and (not entries or (entries[0].seq == last + 1 and entries[-1].seq == last + len(entries)))
    ):
        return
    wanted = entries if limit is None else entries[:limit]
    for entry in wanted:
        if entry.seq != last + 1:
            _corrupt(file, scan, last, entry.seq)
        if last in scan.extra:
            what = f"a line between entries {last} and {entry.seq} is not one of its entries"
            raise Corrupt(f"{file.path}: {what}", path=str(file.path), after=last, before=entry.seq)
        last = entry.seq
    if scan.damage and (limit is None or len(wanted) < limit):
        _corrupt(file, scan, last, None)


def _corrupt(file: SessionFile, scan: LineScan, last: int, following: int | None) -> NoReturn:
    if following is None and scan.last_seq < file.last_seq:
        following = scan.last_seq + 1  # this piece ends in damage, but the file continues
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


def _stamped(fd: int) -> str:
    """The incarnation in the first line; empty if it has none."""
    head = os.pread(fd, PROBE, 0)
    if b"\n" not in head:
        head = os.pread(fd, HEAD_BYTES, 0)
    found = _INCARNATION.search(head.partition(b"\n")[0])
    return found[1].decode() if found else ""


def _dialect(fd: int) -> FileDialect | None:
    """The dialect; the first bytes of nearly all files show it."""
    return detect(os.pread(fd, PROBE, 0)) or detect(os.pread(fd, HEAD_BYTES, 0))


def _open(path: Path, flags: int) -> int:
    try:
        return open_private(path, flags)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS) or flags & os.O_CREAT:
            raise
        return open_private(path, os.O_RDONLY)  # good enough for reading; an append will report the error
