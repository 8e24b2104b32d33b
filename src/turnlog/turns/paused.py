"""Paused turns: what happens between the question to a person and the moment at which the turn continues.

A paused turn needs no process. The lane of the process that ran it stays, without a worker and without the lease, so
that listeners keep their stream; a watch of the log wakes it. When every call has its answer, the process that gets the
lease first continues the turn:

    the process that asked      at once: its watch sees the answer within half a second, on every store
    the process that answered   after `TAKE_UP_S`, if nobody else did, and if its tools work in the same place
    any process                 when a message or a start makes it look at the session

A message of somebody who may approve denies the calls that wait; so does the end of the time that they may wait.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing, suppress
from typing import Any, TypeAlias, cast

from ..core import approvals, events
from ..core.approvals import BY_TURNLOG, EXPIRED, SUPERSEDED, WORDS_MAX_CHARS, WaitingCall
from ..core.entries import Approval, ApprovalAnswer, Assistant, Entry, Received, ToolResult, text_of, tool_uses
from ..core.events import ApprovalAnswered, Done, Event, Stopped, TextDelta
from ..core.session import Session
from ..errors import NotFound, StoreUnavailable
from ..runtime.background import going_on
from ..stores import Clock, Store
from .asking import can_run
from .journal import Journal
from .runner import Runner
from .stream import last_event
from .tickets import Lane

TAKE_UP_S = 1.0
"""How long the process that answered leaves the turn to the process that asked, which sees the answer sooner."""
LOOK_S = 0.1
AGAIN_S = 1.0
"""Before the next look, when the store could not be reached."""
MayApprove: TypeAlias = Callable[[Session, str | None], bool]
"""(session, sender): whether this person may approve calls there."""


class PausedTurns:
    """The paused turns that this process knows."""

    def __init__(
        self, store: Store, runner: Runner, start_worker: Callable[[Lane], None], may_approve: MayApprove, clock: Clock
    ) -> None:
        self._store = store
        self._runner = runner
        self._start_worker = start_worker
        self._may_approve = may_approve
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()

    async def is_due(self, lane: Lane, journal: Journal) -> bool:
        """Whether the paused turn of this journal continues now. Before that, denies the calls that must be denied."""
        await journal.refresh()
        found = approvals.asked(journal.turn())
        if denials := self._denials(journal, approvals.unanswered(found)):
            await journal.append(*denials)
            found = approvals.asked(journal.turn())
        if approvals.unanswered(found):
            return False
        return bool(lane.stream or lane.waiting) or await self._can_run(journal, list(found.values()))

    def _denials(self, journal: Journal, waiting: Sequence[Approval]) -> list[ApprovalAnswer]:
        found: list[ApprovalAnswer] = []
        for request in waiting:
            new = [one for one in journal.waiting if _is_newer(one, request)]
            by = next((one for one in new if self._may_approve(journal.row, one.sender)), None)
            if by is not None:
                found.append(_denial(request, by.sender or "", SUPERSEDED))
            elif approvals.is_expired(request, self._clock()):
                found.append(_denial(request, BY_TURNLOG, EXPIRED))
        return found

    async def _can_run(self, journal: Journal, asked: Sequence[WaitingCall]) -> bool:
        agent = await self._runner.agent(journal.row)
        return all(can_run(agent, one) for one in asked if one.answer and one.answer.word == "approved")

    def keep(self, lane: Lane, journal: Journal) -> None:
        """The lane waits until an entry is written to its log."""
        lane.paused = True
        if lane.watch is None or lane.watch.done():
            expires = min((one.expires for one in journal.row.approvals if one.expires and not one.answer), default=0)
            wait_s = max(0.0, (expires - self._clock()) / 1000) if expires else None
            watching = self._watch(lane, journal.end, wait_s)
            lane.watch = self._start(watching, f"paused turn of {lane.session_id}")

    def _start(self, doing: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(doing, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _watch(self, lane: Lane, after: int, wait_s: float | None) -> None:
        """Wakes the lane at every entry that may concern the turn, and when its time is over."""
        with going_on("paused turns"):
            while lane.paused:
                try:
                    async with asyncio.timeout(wait_s):
                        after = await self._news(lane, after)
                except TimeoutError:
                    wait_s = None
                except StoreUnavailable:
                    await asyncio.sleep(AGAIN_S)
                    continue
                except NotFound:
                    lane.is_ending = True
                self._start_worker(lane)
                if lane.is_ending:
                    return

    async def _news(self, lane: Lane, after: int) -> int:
        found = self._store.watch(lane.session_id, after=after, incarnation=lane.incarnation)
        async with aclosing(cast("AsyncGenerator[Entry]", found)) as entries:
            async for entry in entries:
                after = entry.seq
                if isinstance(entry, ApprovalAnswer) and lane.stream:
                    tell_answer(lane.stream.events, lane.stream.add, entry)
                if not isinstance(entry, Received):
                    return after
        raise NotFound("the session was deleted")

    async def answered(self, row: Session, lane_of: Callable[[Session], Lane]) -> None:
        """After an answer in this process: takes the turn up here if nobody else does."""
        if row.waiting or not row.paused:
            return
        self._start(self._take_up_later(row, lane_of), f"answered turn of {row.id}")

    async def _take_up_later(self, row: Session, lane_of: Callable[[Session], Lane]) -> None:
        looks = int(TAKE_UP_S / LOOK_S)
        with going_on("paused turns"), suppress(NotFound):
            while looks:
                await asyncio.sleep(LOOK_S)
                try:
                    now = await self._store.describe(row.id, incarnation=row.incarnation)
                except StoreUnavailable:  # the process that asked cannot see the answer either
                    await asyncio.sleep(AGAIN_S)
                    continue
                if not now.paused or now.waiting:
                    return
                looks -= 1
            self._start_worker(lane_of(row))

    async def stop(self, lane: Lane, journal: Journal) -> None:
        """Ends the paused turn; the calls that wait are not run."""
        lane.is_ending = False
        await journal.stop(None)
        if lane.stream:
            lane.stream.add(Stopped())
        lane.abandon()

    async def end_elsewhere(self, lane: Lane, journal: Journal, done: Done) -> None:
        """Another process has continued the turn and ended it: tells the listeners here the entries of the log."""
        await journal.refresh()
        if stream := lane.stream:
            told = {event.call_id for event in stream.events if isinstance(event, ApprovalAnswered)}
            for event in _after_pause(_since_pause(journal.transcript, stream.seq), told):
                stream.add(event)
            stream.add(last_event(_rest_of(journal.transcript, stream.seq), done, "the turn was cut short"))
        lane.abandon()

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _is_newer(message: Received, request: Approval) -> bool:
    """Whether it came after the question; one that steers counts even if it came in at the same moment."""
    return message.seq > request.seq or message.mode in ("steer", "interrupt")


def _denial(request: Approval, by: str, words: str) -> ApprovalAnswer:
    return ApprovalAnswer(call=request.call, word="denied", by=by, words=words[:WORDS_MAX_CHARS], request=request.seq)


def tell_answer(told: Sequence[Event], tell: Callable[[Event], None], entry: ApprovalAnswer) -> None:
    """Tells an answer, unless it was told."""
    if not any(isinstance(event, ApprovalAnswered) and event.call_id == entry.call for event in told):
        tell(events.of_answer(entry))


def _rest_of(transcript: Sequence[Entry], seq: int) -> list[Entry]:
    return [entry for entry in transcript if entry.seq > seq]


def _since_pause(transcript: Sequence[Entry], seq: int) -> list[Entry]:
    """The entries since the last pause of the turn that began at `seq`."""
    rest = _rest_of(transcript, seq)
    pauses = [entry.seq for entry in rest if isinstance(entry, Approval) and entry.state == "requested"]
    return [entry for entry in rest if entry.seq > max(pauses, default=seq)]


def _after_pause(entries: Sequence[Entry], told: set[str]) -> list[Event]:
    found: list[Event] = []
    for entry in entries:
        match entry:
            case ApprovalAnswer() if entry.call not in told:
                found.append(events.of_answer(entry))
            case Assistant() if entry.stop != "error":
                if text := text_of(entry.content):
                    found.append(TextDelta(text=text))
                found += [events.of_call(call) for call in tool_uses(entry)]
            case ToolResult():
                found.append(events.of_result(entry))
            case _:
                pass
    return found
