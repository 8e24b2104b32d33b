"""Messages over HTTP: send one and get the events of its turn; rejoin a turn, ask whether one runs, stop it."""

import asyncio
import os
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, nullcontext, suppress
from functools import partial
from typing import Annotated

from litestar import Controller, get, post
from litestar.params import JSONBody, QueryParameter
from litestar.types import ASGIApp

from ...access import Access
from ...core import answers, events, keys
from ...core.entries import Received
from ...core.events import Queued
from ...core.keys import SessionKey
from ...core.principals import home_key
from ...core.session import Session
from ...errors import Busy, Conflict, Denied, NotFound, TurnlogError
from ...turns.queue import Ticket
from ..http import idempotency, sse
from ..http.bodies import AgentId, ChatBody, ModelsView, StatusView, StopBody, StopView, content_of
from ..http.idempotency import Claim
from ..http.limits import check_text
from ..http.problems import later, state_conflicts
from ..http.sse import EventStream
from ..rejoin import Rejoin, despite_outage
from ..service import AnyRequest, Service, acting, reading, service_of, token_of, writing

RETRY_AFTER_S = 5
"""Told when the queue of a session is full: about as long as a turn takes."""
After = Annotated[
    str | None,
    QueryParameter(name="after", description="The id of the last frame that arrived.", pattern=r"^\d{1,12}-\d{1,12}$"),
]
Which = Annotated[
    str, QueryParameter(name="sessionId", description="A session.", pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")
]


@get(
    "/models",
    operation_id="models",
    tags=("chat",),
    summary="The models that may be chosen for a session, the agent's own first",
)
async def offered_models(request: AnyRequest, agent: AgentId) -> ModelsView:
    return ModelsView(list(acting(request, "chat", "read", agent=agent).models(agent)))


class ChatController(Controller):
    path = "/chat"
    tags = ("chat",)

    @post("/", status_code=200, operation_id="chat", summary="Send a message and follow its turn")
    async def send(self, request: AnyRequest, agent: AgentId, data: JSONBody[ChatBody]) -> ASGIApp:
        return await answer_message(request, agent, data)

    @get("/stream", operation_id="rejoin", summary="Come back to a running turn")
    async def rejoin(self, request: AnyRequest, agent: AgentId, session: Which, after: After = None) -> ASGIApp:
        service = service_of(request)
        access, row = await reading(request, agent, session)
        last = request.headers.get("last-event-id") or after
        place = sse.parse_place(last) if last else None
        service.hold_stream(request)
        service.metrics.rejoined.inc()
        return stream(request, row.id, Rejoin(access, service.turns).frames(row, place))

    @get("/status", operation_id="chatStatus", summary="Whether a turn runs")
    async def status(self, request: AnyRequest, agent: AgentId, session: Which) -> StatusView:
        access, row = await reading(request, agent, session)
        if row.waiting:
            return StatusView("waiting")
        if (row.under_way and row.channel != keys.API) or access.running(row):
            return StatusView("running")
        return StatusView("queued" if row.received else "idle")

    @post("/stop", status_code=200, operation_id="stop", summary="Stop the running turn, keeping what was said")
    async def stop(self, request: AnyRequest, agent: AgentId, data: JSONBody[StopBody]) -> StopView:
        access, row = await writing(request, agent, data.session_id)

        async def act() -> StopView:
            return StopView(await access.stop_anywhere(row.id))

        return await idempotency.once(request, StopView, act)


async def answer_message(request: AnyRequest, agent: str, data: ChatBody) -> EventStream:
    access, row, ticket = await accept_message(request, agent, data)
    rejoin = Rejoin(access, service_of(request).turns)
    return stream(request, row.id, _frames(rejoin, access, row, ticket))


async def accept_message(request: AnyRequest, agent: str, data: ChatBody) -> tuple[Access, Session, Ticket]:
    """The message is stored when this returns. Its caller answers with a stream."""
    service, access = service_of(request), acting(request, "chat", agent=agent)
    service.check_open()
    service.hold_stream(request)
    check_text("the message", data.message)
    check_text("the context", data.context or "")
    content = content_of(data)
    if data.model is not None:
        with state_conflicts():
            access.check_model(agent, data.model)  # before anything is stored
    claim = await idempotency.claim(request, data.session_id or fresh_id())
    sender = access.principal.name
    context, recall = data.context or "", data.recall
    if claim is None and (known := _left_here(access, agent, data)):
        # Most messages follow a turn of this process: then nothing is asked of the store before they are stored.
        next_one = partial(access.accept_if_unchanged, known, content, sender=sender, context=context, recall=recall)
        with suppress(Conflict, Busy, NotFound):
            return access, known, await service.accept(known, data.message, sender, next_one)
    row = await _session(service, access, agent, data, claim)
    if data.model is not None:
        row = await access.choose_model(row, data.model)
    begin = partial(access.accept_after, row, data.rewind_to) if data.rewind_to else partial(access.accept, row)
    delivery = claim.delivery if claim else None
    accept = partial(begin, content, sender=sender, dedupe_id=delivery, context=context, recall=recall)
    try:
        # Everything in the request is checked by now: what is left to refuse is an entry that ends no turn.
        with state_conflicts() if data.rewind_to else nullcontext():
            return access, row, await service.accept(row, data.message, sender, accept)
    except Busy as error:
        if data.rewind_to is not None:
            raise
        hint = "Wait for the running turn to end."
        raise later(str(error), hint, status=429, code="queue_full", after_s=RETRY_AFTER_S) from error


def stream(request: AnyRequest, session_id: str | None, frames: AsyncGenerator[bytes]) -> EventStream:
    """`session_id`: None for the live stream of a page, which is not about one session."""
    service = service_of(request)
    told = {"session": session_id} if session_id else {}
    return EventStream(
        frames,
        streams=service.streams,
        may_listen=service.may_listen(token_of(request), session_id),
        on_error=lambda error: service.log.error("stream" if told else "live", **told, exc_info=error),
        headers=[(b"turnlog-session", session_id.encode())] if session_id else (),
    )


def fresh_id() -> str:
    return keys.session_id(time.time_ns() // 1_000_000, os.urandom(6))


def _left_here(access: Access, agent: str, data: ChatBody) -> Session | None:
    if data.session_id is None or data.key or data.model is not None or data.rewind_to:
        return None
    with suppress(NotFound, Denied):  # the usual way says why
        row = access.left_here(data.session_id)
        return row if row.agent == agent else None
    return None


async def _session(service: Service, access: Access, agent: str, data: ChatBody, claim: Claim | None) -> Session:
    """By id, by key, or a new one at the principal's own key."""
    place = keys.parse(data.key, agent=agent) if data.key else None
    if place is not None and place.agent != agent:
        raise NotFound("the key belongs to another agent", hint="Use the agent's own path.")
    home = place or home_key(access.principal, agent)
    if claim is not None and (taken := await access.delivered_to(home, claim.delivery)):
        # The session of the first request, wherever the key leads now. If it was deleted, it does not come back.
        return taken
    wanted = data.session_id or (claim.session_id if claim and place is None else None)
    if wanted is None and place is not None:
        return await access.renewed(await access.sessions.open(place))
    if wanted is None:
        return await _new(service, access, home, None)
    row = await _named(service, access, home, wanted)
    if row.agent != agent:
        raise NotFound(f"there is no session {wanted}")
    if place is not None and row.key != keys.format(place):
        raise Conflict("the session is at another key", hint="Leave out the key, or the sessionId.")
    return row


async def _named(service: Service, access: Access, home: SessionKey, session_id: str) -> Session:
    """A name that had no turn here is probably new, so it is claimed before it is looked up."""
    try:
        access.left_here(session_id)
    except NotFound:
        with suppress(Conflict, NotFound, Denied):  # it is there already, or the key is closed to this principal
            async with service.lock(keys.format(home)):
                return await access.sessions.new(home, session_id=session_id)
    try:
        return await access.sessions.writable(session_id)
    except NotFound:
        return await _new(service, access, home, session_id)


async def _new(service: Service, access: Access, place: SessionKey, session_id: str | None) -> Session:
    async with service.lock(keys.format(place)):
        try:
            return await access.sessions.new(place, session_id=session_id)
        except Conflict as error:
            if session_id is None:
                raise
            try:
                # Another request with this id was faster; or the session is somebody else's, and NotFound for us.
                return await access.sessions.writable(session_id)
            except NotFound:
                raise NotFound(f"there is no session {session_id}") from error


def _frames(rejoin: Rejoin, access: Access, row: Session, ticket: Ticket) -> AsyncGenerator[bytes]:
    if not ticket.stored.result():
        return _of_first(rejoin, access, row, ticket)
    taken = ticket.turn
    if taken.done() and not taken.cancelled() and taken.exception() is None:  # most messages begin a turn at once
        return rejoin.follow(row, *taken.result(), is_whole=True)
    return _of_ticket(rejoin, row, ticket)


async def _of_ticket(rejoin: Rejoin, row: Session, ticket: Ticket) -> AsyncGenerator[bytes]:
    if position := await ticket.waits():
        yield sse.frame(Queued(position=position))
    try:
        turn, after = await asyncio.shield(ticket.turn)
    except TurnlogError as error:
        yield sse.frame(events.of_error(error))
        return
    async with aclosing(rejoin.follow(row, turn, after)) as chunks:
        async for chunk in chunks:
            yield chunk


async def _of_first(rejoin: Rejoin, access: Access, row: Session, ticket: Ticket) -> AsyncGenerator[bytes]:
    """The turn of a delivery that came before: the one that took it the first time."""
    delivery = ticket.incoming.dedupe_id or ""
    is_told = False
    while True:
        later = await despite_outage(partial(access.sessions.read, row, after=ticket.since))
        stored = answers.delivered(later, delivery)
        seq = stored.seq if stored else 0
        taker = answers.taker_of(later, seq)
        runs_here = rejoin.runs_here(row, seq)  # a turn may store its user row last
        if not isinstance(stored, Received) or taker or runs_here:
            break
        if not is_told:
            is_told = True
            yield sse.frame(Queued(position=1))
        await rejoin.news(row, later[-1].seq)
    async with aclosing(rejoin.of_turn(row, taker.seq if taker else seq)) as chunks:
        async for chunk in chunks:
            yield chunk
