"""The live stream of one browser: which sessions change, and the logs and running turns of those that its tabs show.

A frame holds the current state, not what was added. A newer frame about the same thing replaces one that was not sent
yet, and a browser that connects again is told everything again. So nothing has to be resumed after a restart, and a
slow reader gets fewer frames, not a longer queue.

    rows      a session that the reader may see has changed or is gone
    session   the end of a watched log, and whether a turn runs; `gone`: the session was deleted
    turn      one piece of a running turn (`turn_view`); `run` distinguishes attempts at the same turn
    questions the calls of a watched log that wait for a person, unless a turn of this process tells them
    notice    what the turn is waiting for
    end       the turn has ended, and how
"""

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from ...access import Access
from ...core import approvals, entries as kinds
from ...core.events import CompactionEnd, CompactionStart, ErrorEvent, Event, Queued, Stopped, of_request
from ...core.principals import is_home
from ...core.session import Session
from ...errors import NotFound, StoreUnavailable, TurnlogError
from ...texts import Texts
from ...turns.queue import Ticket
from ...turns.stream import TurnStream
from ..changes import SessionChanges
from ..http import sse
from ..recent_turns import RecentTurns
from .turn_view import LiveTurnView, question
from .view import Frame

PAUSE_S = 0.06
"""The pause between two renderings of a turn: a shorter one looks no smoother."""
SHARE = 5
"""Rendering takes at most one part in this many of the time; a long block is rendered less often."""
AGAIN_S = 1.0
"""Before a watched log is looked at again, when the store could not be reached."""

_runs = itertools.count(time.time_ns() // 1_000_000)
_numbers: WeakKeyDictionary[TurnStream, int] = WeakKeyDictionary()


def run_of(stream: TurnStream) -> int:
    """A number for this attempt at a turn: a turn that is tried again has the same seq."""
    return _numbers.setdefault(stream, next(_runs))


class Feed:
    def __init__(self, access: Access, changes: SessionChanges, turns: RecentTurns, frame: Frame) -> None:
        self._access = access
        self._changes = changes
        self._turns = turns
        self._frame = frame
        self._waiting: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._news = asyncio.Event()
        self._error: Exception | None = None

    def frames(self, watched: Sequence[str]) -> AsyncGenerator[bytes]:
        """Without an end. `watched`: ids of sessions, those that may not be seen among them."""
        followers = (self._follow_log, self._follow_turns)
        return self._frames([self._follow_list, *(partial(follow, one) for follow in followers for one in watched)])

    def frames_of(self, ticket: Ticket) -> AsyncGenerator[bytes]:
        """The turn of one message up to its end, in the process that runs it: the live stream may be at another."""
        return self._frames([partial(self._follow_ticket, ticket)])

    async def _frames(self, work: Sequence[Callable[[], Awaitable[None]]]) -> AsyncGenerator[bytes]:
        tasks = [asyncio.create_task(self._guarded(one)) for one in work]
        try:
            yield b"retry: 1000\n: from here\n\n"
            while self._error is None and (self._waiting or not all(task.done() for task in tasks)):
                await self._news.wait()
                self._news.clear()
                told, self._waiting = list(self._waiting.values()), {}
                yield b"".join(map(sse.frame, told))
            if self._error is not None:
                raise self._error
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _guarded(self, work: Callable[[], Awaitable[None]]) -> None:
        """A part that fails ends the whole stream: the browser connects again, and is told everything again."""
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - raised again by `frames`
            self._error = error
        finally:
            self._news.set()

    def _tell(self, place: tuple[Any, ...], told: dict[str, Any]) -> None:
        """In the order of first mention; what was not sent yet is replaced."""
        self._waiting[place] = told
        self._news.set()

    async def _follow_list(self) -> None:
        who = self._access.principal
        async with aclosing(self._changes.follow()) as changes:
            async for change in changes:
                row = change.row
                try:
                    self._access.sessions.admit(row)
                except NotFound:
                    continue
                fields = {
                    "agent": row.agent,
                    "mine": is_home(who, row),
                    "count": row.message_count,
                    "status": row.status,
                    "gone": change.is_gone,
                }
                self._tell(("rows", row.id), {"type": "rows", "id": row.id, **fields})

    async def _follow_log(self, session_id: str) -> None:
        while True:
            try:
                row = await self._access.sessions.get(session_id)
                self._tell_end(row, row.last_seq)
                asks = await self._tell_questions(row)
                async with aclosing(self._access.watch(row, after=row.last_seq)) as entries:
                    async for entry in entries:
                        self._tell_end(row, entry.seq)
                        if asks or isinstance(entry, kinds.Approval):
                            asks = await self._tell_questions(await self._access.sessions.get(session_id))
            except NotFound:
                pass
            except StoreUnavailable:
                await asyncio.sleep(AGAIN_S)
                continue
            self._tell(("session", session_id), {"type": "session", "id": session_id, "gone": True})
            return

    def _tell_end(self, row: Session, seq: int) -> None:
        self._tell(("session", row.id), {"type": "session", "id": row.id, "seq": seq})

    async def _tell_questions(self, row: Session) -> bool:
        """Whether there are any. The process that asked may be another one, or gone."""
        asked: list[kinds.Approval] = []
        if row.waiting and self._access.running(row) is None:
            entries = await self._access.sessions.read(row, after=row.approvals[0].seq - 1)
            asked = approvals.unanswered(approvals.asked(entries))
        events = [question(of_request(one), self._frame.t) for one in asked]
        self._tell(("questions", row.id), {"type": "questions", "id": row.id, "events": events})
        return bool(asked)

    async def _follow_turns(self, session_id: str) -> None:
        """One turn of this process after another. A turn of another process is seen in the log."""
        while True:
            with self._turns.begun(session_id) as begun:
                try:
                    row = await self._access.sessions.get(session_id)
                except NotFound:
                    return
                except StoreUnavailable:
                    await asyncio.sleep(AGAIN_S)
                    continue
                stream = self._access.running(row)
                if stream is None:
                    await begun.wait()
                    continue
            await self._follow_turn(session_id, stream)

    async def _follow_ticket(self, ticket: Ticket) -> None:
        with suppress(TurnlogError):  # told by the log, or by the answer to the message
            stream, _ = await asyncio.shield(ticket.turn)
            await self._follow_turn(ticket.session_id, stream)

    async def _follow_turn(self, session_id: str, stream: TurnStream) -> None:
        run, view, after = run_of(stream), LiveTurnView(self._frame), 0
        about = {"id": session_id, "turn": stream.seq, "run": run}
        self._tell(("run", session_id), {"type": "turn", **about})
        while await stream.reach(after):
            events = stream.events[after:]
            after += len(events)
            view.add(events)
            start = time.monotonic()
            for piece in await asyncio.to_thread(view.render):
                place = ("turn", session_id, run, piece.part, piece.block)
                self._tell(place, {"type": "turn", **about, **msgspec.to_builtins(piece)})
            self._tell_notice(about, events)
            if not stream.over:
                await asyncio.sleep(max(PAUSE_S, SHARE * (time.monotonic() - start)))
        self._tell(("end", session_id, run), {"type": "end", **about, **_end(stream.events[-1], self._frame.t)})

    def _tell_notice(self, about: dict[str, Any], events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case Queued():
                    told = {"what": "queued", "n": event.position}
                case CompactionStart():
                    told = {"what": "compacting"}
                case CompactionEnd():
                    told = {"what": ""}
                case _:
                    continue
            self._tell(("notice", about["id"]), {"type": "notice", **about, **told})


def _end(event: Event, t: Texts) -> dict[str, Any]:
    match event:
        case ErrorEvent():
            return {"how": "failed", "error": t.refusal(event.error), "hint": t.refusal(event.hint), "code": event.code}
        case Stopped():
            return {"how": "stopped"}
        case _:
            return {"how": "done"}
