"""The JSONL store: one readable file a session; the files are the truth.

`layouts` says where they lie, ours or those of another tool; each file is gone on with in the dialect it is written in.

Many processes may use one directory. An append takes the file's lock, drops what a crash tore off, writes once and
syncs; it costs the same whatever the number of sessions or the length of this one. The index beside the files
(`jsonl_index`) is derived.
"""

import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from itertools import chain
from pathlib import Path

from ..core import keys, query as queries, search
from ..core.admission import admit
from ..core.entries import Entry, Opened
from ..core.query import Hit, Page, Query
from ..core.session import Session, describe, needs_whole_log
from ..errors import Busy, NotFound, UsageError
from . import Clock, Lease, Notice, Progress, leases
from .files import disk_errors, make_dir, sync_dir, unavailable
from .jsonl_file import SessionFile
from .jsonl_finding import candidates, newest, search_file
from .jsonl_index import Shelf
from .jsonl_ledger import JsonlLedger
from .layouts import Place, place_at
from .memory import page_of
from .publishing import check_ours, mark
from .stamping import check_expected, now_ms, stamp, window
from .syncing import Syncer, aside
from .watching import Watchers

log = logging.getLogger("turnlog.stores.jsonl")

OPEN_FILES_MAX = 256
"""Transcripts kept open between appends; more are closed, the longest unused first."""
INLINE_READ_BYTES = 256 * 1024
"""Larger reads leave the event loop."""
PASS_EVERY = 64
OWNER_LOOK_S = 0.1
OWNER_TRIES = 100
"""How often an append looks again while another program seems to be writing the file, before it says so."""
FLUSH_AFTER_S = 0.5
"""How long index rows may wait after an append; the announcement in front of it never does."""


class JsonlStore:
    def __init__(
        self,
        root: Path,
        place: Place,
        durability: str,
        clock: Clock | None,
        on_notice: Callable[[Notice], None] | None,
        progress: Progress | None,
    ) -> None:
        self._root = root
        self._place = place
        self._progress = progress
        self._clock = clock or now_ms
        self._durable = durability == "full"
        self._syncer = Syncer()
        self._on_notice = on_notice
        self._shelves: dict[str, Shelf] = {}
        self._files: OrderedDict[str, SessionFile] = OrderedDict()
        self._turns: dict[str, asyncio.Lock] = {}
        self._leases = leases.FileLeases(place.own / "leases")
        self._watchers = Watchers(ends=self._ends)
        self._flush: asyncio.TimerHandle | None = None
        self._streak = 0
        self.ledger = JsonlLedger(
            place.own / "ledger.jsonl",
            clock=self._clock,
            syncer=self._syncer if self._durable else None,
            notice=self._notice,
            make=partial(mark, place, durable=self._durable) if place.layout.foreign else None,
        )

    @classmethod
    async def open(
        cls,
        path: str,
        *,
        durability: str = "full",
        clock: Clock | None = None,
        on_notice: Callable[[Notice], None] | None = None,
        layout: str | None = None,
        dialect: str | None = None,
        progress: Progress | None = None,
    ) -> "JsonlStore":
        root = Path(path).expanduser().absolute()
        with disk_errors(f"the store {path} cannot be opened"):
            place = await asyncio.to_thread(place_at, root, layout, dialect)
            store = cls(root, place, durability, clock, on_notice, progress)
            await asyncio.to_thread(store._open)
        return store

    def _open(self) -> None:
        make_dir(self._root)
        check_ours(self._place, self._root, durable=self._durable)
        self.ledger.open()
        if not self._place.layout.foreign:
            make_dir(self._root / "agents")
        self._load_shelves()

    def _load_shelves(self) -> bool:
        """Those of agents that others added meanwhile included; whether there were any new ones."""
        before = len(self._shelves)
        for name in self._place.shelves():
            if name not in self._shelves:
                self._shelf(name)
        return len(self._shelves) > before

    def _notice(self, notice: Notice) -> None:
        log.warning("%s (%s)", notice.what, notice.where)
        if self._on_notice:
            self._on_notice(notice)

    def _shelf(self, name: str) -> Shelf:
        if name not in self._shelves:
            make_dir(self._place.folder(name))
            shelf = Shelf(
                self._place, name, durable=self._durable, notice=self._notice, progress=self._progress
            )  # fmt: skip
            shelf.load()
            self._shelves[name] = shelf
        return self._shelves[name]

    def _home(self, session_id: str) -> Shelf | None:
        """The shelf that has this session."""
        return self._holder(session_id) or (self._load_shelves() and self._holder(session_id)) or None

    def _holder(self, session_id: str) -> Shelf | None:
        return next((shelf for shelf in self._shelves.values() if shelf.holds(session_id)), None)

    def _file(self, session_id: str) -> SessionFile:
        """The open file of a session that exists, warm if it can be."""
        file = self._files.get(session_id)
        if file is not None and not file.gone():
            self._files.move_to_end(session_id)
            return file
        if file is not None:
            self._drop(session_id)
        keys.check_session_id(session_id)
        shelf = self._home(session_id)
        if shelf is None:
            raise NotFound(f"there is no session {session_id}")
        file = SessionFile.open(shelf.files.home(session_id), create=False)
        if (kept := shelf.rows.get(session_id)) is not None:
            file.adopt(kept.row, kept.size, kept.ino)
        return self._keep(file)

    def _keep(self, file: SessionFile) -> SessionFile:
        self._files[file.id] = file
        if len(self._files) > OPEN_FILES_MAX:
            idle = next((name for name in self._files if not self._turn_taken(name)), None)
            if idle is not None and idle != file.id:
                self._drop(idle)
        return file

    def _turn_taken(self, session_id: str) -> bool:
        turn = self._turns.get(session_id)
        return turn is not None and turn.locked()

    def _drop(self, session_id: str) -> None:
        file = self._files.pop(session_id, None)
        if file is not None:
            file.close()
        if not self._turn_taken(session_id):
            self._turns.pop(session_id, None)

    async def append(
        self, session_id: str, bodies: Sequence[Entry], *, expect: int | None = None, lease: Lease | None = None
    ) -> list[Entry]:
        leased = leases.check(lease, session_id)
        self._streak += 1
        if not self._streak % PASS_EVERY:
            await asyncio.sleep(0)  # appends that need not wait for anything must not keep the loop from its sockets
        turn = self._turns.get(session_id)
        if turn is None:
            keys.check_session_id(session_id)
            turn = self._turns.setdefault(session_id, asyncio.Lock())
        async with turn:
            while True:
                file = self._files.get(session_id) or self._file_for(session_id, bodies)
                with file.in_use():
                    if not file.try_lock():
                        await file_lock(file)
                    try:
                        # Deleted while we waited: look again, and create it anew if that is what was asked.
                        if (behind := file.behind()) >= 0:
                            return await self._append_locked(file, behind, bodies, expect, leased)
                    except OSError as error:
                        self._undo_creation(file)
                        raise unavailable(f"session {session_id} cannot be written", error) from error
                    except BaseException:
                        self._undo_creation(file)
                        raise
                    finally:
                        file.unlock()
                self._drop(session_id)

    def _file_for(self, session_id: str, bodies: Sequence[Entry]) -> SessionFile:
        try:
            return self._file(session_id)
        except NotFound:
            first = bodies[0] if bodies else None
            if not isinstance(first, Opened):
                raise
            if first.id != session_id:
                raise UsageError(f"the session entry says {first.id}, not {session_id}") from None
        with disk_errors(f"session {session_id} cannot be created"):
            shelf = self._shelf(self._place.shelf_for(first))
            opened = stamp([first], 0, self._clock())[0]
            assert isinstance(opened, Opened)
            return self._keep(SessionFile.open(shelf.files.new_home(opened), create=True))

    async def _append_locked(
        self, file: SessionFile, behind: int, bodies: Sequence[Entry], expect: int | None, leased: bool
    ) -> list[Entry]:
        if behind or file.refreshing.locked():
            await self._refresh(file)
        before = file.row
        check_expected(before, expect)
        admit(before, bodies, leased=leased)
        entries = stamp(bodies, file.last_seq, self._clock())
        if file.lines.foreign:
            await self._prepare(file)
        data = file.lines.encode(entries)
        row = self._row_after(file, bodies, entries)
        if file.torn:
            self._notice(
                Notice(
                    what=f"{len(file.torn)} bytes of a torn append dropped", where=str(file.path), session_id=file.id
                )
            )
        shelf = self._shelves[file.shelf]
        shelf.announce(file.id)
        start = file.write(data)
        if self._durable:
            await self._make_durable(file, start, new=before is None)
        # Set, not added to: a reader may have looked at the file while it was being synced.
        file.row, file.extent = row, (start + len(data), row.last_seq)
        shelf.update(row, file.size, file.ino)
        self._flush_later()
        self._watchers.wake(file.id)
        return entries

    def _row_after(self, file: SessionFile, bodies: Sequence[Entry], entries: list[Entry]) -> Session:
        if not needs_whole_log(file.row, bodies):
            return describe(file.row, entries)
        return describe(None, chain(file.everything(), entries))

    async def _prepare(self, file: SessionFile) -> None:
        """Ids of a foreign file that must not be used again are read once, aside if there is much to read."""
        if file.size > INLINE_READ_BYTES and not file.lines.ready:
            await aside(file.lines.prepare)
        tries = 0
        while file.behind() > len(file.torn) or file.unsettled_s() > 0:
            if (tries := tries + 1) > OWNER_TRIES:
                raise Busy(f"another program is writing {file.path}", hint="Close it there, then try again.")
            await asyncio.sleep(min(OWNER_LOOK_S, max(0.0, file.unsettled_s())))
            await self._refresh(file)
        file.check_unchanged()

    async def _make_durable(self, file: SessionFile, start: int, *, new: bool) -> None:
        done = self._syncer.request(file.fd)
        try:
            await done
            if new:
                await aside(lambda: sync_dir(file.path.parent))
        except BaseException as error:
            # After a failed sync the kernel may have dropped the pages: what was written never counted, and this
            # handle is not to be trusted any more.
            if isinstance(error, OSError) or (done.done() and done.exception() is not None):
                file.roll_back(start)
                self._drop(file.id)
            raise

    def _undo_creation(self, file: SessionFile) -> None:
        """Under the lock: a session that never came to be leaves no file."""
        if file.row is None and not file.gone() and os.fstat(file.fd).st_size == 0:
            file.path.unlink(missing_ok=True)
            self._drop(file.id)

    async def _refresh(self, file: SessionFile) -> None:
        """One at a time: a second look must not fold the same entries into the row again."""
        if not file.refreshing.locked() and file.behind() <= INLINE_READ_BYTES:
            file.refresh()
            return
        async with file.refreshing:
            await aside(file.refresh)

    def _flush_later(self) -> None:
        if self._flush is None:
            self._flush = asyncio.get_running_loop().call_later(FLUSH_AFTER_S, self._flush_now)

    def _flush_now(self) -> None:
        self._flush = None
        for shelf in self._shelves.values():
            try:
                shelf.flush()
            except OSError as error:
                # The announcements stand, so nothing is hidden; the rows come with the next flush.
                self._notice(Notice(what=str(unavailable("index rows not written", error)), where=str(shelf.folder)))

    async def read(
        self, session_id: str, *, after: int = 0, before: int | None = None, limit: int | None = None
    ) -> list[Entry]:
        file = await self._current(session_id)
        after, before, limit = window(after, before, limit)
        row = file.row
        small = row is not None and (row.last_seq - after) * file.size // max(1, row.last_seq) < INLINE_READ_BYTES
        with disk_errors(f"session {session_id} cannot be read"), file.in_use():
            if small:
                return file.read(after, before, limit)
            return await aside(lambda: file.read(after, before, limit))

    async def describe(self, session_id: str) -> Session:
        row = (await self._current(session_id)).row
        assert row is not None
        return row

    async def _current(self, session_id: str) -> SessionFile:
        file = self._file(session_id)
        with file.in_use():
            await self._refresh(file)
        if file.row is None:
            raise NotFound(f"there is no session {session_id}")
        return file

    async def find(self, query: Query) -> Page[Session]:
        queries.check(query)
        with disk_errors("sessions cannot be listed"):
            shelves = self._settled(query)
        one_agent = self._place.layout.arrangement == "agents" or query.agent is None
        if queries.is_plain(query) and query.sort == "newest" and len(shelves) == 1 and one_agent:
            return newest(query, shelves[0])
        rows = [kept.row for shelf in shelves for kept in candidates(query, shelf) if queries.matches(query, kept.row)]
        return page_of(query, rows)

    def _settled(self, query: Query) -> list[Shelf]:
        self._load_shelves()
        shelves = list(self._shelves.values())
        wanted = queries.agents(query)
        if wanted is not None and self._place.layout.arrangement == "agents":
            shelves = [self._shelves[agent] for agent in dict.fromkeys(wanted) if agent in self._shelves]
        for shelf in shelves:
            shelf.settle()
        return shelves

    async def search(self, words: str, *, scope: Query | None = None) -> list[Hit]:
        scope = queries.check(scope or Query())
        terms = search.terms(words)
        hits: list[Hit] = []
        with disk_errors("sessions cannot be searched"):
            rows = [
                (shelf, kept.row)
                for shelf in self._settled(scope)
                for kept in shelf.rows.values()
                if queries.matches(scope, kept.row)
            ]
            rows.sort(key=lambda item: (item[1].last_at, item[1].id), reverse=True)
            for shelf, row in rows:
                hits += await aside(partial(search_file, shelf.files.home(row.id), terms))
                if len(hits) >= scope.limit:
                    break
        return hits[: scope.limit]

    async def delete(self, session_id: str) -> None:
        turn = self._turns.setdefault(keys.check_session_id(session_id), asyncio.Lock())
        async with turn:
            with self._file(session_id).in_use() as file:
                await file_lock(file)
                try:
                    if file.gone():
                        raise NotFound(f"there is no session {session_id}")
                    with disk_errors(f"session {session_id} cannot be deleted"):
                        await self._unlink(file)
                finally:
                    file.unlock()
            self._drop(session_id)
        self._turns.pop(session_id, None)
        self._watchers.wake(session_id)

    async def _unlink(self, file: SessionFile) -> None:
        shelf = self._shelves[file.shelf]
        os.unlink(file.path)
        shelf.deleted(file.id)
        self._flush_later()
        if self._durable:
            await aside(lambda: sync_dir(shelf.folder))

    def lease(self, session_id: str, *, wait_s: float | None = None) -> AbstractAsyncContextManager[Lease]:
        return self._leases.take(keys.check_session_id(session_id), wait_s)

    async def abandoned(self) -> list[str]:
        return []

    def watch(self, session_id: str, *, after: int) -> AsyncIterator[Entry]:
        return self._watchers.follow(session_id, after, lambda seq: self._read_on(session_id, seq))

    def _ends(self, session_ids: Sequence[str]) -> dict[str, object]:
        found: dict[str, object] = {}
        for session_id in session_ids:
            with suppress(OSError):
                if (shelf := self._home(session_id)) is not None:
                    about = os.stat(shelf.files.path_of(session_id))
                    found[session_id] = (about.st_ino, about.st_size, about.st_mtime_ns)
        return found

    async def _read_on(self, session_id: str, after: int) -> list[Entry]:
        row = await self.describe(session_id)
        return await self.read(session_id, after=after, limit=1000) if row.last_seq > after else []

    async def reindex(self, progress: Progress | None = None) -> int:
        shelves = self._settled(Query())
        done = 0
        for n, shelf in enumerate(shelves, 1):
            done += shelf.adopt(await aside(shelf.scan))
            if progress:
                progress(n, len(shelves))
        return done

    async def close(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
        self._flush_now()
        self._watchers.close()
        self._leases.close()
        await asyncio.to_thread(self._publish)
        for session_id in list(self._files):
            self._files.pop(session_id).close()
        for shelf in self._shelves.values():
            try:
                shelf.close()
            except OSError as error:  # derived, and rebuilt when it is needed
                self._notice(Notice(what=str(unavailable("index not rewritten", error)), where=str(shelf.folder)))
        self.ledger.close()
        self._syncer.close()

    def _publish(self) -> None:
        for shelf in self._shelves.values():
            try:
                shelf.publish()
            except OSError as error:
                self._notice(Notice(what=str(unavailable("sessions.json not written", error)), where=str(shelf.folder)))


async def file_lock(file: SessionFile) -> None:
    """Held for one append only, so that a look now and then is enough; a waiting thread could not be called off."""
    pause = 0.0005
    while not file.try_lock():
        await asyncio.sleep(pause)
        pause = min(pause * 2, 0.02)
