"""Which sessions run a call of a client in this process; a call that has its answer is waited for, others are Busy."""

import asyncio
from contextlib import AsyncExitStack

from ..errors import Busy
from .asked import Asked
from .journal import Journal

ENDING_WAIT_S = 5.0
"""How long a call whose answer is stored may take to give back its lease."""
_ANSWERED = ("assistant", "call", "failed")


class RunningCall:
    """A call that holds the lease of its session in this process."""

    def __init__(self, asked: Asked) -> None:
        self._is_agent = asked.kind == "agent"
        self.journal: Journal | None = None
        self.over = asyncio.Event()

    @property
    def is_answered(self) -> bool:
        if self.journal is None:
            return False
        return self.journal.row.last_role in (("assistant", "failed") if self._is_agent else _ANSWERED)


class RunningCalls:
    def __init__(self) -> None:
        self._running: dict[str, RunningCall] = {}

    def is_busy(self, session_id: str) -> bool:
        """Whether a call runs there that has no answer yet."""
        running = self._running.get(session_id)
        return running is not None and not running.is_answered

    async def hold(self, asked: Asked, session_id: str, held: AsyncExitStack) -> RunningCall:
        """Marks the session as one that runs a call, once an answered call has left it."""
        while (before := self._running.get(session_id)) is not None:
            if not before.is_answered:
                raise Busy("a call is running in this session")
            try:
                async with asyncio.timeout(ENDING_WAIT_S):
                    await before.over.wait()
            except TimeoutError:
                raise Busy("a call is ending in this session") from None
        running = self._running[session_id] = RunningCall(asked)
        held.callback(self._release, session_id, running)
        return running

    def _release(self, session_id: str, running: RunningCall) -> None:
        del self._running[session_id]
        running.over.set()
