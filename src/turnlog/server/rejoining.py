"""Coming back to a turn: every event once and in order while its process lives; after that, what the log says of it.

Where a client holds something that this process did not tell it (the server was restarted, or another one answers), it
first gets one `snapshot` for each stored message of the turn: the first of them replaces what it holds of the turn.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from typing import cast

from ..core.entries import Assistant, Entry, Failed, Received, ToolResult, User, text_of, tool_uses
from ..core.events import Done, ErrorEvent, Event, Snapshot, Stopped
from ..core.session import Session
from ..errors import Busy, NotFound
from ..live import Live
from ..queue import Queue
from ..stores import Store
from . import sse
from .sse import Place
from .turns import Turns

LOOK_S = 0.5
"""Between two looks at what is not written: leases, and turns of this process. What is written is seen sooner."""
INTERRUPTED = ErrorEvent(error="the turn was cut short", code="interrupted", hint="Send the message again.")
GONE = ErrorEvent(error="the session was deleted", code="deleted", hint="Begin a new one.")


class Rejoining:
    def __init__(self, store: Store, queue: Queue, turns: Turns) -> None:
        self._store = store
        self._queue = queue
        self._turns = turns

    async def frames(self, session_id: str, after: Place | None) -> AsyncGenerator[bytes]:
        """Up to a terminal event; `idle` if nothing runs and nothing is left to tell."""
        if after is not None and await self._is_untold(session_id, after):
            told = self._turn(session_id, after)
        else:
            told = self._newest(session_id)
        async with aclosing(told):
            async for chunk in told:
                yield chunk

    async def of_turn(self, session_id: str, seq: int) -> AsyncGenerator[bytes]:
        """A turn from its beginning, for one who holds nothing of it."""
        live = self._turns.around(session_id, seq)
        told = self.follow(live) if live else self._from_log(session_id, seq)
        async with aclosing(told):
            async for chunk in told:
                yield chunk

    async def follow(self, live: Live, after: int = 0) -> AsyncGenerator[bytes]:
        """A turn of this process to its end, also if another process had to take it over."""
        async for chunk in sse.follow(live, after):
            yield chunk
        if live.fenced:
            async for chunk in self._from_log(live.session_id, live.seq):
                yield chunk

    async def _is_untold(self, session_id: str, after: Place) -> bool:
        """Whether there is such a turn, and something of it that the client may not have."""
        if after.n == sse.ENDED or after.turn < 1:
            return False
        if live := self._turns.get(session_id, after.turn):
            return not (live.over and after.n == live.first + len(live.events) - 1)
        found = await self._store.read(session_id, after=after.turn - 1, limit=1)
        return bool(found) and isinstance(found[0], User | Received)

    async def _turn(self, session_id: str, after: Place) -> AsyncGenerator[bytes]:
        live = self._turns.get(session_id, after.turn)
        if live is None:
            told = self._from_log(session_id, after.turn)
        elif live.first <= after.n < live.first + len(live.events):
            told = self.follow(live, after.n - live.first + 1)
        else:
            told = self._anew(live)
        async with aclosing(told):
            async for chunk in told:
                yield chunk

    async def _newest(self, session_id: str) -> AsyncGenerator[bytes]:
        while True:
            if live := self._turns.running(session_id):
                told = self.follow(live)
                break
            try:
                row = await self._store.describe(session_id)
            except NotFound:
                yield sse.frame(GONE)
                return
            if row.under_way:
                told = self._from_log(session_id, await self._newest_turn(row))
                break
            if not row.under_way and not row.received:
                yield sse.frame({"type": "idle"})
                return
            await self.news(session_id, row.last_seq)  # it is about to begin
        async with aclosing(told):
            async for chunk in told:
                yield chunk

    async def _newest_turn(self, row: Session) -> int:
        entries = await self._store.read(row.id, after=row.read_from - 1)
        starts = [entry.seq for index, entry in enumerate(entries) if _begins(entries, index)]
        return starts[-1] if starts else row.last_seq

    async def _from_log(self, session_id: str, turn: int) -> AsyncGenerator[bytes]:
        """What is stored of the turn, then what comes: from the log, or live if it is begun again here."""
        at = f"{turn}-{sse.HELD_NOTHING}"
        told = False
        shown = turn
        while True:
            try:
                entries = await self._store.read(session_id, after=turn - 1)
            except NotFound:
                yield sse.frame(GONE)
                return
            entries, end = _only_turn(entries), entries[-1].seq if entries else 0
            for entry in entries:
                if isinstance(entry, Assistant) and entry.seq > shown and (text := text_of(entry.content)):
                    shown, told = entry.seq, True
                    yield sse.frame(Snapshot(text=text), at=at)
            if not told:
                told = True
                yield sse.frame(Snapshot(text=""), at=at)
            if live := self._turns.get(session_id, turn):
                async for chunk in self._anew(live):
                    yield chunk
                return
            if last := await self._end(session_id, entries, end):
                yield sse.frame(last, at=f"{turn}-{sse.ENDED}")
                return
            await self.news(session_id, end)

    async def _anew(self, live: Live) -> AsyncGenerator[bytes]:
        """The whole turn, for one who holds something else of it."""
        yield sse.frame(Snapshot(text=""), at=f"{live.seq}-{sse.HELD_NOTHING}")
        async for chunk in self.follow(live):
            yield chunk

    async def _end(self, session_id: str, turn: Sequence[Entry], end: int) -> Event | None:
        """The terminal event of a turn that is over; None while it is under way, or about to be begun again.

        `end`: of the log, as far as it was read.
        """
        match next((e for e in reversed(turn) if isinstance(e, User | Assistant | ToolResult | Failed)), None):
            case Assistant(stop="interrupted"):
                return Stopped()
            case Assistant() as answer if not tool_uses(answer):
                row = await self._store.describe(session_id)
                return Done(session_id=row.id, token_estimate=row.token_estimate, title=row.title)
            case Failed(code="stopped"):
                return Stopped()
            case Failed() as failed:
                cut = failed.code == "interrupted" and end == turn[-1].seq
                return (
                    None
                    if cut and await self._is_begun_again(session_id, end)
                    else ErrorEvent(error=failed.reason, code=failed.code, hint=INTERRUPTED.hint)
                )
            case None:
                return INTERRUPTED
            case _:
                # From the same look: by the next one, the turn may be over and its answer stored.
                return None if end == turn[-1].seq else INTERRUPTED

    async def _is_begun_again(self, session_id: str, end: int) -> bool:
        """Who marks a turn as cut has the lease, and keeps it while the turn runs once more, on whatever server."""
        if self._queue.is_busy(session_id):
            return True
        try:
            async with self._store.lease(session_id, wait_s=0):
                return (await self._store.describe(session_id)).last_seq > end
        except Busy:
            return True

    async def news(self, session_id: str, after: int) -> None:
        """Returns when something was written after that seq, or after a while."""
        watching = cast("AsyncGenerator[Entry]", self._store.watch(session_id, after=after))
        async with aclosing(watching):
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await anext(watching, None)


def _only_turn(entries: Sequence[Entry]) -> list[Entry]:
    """From its user entry to where the next turn begins."""
    end = next((index for index in range(1, len(entries)) if _begins(entries, index)), len(entries))
    return list(entries[:end])


def _begins(entries: Sequence[Entry], index: int) -> bool:
    if not isinstance(entries[index], User):
        return False
    before = next((e for e in reversed(entries[:index]) if isinstance(e, User | Assistant | ToolResult | Failed)), None)
    return not isinstance(before, ToolResult)
