"""The index of one folder of transcripts, so that a list need not read them. In most layouts, of one agent.

The index is a log next to the transcripts (`index_lines`). It is derived: if it is wrong, it is built again.

The obvious ways fail. Writing the row with every append doubles the cost of an append, and a crash between the two
leaves a wrong row that looks right. Writing rows when a process ends hides from other processes what it appended, for
ever if it crashes. Comparing all sizes before each list costs more the more sessions there are. So a writer announces a
session before its first append to it, and writes the row when appends pause. For a reader, a session has three states:

                another process announces it
    ┌─────────┐ ────────────────────────────► ┌─────────┐ ──┐ a list reads the file on from where it is known;
    │  known  │                               │  dirty  │   │ the session stays dirty
    └─────────┘ ◄──────────────────────────── └─────────┘ ◄─┘
      ▲     │   its row, by the same writer;
      │     │   or loading, if that writer is gone
      │     │ deleted, or the file is gone
      │     ▼
    ┌─────────┐
    │ unknown │   Loading reads the file, if there is one, from the beginning.
    └─────────┘

- *known*: the row in memory is right. A list does not look at the file.
- *dirty*: the row may be behind. A list reads on only these files, so it costs what changed. Only the announcing writer
  takes it back, because only it knows that it has no append under way. So a rewrite keeps the announcements of others,
  and a process that dies leaves its own behind, which is what readers need.
- *unknown*: no line names it, or its row has another `fold`, because another version of Turnlog wrote it.

Three orders matter. The announcement precedes the append: between the two a reader looks once too often; the other way
round, once too seldom. The row follows the last append, so `flush` leaves out sessions with an append under way. And a
flush first reads what others wrote, under the lock, because a row behind the deletion of its session would bring it
back. If two lines speak of different sessions with one id, the file decides.

After a reboot, the machine may have lost what was not synced: every file's size is compared once. Other programs
announce nothing: in their folders every list compares the sizes.
"""

import contextlib
import errno
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from ...core.session import FOLD, Session
from .. import Notice
from ..disk.files import lock, make_dir, open_private, read_at, replace_file, unlock, write_all
from ..disk.machine import boot_id
from .announcements import Announcements
from .folder import Folder, Looked, differs
from .index_lines import IndexedRow, IndexLine, decode_log, decoder, encode, is_later, is_meant
from .layouts import Place
from .publishing import Publisher, mark
from .row_table import RowTable

INDEX_VERSION = 1
SPARE_LINES = 1_000
"""The log is rewritten when it has more than this, and twice as many lines as sessions."""
REWRITE = 1 << 60
FOREIGN_SMALL = 500
"""With more sessions than this, another program's index is updated when the store is closed, not at every flush."""
SMALL = 5_000
"""With more sessions than this, the log is rewritten only when it is loaded or closed."""


class FolderIndex:
    """In another program's folder there is no index before our first append."""

    def __init__(
        self,
        place: Place,
        name: str,
        *,
        durable: bool,
        notice: Callable[[Notice], None],
        progress: Callable[[int, int], None] | None = None,
        read_only: bool = False,
    ) -> None:
        """`read_only`: the index is kept in memory only, and no change is announced."""
        self.place = place
        self._read_only = read_only
        self.name = name
        self.folder = place.folder(name)
        self.files = Folder(place, name, notice)
        self._path = place.index(name)
        self._foreign = place.layout.foreign
        self._progress = progress
        self._publisher = Publisher(place, name, notice)
        self._table = RowTable()
        self._durable = durable
        self._announced = Announcements()
        self._fd = -1
        self._offset = 0
        self._lines = 0
        self._erase = False
        self._trusted = False
        self._outdated = False
        """An older version of Turnlog has written rows: they were rebuilt, and must be written."""
        self.at_key = self._table.at_key
        self.over = self._announced.over

    @property
    def rows(self) -> dict[str, IndexedRow]:
        return self._table.rows

    @property
    def counts(self) -> Counter[str]:
        return self._table.counts

    def holds(self, session_id: str) -> bool:
        return session_id in self.rows or self.files.has(session_id)

    def load(self) -> None:
        """Opens the index, and reads the files of sessions that it does not know or may have wrong."""
        self._open()
        if self._foreign:
            self.files.listen()
        try:
            self._replay(whole=True)
        except (msgspec.DecodeError, UnicodeDecodeError, _Stale):
            self._table.clear()
            self._announced.theirs = {}
            self._trusted = False
        self._retitle()
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
        if self._read_only:
            if self._path.exists():
                self._fd = open_private(self._path, os.O_RDONLY)
        elif create or not self._foreign or self._path.exists():
            self._fd = open_private(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT)

    def _make(self) -> None:
        """Makes the index of another program's folder, at the first append."""
        if self._read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        mark(self.place, durable=self._durable)
        make_dir(self._path.parent)
        self._open(create=True)
        if os.fstat(self._fd).st_size == 0:
            self.rewrite()
        else:
            self.load()

    def refresh(self) -> None:
        """Reads the lines that other processes have written since."""
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
        data = read_at(self._fd, self._offset, os.fstat(self._fd).st_size)
        data = data[: data.rfind(b"\n") + 1]
        if whole and not data:
            raise _Stale
        if whole and not self.rows and not self._announced.theirs:
            log = decode_log(data)
            self._check(log.first)
            self._lines += 1 + len(log.rows) + len(log.rest)
            self._outdated = self._table.take(log) or self._outdated
            self._announced.hear_all(log.rest)
        else:
            lines = decoder.decode_lines(data)
            if whole:
                self._check(lines[0])
            self._lines += len(lines)
            for line in lines:
                self._apply(line)
        self._offset += len(data)

    def _check(self, first: IndexLine) -> None:
        if first.index != INDEX_VERSION:
            raise _Stale
        self._trusted = bool(first.boot) and first.boot == boot_id()

    def _apply(self, line: IndexLine) -> None:
        if line.row is not None:
            known = self.rows.get(line.row.id)
            if line.row.fold != FOLD or (known is not None and known.row.incarnation != line.row.incarnation):
                self.look_at([line.row.id])
            elif known is None or line.row.last_seq > known.row.last_seq:
                self._put(line.row, line.size, line.ino)
        elif line.deleted is not None and (known := self.rows.get(line.deleted)) and is_meant(line, known):
            self._table.remove(line.deleted)
        self._announced.hear(line)

    def _reconcile(self) -> None:
        """Compares the index with the folder: files, their sizes, and writers that are gone."""
        self._compare(sizes=not self._trusted or self._foreign)
        if not self._trusted or self._outdated:
            self._lines, self._outdated = REWRITE, False
        if gone := self._announced.gone_writers():
            self.look_at(self._announced.announced_by(gone))
            self._announced.drop(gone)
            self._lines = REWRITE

    def _compare(self, *, sizes: bool) -> None:
        if sizes:
            files = self.files.list(known=self.rows)
            new, gone = files.keys() - self.rows.keys(), self.rows.keys() - files.keys()
        else:
            files, (new, gone) = {}, self.files.compare(self.rows.keys())
        for session_id in gone:
            self.forget(session_id)
        self.look_at(sorted(new - self._announced.theirs.keys()))
        if sizes:  # of those just looked at too: somebody may have written meanwhile
            self.look_at([name for name, kept in self.rows.items() if name in files and differs(files[name], kept)])

    def look_at(self, session_ids: Iterable[str]) -> None:
        """Reads these files on from where the index knows them."""
        wanted = list(session_ids)
        told = Looked(self._progress, sum(map(self.files.size_of, wanted)) if self._progress else 0)
        for session_id in wanted:
            found = self.files.fold(session_id, self.rows.get(session_id), told)
            if found is not None:
                self._put(found.row, found.size, found.ino)
            elif not self.files.path_of(session_id).exists():
                self.forget(session_id)

    def settle(self) -> None:
        """Before a list: reads the log on, then the files that others have announced."""
        self.refresh()
        if self._foreign:
            if self.files.listen():
                self._retitle()
            self._compare(sizes=True)
        if self._announced.theirs:
            self.look_at(self._announced.theirs)
        self._table.sort()

    def _retitle(self) -> None:
        """Takes titles over from the other program's index."""
        for kept in self.rows.values() if self._foreign else ():
            kept.row = self.files.titled(kept.row)

    def _put(self, row: Session, size: int, ino: int) -> None:
        self._table.put(self.files.titled(row), size, ino)

    def forget(self, session_id: str) -> None:
        """It has no file."""
        self._announced.theirs.pop(session_id, None)
        self._table.remove(session_id)

    def announce(self, session_id: str, *, new: bool) -> None:
        """Must precede the append, and stands at least until `over`.

        A new session is always announced: there may have been one with the same id before.
        """
        if new or session_id not in self._announced.ours:
            self._say(lambda: [IndexLine(dirty=session_id, by=self._announced.writer)])
        self._announced.begin(session_id)

    def update(self, row: Session, size: int, ino: int) -> None:
        before = self.rows.get(row.id)
        self._put(row, size, ino)
        self._publisher.updated(row, before.row if before else None)

    def deleted(self, session_id: str, incarnation: str) -> None:
        self.forget(session_id)
        self._publisher.deleted(session_id)
        self._say(lambda: [IndexLine(deleted=session_id, incarnation=incarnation)])
        self._erase = True

    def flush(self, *, erase: bool = False) -> None:
        """Writes the rows of sessions we announced, without an append under way. `erase`: earlier rows must go."""
        self._erase = self._erase or erase
        settled = self._announced.settled()
        if self.was_removed and not self._erase:
            self._announced.ours -= settled
            return
        if settled:
            self._say(lambda: self._rows_of(settled), alone=True)
        self._announced.ours -= settled  # only now: on a full disk they must be said again
        small = len(self.rows) <= SMALL  # a large one is rewritten when it is next loaded
        if self._erase or (small and self._lines > 2 * len(self.rows) + SPARE_LINES):
            self.rewrite()
        if self._publisher.wrote and len(self.rows) <= FOREIGN_SMALL:
            self.publish()
        if self._erase:
            # Old rows hold the titles of deleted sessions, which are words of theirs: they go from both files.
            self._erase = False
            self.publish(always=True)

    @property
    def was_removed(self) -> bool:
        """Whether somebody removes the store, or has removed the index. Only the next append makes it anew."""
        return self._fd >= 0 and not os.fstat(self._fd).st_nlink and not self._path.exists()

    def _rows_of(self, session_ids: Iterable[str]) -> list[IndexLine]:
        found = [self.rows[session_id] for session_id in session_ids if session_id in self.rows]
        self._publisher.changed = self._publisher.changed or bool(found)
        return [IndexLine(row=kept.row, size=kept.size, ino=kept.ino, by=self._announced.writer) for kept in found]

    def _say(self, make: Callable[[], Sequence[IndexLine]], *, alone: bool = False) -> None:
        """Writes lines under a lock, so that no rewrite loses them. `alone`: reads first what others have written."""
        if self._fd < 0:
            self._make()
        while True:
            lock(self._fd, shared=not alone)
            try:
                if os.fstat(self._fd).st_nlink:
                    if alone:
                        self._hear()
                    lines = make()
                    write_all(self._fd, b"".join([encode(line) + b"\n" for line in lines]))
                    self._lines += len(lines)
                    return
            finally:
                unlock(self._fd)
            self.load()

    def _hear(self) -> None:
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):  # the next list rebuilds the index
            self._replay(whole=False)

    def rewrite(self) -> None:
        """Writes the log again with one line for each session, and all announcements that stand."""
        if self._fd < 0 or self._read_only:
            return
        lock(self._fd)
        try:
            if not os.fstat(self._fd).st_nlink:
                return
            self._hear()
            self._table.sort()
            lines = [encode(IndexLine(index=INDEX_VERSION, boot=boot_id()))]
            lines += [encode(IndexLine(row=k.row, size=k.size, ino=k.ino)) for k in self.rows.values()]
            lines += map(encode, self._announced.lines())
            replace_file(self._path, b"\n".join([*lines, b""]), durable=self._durable)
        finally:
            unlock(self._fd)
        self._open()
        self._offset = os.fstat(self._fd).st_size
        self._lines = len(lines)

    def rebuild(self) -> int:
        return self.adopt(self.scan())

    def scan(self) -> dict[str, IndexedRow]:
        """Reads every transcript from its first line on. Changes nothing in memory, so it may run in a thread."""
        names = sorted(self.files.list())
        found = ((name, self.files.fold(name, None)) for name in names)
        return {name: kept for name, kept in found if kept is not None}

    def adopt(self, found: Mapping[str, IndexedRow]) -> int:
        """Takes over the rows of a scan, except where an append came after it."""
        newer = {n: k for n, k in self.rows.items() if n in found and is_later(k.row, found[n].row)}
        self._table.clear()
        for kept in {**found, **newer}.values():
            self._put(kept.row, kept.size, kept.ino)
        self._table.sort()
        if self._fd >= 0:
            self._offset = os.fstat(self._fd).st_size
        self._publisher.changed = True
        self.rewrite()
        return len(self.rows)

    def publish(self, *, always: bool = False) -> None:
        """Writes `sessions.json`, for people and other programs. `refresh` first: others may have erased a title."""
        if not self._read_only and (always or self._publisher.is_due(len(self.rows))):
            rows = [(kept.row, self.files.path_of(name).name) for name, kept in sorted(self.rows.items())]
            self._publisher.publish(rows)

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
