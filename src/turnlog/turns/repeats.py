"""Which calls may be asked for again: those whose client went away before it had the whole answer.

Whether an answer was delivered is known to the process that wrote it. Elsewhere, and after a restart, an answer that is
younger than REPEATS_S counts as not delivered, for clients that name their conversation.
"""

from collections.abc import Callable

from ..core.path import Path
from ..core.rows import milliseconds

REPEATS_S = 120
"""How long an answer can be asked for again: clients repeat within seconds, and wait for a minute at most."""
KEPT_CALLS = 10_000
"""Calls that are remembered in memory; those of 120 seconds are far fewer."""


class _Delivery:
    def __init__(self) -> None:
        self.ended: int | None = None
        self.is_lost = False
        self.is_whole = False


class Repeats:
    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._calls: dict[tuple[str, int], _Delivery] = {}

    def begin(self, session_id: str, turn: int) -> None:
        self._calls[session_id, turn] = _Delivery()
        while len(self._calls) > KEPT_CALLS:
            self._calls.pop(next(iter(self._calls)))

    def end(self, session_id: str, turn: int) -> None:
        if call := self._calls.get((session_id, turn)):
            call.ended = self._clock()

    def left(self, session_id: str, turn: int, *, whole: bool) -> None:
        if call := self._calls.get((session_id, turn)):
            call.is_whole = call.is_whole or whole
            call.is_lost = call.is_lost or not whole

    def lost(self) -> list[str]:
        """Sessions with a call of this process that may be asked for again."""
        return [session_id for (session_id, _), call in self._calls.items() if self._is_lost(call)]

    def _is_lost(self, call: _Delivery) -> bool:
        is_old = call.ended is not None and self._clock() - call.ended > REPEATS_S * 1000
        return call.is_lost and not call.is_whole and not is_old

    def is_open(self, path: Path, *, named: bool, runs: bool) -> bool:
        """Whether the newest call in this session may be asked for again. `runs`: whether it has no answer yet."""
        asked = path.call
        if asked is None:
            return False
        if call := self._calls.get((path.session_id, asked.turn)):
            return self._is_lost(call)
        is_answered = path.role == "assistant" or (path.role == "call" and asked.turn_after is None)
        age = self._clock() - milliseconds(path.answered_at if is_answered else asked.ts)
        return named and (is_answered or runs) and age <= REPEATS_S * 1000
