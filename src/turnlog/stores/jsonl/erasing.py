"""Erases entries of a JSONL store: from the transcript (`erase_notes`), and from everything derived from it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from msgspec.structs import replace

from ...core import erasing
from ...core.entries import Entry
from ...core.outline import for_erasing
from ...errors import NotFound, TurnlogError
from ...runtime.background import report
from .. import Clock
from ..disk.files import disk_errors
from ..disk.syncing import aside
from ..stamping import AskedErase, check_incarnation, timestamp
from . import erase_notes
from .erase_notes import EraseNote, EraseNotes
from .fact_index import FactIndexes
from .folders import FolderIndexes
from .open_files import OpenFiles, file_lock
from .searching import JsonlSearching
from .transcript import SessionFile

SHRINK_AFTER_S = 5.0
"""How long a file keeps the blanks of erased entries: several may be erased one after another."""


class JsonlEraser:
    """`append`: writes entries to a locked file. `file`: of an existing session. `refresh`: reads it on."""

    def __init__(
        self,
        notes: EraseNotes,
        *,
        append: Callable[[SessionFile, Sequence[Entry]], Awaitable[object]],
        file: Callable[[str], SessionFile],
        refresh: Callable[[SessionFile], Awaitable[None]],
        files: OpenFiles,
        folders: FolderIndexes,
        facts: FactIndexes,
        searching: JsonlSearching,
        stamps: Clock,
        durable: bool,
    ) -> None:
        self._notes = notes
        self._append = append
        self._file = file
        self._refresh = refresh
        self._files = files
        self._folders = folders
        self._facts = facts
        self._searching = searching
        self._stamps = stamps
        self._durable = durable
        self._shrinking: set[str] = set()
        """Sessions whose files hold blanks."""
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    async def erase(self, session_id: str, asked: AskedErase) -> list[int]:
        async with self._alone(session_id) as file:
            check_incarnation(file.row, session_id, asked.incarnation)
            outline = await aside(lambda: [*map(for_erasing, file.everything())])
            plan = erasing.plan(outline, asked.seqs, redact=asked.redact, by=asked.by)
            if not plan.emptied:
                return []
            at = timestamp(self._stamps())
            note = erase_notes.note_of(file, plan.emptied, [replace(body, ts=at) for body in plan.appended])
            if note.has_room:
                self._notes.write(file, note)
                await self._carry_out(file, note)
            else:
                await aside(lambda: self._write_anew(file, note))
        if not note.has_room:
            await self.finish(session_id)
        self._shrink_later(session_id)
        return plan.seqs

    def _write_anew(self, file: SessionFile, note: EraseNote) -> None:
        def ready(ino: int) -> None:
            self._notes.write(file, replace(note, ino=ino, lines=[]))

        erase_notes.write_anew(file, note.lines, ready)

    @asynccontextmanager
    async def _alone(self, session_id: str) -> AsyncGenerator[SessionFile]:
        """The file, locked and up to date, after earlier work on it is finished."""
        async with self._files.turn(session_id):
            while True:
                file = self._file(session_id)
                with file.in_use(), disk_errors(f"session {session_id} cannot be erased from"):
                    await file_lock(file)
                    try:
                        if file.behind() >= 0:
                            await self._refresh(file)
                            if (note := self._notes.read(file)) is not None:
                                await self._carry_out(file, note)
                            yield file
                            return
                    finally:
                        file.unlock()
                self._files.drop(session_id)

    async def _carry_out(self, file: SessionFile, note: EraseNote) -> None:
        """Everything that the note says, also if parts of it are done."""
        await aside(lambda: erase_notes.overwrite(file, note, durable=self._durable))
        later = [entry for scan in file.scans(file.seek(note.end + 1), note.end, file.size) for entry in scan.entries]
        if not erase_notes.is_appended(later, note):
            await self._append(file, note.bodies)
        await self._searching.drop_entries(file.id, note.seqs)
        self._facts.of(file.folder).purge(file.id)
        self._folders.get(file.folder).flush(erase=True)
        self._notes.remove(file.id)

    async def finish(self, session_id: str) -> None:
        """Finishes what a crash left of erasing in this session."""
        with suppress(NotFound):
            async with self._alone(session_id):
                pass

    async def finish_all(self) -> None:
        """At an opening of the store."""
        for session_id in self._notes.sessions():
            try:
                await self.finish(session_id)
            except TurnlogError as error:  # the next reader of the session tries again
                report("erasing", error)

    def _shrink_later(self, session_id: str) -> None:
        self._shrinking.add(session_id)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SHRINK_AFTER_S, self._shrink_now)

    def _shrink_now(self) -> None:
        self._timer = None
        self._task = asyncio.ensure_future(self._shrink_all())

    async def _shrink_all(self) -> None:
        while self._shrinking:
            session_id = self._shrinking.pop()
            try:
                with suppress(NotFound):
                    await self._shrink(session_id)
            except TurnlogError as error:  # the file stays as large as it was
                report("erasing", error)

    async def _shrink(self, session_id: str) -> None:
        async with self._alone(session_id) as file:
            if not await aside(lambda: erase_notes.is_worth_shrinking(file)):
                return
            await aside(lambda: erase_notes.write_anew(file, (), lambda ino: None))
        async with self._alone(session_id) as file:
            if file.row is not None:
                index = self._folders.get(file.folder)
                index.announce(session_id, new=False)
                index.update(file.row, file.size, file.ino)
                index.over(session_id)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task])
        await self._shrink_all()
