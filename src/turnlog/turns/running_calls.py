"""The calls for clients that hold the lease of their session in this process."""

import asyncio
from contextlib import AsyncExitStack

from ..errors import Busy
from .journal import Journal

ENDING_WAIT_S = 5.0
"""How long a call whose answer is stored may take to give back its lease."""
_ANSWERED = ("assistant", "call", "failed")
_TURN_ENDED = ("assistant", "failed")


class RunningCall:
    def __init__(self, *, is_turn: bool) -> None:
        self._ends = _TURN_ENDED if is_turn else _ANSWERED
        self.journal: Journal | None = None
        self.over = asyncio.Event()

    @property
    def is_answered(self) -> bool:
        return self.journal is not None and self.journal.row.last_role in self._ends


class RunningCalls:
    def __init__(self) -> None:
        self._calls: dict[str, RunningCall] = {}

    def is_busy(self, session_id: str) -> bool:
        """Whether a call without an answer runs in this session."""
        running = self._calls.get(session_id)
        return running is not None and not running.is_answered

    async def hold(
        self, session_id: str, held: AsyncExitStack, *, is_turn: bool, wait_s: float | None = None
    ) -> RunningCall:
        """Marks the session as one that runs a call, once an answered call has left it. `wait_s`: how long to wait
        also for one that has no answer yet.
        """
        while (before := self._calls.get(session_id)) is not None:
            if not before.is_answered and wait_s is None:
                raise Busy("a call is running in this session")
            try:
                async with asyncio.timeout(wait_s or ENDING_WAIT_S):
                    await before.over.wait()
            except TimeoutError:
                raise Busy("a call is ending in this session") from None
        running = self._calls[session_id] = RunningCall(is_turn=is_turn)
        held.callback(self._release, session_id, running)
        return running

    def _release(self, session_id: str, running: RunningCall) -> None:
        del self._calls[session_id]
        running.over.set()
