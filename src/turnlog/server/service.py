"""What all routes share: the library, who may ask, turns that can be rejoined, and whether the server is closing."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

from litestar import Request
from structlog.typing import FilteringBoundLogger

from ..convlog import ConvLog, Record, channel_of, record_ts
from ..core import keys
from ..core.events import Done, ErrorEvent, spoken
from ..core.principals import Principal
from ..core.session import Session
from ..errors import NotFound, StoreUnavailable, TurnlogError
from ..library import Turnlog
from ..live import Live
from ..queue import Ticket
from ..sessions import Sessions
from ..switchboard import Switchboard
from .auth import Token, Tokens
from .metrics import Metrics
from .problems import Refusal
from .rejoining import Rejoining
from .sse import EventStream
from .turns import Turns

READY = "ready"
"""The ledger's space for the write that proves that the store can be written."""
READY_S = 3.0
"""Whoever asks whether a server is ready wants an answer now; other calls wait longer for a database to come back."""
READY_FOR_S = 2.0
"""How long a proof holds: asking often must not wear out the disk."""
WHO = "turnlog.token"
"""Where in a request's scope the front door leaves the token that it found."""
Asked = Request[Any, Any, Any]


class Service:
    def __init__(self, turnlog: Turnlog, convlog: ConvLog, metrics: Metrics, log: FilteringBoundLogger) -> None:
        self.turnlog = turnlog
        self.convlog = convlog
        self.metrics = metrics
        self.log = log
        self.tokens = Tokens(turnlog.store.ledger)
        self.turns = Turns(turnlog.queue)
        self.rejoining = Rejoining(turnlog.store, turnlog.queue, self.turns)
        self.streams: set[EventStream] = set()
        self.closing = False
        self.switchboard: Switchboard | None = None
        """Where there are channels."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._heard: WeakKeyDictionary[Live, Session] = WeakKeyDictionary()
        """Turns that answer somebody here, and where. Other edges write down for themselves what they delivered."""
        self._proved_at = -READY_FOR_S
        self._companions: set[asyncio.Task[None]] = set()
        turnlog.queue.on_turn(self._accompany)

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(("main", *self.turnlog.settings.agents)))

    def gate(self, who: Principal) -> Sessions:
        return self.turnlog.sessions.acting_for(who)

    def check_agent(self, who: Principal, agent: str) -> str:
        """An agent that there is, for this principal. One that is not theirs does not exist for them."""
        keys.check_agent(agent)
        if agent not in self.agents or (who.agents is not None and agent not in who.agents):
            raise NotFound(f"there is no agent {agent}", hint="Name an agent of the settings that your token may use.")
        return agent

    async def row(self, who: Principal, agent: str, session_id: str, *, write: bool = False) -> Session:
        self.check_agent(who, agent)
        keys.check_session_id(session_id)
        row = await self.gate(who).get(session_id)
        if row.agent != agent:
            raise NotFound(f"there is no session {session_id}")
        return await self.gate(who).writable(session_id) if write else row

    def may_listen(self, token: Token, session_id: str) -> Callable[[], Awaitable[bool]]:
        async def check() -> bool:
            found = await self.tokens.find(token.id)
            try:
                return found is not None and bool(await self.gate(found.principal).get(session_id))
            except NotFound:
                return True  # its listeners are told by an event

        return check

    def check_open(self) -> None:
        if self.closing:
            raise Refusal(
                "the server is closing",
                status=503,
                code="closing",
                hint="Try again in a moment.",
                headers={"Retry-After": "2"},
            )

    async def prove_writable(self) -> None:
        """A real write, durable as any append; StoreUnavailable if it cannot be done."""
        if time.monotonic() - self._proved_at >= READY_FOR_S:
            ledger = self.turnlog.store.ledger
            try:
                async with asyncio.timeout(READY_S):
                    old = await ledger.get(READY, READY)
                    await ledger.cas(READY, READY, old, {"at": time.time_ns()})
            except TimeoutError as error:
                raise StoreUnavailable("the store does not answer", hint="It goes on when the store does.") from error
            self._proved_at = time.monotonic()

    def lock(self, what: str) -> asyncio.Lock:
        """One a key, for making sessions there one after another; one a session, for its lines in the convlog."""
        return self._locks.setdefault(what, asyncio.Lock())

    async def taking_in(self, row: Session, said: str, sender: str, take: Callable[[], Awaitable[Ticket]]) -> Ticket:
        """Takes a message in. It is written down too, before its answer can be, while the turn runs."""
        lock = self.lock(row.id)
        await lock.acquire()
        try:
            ticket = await take()
        except BaseException:
            lock.release()
            raise
        ticket.turn.add_done_callback(partial(self._hear, row))
        self._beside(self._note_first(lock, row, said if ticket.stored.result() else "", sender))
        return ticket

    def _hear(self, row: Session, turn: asyncio.Future[tuple[Live, int]]) -> None:
        if not turn.cancelled() and turn.exception() is None:
            self._heard[turn.result()[0]] = row

    async def _note_first(self, lock: asyncio.Lock, row: Session, said: str, sender: str) -> None:
        try:
            if said:
                await self.note(row, "user", said, sender=sender)
        finally:
            lock.release()

    def _accompany(self, live: Live) -> None:
        self._beside(self._watch_turn(live))

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._companions.add(task)
        task.add_done_callback(self._companions.discard)

    async def _watch_turn(self, live: Live) -> None:
        """Counts it, and writes down what was said on the page's channel, also when nobody listens any more."""
        with self.metrics.turn() as outcome:
            await live.ended.wait()
            outcome(live.events[-1])
        self.turns.end(live)
        self.log.info("turn", session=live.session_id, turn=live.seq, outcome=_outcome(live))
        if live.fenced:
            return  # whoever took it over writes it down
        async with self.lock(live.session_id):
            row = self._heard.get(live) or await self._page_session(live.session_id)
            if row is not None and (said := spoken(live.events)):
                await self.note(row, "assistant", said, sender=row.agent)

    async def _page_session(self, session_id: str) -> Session | None:
        """If it is one of the page's: a turn that was taken up again has nobody here who asked for it."""
        try:
            row = await self.turnlog.store.describe(session_id)
        except NotFound:
            return None
        return row if row.channel == "web" else None

    async def note(self, row: Session, role: str, content: str, *, sender: str) -> None:
        """One line of the page's convlog. That it cannot be written stops no conversation."""
        channel = channel_of(keys.parse(row.key))
        record = Record(
            ts=record_ts(), role=role, content=content, channel_id=channel, channel_type=row.channel, sender=sender
        )
        try:
            await self.convlog.write(row.agent, channel, record)
        except TurnlogError as error:
            self.log.error("convlog", session=row.id, error=str(error))

    async def close(self) -> None:
        """After the queue: every turn has told its end by now."""
        if self._companions:
            await asyncio.wait(self._companions, timeout=5)


def _outcome(live: Live) -> str:
    match live.events[-1]:
        case Done():
            return "done"
        case ErrorEvent() as error:
            return f"error {error.code}"
        case _:
            return "stopped"


def service_of(request: Asked) -> Service:
    return cast("Service", request.app.state.service)


def token_of(request: Asked) -> Token:
    return cast("Token", request.scope[WHO])  # type: ignore[literal-required]


def who_asks(request: Asked, *scopes: str) -> Principal:
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
