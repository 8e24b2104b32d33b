"""Which calls a client may repeat: those whose client disconnected before it had the whole answer.

Whether an answer was delivered is known to the process that wrote it. Elsewhere, and after a restart, an answer that is
younger than REPEATS_S counts as not delivered, for clients that name their conversation.

What was written may still not have arrived: a socket takes a whole answer, and a proxy cuts it. Then the repeat itself
tells: SDKs count their retries in a header, Claude Code asks without a stream for what it asked with one, and Codex
names the turn that it asks for.
"""

from collections.abc import Callable

from msgspec import Struct

from ..core.path import Path
from ..core.rows import milliseconds

REPEATS_S = 120
"""How long an answer can be asked for again: clients repeat within seconds, and wait for a minute at most."""
RETRIED_S = 10
"""How long an answer that was written to its end can be asked for again: SDKs wait up to 8 seconds between two tries.
"""
KEPT_CALLS = 10_000
"""Calls that are remembered in memory; those of 120 seconds are far fewer."""


class Signs(Struct, frozen=True):
    """What tells whether a request repeats another one."""

    ask: str
    is_stream: bool = False
    is_retry: bool = False
    """Whether the client says that it asks again."""
    turn: str = ""
    """The client's own id of its turn, if it names one: within a turn it asks the same only once."""


class _Delivery:
    def __init__(self, signs: Signs) -> None:
        self.signs = signs
        self.ended: int | None = None
        self.is_lost = False
        self.is_whole = False


class Repeats:
    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._calls: dict[tuple[str, int], _Delivery] = {}

    def begin(self, session_id: str, turn: int, signs: Signs) -> None:
        self._calls[session_id, turn] = _Delivery(signs)
        while len(self._calls) > KEPT_CALLS:
            self._calls.pop(next(iter(self._calls)))

    def end(self, session_id: str, turn: int) -> None:
        if call := self._calls.get((session_id, turn)):
            call.ended = self._clock()

    def left(self, session_id: str, turn: int, *, whole: bool) -> None:
        if call := self._calls.get((session_id, turn)):
            call.is_whole = call.is_whole or whole
            call.is_lost = call.is_lost or not whole

    def lost(self, signs: Signs) -> list[str]:
        """Sessions with a call of this process that this request may repeat."""
        return [session_id for (session_id, _), call in self._calls.items() if self._is_lost(call, signs)]

    def _is_lost(self, call: _Delivery, signs: Signs) -> bool:
        if self._is_old(call):
            return False
        if signs.turn and (signs.turn, signs.ask) == (call.signs.turn, call.signs.ask):
            return True
        return (call.is_lost and not call.is_whole) or (call.is_whole and self._is_asked_again(call.signs, signs))

    def _is_asked_again(self, before: Signs, now: Signs) -> bool:
        """Of several equal calls nobody knows which one was cut."""
        if before.ask != now.ask or not (now.is_retry or (before.is_stream and not now.is_stream)):
            return False
        recent = [call for call in self._calls.values() if call.signs.ask == now.ask and not self._is_old(call)]
        return len(recent) == 1 and not self._is_old(recent[0], RETRIED_S)

    def _is_old(self, call: _Delivery, after_s: int = REPEATS_S) -> bool:
        return call.ended is not None and self._clock() - call.ended > after_s * 1000

    def is_open(self, path: Path, signs: Signs, *, named: bool, runs: bool) -> bool:
        """Whether the newest call in this session may be asked for again. `runs`: whether it has no answer yet."""
        asked = path.call
        if asked is None or path.is_cut_short:
            return False
        if call := self._calls.get((path.session_id, asked.turn)):
            return self._is_lost(call, signs)
        is_answered = path.role == "assistant" or (path.role == "call" and not asked.is_turn)
        age = self._clock() - milliseconds(path.answered_at if is_answered else asked.ts)
        return named and (is_answered or runs) and age <= REPEATS_S * 1000
