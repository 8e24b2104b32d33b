"""Talking: a message in, its turn's events out; coming back to a turn, asking after it, stopping it."""

import asyncio
import os
import time
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from typing import Annotated

from litestar import Controller, get, post
from litestar.params import JSONBody, QueryParameter
from litestar.types import ASGIApp

from ..core import events, keys
from ..core.entries import Received
from ..core.events import Queued
from ..core.keys import SessionKey
from ..core.principals import Principal, home_key
from ..core.session import Session
from ..errors import Busy, Conflict, NotFound, TurnlogError
from ..queue import DELIVERED, Ticket
from . import idempotency, sse
from .bodies import AgentId, ChatBody, StatusView, StopBody, StopView, content_of
from .idempotency import Claim
from .limits import check_text
from .problems import Refusal
from .service import Asked, Service, service_of, token_of, who_asks
from .sse import EventStream

RETRY_AFTER_S = 5
"""When a session's queue is full: about as long as a turn takes."""
After = Annotated[
    str | None,
    QueryParameter(name="after", description="The id of the last frame that arrived.", pattern=r"^\d{1,12}-\d{1,12}$"),
]
Which = Annotated[
    str, QueryParameter(name="sessionId", description="A session.", pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")
]


class Chat(Controller):
    path = "/chat"
    tags = ("chat",)

    @post("/", status_code=200, operation_id="chat", summary="Send a message and follow its turn")
    async def send(self, request: Asked, agent: AgentId, data: JSONBody[ChatBody]) -> ASGIApp:
        service, who = service_of(request), who_asks(request, "chat")
        service.check_open()
        service.check_agent(who, agent)
        check_text("the message", data.message)
        check_text("the context", data.context or "")
        content = content_of(data)
        key = idempotency.key_of(request)
        ledger = service.turnlog.store.ledger
        claim = await idempotency.claim(ledger, request, key, data.session_id or fresh_id()) if key else None
        row = await _session(service, who, agent, data, claim)
        delivery, context = claim.delivery if claim else None, data.context or ""

        def take() -> Awaitable[Ticket]:
            return service.turnlog.accept(
                row, content, sender=who.name, dedupe_id=delivery, context=context, recall=data.recall
            )

        try:
            ticket = await service.taking_in(row, data.message, who.name, take)
        except Busy as error:
            raise _queue_is_full(error) from error
        told = _of_ticket(service, ticket) if ticket.stored.result() else _told_before(service, row, ticket)
        return stream(request, row.id, told)

    @get("/stream", operation_id="rejoin", summary="Come back to a running turn")
    async def rejoin(self, request: Asked, agent: AgentId, session: Which, after: After = None) -> ASGIApp:
        service = service_of(request)
        row = await service.row(who_asks(request, "chat", "read"), agent, session)
        last = request.headers.get("last-event-id") or after
        place = sse.parse_place(last) if last else None
        service.metrics.rejoined.inc()
        return stream(request, row.id, service.rejoining.frames(row.id, place))

    @get("/status", operation_id="chatStatus", summary="Whether a turn runs")
    async def status(self, request: Asked, agent: AgentId, session: Which) -> StatusView:
        service = service_of(request)
        row = await service.row(who_asks(request, "chat", "read"), agent, session)
        if row.under_way or service.turns.running(row.id):
            return StatusView("running")
        return StatusView("queued" if row.received else "idle")

    @post("/stop", status_code=200, operation_id="stop", summary="Stop the running turn, keeping what was said")
    async def stop(self, request: Asked, agent: AgentId, data: JSONBody[StopBody]) -> StopView:
        service, who = service_of(request), who_asks(request, "chat")
        row = await service.row(who, agent, data.session_id, write=True)

        async def act() -> StopView:
            return StopView(await service.turnlog.stop_anywhere(row.id))

        return await idempotency.once(service.turnlog.store.ledger, request, StopView, act)


def stream(request: Asked, session_id: str, frames: AsyncGenerator[bytes]) -> EventStream:
    service = service_of(request)
    return EventStream(
        frames,
        streams=service.streams,
        may_listen=service.may_listen(token_of(request), session_id),
        on_error=lambda error: service.log.error("stream", session=session_id, exc_info=error),
        headers=[(b"turnlog-session", session_id.encode())],
    )


def fresh_id() -> str:
    return keys.session_id(time.time_ns() // 1_000_000, os.urandom(6))


async def _session(service: Service, who: Principal, agent: str, data: ChatBody, claim: Claim | None) -> Session:
    """By id, by key, or a new one at the principal's own place."""
    gate = service.gate(who)
    place = keys.parse(data.key, agent=agent) if data.key else None
    if place is not None and place.agent != agent:
        raise NotFound("the key belongs to another agent", hint="Use the agent's own path.")
    home = place or home_key(who, agent)
    if claim is not None and (there := await _taken_by(service, home, claim)):
        # The first request's, wherever the key leads by now. If it was deleted, asking again does not bring it back.
        return await gate.writable(there)
    wanted = data.session_id or (claim.session_id if claim and place is None else None)
    if wanted is None and place is not None:
        return await gate.open(place)
    if wanted is None:
        return await _new(service, who, home, None)
    try:
        row = await gate.writable(wanted)
    except NotFound:
        row = await _new(service, who, home, wanted)
    if row.agent != agent:
        raise NotFound(f"there is no session {wanted}")
    if place is not None and row.key != keys.format(place):
        raise Conflict("the session is at another key", hint="Leave out the key, or the sessionId.")
    return row


async def _taken_by(service: Service, place: SessionKey, claim: Claim) -> str | None:
    """The session that has taken the message in, if it came before."""
    scope = f"{place.channel}|{place.account or ''}"
    fact = await service.turnlog.store.ledger.get(DELIVERED, f"{scope}|{claim.delivery}")
    return fact["session"] if fact else None


async def _new(service: Service, who: Principal, place: SessionKey, session_id: str | None) -> Session:
    async with service.lock(keys.format(place)):
        try:
            return await service.gate(who).new(place, session_id=session_id)
        except Conflict as error:
            if session_id is None:
                raise
            try:
                # Another request with this id was faster; or it is somebody else's, and does not exist for us.
                return await service.gate(who).writable(session_id)
            except NotFound:
                raise NotFound(f"there is no session {session_id}") from error


async def _of_ticket(service: Service, ticket: Ticket) -> AsyncGenerator[bytes]:
    if not ticket.turn.done() and ticket.position:
        yield sse.frame(Queued(position=ticket.position))
    try:
        live, after = await asyncio.shield(ticket.turn)
    except TurnlogError as error:
        yield sse.frame(events.of_error(error))
        return
    async with aclosing(service.rejoining.follow(live, after)) as told:
        async for chunk in told:
            yield chunk


async def _told_before(service: Service, row: Session, ticket: Ticket) -> AsyncGenerator[bytes]:
    """The turn that took this delivery when it came first."""
    delivery = ticket.incoming.dedupe_id
    ledger, store = service.turnlog.store.ledger, service.turnlog.store
    fact = await ledger.get(DELIVERED, f"{ticket.incoming.dedupe_scope}|{delivery}") or {"since": 0}
    waits = 0
    while True:
        later = await store.read(row.id, after=fact["since"])
        seq = next((e.seq for e in later if getattr(e, "dedupe_id", None) == delivery), 0)
        taken = next((e.seq for e in later if seq in getattr(e, "from_", ())), 0)
        waiting = next((e for e in later if e.seq == seq and isinstance(e, Received)), None)
        if waiting is None or taken:
            break
        waits += 1
        if waits == 1:
            yield sse.frame(Queued(position=1))
        await service.rejoining.news(row.id, later[-1].seq)
    async with aclosing(service.rejoining.of_turn(row.id, taken or seq)) as told:
        async for chunk in told:
            yield chunk


def _queue_is_full(error: Busy) -> Refusal:
    return Refusal(
        str(error),
        status=429,
        code="queue_full",
        hint="Wait for the running turn to end.",
        headers={"Retry-After": str(RETRY_AFTER_S)},
    )
