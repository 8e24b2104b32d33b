"""Appends entries to the file of a session: lock, read on, admit, announce, write, sync.

An append that fails leaves the file as it was, and a session that was not created after all leaves no file.
"""

import asyncio
import os
from collections.abc import Callable, Sequence

from ...core import facts as session_facts
from ...core.admission import admit
from ...core.entries import Entry, Opened
from ...errors import Busy, NotFound
from .. import Appended, Clock, Notice
from ..disk.files import disk_errors, sync_dir, unavailable
from ..disk.syncing import Syncer, aside
from ..stamping import AskedAppend, check_expected, check_named, stamp
from .fact_index import NOTHING, FactIndexes, end_of
from .folders import FolderIndexes
from .layouts import Place
from .open_files import INLINE_READ_BYTES, OpenFiles, file_lock, read_on
from .transcript import SessionFile

PASS_EVERY = 64


OWNER_LOOK_S = 0.1


OWNER_TRIES = 100
"""How often an append checks again while another program seems to be writing the file, before it raises Busy."""


class JsonlAppender:
    """`file`: of an existing session. `on_appended`: called with its id after each append. `syncer`: if appends
    are synced.
    """

    def __init__(
        self,
        place: Place,
        files: OpenFiles,
        folders: FolderIndexes,
        facts: FactIndexes,
        *,
        file: Callable[[str], SessionFile],
        on_appended: Callable[[str], None],
        notice: Callable[[Notice], None],
        clock: Clock,
        stamps: Clock,
        syncer: Syncer | None,
    ) -> None:
        self._place = place
        self._files = files
        self._folders = folders
        self._facts = facts
        self._file = file
        self._on_appended = on_appended
        self._notice = notice
        self._clock = clock
        self._stamps = stamps
        self._syncer = syncer
        self._streak = 0

    async def append(self, session_id: str, asked: AskedAppend) -> Appended:
        self._streak += 1
        if not self._streak % PASS_EVERY:
            await asyncio.sleep(0)  # a series of appends without waiting must not keep the loop from its sockets
        turn = self._files.turn(session_id)
        async with turn:
            while True:
                file = self._files.known(session_id) or self._file_for(session_id, asked.bodies)
                with file.in_use():
                    if not file.try_lock():
                        await file_lock(file)
                    try:
                        # Deleted while we waited: check again, and create it if that was asked for.
                        if (behind := file.behind()) >= 0:
                            return await self.append_locked(file, behind, asked)
                    except OSError as error:
                        self._undo_creation(file)
                        raise unavailable(f"session {session_id} cannot be written", error) from error
                    except BaseException:
                        self._undo_creation(file)
                        raise
                    finally:
                        file.unlock()
                self._files.drop(session_id)

    def _file_for(self, session_id: str, bodies: Sequence[Entry]) -> SessionFile:
        try:
            return self._file(session_id)
        except NotFound:
            first = bodies[0] if bodies else None
            if not isinstance(first, Opened):
                raise
        check_named(session_id, bodies)
        with disk_errors(f"session {session_id} cannot be created"):
            index = self._folders.get(self._place.folder_for(first))
            opened = stamp([first], 0, self._clock())[0]
            assert isinstance(opened, Opened)
            return self._files.keep(SessionFile.open(index.files.new_home(opened), create=True))

    async def append_locked(self, file: SessionFile, behind: int, asked: AskedAppend) -> Appended:
        if behind or file.refreshing.locked():
            await read_on(file)
        before = file.row
        check_expected(before, file.id, asked)
        if asked.expect_fact is not None:
            await self._facts.check(file, asked.expect_fact)
        bodies = admit(before, asked.bodies, leased=asked.leased)
        entries = stamp(bodies, file.last_seq, self._stamps())
        if file.lines.foreign:
            await self._prepare(file)
        data = file.encode(entries)
        row = file.row_after(entries)
        if file.torn:
            self._notice(
                Notice(
                    what=f"{len(file.torn)} bytes of a torn append dropped", where=str(file.path), session_id=file.id
                )
            )
        index = self._folders.get(file.folder)
        index.announce(file.id, new=before is None)
        facts = self._facts.of(file.folder)
        changes = session_facts.changes(entries)
        ended = NOTHING if before is None else end_of(file)
        try:
            start = file.write(data)
            if self._syncer is not None:
                await self._make_durable(file, self._syncer.request(file.fd), start, new=before is None)
            # Set, not added: a reader may have read the file while it was being synced.
            file.row, file.extent = row, (start + len(data), row.last_seq)
            index.update(row, file.size, file.ino)
        finally:
            index.over(file.id)
        if changes or facts.is_open:
            facts.written(file, ended, changes)
        self._on_appended(file.id)
        return Appended(entries, index.files.titled(row))

    async def _prepare(self, file: SessionFile) -> None:
        """Reads the ids of a foreign file once, which must not be used again; in a thread if the file is large."""
        if file.size > INLINE_READ_BYTES and not file.lines.ready:
            await aside(file.lines.prepare)
        tries = 0
        while file.behind() > len(file.torn) or file.unsettled_s() > 0:
            if (tries := tries + 1) > OWNER_TRIES:
                raise Busy(f"another program is writing {file.path}", hint="Close that program, then try again.")
            await asyncio.sleep(min(OWNER_LOOK_S, max(0.0, file.unsettled_s())))
            await read_on(file)
        file.check_unchanged()

    async def _make_durable(self, file: SessionFile, done: asyncio.Future[None], start: int, *, new: bool) -> None:
        try:
            await done
            if new:
                await aside(lambda: sync_dir(file.path.parent))
        except BaseException as error:
            # After a failed sync the kernel may have dropped the pages: the append does not count, and this handle
            # cannot be trusted any more.
            if isinstance(error, OSError) or (done.done() and done.exception() is not None):
                file.roll_back(start)
                self._files.drop(file.id)
            raise

    def _undo_creation(self, file: SessionFile) -> None:
        """Under the lock: removes the file of a session that was not created after all."""
        if file.row is None and not file.gone() and os.fstat(file.fd).st_size == 0:
            file.path.unlink(missing_ok=True)
            self._files.drop(file.id)
