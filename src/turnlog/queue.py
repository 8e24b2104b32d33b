"""Who waits, who steers, one turn at a time: takes messages in, durably, and runs their turns one after another.

A message goes straight into a turn if none runs in its session, in any process. Otherwise it is stored as `received`
and the turn's end, or its next round, takes it: here if the turn runs here, by the store's lease if it runs elsewhere.
Turns run in tasks of their own: who listens may go away and come back.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress

from .core import events
from .core.entries import Assistant, Failed, Received, User
from .core.events import Done, Event, Stopped
from .core.query import PAGE_MAX, Query
from .errors import Busy, Conflict, NotFound, TurnlogError
from .journal import Journal
from .live import FIRST_AGAIN, Live, replay
from .runner import Job, Runner, Took
from .stores import Lease, Store
from .tickets import Incoming, Line, Mode, Ticket, refuse_all

CAP = 20
"""Messages that may wait in one session."""
DELIVERED = "delivered"
"""The ledger's space for delivery ids that have been seen."""
DELIVERED_TTL_S = 7 * 24 * 3600.0
CLOSING_S = 150.0
"""How long a close waits for what is done after turns; a summary gives up before that."""
PATIENCE_S = 0.05
"""A turn that is over ends its task within this, unless a compaction follows: then messages wait as `received`."""
ATTEMPTS = "attempts"
"""The ledger's space for: how often a start has begun what an earlier process left waiting."""
RERUNS_MAX = 1
"""A turn that a crash cut short is begun once more, not for ever: it may be what crashes us."""


class Queue:
    def __init__(self, store: Store, runner: Runner, *, mode: Mode = "steer", cap: int = CAP) -> None:
        self._store = store
        self._runner = runner
        self._mode: Mode = mode
        self._cap = cap
        self._lines: dict[str, Line] = {}
        self._closing = False
        self._reruns = False
        self._begun: list[Callable[[Live], object]] = []

    def on_turn(self, tell: Callable[[Live], object]) -> None:
        """Called with every turn that begins in this process, whoever asked for it."""
        self._begun.append(tell)

    async def accept(self, session_id: str, incoming: Incoming) -> Ticket:
        """Durable when it returns. Busy if too many wait already."""
        if self._closing:
            raise Busy("Turnlog is closing", hint="Send it again after the next start.")
        ticket = Ticket(session_id, incoming)
        row = await self._store.describe(session_id)
        ticket.since = row.last_seq
        if incoming.dedupe_id is not None and not await self._claim(ticket):
            ticket.stored.set_result(False)
            return ticket
        if ticket.session_id != session_id:
            row = await self._store.describe(ticket.session_id)
        line = self._lines.setdefault(ticket.session_id, Line())
        line.visitors += 1
        try:
            await self._admit(line, ticket, alone=not row.received)
            await asyncio.shield(ticket.stored)
        finally:
            line.visitors -= 1
            self._forget(ticket.session_id, line)
        return ticket

    async def _admit(self, line: Line, ticket: Ticket, *, alone: bool) -> None:
        if line.task and line.turn and line.turn.over:
            await asyncio.wait({line.task}, timeout=PATIENCE_S)
        try:
            if line.free and alone and self._runner.hold == "nothing":
                line.fresh = ticket
            else:
                await self._join(line, ticket)
        finally:  # also if whoever sent it went away: it may be stored by now
            self._employ(ticket.session_id, line)

    async def _join(self, line: Line, ticket: Ticket) -> None:
        before = line.turn
        await self._enqueue(line, ticket)
        interrupts = (ticket.incoming.mode or self._mode) == "interrupt"
        if interrupts and ticket.stored.result() and line.turn is before:
            self.stop(ticket.session_id)

    async def follow(self, ticket: Ticket) -> AsyncIterator[Event]:
        """The events of its turn. One who stops listening does not stop the turn."""
        if await ticket.stored:
            async for event in ticket.follow():
                yield event
        else:
            yield await self._done(ticket.session_id)

    async def _done(self, session_id: str) -> Done:
        """What is told of a message that was answered elsewhere, or before."""
        try:
            row = await self._store.describe(session_id)
        except NotFound:
            return Done(session_id=session_id, token_estimate=0)
        return Done(session_id=row.id, token_estimate=row.token_estimate, title=row.title)

    def running(self, session_id: str) -> Live | None:
        """The turn that runs in this process."""
        line = self._lines.get(session_id)
        return line.turn if line and line.turn and not line.turn.over else None

    def under_way(self) -> list[Live]:
        """All turns that run in this process."""
        return [line.turn for line in self._lines.values() if line.turn and not line.turn.over]

    def is_busy(self, session_id: str) -> bool:
        """Whether somebody in this process works on the session, or is about to."""
        line = self._lines.get(session_id)
        return line is not None and line.worker is not None

    def stop(self, session_id: str) -> bool:
        """Whether there was a turn to stop. What waits is answered next."""
        line = self._lines.get(session_id)
        if line is None or line.task is None or line.stopping or self.running(session_id) is None:
            return False
        line.stopping = True  # once: a second time it would meet the turn while it stores what was said
        return line.task.cancel()

    async def resume(self, *, rerun: bool = False) -> int:
        """After a start: answers what waits, and marks turns cut short, or with `rerun` begins them once more.

        The latter also holds for turns that others leave behind from now on. Gives the number of sessions that had
        something to look after; their turns go on in the background.
        """
        self._reruns = rerun
        found, cursor = 0, None
        while True:
            page = await self._store.find(Query(unfinished=True, limit=PAGE_MAX, cursor=cursor))
            for row in page.items:
                line = self._lines.setdefault(row.id, Line())
                line.rerun = rerun
                line.resumed = True
                found += line.worker is None
                self._employ(row.id, line)
            if (cursor := page.next) is None:
                return found

    async def adopt(self) -> None:
        """Sees to turns whose process fell silent, unless somebody else is faster. For servers that share a store."""
        for session_id in await self._store.abandoned():
            with suppress(NotFound):  # deleted meanwhile, or a lease on something that is no session (`outbox`)
                await self._store.describe(session_id)
                self._employ(session_id, self._lines.setdefault(session_id, Line()))

    async def idle(self) -> None:
        """Returns when nothing runs and nothing waits in this process."""
        while workers := [line.worker for line in self._lines.values() if line.worker]:
            await asyncio.wait(workers)

    async def close(self) -> None:
        """Stops what runs, keeping what was said; what waits stays stored, for the next start."""
        self._closing = True
        workers = [line.worker for line in self._lines.values() if line.worker]
        for session_id, line in list(self._lines.items()):
            if line.blocked and line.worker:
                line.worker.cancel()  # it waits for another process; the message is stored
            self.stop(session_id)
        if workers:
            _, late = await asyncio.wait(workers, timeout=CLOSING_S)
            for worker in late:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        for line in self._lines.values():  # their messages are stored, and wait for the next start
            refuse_all(line, Busy("Turnlog was closed; the message is answered after the next start"))
        with suppress(TurnlogError):  # only estimates would be lost
            await self._runner.calibration.save()

    async def _claim(self, ticket: Ticket) -> bool:
        """Whether this delivery is new, or was claimed by somebody who died before storing it.

        The claim says where the log ended. Whoever appends after it makes sure that nobody did so before.
        """
        incoming = ticket.incoming
        key = f"{incoming.dedupe_scope}|{incoming.dedupe_id}"
        claim = {"session": ticket.session_id, "since": ticket.since}
        older = await self._store.ledger.put_if_absent(DELIVERED, key, claim, ttl_s=DELIVERED_TTL_S)
        if older is None:
            return True
        ticket.session_id, ticket.since = older["session"], older["since"]
        with suppress(NotFound):
            return not await self._is_delivered(ticket)
        return False  # to a session that was deleted since: it does not come back

    async def _is_delivered(self, ticket: Ticket) -> bool:
        later = await self._store.read(ticket.session_id, after=ticket.since)
        return any(isinstance(e, User | Received) and e.dedupe_id == ticket.incoming.dedupe_id for e in later)

    async def _enqueue(self, line: Line, ticket: Ticket) -> None:
        """One after another, so that the cap holds."""
        line.joining += 1
        try:
            async with line.door:
                await self._store_waiting(line, ticket)
        finally:
            line.joining -= 1

    async def _store_waiting(self, line: Line, ticket: Ticket) -> None:
        incoming = ticket.incoming
        body = Received(
            content=incoming.content,
            message_id=incoming.message_id,
            dedupe_id=incoming.dedupe_id,
            sender=incoming.sender,
            mode=self._mode_of(incoming),
        )
        while True:
            row = await self._store.describe(ticket.session_id)
            if len(row.received) >= self._cap:
                if incoming.dedupe_id is not None:
                    # So that its redelivery is not taken for one that was stored.
                    await self._store.ledger.delete(DELIVERED, f"{incoming.dedupe_scope}|{incoming.dedupe_id}")
                raise Busy(f"{len(row.received)} messages wait in this session already")
            once = incoming.dedupe_id is not None
            if once and await self._is_delivered(ticket):
                ticket.stored.set_result(False)
                return
            try:
                [entry] = await self._store.append(ticket.session_id, [body], expect=row.last_seq if once else None)
            except Conflict:
                if not once:
                    raise
                continue
            line.waiting[entry.seq] = ticket
            ticket.position = len(line.waiting)
            if not ticket.stored.done():
                ticket.stored.set_result(True)
            return

    def _mode_of(self, incoming: Incoming) -> Mode:
        """What comes with a context of its own needs a turn of its own: a running one has its system prompt already."""
        mode = incoming.mode or self._mode
        return "followup" if mode == "steer" and incoming.context else mode

    def _employ(self, session_id: str, line: Line) -> None:
        """Sees to it that somebody works on this line. Called after each change to it: a worker may just have left."""
        if self._closing and line.worker is None:
            refuse_all(line, Busy("Turnlog is closing", hint="Send it again after the next start."))
        elif line.worker is None:
            line.worker = asyncio.create_task(self._work(session_id, line), name=f"turns of {session_id}")

    def _forget(self, session_id: str, line: Line) -> None:
        if line.worker is None and not line.visitors and not line.waiting:
            self._lines.pop(session_id, None)

    async def _work(self, session_id: str, line: Line) -> None:
        try:
            async with AsyncExitStack() as stack:
                line.lease = await self._lease(session_id, line, stack)
                await self._serve(session_id, line, line.lease)
        except BaseException as error:
            refuse_all(line, error if isinstance(error, TurnlogError) else Busy("the turn was called off"))
            if not isinstance(error, TurnlogError | asyncio.CancelledError):
                raise
        finally:
            line.worker = None
            line.turn = None
            line.lease = None
            if line.waiting or line.fresh:
                self._employ(session_id, line)
            self._forget(session_id, line)

    async def _lease(self, session_id: str, line: Line, stack: AsyncExitStack) -> Lease:
        try:
            return await stack.enter_async_context(self._store.lease(session_id, wait_s=0))
        except Busy:
            line.blocked = True
        try:
            if ticket := line.fresh:
                line.fresh = None
                try:
                    await self._enqueue(line, ticket)
                except BaseException as error:
                    ticket.refuse(error)
                    raise
            return await stack.enter_async_context(self._store.lease(session_id))
        finally:
            line.blocked = False

    async def _serve(self, session_id: str, line: Line, lease: Lease) -> None:
        journal = await self._runner.take(session_id, lease)
        cut = journal.end > journal.row.last_seq  # marked just now
        if (line.rerun or (self._reruns and cut)) and may_rerun(journal):
            await self._run(line, journal, Job())
        line.rerun = False
        if line.resumed and self._runner.hold != "nothing" and journal.waiting:
            await self._count_attempt(journal)
        line.resumed = False
        while lease.live:  # whoever took it over answers; who waits here is told so by the next worker
            if journal.reshaped:
                journal = await self._runner.take(session_id, lease)  # what is folded need not be kept in mind
            if (ticket := line.fresh) and not self._closing:
                line.fresh = None
                await self._run(line, journal, _fresh(ticket), ticket)
            elif journal.waiting and not self._closing:
                await self._run(line, journal, self._next(line, journal))
            else:
                await journal.refresh()
                await self._tell_taken(line, journal)
                if self._closing or (line.fresh is None and not journal.waiting and not line.waiting):
                    return

    async def _count_attempt(self, journal: Journal) -> None:
        """Where rows are written with their reply, a turn that crashes leaves no mark: starts are counted instead."""
        key = f"{journal.session_id}|{journal.waiting[0].seq}"
        tried = await self._store.ledger.get(ATTEMPTS, key)
        if tried is not None and tried >= RERUNS_MAX:
            await journal.append(User(from_=tuple(entry.seq for entry in journal.waiting)))
            await journal.fail("interrupted", "the turn was cut short at each start")
        else:
            await self._store.ledger.cas(ATTEMPTS, key, tried, (tried or 0) + 1, ttl_s=DELIVERED_TTL_S)

    def _next(self, line: Line, journal: Journal) -> Job:
        """All that wait for being collected, or everything where rows are written with their reply; else one."""
        first = journal.waiting[0]
        many = [entry for entry in journal.waiting if entry.mode == "collect"] if first.mode == "collect" else [first]
        chosen = tuple(journal.waiting if self._runner.hold != "nothing" else many)
        contexts = [line.waiting[e.seq].incoming.context for e in chosen if e.seq in line.waiting]
        return Job(waiting=chosen, context="\n\n".join(filter(None, contexts)))

    async def _run(self, line: Line, journal: Journal, job: Job, ticket: Ticket | None = None) -> None:
        line.task = asyncio.create_task(self._turn(line, journal, job, ticket), name=f"turn of {journal.session_id}")
        try:
            await asyncio.wait({line.task})
        except asyncio.CancelledError:
            line.task.cancel()
            await asyncio.wait({line.task})
            raise
        if not line.task.cancelled():
            line.task.result()

    async def _turn(self, line: Line, journal: Journal, job: Job, ticket: Ticket | None) -> None:
        live = Live(journal.session_id)
        try:
            took = await self._runner.begin(journal, job)
        except BaseException as error:
            if ticket is None:
                raise
            # Its words are not stored: that is for who sent them to know, and nobody else's failure.
            ticket.refuse(error if isinstance(error, TurnlogError) else Busy("the turn was called off"))
            if not isinstance(error, TurnlogError):
                raise
            return
        if took is None:
            if ticket is not None:
                ticket.stored.set_result(False)
            return
        live.seq = took.seq
        line.stopping = self._closing
        if self._closing and line.task:
            line.task.cancel()
        if job == Job():
            live.first = FIRST_AGAIN
        line.turn = live
        for tell in self._begun:
            tell(live)
        if ticket is not None:
            ticket.stored.set_result(True)
            ticket.turn.set_result((live, 0))
        self._taken(line, live, took)
        try:
            async for item in self._runner.run(journal, job, took):
                if isinstance(item, Took):
                    self._taken(line, live, item)
                else:
                    live.fenced = line.lease is not None and not line.lease.live
                    live.add(item)
        except Exception as error:
            live.add(events.of_error(error))
            raise
        finally:
            live.add(Stopped())  # unheard, unless the task was cancelled where no turn could see it
            line.turn = None

    def _taken(self, line: Line, live: Live, took: Took) -> None:
        for seq in took.waiting:
            if ticket := line.waiting.pop(seq, None):
                ticket.turn.set_result((live, len(live.events)))

    async def _tell_taken(self, line: Line, journal: Journal) -> None:
        """Messages that came from here and were answered by another process."""
        still = {entry.seq for entry in journal.waiting}
        for seq in [seq for seq in line.waiting if seq not in still and seq <= journal.end]:
            ticket = line.waiting.pop(seq)
            later = await self._store.read(journal.session_id, after=seq)
            done = await self._done(journal.session_id)
            ticket.turn.set_result((replay(done, seq, later), 0))


def _fresh(ticket: Ticket) -> Job:
    incoming = ticket.incoming
    return Job(
        content=incoming.content,
        message_id=incoming.message_id,
        dedupe_id=incoming.dedupe_id,
        sender=incoming.sender,
        since=ticket.since,
        context=incoming.context,
    )


def may_rerun(journal: Journal) -> bool:
    """Whether the newest turn was cut short before any tool had started, and has not been begun again already."""
    turn = journal.turn()
    cuts = [entry for entry in turn if isinstance(entry, Failed)]
    if not turn or not isinstance(turn[0], User) or not cuts:
        return False
    if any(entry.code != "interrupted" for entry in cuts) or len(cuts) > RERUNS_MAX:
        return False
    return not any(isinstance(entry, Assistant) for entry in turn)
