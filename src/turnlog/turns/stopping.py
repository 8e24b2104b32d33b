"""Stops turns that run in another process: a request to stop is a fact in the ledger, which that process looks for.

Every process looks for such requests while a turn runs in it, and only then. A request names the end of the log at the
time it was made, so it never stops a turn that began later. It is kept for a while even if no process answers it: the
turn of a process that died runs again in another one, and is then stopped there.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from msgspec import Struct

from ..core.session import Session
from ..runtime.background import Loop
from ..sessions.reading import described
from ..stores import Ledger, Store, facts
from .stream import TurnStream

STOPS = "stops"
"""The ledger's space; the key is the session's id."""
REQUEST_TTL_S = 30.0
"""Longer than a takeover needs."""
LOOK_S = 0.3
"""The pause between checks while a turn runs: it is stopped within a second of the request. Each check is one cheap
lookup.
"""
LOOK_MAX_S = 5.0
"""The longest pause after failed checks."""
ANSWERED_S = 2.0
"""How long the requester waits until the other process has answered."""
ANSWERED_LOOK_S = 0.1


class StopRequest(Struct, frozen=True):
    seq: int
    """Turns that began after it go on."""
    incarnation: str | None = None
    """Of the session; None in requests of an older version."""

    def is_for(self, turn: TurnStream) -> bool:
        return turn.seq <= self.seq and self.incarnation in (None, turn.incarnation)


class RunningTurns(Protocol):
    """The running turns of this process (`Queue`)."""

    def under_way(self) -> Sequence[TurnStream]: ...
    def running(self, session_id: str) -> TurnStream | None: ...
    def stop(self, session_id: str) -> bool: ...
    def stop_paused(self, row: Session) -> bool: ...


async def stop_anywhere(store: Store, turns: RunningTurns, session_id: str) -> bool:
    """Whether there was a turn to stop, in this process or in another."""
    if turns.stop(session_id):
        return True
    if turns.running(session_id):
        return False  # it is stopping already
    row = await described(store, session_id)
    if row is None:
        return False
    if row.paused:
        return turns.stop_paused(row)
    if not (row.under_way or row.received):  # a preset may store no more of a running turn than what waited
        return False
    await ask(store.ledger, session_id, StopRequest(row.last_seq, row.incarnation))
    return await _is_answered(store.ledger, session_id)


async def ask(ledger: Ledger, session_id: str, request: StopRequest) -> None:
    """Asks the process that runs a turn of this session to stop it."""
    earlier = await ledger.get(STOPS, session_id)
    # If this fails, another process has just asked for the same.
    await ledger.cas(STOPS, session_id, earlier, facts.write(request), ttl_s=REQUEST_TTL_S)


async def _is_answered(ledger: Ledger, session_id: str) -> bool:
    end = time.monotonic() + ANSWERED_S
    while time.monotonic() < end:
        await asyncio.sleep(ANSWERED_LOOK_S)
        if await ledger.get(STOPS, session_id) is None:
            return True
    return False


class StopWatcher:
    """Stops the turns of this process that others ask to stop. Makes no calls while no turn runs here."""

    def __init__(self, ledger: Ledger, turns: RunningTurns) -> None:
        self._ledger = ledger
        self._turns = turns
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Called when a turn has begun. The watching ends with the last turn."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look_while_running(), name="looking for stops")

    async def _look_while_running(self) -> None:
        with Loop("stops", first_s=LOOK_S, max_s=LOOK_MAX_S) as loop:
            pause_s = LOOK_S
            while self._turns.under_way():
                await asyncio.sleep(pause_s)
                loop.begin()
                try:
                    await self.look()
                except Exception as error:  # noqa: BLE001 - it is reported, and the loop goes on
                    pause_s = loop.failed(error)
                else:
                    loop.succeeded()
                    pause_s = LOOK_S

    async def look(self) -> None:
        running = {turn.session_id: turn for turn in self._turns.under_way()}
        for fact in await self._ledger.list(STOPS) if running else ():
            request, turn = facts.read(STOPS, fact.key, fact.value, StopRequest), running.get(fact.key)
            if request is None or turn is None or not request.is_for(turn):
                continue
            if self._turns.stop(fact.key):
                await self._ledger.cas(STOPS, fact.key, fact.value, None)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
