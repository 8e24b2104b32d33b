"""A message that was taken in, and what a process knows of the session it was for."""

import asyncio
from collections.abc import AsyncIterator
from typing import Literal, TypeAlias

from msgspec import Struct

from .core.entries import Content
from .core.events import Event, Queued
from .live import Live
from .stores import Lease

Mode: TypeAlias = Literal["steer", "followup", "collect", "interrupt"]


class Incoming(Struct, frozen=True, kw_only=True):
    """A message as an edge hands it in."""

    content: Content
    message_id: str | None = None
    dedupe_id: str | None = None
    dedupe_scope: str = ""
    """Channel and account: delivery ids are unique within."""
    sender: str | None = None
    context: str = ""
    """Joins the system prompt of its turn; is not stored."""
    mode: Mode | None = None


class Ticket:
    """A message that was taken in."""

    def __init__(self, session_id: str, incoming: Incoming) -> None:
        self.session_id = session_id
        self.incoming = incoming
        self.since = 0
        self.position = 0
        """Its place among those who waited when it came; 0: its turn began at once."""
        loop = asyncio.get_running_loop()
        self.stored: asyncio.Future[bool] = loop.create_future()
        """True once it is durable; False: it had been delivered before."""
        self.turn: asyncio.Future[tuple[Live, int]] = loop.create_future()
        """The turn that took it, and how many of its events were over by then."""

    async def follow(self) -> AsyncIterator[Event]:
        if not self.turn.done() and self.position:
            yield Queued(position=self.position)
        live, after = await asyncio.shield(self.turn)
        async for event in live.follow(after):
            yield event

    def refuse(self, error: BaseException) -> None:
        for future in (self.stored, self.turn):
            if not future.done():
                future.set_exception(error)
                future.exception()  # seen: nobody may be listening


class Line:
    """What this process knows of one session."""

    def __init__(self) -> None:
        self.worker: asyncio.Task[None] | None = None
        """Has the lease, and runs turn after turn until nothing waits."""
        self.turn: Live | None = None
        self.task: asyncio.Task[None] | None = None
        """The turn's own, so that stopping a turn never stops the worker."""
        self.fresh: Ticket | None = None
        self.waiting: dict[int, Ticket] = {}
        """By the seq of the `received` entry."""
        self.visitors = 0
        """Messages that are being taken in: the line must not be forgotten under them."""
        self.joining = 0
        """Those of them that are being stored as waiting."""
        self.door = asyncio.Lock()
        self.rerun = False
        self.resumed = False
        """What waits here was left by an earlier process."""
        self.stopping = False
        self.blocked = False
        """The worker waits for a turn elsewhere: what comes now must be stored without it."""
        self.lease: Lease | None = None

    @property
    def free(self) -> bool:
        """Nobody is before a message that comes now; the worker may be about to leave, or will look once more."""
        return self.turn is None and self.fresh is None and not (self.waiting or self.joining or self.blocked)


def refuse_all(line: Line, error: BaseException) -> None:
    for ticket in (*line.waiting.values(), *([line.fresh] if line.fresh else [])):
        ticket.refuse(error)
    line.waiting.clear()
    line.fresh = None
