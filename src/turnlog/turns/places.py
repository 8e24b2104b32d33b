"""Finds the session that a client's request continues, and stores its words there before anything is called.

A place is the key that principal, agent and the client's name for its conversation make. `core/matching` decides which
session at that place it is; here the decision is carried out under the session's lease, in one append. Nothing waits
for another call: while one runs, the others fork.

Words of one principal are never compared with those of another, because their places differ.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..core import continuing, keys, matching, path as paths, principals
from ..core.atoms import Atom
from ..core.carried import carried, pruned
from ..core.entries import Assistant, Entry, Rewind, Transcript
from ..core.matching import Decision, PlacedSession, Words
from ..core.path import HEAD, REQUEST, Path, note_of
from ..core.principals import Principal
from ..core.request_messages import RequestMessages
from ..core.session import Session, live_path, on_path
from ..errors import Busy, Conflict, NotFound, UsageError
from ..runtime.background import going_on
from ..sessions import Loaded, Sessions, own_answers
from ..stores import Clock, Store
from ..stores.stamping import now_ms
from . import asked as requests, new_sessions, stored_calls
from .asked import Asked as Asked
from .candidates import Candidates, ClientPlace
from .journal import Journal, in_memory
from .repeats import Repeats, Signs
from .replaying import is_free
from .rewriting_clients import RewritingClients
from .running_calls import RunningCalls
from .stored_calls import StoredCall
from .warm_paths import WarmPaths, is_enough

ATOMS_MAX = 100_000
"""The most atoms of one request; real conversations have some thousands at most."""
KNOWN_MESSAGES = 100_000
"""Messages whose atoms are remembered, about 300 bytes each."""
ELSEWHERE_WAIT_S = 0.5
"""How long a call of another process may take to give back its lease after its answer."""
TIP_WAIT_S = 10.0
"""How long a request that must be appended to a session waits for the call that runs there."""
RACES_MAX = 20
"""Decisions for one request while others change the same session; each means that another request came first."""


class _Request(Struct, frozen=True):
    asked: Asked
    said: RequestMessages
    signs: Signs

    @property
    def ask(self) -> str:
        return self.signs.ask


class Entrance(Struct, kw_only=True):
    """The session that a request goes on; its words are stored."""

    row: Session
    session_id: str
    match: str
    turn: int
    """The seq of the call's own entry; with the session it names the call."""
    ts: str = ""
    """When the call began."""
    journal: Journal | None = None
    """None: the call was made already, and its answer is told again."""
    answer: Assistant | None = None
    stored: bool = True


class Places:
    def __init__(
        self, store: Store, sessions: Sessions, *, clock: Clock = now_ms, random: Callable[[int], bytes] = os.urandom
    ) -> None:
        """`sessions`: the owner's. Who may do what is checked here, by the place."""
        self._store = store
        self._sessions = sessions
        self._clock = clock
        self._random = random
        self._paths = WarmPaths(store, sessions)
        self._repeats = Repeats(clock)
        self._candidates = Candidates(store, self._repeats)
        self._restless = RewritingClients()
        self._known: dict[bytes, tuple[Atom, ...]] = {}
        self._running = RunningCalls()
        self._puts: dict[asyncio.Task[None], str] = {}
        """Running writes to the index of answers, and the key of each."""
        self.left = self._repeats.left

    async def close(self) -> None:
        """Waits for running writes to the index."""
        await asyncio.gather(*self._puts, return_exceptions=True)

    def enter(self, asked: Asked) -> AbstractAsyncContextManager[Entrance]:
        """The words are durable inside it. Leave it when the answer is stored: the session is free then."""
        return self._enter(asked)

    @asynccontextmanager
    async def _enter(self, asked: Asked) -> AsyncGenerator[Entrance]:
        request = self._request(asked)
        async with AsyncExitStack() as held:
            yield await self._entrance(request, held)

    async def _entrance(self, request: _Request, held: AsyncExitStack) -> Entrance:
        if not request.asked.store:
            return await self._unstored(request, held, "new")
        if request.asked.again is not None and (found := await self._made_before(request.asked, *request.asked.again)):
            return found
        busy: set[str] = set()
        is_restless: bool | None = None
        for _ in range(RACES_MAX):
            place = await self._place(request.asked)
            found, decision = await self._decide(request, place, busy)
            if decision.kind == "replayed" and decision.path is not None:
                return await self._again(decision.path.session_id, decision.turn)
            if is_restless is None:
                counts = not request.asked.says_where
                is_restless = counts and self._restless.is_due(place.key, found, decision, request.said)
            if is_restless:
                return await self._unstored(request, held, "restless", decision.path)
            try:
                if entrance := await self._carry_out(request, place, decision, held):
                    return entrance
            except Busy:
                if decision.path is None or request.asked.tip is not None:
                    raise
                busy.add(decision.path.session_id)
            await held.aclose()
        raise Conflict("too many requests change this session at once", hint="Send the request again.")

    async def look(self, asked: Asked) -> Transcript:
        """The log as this request would leave it, before its answer. Nothing is written."""
        request = self._request(asked)
        place = await self._place(asked)
        _, decision = await self._decide(request, place, set()) if asked.store else ([], Decision("new"))
        before: list[Entry] = []
        row = None
        if decision.path is not None:
            loaded = await self._sessions.load(decision.path.session_id)
            row = loaded.session
            before = loaded.entries if decision.to is None else await self._sessions.past(row, row.last_seq)
        bodies = await self._bodies(request, decision, row)
        first = row.last_seq + 1 if row else 1
        return [*before, *(replace(body, seq=seq) for seq, body in enumerate(bodies, first))]

    async def stored(self, session_id: str, turn: int, principal: Principal) -> StoredCall | None:
        """A call of this principal, as the log tells it."""
        row = await self.own_session(principal, session_id)
        return None if row is None else await stored_calls.read(self._store, row, turn)

    async def head(self, call: StoredCall) -> tuple[str, list[dict[str, Any]]]:
        """The system text and the tools of a call."""
        return await stored_calls.head(self._store, call)

    def _request(self, asked: Asked) -> _Request:
        if len(asked.messages) > ATOMS_MAX:
            raise UsageError(f"more than {ATOMS_MAX:,} messages", hint="Begin a new conversation.")
        if len(self._known) > KNOWN_MESSAGES:
            for digest in list(self._known)[: KNOWN_MESSAGES // 2]:
                del self._known[digest]
        said = RequestMessages(asked.messages, asked.read, self._known, wire=asked.wire)
        if not said.atoms and (asked.asks or not asked.says_where):
            raise UsageError("the request has no words", hint="Send at least one message with words.")
        if len(said.atoms) > ATOMS_MAX:
            raise UsageError(f"more than {ATOMS_MAX:,} messages, calls and results", hint="Begin a new conversation.")
        signs = Signs(requests.ask_of(asked, said), asked.is_stream, asked.is_retry, asked.turn_id)
        return _Request(asked, said, signs)

    async def _place(self, asked: Asked) -> ClientPlace:
        principals.check_agent(asked.principal, asked.agent)
        row = None if asked.session is None else await self.own_session(asked.principal, asked.session)
        if row is not None:
            return ClientPlace(row.key, True, row)
        if asked.says_where:
            raise NotFound("there is no such session or message", hint="It was deleted, not stored, or is not yours.")
        return ClientPlace(*requests.key_of(asked))

    async def own_session(self, who: Principal, session_id: str) -> Session | None:
        """A session by its id, if it is this principal's own: with any token no other can be named."""
        if not keys.SESSION_ID.match(session_id):
            return None
        with suppress(NotFound):
            row = await self._store.describe(session_id)
            return row if principals.is_home(who, row) else None
        return None

    async def _decide(
        self, request: _Request, place: ClientPlace, busy: Collection[str]
    ) -> tuple[list[PlacedSession], Decision]:
        words = request.said.words(request.ask, asks=request.asked.asks)
        if place.row is not None:
            one = await self._placed(place.row, request, place.named, busy)
            if request.asked.says_where:
                return [one], await self._go_on(request, words, one, place.row)
            return [one], matching.decide([one], words, named=True, by_id=True)
        found: list[PlacedSession] = []
        # A client that continues as soon as it has the answer must be found by that answer.
        await asyncio.gather(*(put for put, key in self._puts.items() if key == place.key), return_exceptions=True)
        async with aclosing(self._candidates.of(place, request.said, request.signs)) as candidates:
            async for rows in candidates:
                found = [await self._placed(row, request, place.named, busy) for row in rows]
                decision = matching.decide(found, words, named=place.named)
                if decision.kind != "new":
                    return found, decision
        return found, Decision("new")

    async def _placed(self, row: Session, request: _Request, named: bool, busy: Collection[str]) -> PlacedSession:
        path = await self._paths.of(row)
        is_busy = row.id in busy or self._running.is_busy(row.id)
        return PlacedSession(path, is_busy, self._repeats.is_open(path, request.signs, named=named, runs=is_busy))

    async def _go_on(self, request: _Request, words: Words, one: PlacedSession, row: Session) -> Decision:
        """For a request that says where it goes on."""
        asked = request.asked
        if asked.tip is not None:
            return continuing.at_tip(one, words)
        if asked.point is not None:
            return continuing.after_entry(one, words, asked.point[1], is_live=_is_live(asked.point[1], row))
        assert asked.after is not None
        answer = await self.answer(row.id, asked.after[1])
        if answer is None:
            raise NotFound("there is no such message", hint="It was deleted, or was not stored.")
        decision = continuing.after_answer(one, words, answer.seq, is_live=_is_live(answer.seq, row))
        if decision.kind != "forked":
            return decision
        for fork in await self._candidates.forks(row, answer.seq):
            placed = await self._placed(fork, request, True, ())
            again = continuing.after_answer(placed, words, answer.seq, is_live=_is_live(answer.seq, fork))
            if again.kind == "replayed" or again.rest:
                return again  # the same request came before
        return decision

    async def answer(self, session_id: str, turn: int) -> Assistant | None:
        """What was answered to this call; None while there is no answer."""
        later = await self._store.read(session_id, after=turn - 1)
        note = note_of(later[0], REQUEST) if later else None
        return None if note is None else paths.answer_to(note, later)

    async def _made_before(self, asked: Asked, session_id: str, turn: int) -> Entrance | None:
        """The call, if it runs or was answered; one that failed is made again."""
        if await self.own_session(asked.principal, session_id) is None:
            return None
        runs = not await is_free(self._store, session_id)
        entrance = await self._again(session_id, turn)
        return entrance if runs or entrance.answer is not None else None

    async def _again(self, session_id: str, turn: int) -> Entrance:
        row = await self._store.describe(session_id)
        found = await self._store.read(session_id, after=turn - 1, limit=1)
        answer, ts = await self.answer(row.id, turn), found[0].ts if found else ""
        return Entrance(row=row, session_id=row.id, match="replayed", turn=turn, ts=ts, answer=answer)

    async def _carry_out(
        self, request: _Request, place: ClientPlace, decision: Decision, held: AsyncExitStack
    ) -> Entrance | None:
        """None: somebody else was faster, so the decision must be made again."""
        path = decision.path
        if path is None or decision.kind == "forked":
            return await self._found(request, place, decision, held)
        seen = path.last_seq
        wait_s = None if request.asked.tip is None else TIP_WAIT_S
        running = await self._running.hold(path.session_id, held, is_turn=request.asked.kind == "agent", wait_s=wait_s)
        lease = await held.enter_async_context(self._store.lease(path.session_id, wait_s=wait_s or ELSEWHERE_WAIT_S))
        row = await self._store.describe(path.session_id)
        if (row.last_seq, path.last_seq) != (seen, seen):
            return None
        journal = Journal(self._store, lease, await self._paths.tail(row))
        appended = await self._append(request, decision, journal)
        self._paths.grown(journal.row, appended)
        if decision.to is not None and not is_enough(journal.stored, journal.row):
            journal = Journal(self._store, lease, await self._sessions.load(journal.row))
        journal.tail_cache = self._paths.tail_cache(row) or journal.tail_cache
        running.journal = journal
        return self._begun(request, decision, journal, appended, held)

    async def _append(self, request: _Request, decision: Decision, journal: Journal) -> list[Entry]:
        bodies = await self._bodies(request, decision, journal.row)
        try:
            return await journal.append(*bodies)
        except UsageError:
            # What a session keeps in effect when it goes back must fit the rules of marks; words must be stored anyway.
            return await journal.append(*(await self._bodies(request, decision, journal.row, keeps_marks=False)))

    async def _found(self, request: _Request, place: ClientPlace, decision: Decision, held: AsyncExitStack) -> Entrance:
        """A new session, or a fork, with the request's words in the same append."""
        new_id = keys.session_id(self._clock(), self._random(6))
        running = await self._running.hold(new_id, held, is_turn=request.asked.kind == "agent")
        lease = await held.enter_async_context(self._store.lease(new_id, wait_s=ELSEWHERE_WAIT_S))
        new = await new_sessions.begin(self._store, request.asked, place, decision, new_id)
        bodies = await self._bodies(request, new.decision, None, past=new.log)
        appended = await self._store.append(new_id, [*new.log, *bodies], expect=0, lease=lease)
        await self._paths.begin(appended.row, appended, new.said)
        journal = running.journal = Journal(self._store, lease, Loaded(appended.row, list(appended)))
        return self._begun(request, decision, journal, appended[len(new.log) :], held)

    async def _bodies(
        self,
        request: _Request,
        decision: Decision,
        row: Session | None,
        *,
        past: Sequence[Entry] = (),
        keeps_marks: bool = True,
    ) -> list[Entry]:
        """Everything that the request appends, the call's own entry before its words. Without a row: to a new log."""
        bodies: list[Entry] = []
        if row is not None and decision.to is not None:
            bodies.append(Rewind(to=decision.to))
            dropped = await self._sessions.read(row, after=decision.to) if keeps_marks else []
            live = live_path(row.marks, row.last_seq)
            by_client = decision.path.by_client if decision.path else ()
            bodies += carried((entry for entry in dropped if on_path(entry.seq, live)), decision.to, by_client)
        bodies += pruned(decision)
        heads = {str(note["digest"]): entry.seq for entry in past if (note := note_of(entry, HEAD))}
        if row is not None and decision.path is not None:
            heads = decision.path.heads
        rest = request.said.rest(decision)
        return [*bodies, *requests.notes(request.asked, decision, request.ask, heads, len(rest)), *rest]

    def _begun(
        self,
        request: _Request,
        decision: Decision,
        journal: Journal,
        appended: Sequence[Entry],
        held: AsyncExitStack,
    ) -> Entrance:
        asked = _call_in(appended)
        self._repeats.begin(journal.session_id, asked.seq, request.signs)
        held.callback(self._end, journal, asked.seq)
        return Entrance(
            row=journal.row,
            session_id=journal.session_id,
            match=decision.kind,
            turn=asked.seq,
            ts=asked.ts,
            journal=journal,
        )

    def _end(self, journal: Journal, turn: int) -> None:
        """The call is over: whatever it appended belongs to the path."""
        self._repeats.end(journal.session_id, turn)
        path = self._paths.grown(journal.row, journal.stored)
        self._paths.keep_tail(journal)
        if path is not None and path.keys:
            put = asyncio.get_running_loop().create_task(self._put(journal.row.key, path))
            self._puts[put] = journal.row.key
            put.add_done_callback(lambda done: self._puts.pop(done, None))

    async def _put(self, key: str, path: Path) -> None:
        """Nobody waits for it: a database that is down is reported here."""
        with going_on("index of answers"):
            await own_answers.put(self._store.ledger, key, path)

    async def _unstored(
        self, request: _Request, held: AsyncExitStack, match: str, path: Path | None = None
    ) -> Entrance:
        """In a log of its own, which is gone with the answer."""
        new_id = keys.session_id(self._clock(), self._random(6))
        decision = Decision("new")
        place = ClientPlace(keys.format(requests.place_of(request.asked.principal, request.asked.agent, None)), False)
        new = await new_sessions.begin(self._store, request.asked, place, decision, new_id)
        bodies = [*new.log, *await self._bodies(request, decision, None)]
        journal = await held.enter_async_context(in_memory(new_id, bodies, self._clock))
        return Entrance(
            row=journal.row,
            session_id=path.session_id if path is not None else new_id,
            match=match,
            turn=_call_in(journal.stored).seq,
            journal=journal,
            stored=False,
        )


def _is_live(seq: int, row: Session) -> bool:
    return on_path(seq, live_path(row.marks, row.last_seq))


def _call_in(entries: Sequence[Entry]) -> Entry:
    """The own entry of the newest call."""
    return next(entry for entry in reversed(entries) if note_of(entry, REQUEST) is not None)
