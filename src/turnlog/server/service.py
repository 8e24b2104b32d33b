"""What all routes share: the caller and what they may do, turns that can be rejoined, and whether the server is
stopping.

A route gets the `Access` of the caller (`acting`, `reading`, `writing`), and reaches sessions only through it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

from litestar import Request
from msgspec.structs import asdict
from structlog.typing import FilteringBoundLogger

from ..access import Access
from ..access.conversations import OwnConversations
from ..access.relaying import Relaying
from ..channels.gateway import Gateway
from ..channels.outbox import UNSENT, WAITING, OutgoingReplies, replies_in
from ..convlog import ConvLog
from ..core import keys
from ..core.events import ApprovalAnswered, Done, ErrorEvent, spoken
from ..core.principals import Principal
from ..core.session import Session
from ..errors import NotFound, StoreUnavailable
from ..library import Turnlog, conversations_of, relaying_of
from ..runtime import background
from ..sessions.erasing_text import EraseReport, EraseRequest
from ..stores import Ledger
from ..turns.queue import Ticket
from ..turns.stream import TurnStream
from .changes import SessionChanges
from .convlog_lines import ConvlogLines
from .daily_usage import DailyUsage
from .http.auth import Token, Tokens
from .http.connections import Connections, limits_of
from .http.problems import Refusal, later
from .http.sse import EventStream
from .metrics import Metrics
from .recent_turns import RecentTurns

if TYPE_CHECKING:
    from ..interchange.importing import Imported

READY_S = 3.0
"""The time limit of a readiness check; other calls wait longer for a database to come back."""
READY_FOR_S = 2.0
"""How long one write proves that the store can be written: frequent checks must not wear out the disk."""
ACCESSES_MAX = 256
"""Principals whose `Access` is kept; making one takes longer than finding it."""
LAST_NOTES_S = 5.0
"""The time for the last lines of the convlog when the server stops."""
CALLER = "turnlog.token"
"""The key in a request's scope for its token."""
HELD = "turnlog.held"
"""Where in a request's scope the gate puts a stack; closing it releases the limits that the request uses."""
AnyRequest = Request[Any, Any, Any]


class Service:
    def __init__(
        self,
        turnlog: Turnlog,
        convlog: ConvLog,
        metrics: Metrics,
        log: FilteringBoundLogger,
        *,
        tokens: Tokens,
        answers: Ledger,
        usage: DailyUsage,
    ) -> None:
        """`answers`: for idempotency keys. Routes never get `turnlog`, only the access of the caller."""
        self._turnlog = turnlog
        self.settings = turnlog.settings
        self.convlog = convlog
        self._lines = ConvlogLines(convlog, log)
        self.metrics = metrics
        self.log = log
        self.tokens = tokens
        self.answers = answers
        self.usage = usage
        self.turns = RecentTurns()
        self.changes = SessionChanges(turnlog.sessions.list)
        self.streams: set[EventStream] = set()
        server = turnlog.settings.server
        self.connections = Connections(limits_of(server), proxies=server.trusted_proxies, count=metrics.count_refused)
        self.closing = False
        self.gateway: Gateway | None = None
        """Set if there are channels."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._accesses: dict[Principal, Access] = {}
        self._asked_here: WeakKeyDictionary[TurnStream, Session] = WeakKeyDictionary()
        """Turns that answer a message of this server, and their sessions. Channels write to the convlog themselves."""
        self._proved_at = -READY_FOR_S
        self._tasks: set[asyncio.Task[None]] = set()
        self._closers: list[Callable[[], Awaitable[object]]] = []
        turnlog.on_turn(self.turns.keep)
        turnlog.on_turn(self._accompany)

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(("main", *self.settings.agents)))

    def acting_for(self, who: Principal) -> Access:
        """An `Access` keeps nothing between calls, so that all requests of a principal share one."""
        if (found := self._accesses.get(who)) is None:
            if len(self._accesses) >= ACCESSES_MAX:
                self._accesses.clear()
            found = self._accesses[who] = self._turnlog.acting_for(who)
        return found

    def relaying_for(self, who: Principal) -> Relaying:
        return relaying_of(self._turnlog, who)

    def conversations_for(self, who: Principal) -> OwnConversations:
        return conversations_of(self._turnlog, who)

    def check_agent(self, who: Principal, agent: str) -> str:
        """An agent of the settings that this principal may use. Any other agent does not exist for them."""
        keys.check_agent(agent)
        if agent not in self.agents or (who.agents is not None and agent not in who.agents):
            raise NotFound(f"there is no agent {agent}", hint="Name an agent of the settings that your token may use.")
        return agent

    async def erase(self, who: Principal, asked: EraseRequest) -> EraseReport:
        """Lists or erases words in sessions and in the convlog."""
        fields = asdict(asked)
        return await self._turnlog.erase(fields.pop("row"), **fields, by=who, convlog=self._lines)

    async def import_path(self, path: Path, agent: str) -> "list[Imported]":
        """Imports the conversations of a file; the caller has checked who asks."""
        from ..interchange.importing import import_path

        return await import_path(self._turnlog, path, agent=agent)

    async def undelivered(self) -> OutgoingReplies:
        """Replies to channels that wait to be sent, or could not be sent."""
        return await replies_in(self._turnlog.ledger(WAITING, UNSENT), WAITING, UNSENT)

    def may_listen(self, token: Token, session_id: str | None) -> Callable[[], Awaitable[bool]]:
        """Whether the token is still valid, and may still see this session."""

        async def check() -> bool:
            try:
                found = await self.tokens.find(token.id)
                if found is None or session_id is None:
                    return found is not None
                return bool(await self.acting_for(found.principal).sessions.get(session_id))
            except NotFound:
                return True  # an event tells its listeners that it was deleted
            except StoreUnavailable:
                return True  # unknown until the store is back

        return check

    def note_use(self, token: Token) -> None:
        """Writes when a token was last used, in a task of its own: the request does not wait for it."""
        if self.tokens.is_use_due(token.id):
            self._spawn(self.tokens.note_use(token.id), "last use")

    def recount_usage(self) -> None:
        self._spawn(self.usage.recount(), "usage")

    def count_open(self) -> None:
        """Tells the metrics what is open now."""
        self.metrics.streams.set(len(self.streams))
        self.metrics.connections.set(len(self.connections))

    def check_open(self) -> None:
        if self.closing:
            raise later("the server is closing", "Try again in a moment.", status=503, code="closing", after_s=2)

    async def prove_writable(self) -> None:
        """Raises StoreUnavailable if the store cannot be written within a short time."""
        if time.monotonic() - self._proved_at >= READY_FOR_S:
            try:
                async with asyncio.timeout(READY_S):
                    await self._turnlog.ping()
            except TimeoutError as error:
                raise StoreUnavailable("the store does not answer", hint="Try again when the store works.") from error
            self._proved_at = time.monotonic()

    def hold_stream(self, request: "AnyRequest", *, of_client: bool = False) -> None:
        """Refuses if too many streams are open. Called before a message is accepted."""
        held = cast("dict[str, Any]", request.scope)[HELD]
        self.connections.hold_stream(token_of(request).id, held, of_client=of_client)

    def lock(self, what: str) -> asyncio.Lock:
        """One lock per key, so that sessions are created there one after another; one per session, to order its
        convlog.
        """
        return self._locks.get(what) or self._locks.setdefault(what, asyncio.Lock())

    async def accept(self, row: Session, text: str, sender: str, accept: Callable[[], Awaitable[Ticket]]) -> Ticket:
        """Accepts a message, and writes it to the convlog while its turn runs, always before the answer."""
        async with self.lock(row.id):
            ticket = await accept()
            if ticket.turn.done():  # most messages begin a turn at once
                self._remember(row, ticket.turn)
            else:
                ticket.turn.add_done_callback(partial(self._remember, row))
            if text and ticket.stored.result():
                self._lines.add(row, "user", text, sender=sender)
                await self._lines.room()
        return ticket

    def _remember(self, row: Session, turn: asyncio.Future[tuple[TurnStream, int]]) -> None:
        if not turn.cancelled() and turn.exception() is None:
            self._asked_here[turn.result()[0]] = row

    def _accompany(self, stream: TurnStream) -> None:
        self.changes.look()
        stream.on_end(partial(self._end_turn, self.metrics.begin_turn()))

    def _spawn(self, work: Coroutine[Any, Any, None], name: str = "turns") -> None:
        task = asyncio.create_task(_watched(work, name))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _end_turn(self, begun_at: float, stream: TurnStream) -> None:
        """Counts the turn, and writes the answer of a page's session to the convlog, even if nobody listens."""
        self.metrics.end_turn(begun_at)
        self.turns.end(stream)
        try:
            self._end(stream)
        except Exception as error:  # noqa: BLE001 - it is reported, and the other turns go on
            background.report("turns", error)

    def _end(self, stream: TurnStream) -> None:
        outcome = _outcome(stream)
        self.metrics.turns.labels(outcome.partition(" ")[0]).inc()
        for event in stream.events:
            if isinstance(event, ApprovalAnswered):
                self.metrics.approvals.labels(event.word).inc()
        self.changes.look()
        self.log.info("turn", session=stream.session_id, turn=stream.seq, outcome=outcome)
        if stream.fenced:
            return  # the process that took over the turn writes it
        row = self._asked_here.get(stream)
        if row is not None and not self.lock(stream.session_id).locked():
            self._note_answer(row, stream)
        else:
            self._spawn(self._note_answer_later(stream))

    async def _note_answer_later(self, stream: TurnStream) -> None:
        """After the message that is being accepted."""
        async with self.lock(stream.session_id):
            if row := self._asked_here.get(stream) or await self._page_session(stream.session_id):
                self._note_answer(row, stream)

    def _note_answer(self, row: Session, stream: TurnStream) -> None:
        if text := spoken(stream.events):
            self._lines.add(row, "assistant", text, sender=row.agent)

    async def _page_session(self, session_id: str) -> Session | None:
        """The session, if it is the page's: a turn that was resumed answers no message of this process."""
        try:
            row = await self._turnlog.sessions.get(session_id)
        except NotFound:
            return None
        return row if row.channel == "web" else None

    def on_close(self, close: Callable[[], Awaitable[object]]) -> None:
        """Calls this when the server has stopped, to close what a route has opened."""
        self._closers.append(close)

    async def close(self) -> None:
        """Called after the turns have ended: waits until their last lines are written."""
        self.changes.close()
        for close in reversed(self._closers):
            await close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LAST_NOTES_S)
        await self._lines.finish(LAST_NOTES_S)


async def _watched(work: Coroutine[Any, Any, None], name: str) -> None:
    with background.going_on(name):
        await work


def _outcome(stream: TurnStream) -> str:
    match stream.events[-1]:
        case Done():
            return "done"
        case ErrorEvent() as error:
            return f"error {error.code}"
        case _:
            return "stopped"


def service_of(request: AnyRequest) -> Service:
    return cast("Service", request.app.state.service)


def token_of(request: AnyRequest) -> Token:
    return cast("Token", request.scope[CALLER])  # type: ignore[literal-required]


def principal_of(request: AnyRequest, *scopes: str) -> Principal:
    """The principal; 403 unless it has one of these scopes (admin always does)."""
    principal = token_of(request).principal
    if scopes and principal.scopes.isdisjoint({*scopes, "admin"}):
        raise Refusal(
            f"this needs the scope {' or '.join(scopes)}",
            status=403,
            code="scope",
            hint="Use a token that was created with it.",
        )
    return principal


def acting(request: AnyRequest, *scopes: str, agent: str | None = None) -> Access:
    """What the caller may do; 403 unless its token has one of these scopes, 404 unless it may use this agent."""
    service, who = service_of(request), principal_of(request, *scopes)
    if agent is not None:
        service.check_agent(who, agent)
    return service.acting_for(who)


async def reading(request: AnyRequest, agent: str, session_id: str) -> tuple[Access, Session]:
    """The caller's access, and a session of this agent that it may see."""
    return await _found(acting(request, "chat", "read", agent=agent), agent, session_id)


async def writing(request: AnyRequest, agent: str, session_id: str) -> tuple[Access, Session]:
    """The caller's access, and a session of this agent that it may change."""
    access, row = await _found(acting(request, "chat", agent=agent), agent, session_id)
    return access, access.sessions.admit(row, write=True)


async def _found(access: Access, agent: str, session_id: str) -> tuple[Access, Session]:
    row = await access.sessions.get(keys.check_session_id(session_id))
    if row.agent != agent:
        raise NotFound(f"there is no session {session_id}")
    return access, row
