"""Rejoining a turn: a client gets every event once and in order while the turn's process lives; after that, its log.

A client may have events that this process did not send: the server was restarted, or another one answers. It then first
gets one `snapshot` for each stored message of the turn, and the first of them replaces what it has of the turn.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import TypeVar

from ..access import Access
from ..core import entries as kinds
from ..core.entries import REFUSED_CONTENT, Entry, text_of
from ..core.events import Done, ErrorEvent, Event, Snapshot, Stopped, of_answer, of_request
from ..core.session import Session
from ..core.turns import as_retried, end_of, first, live_starts
from ..errors import ContentRefused, NotFound, StoreUnavailable
from ..turns.stream import TurnStream
from .http import sse
from .http.sse import EventPosition
from .recent_turns import RecentTurns

T = TypeVar("T")
LOOK_S = 0.5
"""The pause between checks of what no entry shows: leases, and turns of this process. New entries are seen at once."""
INTERRUPTED = ErrorEvent(error="the turn was cut short", code="interrupted", hint="Send the message again.")
GONE = ErrorEvent(error="the session was deleted", code="deleted", hint="Start a new session.")


class Rejoin:
    """The streams of one principal: frames of turns that it may see."""

    def __init__(self, access: Access, turns: RecentTurns) -> None:
        self._access = access
        self._turns = turns

    async def frames(self, row: Session, after: EventPosition | None) -> AsyncGenerator[bytes]:
        """Up to a terminal event; `idle` if no turn runs and the client has everything."""
        if after is not None:
            await self._drop_erased(row, self._turns.get(row, after.turn))
        wanted = after if after is not None and await self._is_unfinished(row, after) else None
        async with aclosing(self._turn(row, wanted) if wanted else self._newest(row)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def of_turn(self, row: Session, seq: int) -> AsyncGenerator[bytes]:
        """A turn from its beginning, for a client that has nothing of it."""
        await self._drop_erased(row, self._turns.around(row, seq))
        stream = self._turns.around(row, seq)
        async with aclosing(self.follow(row, stream) if stream else self._from_log(row, seq)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _drop_erased(self, row: Session, stream: TurnStream | None) -> None:
        """Words of an ended turn may have been erased since, by any process: then only its log may tell it."""
        if stream is None or not stream.over:
            return
        try:
            later = await self._read(row, after=stream.seq)
        except NotFound:
            return
        if any(isinstance(entry, kinds.Erasure) for entry in later):
            self._turns.drop(stream)

    def follow(
        self, row: Session, stream: TurnStream, after: int = 0, *, is_whole: bool = False
    ) -> AsyncGenerator[bytes]:
        """A turn of this process to its end, also if another process had to take it over.

        `is_whole`: the event stream ends with this turn.
        """
        return sse.follow(stream, after, partial(self._from_log, row, stream.seq), is_whole=is_whole)

    def runs_here(self, row: Session, seq: int) -> bool:
        return self._turns.get(row, seq) is not None

    async def _is_unfinished(self, row: Session, after: EventPosition) -> bool:
        """Whether the turn exists, and the client may lack a part of it."""
        if after.n == sse.ENDED or after.turn < 1:
            return False
        if stream := self._turns.get(row, after.turn):
            return not (stream.over and after.n == stream.first + len(stream.events) - 1)
        found = await self._read(row, after=after.turn - 1, limit=1)
        return bool(found) and isinstance(found[0], kinds.User | kinds.Received)

    def _turn(self, row: Session, after: EventPosition) -> AsyncGenerator[bytes]:
        stream = self._turns.get(row, after.turn)
        if stream is None:
            return self._from_log(row, after.turn)
        if stream.first <= after.n < stream.first + len(stream.events):
            return self.follow(row, stream, after.n - stream.first + 1)
        return self._from_the_start(row, stream)

    async def _newest(self, row: Session) -> AsyncGenerator[bytes]:
        while True:
            if stream := self._access.running(row):
                found = self.follow(row, stream)
                break
            try:
                row = await self._now(row)
            except NotFound:
                yield sse.frame(GONE)
                return
            if row.under_way:
                found = self._from_log(row, await self._newest_turn(row))
                break
            if not row.received:
                yield sse.frame({"type": "idle"})
                return
            await self.news(row, row.last_seq)  # a turn is about to begin
        async with aclosing(found) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _newest_turn(self, row: Session) -> int:
        entries = await self._read(row, after=row.read_from - 1)
        return max(live_starts(entries), default=row.last_seq)

    async def _from_log(self, row: Session, turn: int) -> AsyncGenerator[bytes]:
        """The stored part of a turn, then the rest: from the log, or as it happens if the turn is run again here."""
        at = f"{turn}-{sse.HELD_NOTHING}"
        has_sent = False
        shown = turn
        while True:
            try:
                entries = await self._read(row, after=turn - 1)
            except NotFound:
                yield sse.frame(GONE)
                return
            entries, end = as_retried(first(entries)), entries[-1].seq if entries else 0
            for event in map(_stored_event, [entry for entry in entries if entry.seq > shown]):
                if event is not None:
                    has_sent = True
                    yield sse.frame(event, at=at)
            shown = max([shown, *(entry.seq for entry in entries)])
            if not has_sent:
                has_sent = True
                yield sse.frame(Snapshot(text=""), at=at)
            if stream := self._turns.get(row, turn):
                async for chunk in self._from_the_start(row, stream):
                    yield chunk
                return
            if last := await self._end(row, entries, end):
                yield sse.frame(last, at=f"{turn}-{sse.ENDED}")
                return
            await self.news(row, end)

    async def _read(self, row: Session, *, after: int, limit: int | None = None) -> list[Entry]:
        return await despite_outage(partial(self._access.sessions.read, row, after=after, limit=limit))

    async def _now(self, row: Session) -> Session:
        return await despite_outage(partial(self._access.sessions.get, row.id, incarnation=row.incarnation))

    async def _from_the_start(self, row: Session, stream: TurnStream) -> AsyncGenerator[bytes]:
        """The whole turn, for a client that has something else of it."""
        yield sse.frame(Snapshot(text=""), at=f"{stream.seq}-{sse.HELD_NOTHING}")
        async for chunk in self.follow(row, stream):
            yield chunk

    async def _end(self, row: Session, turn: Sequence[Entry], end: int) -> Event | None:
        """The terminal event of a turn that has ended; None while it runs, or is about to be run again.

        `end`: the end of the log as far as it was read.
        """
        outcome = end_of(turn[1:])
        if turn and isinstance(turn[0], kinds.Received):
            return None if turn[0].seq in (await self._now(row)).received else INTERRUPTED
        if outcome is None:
            # From the same read: by the next one, the turn may have ended and its answer may be stored.
            return None if turn and end == turn[-1].seq else INTERRUPTED
        match outcome.end:
            case "done":
                row = await self._now(row)
                return Done(session_id=row.id, token_estimate=row.token_estimate, title=row.title)
            case "stopped":
                return Stopped()
            case _:
                cut = outcome.end == "cut" and end == turn[-1].seq
                if cut and await self._is_run_again(row, end):
                    return None
                why = [e.reason for e in turn if e.seq == outcome.end_seq and isinstance(e, kinds.Failed)]
                hint = ContentRefused.hint if outcome.code == REFUSED_CONTENT else INTERRUPTED.hint
                return ErrorEvent(error=why[0] if why else INTERRUPTED.error, code=outcome.code, hint=hint)

    async def _is_run_again(self, row: Session, end: int) -> bool:
        """The process that marks a turn as cut holds the lease, and keeps it while it runs the turn once more."""
        try:
            return await self._access.holder(row) is not None or (await self._now(row)).last_seq > end
        except StoreUnavailable:  # unknown: the next check asks again
            return True

    async def news(self, row: Session, after: int) -> None:
        """Returns when something was written after that seq, or after a while."""
        async with aclosing(self._access.watch(row, after=after)) as entries:
            try:
                async with asyncio.timeout(LOOK_S):
                    await anext(entries, None)
            except TimeoutError:
                return
            except StoreUnavailable:
                await asyncio.sleep(LOOK_S)


def _stored_event(entry: Entry) -> Event | None:
    """The events of a stored part of a turn: its messages, its questions to a person and their answers."""
    match entry:
        case kinds.Assistant():
            text = text_of(entry.content)
            return Snapshot(text=text) if text else None
        case kinds.Approval(state="requested"):
            return of_request(entry)
        case kinds.ApprovalAnswer():
            return of_answer(entry)
        case _:
            return None


async def despite_outage(call: Callable[[], Awaitable[T]]) -> T:
    """Retries until the store answers: a stream reports how a turn ended, not that the store was
    unavailable meanwhile.
    """
    while True:
        try:
            return await call()
        except StoreUnavailable:
            await asyncio.sleep(LOOK_S)
