"""Runs one turn of a lane as a task of its own, with its stream, from the first entry to the last event.

Cancelling the worker instead would give up the lease while messages wait; `Lane.cancel_turn` cancels this task, once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from ..core import events
from ..core.entries import ApprovalAnswer
from ..core.events import Stopped
from ..errors import Busy, Conflict, TurnlogError
from .journal import Journal
from .paused import tell_answer
from .requests import TurnRequest
from .runner import Runner
from .stopping import StopWatcher
from .stream import TurnStream, first_of
from .tickets import Lane, Ticket


def cancelled() -> Busy:
    return Busy("the turn was cancelled", hint="Send the message again, unless the session has it.")


class TurnTasks:
    def __init__(
        self,
        runner: Runner,
        store_waiting: Callable[[Lane, Ticket], Awaitable[None]],
        stop_watcher: StopWatcher,
        closing: asyncio.Event,
    ) -> None:
        self._runner = runner
        self._store_waiting = store_waiting
        self._stop_watcher = stop_watcher
        self._closing = closing
        self._on_turn: list[Callable[[TurnStream], object]] = []

    def on_turn(self, call: Callable[[TurnStream], object]) -> None:
        """Calls it with every turn that begins in this process."""
        self._on_turn.append(call)

    async def run(self, lane: Lane, journal: Journal, request: TurnRequest) -> None:
        lane.task = asyncio.create_task(self._turn(lane, journal, request), name=f"turn of {journal.session_id}")
        try:
            await asyncio.wait({lane.task})
        except asyncio.CancelledError:
            lane.task.cancel()
            await asyncio.wait({lane.task})
            raise
        if not lane.task.cancelled():
            lane.task.result()

    async def _turn(self, lane: Lane, journal: Journal, request: TurnRequest) -> None:
        seq = await self._begin(lane, journal, request)
        if seq is None:
            return
        stream = self._announce(lane, journal, seq, request)
        on_joined = partial(lane.tell_joined, stream)
        if ticket := request.ticket:
            ticket.stored.set_result(True)
            ticket.turn.set_result((stream, 0))
        on_joined([entry.seq for entry in request.waiting])
        is_paused = False
        try:
            is_paused = await self._runner.run(journal, request, seq, stream.add, on_joined)
        except Exception as error:
            stream.add(events.of_error(error))
            raise
        finally:
            if is_paused:
                stream.hold(None)
                lane.paused = True
            else:
                stream.add(Stopped())  # heard only if the task was cancelled where the runner could not see it
                lane.stream = None

    async def _begin(self, lane: Lane, journal: Journal, request: TurnRequest) -> int | None:
        """None: there is nothing to run. Only the sender is told of a message that could not be stored."""
        ticket = request.ticket
        try:
            seq = await self._runner.begin(journal, request)
        except BaseException as error:
            if ticket is None:
                raise
            may_wait = not ticket.incoming.is_alone
            if journal.is_assumed and may_wait and isinstance(error, Conflict | Busy):
                return await self._begin_again(lane, journal, ticket)
            ticket.refuse(error if isinstance(error, TurnlogError) else cancelled())
            if not isinstance(error, TurnlogError):
                raise
            return None
        if seq is None and ticket is not None:
            ticket.stored.set_result(False)
        return seq

    async def _begin_again(self, lane: Lane, journal: Journal, ticket: Ticket) -> None:
        """The log has changed since the message came, or another process has the lease: the worker begins again."""
        journal.reshaped = lane.is_contended = True
        if lane.unstored is None:
            lane.unstored = ticket
        else:
            await self._store_waiting(lane, ticket)

    def _announce(self, lane: Lane, journal: Journal, seq: int, request: TurnRequest) -> TurnStream:
        is_known = request.resumes and lane.stream is not None
        stream = lane.stream if request.resumes else None
        if stream is None:
            stream = TurnStream(journal.session_id, seq, incarnation=journal.incarnation, lease=journal.lease)
            stream.first = first_of(journal.turn() if request.repeats else (), is_again=request.repeats)
        stream.hold(journal.lease)
        lane.unpause()
        lane.stream = stream
        if request.resumes:
            for entry in journal.turn():
                if isinstance(entry, ApprovalAnswer):
                    tell_answer(stream.events, stream.add, entry)
        lane.stopping = self._closing.is_set()
        if lane.stopping and lane.task:
            lane.task.cancel()
        self._stop_watcher.start()
        for call in () if is_known else self._on_turn:
            call(stream)
        return stream
