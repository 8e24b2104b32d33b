"""The transcripts that a JSONL store keeps open between calls, and who of this process may write to each."""

import asyncio
from collections import OrderedDict

from ...core.keys import check_session_id
from ..disk.syncing import aside
from .transcript import SessionFile

INLINE_READ_BYTES = 256 * 1024
"""Larger reads run in a thread."""
OPEN_FILES_MAX = 256
"""Transcripts kept open between appends; beyond this, the longest unused ones are closed."""


class OpenFiles:
    def __init__(self) -> None:
        self._files: OrderedDict[str, SessionFile] = OrderedDict()
        self._turns: dict[str, asyncio.Lock] = {}

    def known(self, session_id: str) -> SessionFile | None:
        """The open file; its session may have been deleted meanwhile."""
        return self._files.get(session_id)

    def get(self, session_id: str) -> SessionFile | None:
        """The open file of an existing session."""
        file = self._files.get(session_id)
        if file is None:
            return None
        if file.gone():
            self.drop(session_id)
            return None
        self._files.move_to_end(session_id)
        return file

    def keep(self, file: SessionFile) -> SessionFile:
        self._files[file.id] = file
        if len(self._files) > OPEN_FILES_MAX:
            idle = next((name for name in self._files if not self._is_taken(name)), None)
            if idle is not None and idle != file.id:
                self.drop(idle)
        return file

    def drop(self, session_id: str) -> None:
        file = self._files.pop(session_id, None)
        if file is not None:
            file.close()
        if not self._is_taken(session_id):
            self._turns.pop(session_id, None)

    def turn(self, session_id: str) -> asyncio.Lock:
        """Held while this process writes to the file."""
        turn = self._turns.get(session_id)
        if turn is None:
            turn = self._turns.setdefault(check_session_id(session_id), asyncio.Lock())
        return turn

    def forget_turn(self, session_id: str) -> None:
        self._turns.pop(session_id, None)

    def _is_taken(self, session_id: str) -> bool:
        turn = self._turns.get(session_id)
        return turn is not None and turn.locked()

    def close(self) -> None:
        while self._files:
            self._files.popitem()[1].close()


async def file_lock(file: SessionFile) -> None:
    """The lock is held for one append only, so polling is enough; a waiting thread could not be cancelled."""
    pause = 0.0005
    while not file.try_lock():
        await asyncio.sleep(pause)
        pause = min(pause * 2, 0.02)


async def read_on(file: SessionFile) -> None:
    """Reads what was appended since. One at a time: a second one must not add the same entries to the row again."""
    if not file.refreshing.locked() and file.behind() <= INLINE_READ_BYTES:
        file.refresh()
        return
    async with file.refreshing:
        await aside(file.refresh)
