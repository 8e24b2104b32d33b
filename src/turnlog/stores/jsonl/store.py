"""The JSONL store: one readable file per session; everything else is derived from these files.

`layouts` says where the files of Turnlog or another program are. Turnlog continues each file in the dialect it was
written in.

Many processes may use one directory. An append takes the file's lock, drops what a crash left incomplete, writes once
and syncs. Its cost does not depend on the number of sessions or the length of this one. `folder_index` is derived.
"""

import asyncio
import errno
import logging
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path

from ...core import facts as session_facts, keys, query as queries, search
from ...core.entries import Entry
from ...core.facts import ExpectedFact, Fact
from ...core.query import Hit, Page, Query
from ...core.session import Session
from ...errors import Conflict, Corrupt, NotFound
from ...runtime.background import report
from .. import OWN_LEASE_WAIT_S, Appended, Clock, GivenLease, Lease, Notice, Progress, boundary
from ..disk import leases
from ..disk.files import disk_errors, make_dir, sync_dir, unavailable
from ..disk.syncing import Syncer, aside
from ..finding import Searcher
from ..in_memory import page_of
from ..stamping import AskedAppend, AskedErase, check_incarnation, now_ms, rising, window
from ..watching import Watchers
from .appending import JsonlAppender
from .erase_notes import EraseNotes
from .erasing import JsonlEraser
from .fact_index import FactIndexes
from .folders import FolderIndexes
from .layouts import Place, place_at
from .ledger import JsonlLedger
from .listing import candidates, newest
from .open_files import INLINE_READ_BYTES, OpenFiles, file_lock, read_on
from .publishing import check_ours, mark
from .searching import JsonlLooking, JsonlSearching
from .transcript import SessionFile
from .word_file import WordFile

log = logging.getLogger("turnlog.stores.jsonl")

LOOKS_MAX = 20
"""Looks at a file that others append to; each one that fails means that another process has succeeded."""
FLUSH_AFTER_S = 0.5
"""How long index rows may wait after an append; its announcement never waits."""


@boundary.store
class JsonlStore:
    def __init__(
        self,
        root: Path,
        place: Place,
        durability: str,
        clock: Clock | None,
        on_notice: Callable[[Notice], None] | None,
        progress: Progress | None,
        read_only: bool,
    ) -> None:
        self._root = root
        self._read_only = read_only
        self._place = place
        self._clock = clock or now_ms
        self._stamps = rising(clock)
        self._durable = durability == "full"
        self._syncer = Syncer()
        self._on_notice = on_notice
        self._folders = FolderIndexes(
            place, durable=self._durable, notice=self._notice, progress=progress, read_only=read_only
        )
        self._facts = FactIndexes(lambda folder: None if read_only else place.facts(folder))
        self._files = OpenFiles()
        self._leases = leases.FileLeases(place.own / "leases", root)
        self._watchers = Watchers(ends=self._ends)
        self._searching = JsonlSearching(WordFile(place.words_folder(read_only=read_only)), self._folders.holder)
        self._appender = JsonlAppender(
            place,
            self._files,
            self._folders,
            self._facts,
            file=self._file,
            on_appended=self._after_append,
            notice=self._notice,
            clock=self._clock,
            stamps=self._stamps,
            syncer=self._syncer if self._durable else None,
        )
        self._eraser = self._make_eraser()
        self._searcher = Searcher(self.read)
        self._flush: asyncio.TimerHandle | None = None
        self.ledger = JsonlLedger(
            place.own / "ledger.jsonl",
            clock=self._clock,
            syncer=self._syncer if self._durable else None,
            notice=self._notice,
            make=self._make_ledger if place.layout.foreign or read_only else None,
            read_only=read_only,
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
        read_only: bool = False,
    ) -> "JsonlStore":
        """`read_only`: nothing is written; every change is refused as StoreUnavailable."""
        root = Path(path).expanduser().absolute()
        with disk_errors(f"the store {path} cannot be opened"):
            place = await asyncio.to_thread(place_at, root, layout, dialect)
            store = cls(root, place, durability, clock, on_notice, progress, read_only)
            await asyncio.to_thread(store._open)
        if not read_only:
            await store._eraser.finish_all()
        return store

    def _open(self) -> None:
        if not self._read_only:
            make_dir(self._root)
            check_ours(self._place, self._root, durable=self._durable)
        self.ledger.open()
        if not self._place.layout.foreign and not self._read_only:
            make_dir(self._root / "agents")
        self._folders.load()

    def _make_eraser(self) -> JsonlEraser:
        return JsonlEraser(
            EraseNotes(self._place.own / "erasing", durable=self._durable),
            append=lambda file, bodies: self._appender.append_locked(
                file, 0, AskedAppend(bodies, None, None, None, True)
            ),
            file=self._file,
            refresh=read_on,
            files=self._files,
            folders=self._folders,
            facts=self._facts,
            searching=self._searching,
            stamps=self._stamps,
            durable=self._durable,
        )

    def _make_ledger(self) -> None:
        if self._read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        mark(self._place, durable=self._durable)

    def _notice(self, notice: Notice) -> None:
        log.warning("%s (%s)", notice.what, notice.where)
        if self._on_notice:
            self._on_notice(notice)

    def _file(self, session_id: str) -> SessionFile:
        """The file of an existing session, kept open if possible."""
        if (file := self._files.get(session_id)) is not None:
            return file
        keys.check_session_id(session_id)
        index = self._folders.home(session_id)
        if index is None:
            raise NotFound(f"there is no session {session_id}")
        file = SessionFile.open(index.files.home(session_id), create=False)
        if (kept := index.rows.get(session_id)) is not None:
            file.adopt(kept.row, kept.size, kept.ino)
        return self._files.keep(file)

    async def append(
        self,
        session_id: str,
        bodies: Sequence[Entry],
        *,
        expect: int | None = None,
        expect_fact: ExpectedFact | None = None,
        lease: GivenLease | None = None,
        incarnation: str | None = None,
    ) -> Appended:
        asked = AskedAppend(bodies, expect, expect_fact, incarnation, lease is not None)
        if lease == "own":
            keys.check_session_id(session_id)
            async with self._leases.take(session_id, OWN_LEASE_WAIT_S):
                return await self._appender.append(session_id, asked)
        leases.check(lease, session_id)
        return await self._appender.append(session_id, asked)

    def _after_append(self, session_id: str) -> None:
        self._flush_later()
        self._searching.index_later(session_id)
        self._watchers.wake(session_id)

    def _flush_later(self) -> None:
        if self._flush is None:
            self._flush = asyncio.get_running_loop().call_later(FLUSH_AFTER_S, self._flush_now)

    def _flush_now(self) -> None:
        self._flush = None
        self._facts.flush()
        for index in self._folders.all():
            try:
                index.flush()
            except Exception as error:  # noqa: BLE001 - it is reported, and the others are flushed
                # The announcements remain, so nothing is hidden; the rows are written with the next flush.
                self._notice(Notice(what=f"index rows not written ({error})", where=str(index.folder)))
                report("index", error)

    async def read(
        self,
        session_id: str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        incarnation: str | None = None,
    ) -> list[Entry]:
        after, before, limit = window(after, before, limit)
        try:
            return await self._read(session_id, after, before, limit, incarnation)
        except Corrupt:
            if self._read_only:
                raise
            await self._eraser.finish(session_id)  # the line may be one that is being erased
            return await self._read(session_id, after, before, limit, incarnation)

    async def _read(
        self, session_id: str, after: int, before: int | None, limit: int | None, incarnation: str | None
    ) -> list[Entry]:
        file = await self._current(session_id, incarnation)
        row = file.row
        small = row is not None and (row.last_seq - after) * file.size // max(1, row.last_seq) < INLINE_READ_BYTES
        with disk_errors(f"session {session_id} cannot be read"), file.in_use():
            if small:
                return file.read(after, before, limit)
            return await aside(lambda: file.read(after, before, limit))

    async def describe(self, session_id: str, *, incarnation: str | None = None) -> Session:
        file = await self._current(session_id, incarnation)
        assert file.row is not None
        return self._folders.get(file.folder).files.titled(file.row)

    async def facts(
        self,
        session_id: str,
        app: str,
        *,
        keys: Sequence[str] = (),
        prefix: str = "",
        last: bool = False,
        limit: int | None = None,
        incarnation: str | None = None,
    ) -> list[Fact]:
        wanted = session_facts.choice(app, keys, prefix, last, limit)
        for _ in range(LOOKS_MAX):
            file = await self._current(session_id, incarnation)
            with disk_errors(f"session {session_id} cannot be read"), file.in_use():
                if (found := await self._facts.find(file, wanted)) is not None:
                    return found
        raise Conflict(f"too many changes of session {session_id} at once")

    async def _current(self, session_id: str, incarnation: str | None) -> SessionFile:
        """The file of the expected session: everything read from it belongs to that incarnation."""
        file = self._file(session_id)
        with file.in_use():
            await read_on(file)
        check_incarnation(file.row, session_id, incarnation)
        return file

    async def find(self, query: Query) -> Page[Session]:
        queries.check(query)
        with disk_errors("sessions cannot be listed"):
            indexes = self._folders.settled(query)
        one_agent = self._place.layout.arrangement == "agents" or query.agent is None
        if queries.is_plain(query) and query.sort == "newest" and len(indexes) == 1 and one_agent:
            return newest(query, indexes[0])
        matches = queries.matcher(query)
        return page_of(query, [kept.row for index in indexes for kept in candidates(query, index) if matches(kept.row)])

    async def search(self, words: str, *, scope: Query | None = None, before: int | None = None) -> list[Hit]:
        scope = queries.check(scope or Query())
        search.understand(words)  # a query that nobody can answer costs nothing
        with disk_errors("sessions cannot be searched"):
            indexes = self._folders.settled(scope)
            is_all = len(indexes) == len(self._folders.all())
            looking = JsonlLooking(self._searching, indexes, scope, before, is_all=is_all)
            return await self._searcher.search(words, scope, looking)

    async def delete(self, session_id: str, *, incarnation: str | None = None) -> None:
        turn = self._files.turn(session_id)
        async with turn:
            with self._file(session_id).in_use() as file:
                await file_lock(file)
                try:
                    if file.gone():
                        raise NotFound(f"there is no session {session_id}")
                    await read_on(file)
                    if incarnation is not None:
                        check_incarnation(file.row, session_id, incarnation)
                    with disk_errors(f"session {session_id} cannot be deleted"):
                        await self._unlink(file)
                        await self._searching.drop(session_id)
                finally:
                    file.unlock()
            self._files.drop(session_id)
        self._files.forget_turn(session_id)
        self._watchers.wake(session_id)

    async def erase(
        self,
        session_id: str,
        seqs: Sequence[int],
        *,
        redact: bool = False,
        by: str = "",
        lease: Lease | None = None,
        incarnation: str | None = None,
    ) -> list[int]:
        own = self._leases.take(keys.check_session_id(session_id), OWN_LEASE_WAIT_S) if redact else None
        async with leases.held(lease, session_id, own):
            return await self._eraser.erase(session_id, AskedErase(seqs, redact, by, incarnation))

    async def _unlink(self, file: SessionFile) -> None:
        index = self._folders.get(file.folder)
        os.unlink(file.path)
        index.deleted(file.id, file.row.incarnation if file.row else "")
        self._facts.of(file.folder).deleted(file.id)
        self._flush_later()
        if self._durable:
            await aside(lambda: sync_dir(index.folder))

    def lease(
        self, session_id: str, *, wait_s: float | None = None, with_append: bool = False
    ) -> AbstractAsyncContextManager[Lease]:
        return self._leases.take(keys.check_session_id(session_id), wait_s)

    async def abandoned(self) -> list[str]:
        return []

    def watch(self, session_id: str, *, after: int, incarnation: str | None = None) -> AsyncIterator[Entry]:
        return self._watchers.follow(self, session_id, after, incarnation)

    def _ends(self, session_ids: Sequence[str]) -> dict[str, object]:
        found: dict[str, object] = {}
        for session_id in session_ids:
            with suppress(OSError):
                if (index := self._folders.home(session_id)) is not None:
                    about = os.stat(index.files.path_of(session_id))
                    found[session_id] = (about.st_ino, about.st_size, about.st_mtime_ns)
        return found

    async def reindex(self, progress: Progress | None = None) -> int:
        indexes = self._folders.settled(Query())
        done = 0
        for n, index in enumerate(indexes, 1):
            done += index.adopt(await aside(index.scan))
            for session_id in self._facts.of(index.name).forget_all():
                if index.holds(session_id):
                    await self._facts.up_to_date(await self._current(session_id, None))
            if progress:
                progress(n, len(indexes))
        await self._searching.forget_all()
        await self._searching.index([name for index in indexes for name in index.rows])
        return done

    async def close(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
        await self._eraser.close()
        await self._searching.close()
        self._flush_now()
        self._watchers.close()
        self._leases.close()
        await aside(self._publish)
        self._files.close()
        for index in self._folders.all():
            try:
                index.close()
            except OSError as error:  # derived, and rebuilt when it is needed
                self._notice(Notice(what=str(unavailable("index not rewritten", error)), where=str(index.folder)))
        self._facts.close()
        self.ledger.close()
        self._syncer.close()

    def _publish(self) -> None:
        for index in self._folders.all():
            try:
                if not index.was_removed:
                    index.refresh()
                    index.publish()
            except OSError as error:
                self._notice(Notice(what=str(unavailable("sessions.json not written", error)), where=str(index.folder)))
