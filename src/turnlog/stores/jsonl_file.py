"""One transcript as a file: where its whole appends end, what damage lies in it, and how bytes get there.

Nothing here awaits. `refresh` needs no lock: a reader simply does not see an append that is not whole yet. Writing
needs the file's lock, and begins by dropping what a crash tore off at the end.
"""

import asyncio
import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from msgspec import Struct
from msgspec.structs import replace

from ..codecs import native
from ..codecs.dialects import HEAD_BYTES, NATIVE, Written, detect
from ..core.entries import Entry, Opened
from ..core.session import Session, describe, needs_whole_log
from ..errors import Busy, Corrupt, NotFound
from .files import lock, open_private, read_at, unavailable, unlock, write_all
from .jsonl_lines import CHUNK, LINE_MAX_BYTES, PROBE, ForeignLines, NativeLines, Scan, newline_after

SETTLED_S = 3.0
"""A line without its end that is younger than this may still be being written by another program."""


class Home(Struct, frozen=True):
    """What a place says of a session before its file is read."""

    path: Path
    shelf: str
    opened: Opened
    """Stands in for a header that is missing or damaged."""
    written: Written = NATIVE
    """How a new file is written; a file that exists is gone on with as it is."""


class SessionFile:
    def __init__(self, home: Home, fd: int) -> None:
        self.path = home.path
        self.shelf = home.shelf
        self.opened = home.opened
        self.id = home.opened.id
        self.fd = fd
        self.ino = os.fstat(fd).st_ino
        self.extent = (0, 0)
        self.row: Session | None = None
        self.torn = b""
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
            self.row, self.extent = row, (size, row.last_seq)

    def behind(self) -> int:
        """Bytes not looked at yet; all of them if the file shrank; -1 if the session has been deleted."""
        there = os.fstat(self.fd)
        if there.st_nlink == 0:
            return -1
        if there.st_size < self.size:
            self._start_anew()
        return there.st_size - self.size

    def _start_anew(self) -> None:
        self.row, self.extent = None, (0, 0)
        self.lines.forget()

    def refresh(self, tell: Callable[[int], None] | None = None) -> None:
        """Brings the row up to date with what anybody appended. `tell` hears of the bytes that were read."""
        if self.behind() <= 0:
            self.torn = b""
            return
        if self.lines.foreign and self.size and os.pread(self.fd, 1, self.size - 1) != b"\n":
            self._start_anew()  # what was a whole last line may have been gone on with
        whole_log = False
        for scan in self.scans(self.size, self.last_seq):
            if scan.entries:
                whole_log = whole_log or needs_whole_log(self.row, scan.entries)
                self.row = describe(self.row, self._with_header(scan.entries))
            if tell is not None:
                tell(scan.end - self.size)
            self.extent, self.torn = (scan.end, scan.last_seq), scan.torn
        if whole_log:
            self.row = describe(None, self.everything())
        if self.row and self.row.last_seq != self.last_seq:
            self.row = replace(self.row, last_seq=self.last_seq)

    def everything(self) -> Iterator[Entry]:
        """All readable entries, for the rare questions that the row cannot answer."""
        first = True
        for scan in self.scans(0, 0, self.size):
            if scan.entries:
                yield from self._with_header(scan.entries, first=True) if first else scan.entries
                first = False

    def _with_header(self, entries: list[Entry], *, first: bool = False) -> list[Entry]:
        if self.row is not None and not first:
            return entries
        opened = entries[0]
        native.check_version(opened, str(self.path))
        if not isinstance(opened, Opened):
            # The session must be listed, so that the rest of it can be read.
            return [replace(self.opened, seq=1, ts=opened.ts), *entries]
        # A file that was renamed or copied by hand is found under its name, whatever its first line says.
        return entries if opened.id == self.id else [replace(opened, id=self.id), *entries[1:]]

    def unsettled_s(self) -> float:
        """How long to wait before a torn end may be cut off: other programs take no lock of ours while they write."""
        if not self.torn or self.lines.is_ours(self.torn):
            return 0.0
        return SETTLED_S - (time.time() - os.fstat(self.fd).st_mtime)

    def check_unchanged(self) -> None:
        if os.fstat(self.fd).st_size != self.size + len(self.torn):
            raise Busy(f"another program is writing {self.path}", hint="Close it there, then try again.")

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
        self._start_anew()

    def scans(self, start: int, last_seq: int, end: int | None = None) -> Iterator[Scan]:
        """From a line's beginning on, in bounded pieces. Without `end`, up to the last whole append there is."""
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

    def _skip_line(self, start: int, last_seq: int, stop: int) -> Scan:
        newline = newline_after(self.fd, start, stop)
        end = stop if newline is None else newline + 1
        return Scan([], end, last_seq + 1, b"", [(start, last_seq + 1, f"longer than {LINE_MAX_BYTES:,} bytes")])

    def seek(self, seq: int) -> int:
        return self.lines.seek(self, seq)

    def read(self, after: int, before: int | None, limit: int | None) -> list[Entry]:
        start = self.seek(after + 1)
        end = self.size if before is None else self.seek(before)
        if not end and not after and before is not None and before > 1 and self.size:
            return self.read(0, None, 1)  # a header that is not in the file is all there is before its first line
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
    if following is None and scan.last_seq < file.last_seq:
        following = scan.last_seq + 1  # this piece of the file ends in damage, but the file goes on
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


def _dialect(fd: int) -> Written | None:
    """Of nearly all files the first bytes say it."""
    return detect(os.pread(fd, PROBE, 0)) or detect(os.pread(fd, HEAD_BYTES, 0))


def _open(path: Path, flags: int) -> int:
    try:
        return open_private(path, flags)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS) or flags & os.O_CREAT:
            raise
        return open_private(path, os.O_RDONLY)  # good enough for reading; an append will say why not
