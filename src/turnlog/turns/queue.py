"""The queue of each session: stores incoming messages and runs one turn at a time.

A `Lane` is one session in this process. It exists while messages are accepted, while a worker runs, and while tickets
wait. Its states, by what the worker does:

                 accept                lease is free
    (no lane) ────────────▶ STARTING ─────────────────▶ IDLE ◀───────────────┐
        ▲                      │                         │ │                 │ the turn's task ends
        │                      │ Busy: another           │ │ unstored or     │
        │                      │ process has it          │ │ waiting         │
        │                      ▼                         │ ▼                 │
        │                   BLOCKED ─── it lets go ────▶ │ RUNNING ──────────┘
        │                                                │
        └──────────────── nothing waits: the worker leaves, the lease is free

    state      what holds                              a message that is accepted now
    (no lane)  nothing                                 becomes `unstored`, and a worker starts
    STARTING   the worker asks for the lease           is stored as `received`, and waits
    BLOCKED    another process has the lease           is stored as `received`, and so is an `unstored` one: that
                                                       process may take it
    RUNNING    the worker has the lease, a turn runs   is stored as `received`; by its mode it joins the turn after the
                                                       next tool (steer), stops the turn (interrupt), or waits
    IDLE       the worker has the lease, no turn runs  becomes `unstored`; the worker looks before it leaves
    PAUSED     no worker, no lease; the turn's stream  is stored as `received`, and a worker looks whether it denies the
               is open, a watch of the log is set      calls that wait (`paused`); otherwise it waits

`unstored` is the short way: the turn stores the message itself, as its user entry. Storing each message as `received`
first would be simpler, and would double the appends of every turn. A message takes the short way only if no other is
before it; presets whose journal is not `direct` never use it.

A worker that looks, finds nothing and leaves could miss a message that is being stored at that moment. So every change
to a lane is followed by `_start_worker`, which does nothing while a worker runs; and a worker looks at the lane for the
last time after it has given up the lease, without an `await` between that look and its end.

Each turn is a task of its own. Stopping a turn by cancelling its worker would give up the lease while messages wait,
and one cancel too many would hit the turn while it stores what was said: hence `Lane.cancel_turn`, once a turn.
Listeners are not part of this: they follow the turn's `TurnStream`, and may leave and come back.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from functools import partial

from ..core import events
from ..core.entries import ApprovalAnswer
from ..core.events import Done, Event
from ..core.session import Session
from ..errors import Busy, Conflict, NotFound, StoreError, StoreUnavailable, TurnlogError
from ..stores import Clock, Lease, Store
from ..stores.stamping import now_ms
from . import requests, stopping
from .deliveries import Deliveries
from .journal import Journal
from .lanes import Lanes
from .outage import OutageWait
from .paused import MayApprove, PausedTurns, tell_answer
from .recovery import Recovery
from .requests import TurnRequest
from .runner import Runner
from .stream import replay
from .tickets import Incoming, Lane, QueueMode, Ticket
from .turn_task import TurnTasks, cancelled

CAP = 20
"""Messages that may wait in one session."""
CLOSING_S = 30.0
"""A close waits this much longer than a summary may take for what follows turns."""
AGAIN_S = 1.0
"""Before the next attempt at what waits in a session, when the store could not be reached."""
TURN_END_S = 0.05
"""A turn that has told its end is given this long to leave its lane, so that the next message takes the short way."""


class Queue:
    def __init__(
        self,
        store: Store,
        runner: Runner,
        *,
        mode: QueueMode = "steer",
        cap: int = CAP,
        summary_s: float = 120.0,
        may_approve: MayApprove = lambda row, sender: True,
        clock: Clock = now_ms,
    ) -> None:
        self._store = store
        self._runner = runner
        self._mode: QueueMode = mode
        self._cap = cap
        self._closing_s = summary_s + CLOSING_S
        self._deliveries = Deliveries(store)
        self._lanes = Lanes()
        self._closing = asyncio.Event()
        self._recovery = Recovery(store, self._lanes.of, self._start_worker)
        self._paused = PausedTurns(store, runner, self._start_worker, may_approve, clock)
        self._stop_watcher = stopping.StopWatcher(store.ledger, self)
        self._tasks = TurnTasks(runner, self._store_waiting, self._stop_watcher, self._closing)
        self.resume = self._recovery.resume
        self.adopt = self._recovery.adopt
        self.on_turn = self._tasks.on_turn
        self.running = self._lanes.running
        self.under_way = self._lanes.under_way

    async def accept(self, row: Session, incoming: Incoming) -> Ticket:
        """Durable when it returns. Busy if too many wait already. `row` may be older than the log."""
        if self._closing.is_set():
            raise Busy("Turnlog is closing", hint="Send it again after the next start.")
        ticket = Ticket(row, incoming)
        if incoming.dedupe_id is not None and not await self._deliveries.claim(ticket):
            ticket.stored.set_result(False)
            return ticket
        is_moved = (ticket.session_id, ticket.incarnation) != (row.id, row.incarnation)
        if is_moved or row.received or row.heard:  # what waited by then may be answered by now
            row = await self._store.describe(ticket.session_id, incarnation=ticket.incarnation)
            ticket.row, ticket.incarnation = row, row.incarnation
        lane = self._lanes.of(row)
        lane.accepting += 1
        try:
            await self._admit(lane, ticket)
            await asyncio.shield(ticket.stored)
        except NotFound:  # `row` was an old one, and the session is gone
            await self._deliveries.release(ticket)
            raise
        finally:
            lane.accepting -= 1
            self._lanes.drop_if_unused(lane)
        return ticket

    async def _admit(self, lane: Lane, ticket: Ticket) -> None:
        if lane.task and lane.stream and lane.stream.over:
            await asyncio.wait({lane.task}, timeout=TURN_END_S)
        is_alone = ticket.incoming.is_alone
        if is_alone and not lane.is_free:
            raise Busy("a turn is running or waiting in this session", hint="Retry when it has ended.")
        is_first = lane.is_free and not ticket.row.received
        try:
            # A turn that begins with what was heard needs its message as `received` too.
            if is_alone or (is_first and not ticket.row.heard):
                lane.unstored = ticket
            else:
                await self._join(lane, ticket, has_to_wait=not is_first)
        finally:  # also if the sender went away: the message may be stored by now
            self._start_worker(lane)

    async def _join(self, lane: Lane, ticket: Ticket, *, has_to_wait: bool) -> None:
        before = lane.stream
        await self._store_waiting(lane, ticket)
        if not ticket.stored.result():
            return
        if has_to_wait:
            ticket.wait(len(lane.waiting))
        if self._mode_of(ticket.incoming) != "interrupt":
            return
        if lane.blocked:
            await self._interrupt_elsewhere(lane)
        elif lane.stream is before:
            lane.cancel_turn()

    async def _interrupt_elsewhere(self, lane: Lane) -> None:
        """If the request fails, the turn ends a little later: its next round sees the message, which is stored."""
        waiting = [seq for seq, ticket in lane.waiting.items() if self._mode_of(ticket.incoming) == "interrupt"]
        if waiting:
            with suppress(StoreError):
                request = stopping.StopRequest(max(waiting) - 1, lane.incarnation)
                await stopping.ask(self._store.ledger, lane.session_id, request)

    def follow(self, ticket: Ticket) -> AsyncIterator[Event]:
        """The events of its turn. A listener that leaves does not stop the turn."""
        return ticket.follow(lambda: self._done(ticket.session_id, ticket.incarnation))

    async def _done(self, session_id: str, incarnation: str | None) -> Done:
        """The event for a message that was answered by another process, or earlier."""
        try:
            row = await self._store.describe(session_id, incarnation=incarnation)
        except NotFound:
            return Done(session_id=session_id, token_estimate=0)
        return Done(session_id=row.id, token_estimate=row.token_estimate, title=row.title)

    def is_busy(self, session_id: str) -> bool:
        """Whether this process works on the session, or is about to."""
        lane = self._lanes.get(session_id)
        return lane is not None and lane.worker is not None

    def stop(self, session_id: str) -> bool:
        """Whether there was a turn to stop. What waits is answered next."""
        lane = self._lanes.get(session_id)
        if lane is not None and lane.paused:
            return self._end_paused(lane)
        return lane is not None and lane.cancel_turn()

    def stop_paused(self, row: Session) -> bool:
        """Stops a paused turn of any process. The calls that wait are not run."""
        return self._end_paused(self._lanes.of(row))

    def _end_paused(self, lane: Lane) -> bool:
        lane.is_ending = True
        self._start_worker(lane)
        return True

    async def answered(self, row: Session, entry: ApprovalAnswer) -> None:
        """Called after an answer was stored in this process; `row` is the row after it."""
        lane = self._lanes.get(row.id)
        if lane is not None and lane.paused and lane.incarnation == row.incarnation:
            if lane.stream:
                tell_answer(lane.stream.events, lane.stream.add, entry)
            self._start_worker(lane)
        await self._paused.answered(row, self._lanes.of)

    async def idle(self) -> None:
        """Returns when nothing runs and nothing waits in this process."""
        while workers := [lane.worker for lane in self._lanes if lane.worker]:
            await asyncio.wait(workers)

    async def close(self) -> None:
        """Stops what runs, keeping what was said; what waits stays stored, for the next start."""
        self._closing.set()
        workers = [lane.worker for lane in self._lanes if lane.worker]
        for lane in self._lanes:
            if lane.blocked and lane.worker:
                lane.worker.cancel()  # it waits for another process; the message is stored
            lane.cancel_turn()
        if workers:
            _, late = await asyncio.wait(workers, timeout=self._closing_s)
            for worker in late:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        await self._paused.close()
        for lane in self._lanes:
            lane.abandon()
        for lane in self._lanes:  # their messages are stored, and wait for the next start
            lane.refuse_all(Busy("Turnlog was closed", hint="The message is stored and answered after the next start."))
        await self._stop_watcher.close()
        with suppress(TurnlogError):  # only estimates would be lost
            await self._runner.calibration.save()

    async def _store_waiting(self, lane: Lane, ticket: Ticket) -> None:
        lane.storing += 1
        try:
            async with lane.storing_lock:
                seq = await self._deliveries.store(ticket, self._mode_of(ticket.incoming), cap=self._cap)
                if seq is not None:
                    lane.waiting[seq] = ticket
                if not ticket.stored.done():
                    ticket.stored.set_result(seq is not None)
        finally:
            lane.storing -= 1

    def _mode_of(self, incoming: Incoming) -> QueueMode:
        """A message with a context of its own needs a turn of its own: a running one has its system prompt already."""
        mode = incoming.mode or self._mode
        return "followup" if mode == "steer" and incoming.context else mode

    def _start_worker(self, lane: Lane) -> None:
        """Starts a worker for this lane unless one runs. Called after each change: a worker may just have left."""
        if lane.worker is not None:
            return
        if self._closing.is_set():
            lane.refuse_all(Busy("Turnlog is closing", hint="Send it again after the next start."))
        else:
            lane.worker = asyncio.create_task(self._work(lane), name=f"turns of {lane.session_id}")

    async def _work(self, lane: Lane) -> None:
        try:
            async with AsyncExitStack() as stack:
                await self._serve(lane, await self._lease(lane, stack))
        except StoreUnavailable as error:
            # What is stored is answered when the store is back; its listeners go on waiting.
            lane.refuse_unstored(error)
            if lane.waiting and not self._closing.is_set():
                await asyncio.sleep(AGAIN_S)
        except BaseException as error:
            lane.refuse_all(error if isinstance(error, TurnlogError) else cancelled())
            if lane.paused and lane.stream and isinstance(error, TurnlogError):
                lane.stream.add(events.of_error(error))
            lane.unpause()
            if not isinstance(error, TurnlogError | asyncio.CancelledError):
                raise
        finally:
            lane.worker = None
            lane.stream = lane.stream if lane.paused else None
            if lane.unstored or (lane.waiting and not lane.paused) or (lane.paused and lane.is_ending):
                self._start_worker(lane)
            self._lanes.drop_if_unused(lane)

    async def _lease(self, lane: Lane, stack: AsyncExitStack) -> Lease:
        with_append = self._begins_as_expected(lane)
        lane.is_contended = False
        try:
            return await stack.enter_async_context(
                self._store.lease(lane.session_id, wait_s=0, with_append=with_append)
            )
        except Busy:
            if lane.unstored and lane.unstored.incoming.is_alone:
                raise  # it is no message that could wait
            lane.blocked = True
        try:
            await self._store_unstored(lane)
            for position, waiting in enumerate(lane.waiting.values(), 1):
                waiting.wait(position)
            await self._interrupt_elsewhere(lane)
            return await stack.enter_async_context(self._store.lease(lane.session_id))
        finally:
            lane.blocked = False

    def _begins_as_expected(self, lane: Lane) -> bool:
        """Whether the worker can begin a turn without asking the store: its first append makes sure of the rest."""
        first = None if lane.resumed or lane.is_contended else lane.unstored
        return first is not None and not first.incoming.is_about_past and self._runner.is_warm(first.row)

    async def _store_unstored(self, lane: Lane) -> None:
        if (ticket := lane.unstored) is None:
            return
        lane.unstored = None
        try:
            await self._store_waiting(lane, ticket)
        except BaseException as error:
            ticket.refuse(error)
            raise

    async def _serve(self, lane: Lane, lease: Lease) -> None:
        first = None if lane.resumed else lane.unstored
        journal = await self._open_journal(
            lane, lease, known=first.row if first and not first.incoming.is_about_past else None
        )
        while lease.live:  # once it is lost, another process answers, and the next worker tells that
            if journal.reshaped:
                journal = await self._open_journal(lane, lease)  # what is folded need not stay in memory
            if journal.row.paused:
                if not await self._go_on(lane, journal):
                    return
            elif lane.paused:
                done = await self._done(lane.session_id, lane.incarnation)
                await self._paused.end_elsewhere(lane, journal, done)
            elif lane.unstored and not self._closing.is_set():
                await self._run_unstored(lane, journal, lane.unstored)
            elif journal.waiting and not self._closing.is_set():
                await self._tasks.run(lane, journal, requests.next_waiting(lane, journal))
            else:
                if lane.waiting or not journal.is_current:
                    await journal.refresh()
                await self._tell_answered_elsewhere(lane, journal)
                if self._closing.is_set() or not (lane.unstored or journal.waiting or lane.waiting):
                    return

    async def _go_on(self, lane: Lane, journal: Journal) -> bool:
        """Looks after the paused turn of this journal. False: it goes on waiting, and the lease is not needed."""
        await self._store_unstored(lane)
        if lane.is_ending:
            await self._paused.stop(lane, journal)
            return True
        try:
            if await self._paused.is_due(lane, journal):
                await self._tasks.run(lane, journal, TurnRequest(resumes=True))
                return not self._closing.is_set()
        except Conflict:  # somebody answered while a call was being denied
            return True
        if not self._closing.is_set():
            self._paused.keep(lane, journal)
        return False

    async def _run_unstored(self, lane: Lane, journal: Journal, ticket: Ticket) -> None:
        if (journal.waiting or journal.heard) and not ticket.incoming.is_alone:
            # The row that it was accepted by was older than what waits: it has to wait too.
            with suppress(Busy):  # too many wait; its sender is told
                await self._store_unstored(lane)
            await journal.refresh()
        else:
            lane.unstored = None
            if ticket.incoming.if_unchanged and journal.end != ticket.since:
                ticket.refuse(Conflict("the session has changed", hint="Look at it again, and send it again."))
                return
            journal.is_assumed = journal.is_assumed or ticket.incoming.if_unchanged
            await self._tasks.run(lane, journal, requests.of_ticket(ticket))

    async def _open_journal(self, lane: Lane, lease: Lease, known: Session | None = None) -> Journal:
        """What another process left unfinished in the session is looked after first."""
        journal = await self._runner.open_journal(lane.session_id, lease, lane.incarnation, known=known)
        journal.outage = OutageWait(lease, self._closing)
        if await self._recovery.is_rerun_due(lane, journal):
            await self._tasks.run(lane, journal, TurnRequest())
        if lane.resumed:
            lane.resumed = False
            await journal.after_restart()
        return journal

    async def _tell_answered_elsewhere(self, lane: Lane, journal: Journal) -> None:
        """Messages that were accepted here and answered by another process."""
        still = {entry.seq for entry in journal.waiting}
        for seq in [seq for seq in lane.waiting if seq not in still and seq <= journal.end]:
            where, known = journal.session_id, journal.incarnation
            later = await journal.through_outage(partial(self._store.read, where, after=seq, incarnation=known))
            done = await journal.through_outage(partial(self._done, where, known))
            lane.waiting.pop(seq).turn.set_result((replay(done, seq, later), 0))
