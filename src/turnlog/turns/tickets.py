"""An accepted message (`Ticket`), and the state of its session in this process (`Lane`)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from ..core.entries import Content
from ..core.events import Event, Queued
from ..core.session import Session
from ..runtime import tracing
from .stream import TurnStream

QueueMode: TypeAlias = Literal["steer", "followup", "collect", "interrupt"]


class Incoming(Struct, frozen=True, kw_only=True):
    """A message as an edge passes it in."""

    content: Content
    message_id: str | None = None
    dedupe_id: str | None = None
    dedupe_scope: str = ""
    """Channel and account: delivery ids are unique within."""
    sender: str | None = None
    context: str = ""
    """Added to the system prompt of its turn; not stored."""
    mode: QueueMode | None = None
    asks: bool = True
    """Whether somebody can be asked for approval while its turn runs."""
    retry: bool = False
    """Not a new message: the message of the last turn, which failed."""
    rewind_to: int | None = None
    """History goes on from this entry, which ends a turn: the rewind and the message are one append."""
    if_unchanged: bool = False
    """Only if nothing was written to the session since its row was read."""

    @property
    def is_about_past(self) -> bool:
        """Whether it is about what the log holds, which is read first."""
        return self.retry or self.rewind_to is not None

    @property
    def is_alone(self) -> bool:
        """Whether it neither joins a turn nor waits for one: it means the log as it is now."""
        return self.is_about_past or self.if_unchanged


class Ticket:
    """An accepted message."""

    def __init__(self, row: Session, incoming: Incoming) -> None:
        self.row = row
        """Of its session, as it was when the message came."""
        self.session_id = row.id
        self.incarnation: str | None = row.incarnation
        self.since = row.last_seq
        """The message is stored after this seq, if at all."""
        self.incoming = incoming
        self.trace = tracing.current()
        loop = asyncio.get_running_loop()
        self.queued: asyncio.Future[int] = loop.create_future()
        """Its position in the queue, once it is known that it has to wait for a turn, here or in another process."""
        self.stored: asyncio.Future[bool] = loop.create_future()
        """True once it is durable; False: it had been delivered before."""
        self.turn: asyncio.Future[tuple[TurnStream, int]] = loop.create_future()
        """The turn that took it, and the number of events told by then."""

    async def follow(self, before: Callable[[], Awaitable[Event]] | None = None) -> AsyncIterator[Event]:
        """The events of its turn. `before`: gives the only event of a message that had been delivered before."""
        if before is not None and not await self.stored:
            yield await before()
            return
        if position := await self.waits():
            yield Queued(position=position)
        stream, after = await asyncio.shield(self.turn)
        while await stream.reach(after):  # as `TurnStream.follow`; a generator inside this one would double each step
            while after < len(stream.events):
                yield stream.events[after]
                after += 1

    async def waits(self) -> int:
        """Its position in the queue; 0 once a turn has taken it, or refused to."""
        if not self.turn.done():  # most messages begin a turn of their own
            await asyncio.wait({self.queued, self.turn}, return_when=asyncio.FIRST_COMPLETED)
        return 0 if self.turn.done() else self.queued.result()

    def wait(self, position: int) -> None:
        if not self.queued.done():
            self.queued.set_result(position)

    def refuse(self, error: BaseException) -> None:
        for future in (self.stored, self.turn):
            if not future.done():
                future.set_exception(error)
                future.exception()  # marks the exception as retrieved: perhaps nobody listens


class Lane:
    """One session in this process. `queue` draws its states."""

    def __init__(self, row: Session) -> None:
        self.session_id = row.id
        self.incarnation = row.incarnation
        self.worker: asyncio.Task[None] | None = None
        """Holds the lease, and runs turn after turn until nothing waits."""
        self.stream: TurnStream | None = None
        """The stream of the running turn."""
        self.task: asyncio.Task[None] | None = None
        """The task of the turn, so that stopping a turn never stops the worker."""
        self.unstored: Ticket | None = None
        """A message that the next turn stores itself."""
        self.waiting: dict[int, Ticket] = {}
        """By the seq of the `received` entry."""
        self.accepting = 0
        """Calls of `accept` in progress: the lane is not dropped meanwhile."""
        self.storing = 0
        """Those of them that are storing their message as `received`, one after another, so that the cap holds."""
        self.storing_lock = asyncio.Lock()
        self.resumed = False
        """The waiting messages were left by an earlier process."""
        self.stopping = False
        self.paused = False
        """The turn waits for a person's approval: its stream stays open, and no worker runs."""
        self.watch: asyncio.Task[None] | None = None
        """Wakes a paused lane."""
        self.is_ending = False
        """Somebody stopped the paused turn; the next worker ends it."""
        self.blocked = False
        """The worker waits for a turn in another process."""
        self.is_contended = False
        """The log or the lease was not as expected when a turn was to begin: the next worker takes the lease first."""

    @property
    def is_free(self) -> bool:
        """No message is before one that comes now. The worker, if there is one, will look once more."""
        return self.stream is None and self.unstored is None and not (self.waiting or self.storing or self.blocked)

    def cancel_turn(self) -> bool:
        """Stops the running turn; whether there was one."""
        if self.task is None or self.stopping or self.paused or self.stream is None or self.stream.over:
            return False
        self.stopping = True  # once: a second cancel would hit the turn while it stores what was said
        return self.task.cancel()

    def tell_joined(self, stream: TurnStream, seqs: Sequence[int]) -> None:
        """These messages are part of the turn; their listeners follow it from its next event on."""
        for seq in seqs:
            if ticket := self.waiting.pop(seq, None):
                ticket.turn.set_result((stream, len(stream.events)))

    def unpause(self) -> None:
        self.paused = False
        if self.watch is not None:
            self.watch.cancel()
            self.watch = None

    def abandon(self) -> None:
        """Gives up a paused turn, which stays in the log as it is."""
        if self.paused:
            if self.stream and not self.stream.over:
                self.stream.leave()
            self.unpause()
            self.stream = None

    def refuse_unstored(self, error: BaseException) -> None:
        if self.unstored:
            self.unstored.refuse(error)
            self.unstored = None

    def refuse_all(self, error: BaseException) -> None:
        self.refuse_unstored(error)
        for ticket in self.waiting.values():
            ticket.refuse(error)
        self.waiting.clear()
