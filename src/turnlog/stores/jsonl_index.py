"""The live index of one agent's transcripts: a log of its own, derived, and cheap to keep.

    {"index": 1, "boot": "…"}                       first line
    {"dirty": "<id>", "by": "<writer>"}             this writer is about to append to that session
    {"row": {…}, "size": 1234, "ino": 5, "by": …}   and this is what became of it
    {"deleted": "<id>"}

A writer announces a session once and writes its row when things calm down, so that an append costs the same among a
hundred thousand sessions as among a hundred. Whoever lists sessions looks at the announced ones' files, and nowhere
else. A process that dies leaves its announcements behind, which is just what a reader needs to know. After a reboot
(the machine may have lost what was not synced) every file's size is compared once.

Whatever is wrong with this file, it is built anew from the transcripts, and nothing is lost.
"""

import contextlib
import operator
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from ..core.session import Session
from ..errors import NotFound, StoreError, UsageError
from . import Notice
from .files import lock, make_dir, open_private, read_at, replace_file, unlock, write_all
from .jsonl_file import SessionFile
from .jsonl_folder import Folder, Looked
from .layouts import Place
from .publishing import mark, publish_foreign, publish_own

INDEX_VERSION = 1
SPARE_LINES = 1_000
"""The log is rewritten when it has more than this, and twice as many lines as sessions."""
REWRITE = 1 << 60
FOREIGN_SMALL = 500
"""Up to so many sessions another tool's index follows every flush; larger ones follow when the store is closed."""
SMALL = 5_000
"""Up to so many sessions the log may be rewritten whenever that is due, and not only when it is loaded."""


class Line(Struct, omit_defaults=True, gc=False):
    row: Session | None = None
    size: int = 0
    ino: int = 0
    dirty: str | None = None
    by: str = ""
    deleted: str | None = None
    index: int = 0
    boot: str = ""


class Kept(Struct, gc=False):
    """A row, and how much of which file it was folded from."""

    row: Session
    size: int
    ino: int


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Line)
_WRITER = f"{os.getpid()}.{time.time_ns()}"


class Shelf:
    """All sessions of one folder; in most layouts, of one agent.

    In a directory of another tool the index is not there before the first append, and that tool announces nothing: so
    every list compares the sizes of all files.
    """

    def __init__(
        self,
        place: Place,
        name: str,
        *,
        durable: bool,
        notice: Callable[[Notice], None],
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.place = place
        self.name = name
        self.folder = place.folder(name)
        self.files = Folder(place, name, notice)
        self._path = place.index(name)
        self._foreign = place.layout.foreign
        self._progress = progress
        self.wrote: set[str] = set()
        """Sessions of another tool's directory that we appended to, and those we deleted."""
        self.gone: set[str] = set()
        self.rows: dict[str, Kept] = {}
        self.counts: Counter[str] = Counter()
        self._durable = durable
        self._notice = notice
        self._writer = f"{_WRITER}.{id(self)}"
        self._fd = -1
        self._offset = 0
        self._lines = 0
        self._ours: set[str] = set()
        self._theirs: dict[str, set[str]] = {}
        self._sorted = True
        self._changed = False
        self._erase = False
        self._trusted = False
        self._by_key: dict[str, set[str]] | None = None

    def holds(self, session_id: str) -> bool:
        return session_id in self.rows or self.files.has(session_id)

    def load(self) -> None:
        """Opens the index; rebuilds whatever it does not know or cannot be trusted to know."""
        self._open()
        if self._foreign:
            self.files.listen()
        try:
            self._replay(whole=True)
        except (msgspec.DecodeError, UnicodeDecodeError, _Stale):
            self.rows, self.counts, self._theirs, self._by_key = {}, Counter(), {}, None
            self._trusted = False
        self._reconcile()
        self._progress = None
        if self._fd >= 0 and self._lines > 2 * len(self.rows) + SPARE_LINES:
            self.rewrite()

    def _open(self, *, create: bool = False) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self._offset = 0
        self._lines = 0
        if create or not self._foreign or self._path.exists():
            self._fd = open_private(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT)

    def _make(self) -> None:
        """The index of another tool's folder, at the first append."""
        mark(self.place, durable=self._durable)
        make_dir(self._path.parent)
        self._open(create=True)
        if os.fstat(self._fd).st_size == 0:
            self.rewrite()
        else:
            self.load()

    def refresh(self) -> None:
        """What other processes said since the last look."""
        if self._fd < 0:
            if self._path.exists():
                self.load()
            return
        there = os.fstat(self._fd)
        if there.st_nlink == 0 or there.st_size < self._offset:
            self.load()
        elif there.st_size > self._offset:
            try:
                self._replay(whole=False)
            except (msgspec.DecodeError, UnicodeDecodeError):
                self.rebuild()

    def _replay(self, *, whole: bool) -> None:
        if self._fd < 0:
            raise _Stale
        end = os.fstat(self._fd).st_size
        data = read_at(self._fd, self._offset, end)
        lines = _decoder.decode_lines(data[: data.rfind(b"\n") + 1])
        if whole:
            if not lines or lines[0].index != INDEX_VERSION:
                raise _Stale
            self._trusted = bool(lines[0].boot) and lines[0].boot == boot_id()
        self._offset += data.rfind(b"\n") + 1
        self._lines += len(lines)
        if whole and not self.rows:
            self._take(lines)
        else:
            for line in lines:
                self._apply(line)

    def _take(self, lines: Sequence[Line]) -> None:
        """`_apply` for a whole log at once: with a hundred thousand sessions that is what opening costs."""
        rows: dict[str, Kept] = {}
        announced = False
        for line in lines:
            row = line.row
            if row is not None:
                rows.pop(row.id, None)
                rows[row.id] = Kept(row, line.size, line.ino)
            elif line.deleted is not None:
                rows.pop(line.deleted, None)
            else:
                announced = True
        self.rows = rows
        self.counts = Counter([kept.row.status for kept in rows.values()])
        times = [kept.row.last_at for kept in rows.values()]
        self._sorted = all(map(operator.le, times, times[1:]))
        if announced:
            for line in lines:
                self._note_writer(line)

    def _note_writer(self, line: Line) -> None:
        """Who has announced what and not yet said what became of it."""
        if line.dirty is not None:
            if line.by != self._writer:
                self._theirs.setdefault(line.dirty, set()).add(line.by)
        elif line.deleted is not None:
            self._theirs.pop(line.deleted, None)
        elif line.row is not None and (writers := self._theirs.get(line.row.id)) is not None:
            writers.discard(line.by)
            if not writers:
                del self._theirs[line.row.id]

    def _apply(self, line: Line) -> None:
        if line.row is not None:
            known = self.rows.get(line.row.id)
            if known is None or line.row.last_seq > known.row.last_seq:
                self._put(line.row, line.size, line.ino)
        elif line.deleted is not None:
            self.forget(line.deleted)
        self._note_writer(line)

    def _reconcile(self) -> None:
        """Files the index does not know, rows without a file, sizes after a reboot, writers that are gone."""
        self._compare(sizes=not self._trusted or self._foreign)
        if not self._trusted:
            self._lines = REWRITE
        gone = {writer for writers in self._theirs.values() for writer in writers if not _alive(writer)}
        left = [session_id for session_id, writers in self._theirs.items() if writers & gone]
        self.look_at(left)
        if left:
            kept = {name: writers - gone for name, writers in self._theirs.items()}
            self._theirs = {name: writers for name, writers in kept.items() if writers}
            self._lines = REWRITE

    def _compare(self, *, sizes: bool) -> None:
        files = self.files.list()
        for session_id in self.rows.keys() - files.keys():
            self.forget(session_id)
        self.look_at(sorted(files.keys() - self.rows.keys() - self._theirs.keys()))
        if sizes:  # of those just looked at too: somebody may have written meanwhile
            self.look_at([name for name, kept in self.rows.items() if name in files and _differs(files[name], kept)])

    def look_at(self, session_ids: Iterable[str]) -> None:
        """Folds these files from where the index knows them."""
        wanted = list(session_ids)
        told = Looked(self._progress, sum(map(self.files.size_of, wanted)) if self._progress else 0)
        for session_id in wanted:
            found = self._fold(session_id, self.rows.get(session_id), told)
            if found is not None:
                self._put(found.row, found.size, found.ino)
            elif not self.files.path_of(session_id).exists():
                self.forget(session_id)

    def _fold(self, session_id: str, known: Kept | None, told: Looked | None = None) -> Kept | None:
        home = self.files.home(session_id)
        path = home.path
        try:
            file = SessionFile.open(home, create=False)
        except NotFound:
            return None
        except (StoreError, UsageError) as error:
            self._notice(Notice(what=str(error), where=str(path), session_id=session_id))
            return None
        try:
            if known:
                file.adopt(known.row, known.size, known.ino)
            file.refresh(told.add if told else None)
            return None if file.row is None else Kept(file.row, file.size, file.ino)
        except StoreError as error:
            self._notice(Notice(what=str(error), where=str(path), session_id=session_id))
            return None
        finally:
            file.close()

    def settle(self) -> None:
        """Before a list: read the log on, then look at the files that others have announced."""
        self.refresh()
        if self._foreign:
            self._compare(sizes=True)
        if self._theirs:
            self.look_at(self._theirs)
        if not self._sorted:
            self._sort()

    def _put(self, row: Session, size: int, ino: int) -> None:
        old = self.rows.pop(row.id, None)
        if old is None:
            self.counts[row.status] += 1
            if self._by_key is not None:
                self._by_key.setdefault(row.key, set()).add(row.id)
        elif old.row.status != row.status:
            self.counts[old.row.status] -= 1
            self.counts[row.status] += 1
        if self._sorted and self.rows and row.last_at < next(reversed(self.rows.values())).row.last_at:
            self._sorted = False
        self.rows[row.id] = Kept(row, size, ino)

    def _sort(self) -> None:
        """Insertion order is order of activity; the newest is last."""
        self.rows = dict(sorted(self.rows.items(), key=lambda item: (item[1].row.last_at, item[0])))
        self._sorted = True

    def forget(self, session_id: str) -> None:
        self._theirs.pop(session_id, None)
        self._ours.discard(session_id)
        kept = self.rows.pop(session_id, None)
        if kept is not None:
            self.counts[kept.row.status] -= 1
            if self._by_key is not None:
                self._by_key.get(kept.row.key, set[str]()).discard(session_id)

    def at_key(self, key: str) -> set[str]:
        if self._by_key is None:
            self._by_key = {}
            for session_id, kept in self.rows.items():
                self._by_key.setdefault(kept.row.key, set()).add(session_id)
        return self._by_key.get(key, set())

    def announce(self, session_id: str) -> None:
        """Must precede the append: between the two, a reader looks once too often; the other way round, too seldom."""
        if session_id not in self._ours:
            self._say(_encode(Line(dirty=session_id, by=self._writer)) + b"\n", 1)
            self._ours.add(session_id)

    def update(self, row: Session, size: int, ino: int) -> None:
        self._put(row, size, ino)
        self._changed = True
        if self._foreign:
            self.wrote.add(row.id)
            self.gone.discard(row.id)

    def deleted(self, session_id: str) -> None:
        self.forget(session_id)
        if self._foreign:
            self.gone.add(session_id)
            self.wrote.discard(session_id)
        self._say(_encode(Line(deleted=session_id)) + b"\n", 1)
        self._erase = True

    def flush(self) -> None:
        """Rows of all sessions we announced."""
        ours = [self.rows[session_id] for session_id in self._ours if session_id in self.rows]
        if ours:
            self._changed = True
            lines = [_encode(Line(row=k.row, size=k.size, ino=k.ino, by=self._writer)) for k in ours]
            self._say(b"\n".join([*lines, b""]), len(lines))
        self._ours.clear()  # only now: on a full disk they must be said again
        small = len(self.rows) <= SMALL  # a large one is rewritten when it is next loaded
        if self._erase or (small and self._lines > 2 * len(self.rows) + SPARE_LINES):
            self.rewrite()
        if self.wrote and len(self.rows) <= FOREIGN_SMALL:
            self.publish()
        if self._erase:
            # Old rows hold the titles of deleted sessions, which are words of theirs: they go from both files.
            self._erase = False
            self.publish(always=True)

    def _say(self, data: bytes, lines: int) -> None:
        """Under a shared lock, so that a rewrite cannot pass us by."""
        if self._fd < 0:
            self._make()
        while True:
            lock(self._fd, shared=True)
            try:
                if os.fstat(self._fd).st_nlink:
                    write_all(self._fd, data)
                    self._lines += lines
                    return
            finally:
                unlock(self._fd)
            self._open()
            self._replay(whole=True)

    def rewrite(self) -> None:
        """The log without its past. Announcements of others are kept: only their maker may take them back."""
        if self._fd < 0:
            return
        lock(self._fd)
        try:
            if not os.fstat(self._fd).st_nlink:
                return
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                self._replay(whole=False)
            if not self._sorted:
                self._sort()
            lines = [_encode(Line(index=INDEX_VERSION, boot=boot_id()))]
            lines += [_encode(Line(row=k.row, size=k.size, ino=k.ino)) for k in self.rows.values()]
            theirs = {**self._theirs, **{name: {self._writer} for name in self._ours}}
            lines += [_encode(Line(dirty=name, by=by)) for name, writers in theirs.items() for by in sorted(writers)]
            replace_file(self._path, b"\n".join([*lines, b""]), durable=self._durable)
        finally:
            unlock(self._fd)
        self._open()
        self._offset = os.fstat(self._fd).st_size
        self._lines = len(lines)

    def rebuild(self) -> int:
        return self.adopt(self.scan())

    def scan(self) -> dict[str, Kept]:
        """Every transcript from its first line on. Touches nothing of ours: it may run in a thread."""
        names = sorted(self.files.list())
        found = ((name, self._fold(name, None)) for name in names)
        return {name: kept for name, kept in found if kept is not None}

    def adopt(self, found: Mapping[str, Kept]) -> int:
        """Takes over what a scan found, except where an append was faster than the scan."""
        newer = {n: k for n, k in self.rows.items() if n in found and k.row.last_seq > found[n].row.last_seq}
        self.rows, self.counts, self._by_key = {}, Counter(), None
        for kept in {**found, **newer}.values():
            self._put(kept.row, kept.size, kept.ino)
        self._sort()
        if self._fd >= 0:
            self._offset = os.fstat(self._fd).st_size
        self._changed = True
        self.rewrite()
        return len(self.rows)

    def publish(self, *, always: bool = False) -> None:
        """`sessions.json`, for people and other programs."""
        rows = [(kept.row, self.files.path_of(session_id).name) for session_id, kept in sorted(self.rows.items())]
        if self._foreign:
            publish_foreign(self.place, self.name, rows, self.wrote, self.gone, self._notice)
        elif publish_own(self.folder, rows, changed=self._changed, always=always):
            self._changed = False

    def close(self) -> None:
        if self._fd < 0:
            return
        try:
            if self._lines > len(self.rows) + len(self.rows) // 5 + SPARE_LINES:
                self.rewrite()
        finally:
            os.close(self._fd)
            self._fd = -1


class _Stale(Exception):
    """Not an index we can use."""


def _differs(entry: os.DirEntry[str], kept: Kept) -> bool:
    try:
        there = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return True
    return there.st_size != kept.size or there.st_ino != kept.ino


def _alive(writer: str) -> bool:
    try:
        os.kill(int(writer.partition(".")[0]), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
