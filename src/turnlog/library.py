"""Turnlog as a library: turns by `send`, or the keeping alone for people with an agent loop of their own.

async with turnlog.open() as t:
    async for event in t.send("agent:main:cli:direct:user", "hi"): ...

history = await t.history(key)            # what to show the model
reply = await t.guard(key, call)          # your own call, made to fit, and its answer stored
await t.append(key, turnlog.User(content="…"))
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from . import expiry, stopping
from .agents import Agent
from .compactor import Compactor
from .core import guard, keys, prompt as prompts
from .core.compaction import Keep
from .core.entries import Assistant, Content, Entry, Failed, text_of
from .core.events import Event
from .core.guard import Compact, Limits
from .core.history import History
from .core.keys import Inbound, SessionKey
from .core.prompt import Prompt
from .core.session import Session
from .errors import Conflict, ContextOverflow, ProviderRefused, TurnlogError, UsageError
from .journal import Journal
from .ladder import climb
from .memory import Memory, as_context, owner_of
from .queue import Incoming, Mode, Queue, Ticket
from .runner import Runner
from .sessions import EDIT_WAIT_S, Sessions
from .settings import Settings
from .stores import Clock, Store

Where: TypeAlias = Session | SessionKey | Inbound | str
"""A session, its id, a key, or a message as it came in at an edge."""
OwnCall: TypeAlias = Callable[[History], Awaitable[Assistant | str]]
Summarise: TypeAlias = Callable[[Prompt], Awaitable[str]]


class CompactionReport(Struct, frozen=True, kw_only=True):
    """What a compaction did, or with `applied` false would do."""

    summary: str
    first_kept: int
    covers: tuple[int, int]
    tokens_before: int
    tokens_after: int
    applied: bool


class Turnlog:
    def __init__(
        self,
        settings: Settings,
        store: Store,
        sessions: Sessions,
        queue: Queue,
        runner: Runner,
        agent: Callable[[str], Awaitable[Agent]],
        memory: Callable[[], Awaitable[Memory]],
        clock: Clock,
    ) -> None:
        self.settings = settings
        self.store = store
        self.sessions = sessions
        self.queue = queue
        self._runner = runner
        self.agent = agent
        """Makes an agent ready, by its name."""
        self.memory = memory
        """Opens the global memory when it is first asked for."""
        self._clock = clock
        self._passing_away: set[asyncio.Task[None]] = set()

    async def send(
        self,
        where: Where,
        content: Content | None = None,
        *,
        sender: str | None = None,
        message_id: str | None = None,
        dedupe_id: str | None = None,
        context: str = "",
        mode: Mode | None = None,
        recall: bool = False,
    ) -> AsyncIterator[Event]:
        """One message and the events of its turn, the last of which is `done`, `error` or `stopped`.

        The words are durable before anything is done with them. Leaving the loop early does not stop the turn.
        """
        ticket = await self.accept(
            where,
            content,
            sender=sender,
            message_id=message_id,
            dedupe_id=dedupe_id,
            context=context,
            mode=mode,
            recall=recall,
        )
        async for event in self.queue.follow(ticket):
            yield event

    async def accept(
        self,
        where: Where,
        content: Content | None = None,
        *,
        sender: str | None = None,
        message_id: str | None = None,
        dedupe_id: str | None = None,
        dedupe_scope: str | None = None,
        context: str = "",
        mode: Mode | None = None,
        recall: bool = False,
    ) -> Ticket:
        """The same, but returns as soon as the words are durable: what an edge acknowledges its message by.

        `recall`: the turn is shown what the global memory has on these words. Where no sessions are kept
        (`session.enabled = false`) it always is, and its exchange is saved there and nowhere else.
        `dedupe_scope`: channel and account, where the key of the session does not tell them (`dm_scope`).
        """
        if isinstance(where, Inbound):
            content = content if content is not None else _words(where)
            sender, message_id = sender or where.sender_id, message_id or where.message_id
            dedupe_id = dedupe_id or where.dedupe_id
        if content is None:
            raise UsageError("there is nothing to send", hint="Give the message's text or blocks.")
        kept = self.settings.session.enabled
        row = await self._receiving(where) if kept else await self._passing(where)
        if recall or not kept:
            context = "\n\n".join(filter(None, (context, await self._recalled(row, content))))
        place = where if isinstance(where, Inbound) else keys.parse(row.key)
        incoming = Incoming(
            content=content,
            message_id=message_id,
            dedupe_id=dedupe_id,
            dedupe_scope=dedupe_scope or f"{place.channel}|{place.account or ''}",
            sender=sender,
            context=context,
            mode=mode,
        )
        ticket = await self.queue.accept(row.id, incoming)
        if not kept:
            task = asyncio.create_task(self._pass_away(row, ticket))
            self._passing_away.add(task)
            task.add_done_callback(self._passing_away.discard)
        return ticket

    async def _receiving(self, where: Where) -> Session:
        """The session a message goes to; a new one where the old one's time is over."""
        row = await self.session(where)
        if row.status == "trashed":
            raise Conflict(f"session {row.id} is in the trash", hint="Restore it first, or begin a new one.")
        if isinstance(where, Session) or (isinstance(where, str) and ":" not in where):
            return row
        return await expiry.renewed(self.sessions, self.store, row, self.settings.session.reset, self._clock)

    async def _passing(self, where: Where) -> Session:
        """A session for one turn, in a store without a disk."""
        key = keys.resolve(where) if isinstance(where, Inbound) else where.key if isinstance(where, Session) else where
        return await self.sessions.new(key, select=False)

    async def _recalled(self, row: Session, content: Content) -> str:
        memory = await self.memory()
        return as_context(await memory.recall(row.agent, owner_of(keys.parse(row.key)), text_of(content)))

    async def _pass_away(self, row: Session, ticket: Ticket) -> None:
        """A session for one turn ends with it, however it ends."""
        try:
            async for _ in self.queue.follow(ticket):
                pass
        finally:
            await self.sessions.delete(row.id)

    async def close(self) -> None:
        """Ends what runs; called by `turnlog.open` on the way out."""
        await self.queue.close()
        await asyncio.gather(*self._passing_away, return_exceptions=True)

    async def session(self, where: Where) -> Session:
        """The session that is meant; opened, if a key is given."""
        match where:
            case Session():
                return where
            case SessionKey():
                return await self.sessions.open(where)
            case Inbound():
                return await self.sessions.open(keys.resolve(where))
            case _:
                return await (self.sessions.open(where) if ":" in where else self.sessions.get(where))

    async def history(self, where: Where, *, at: int | None = None) -> History:
        """What the model would be shown now, or was shown when the log ended at `at`."""
        row = await self.session(where)
        return await self.sessions.history(row.id, at=at)

    async def prompt(self, where: Where, *, at: int | None = None) -> Prompt:
        """Exactly what would be sent now, or was sent when the log ended at `at`."""
        row = await self.session(where)
        agent = await self.agent(row.agent)
        shown = await self.sessions.history(row.id, system=agent.limits.system, inject=agent.limits.inject, at=at)
        return prompts.assemble(shown, tools=agent.toolbox.specs, max_output=agent.max_output)

    async def limits(self, where: Where) -> Limits:
        """The numbers that the next turn there goes by, scaled to what its model was seen to count."""
        return await self._scaled(await self.agent((await self.session(where)).agent))

    async def model(self, where: Where) -> str:
        """The name of the model that answers there."""
        return (await self.agent((await self.session(where)).agent)).provider.model

    async def _scaled(self, agent: Agent) -> Limits:
        return agent.scaled(await self._runner.calibration.of(agent.provider.model))

    async def append(self, where: Where, *bodies: Entry) -> list[Entry]:
        """Durable on return. Waits for a running turn to end; Busy if it does not."""
        row = await self.session(where)
        async with self.store.lease(row.id, wait_s=EDIT_WAIT_S) as lease:
            return await self.store.append(row.id, bodies, lease=lease)

    async def guard(
        self,
        where: Where,
        call: OwnCall,
        *,
        system: str = "",
        summarise: Summarise | None = None,
        window: int | None = None,
    ) -> Assistant:
        """Makes your own call fit: sends, shortens, compacts and rescues until it goes through; stores its answer.

        `call` gets the History to send and raises ContextOverflow where the provider refuses it for its size. Without
        `summarise`, the agent's own model writes summaries. When nothing helps, ContextOverflow is raised.
        """
        row = await self.session(where)
        agent = await self.agent(row.agent)
        scaled = await self._scaled(agent)
        limits = replace(scaled, system=system or scaled.system, window=window or scaled.window)
        compactor = Compactor(summarise=_own(summarise), window=window) if summarise else agent.compactor
        async with self.store.lease(row.id, wait_s=EDIT_WAIT_S) as lease:
            journal = await self._runner.take(row.id, lease, mark=False, hold="nothing")
            try:
                reply = await _fitted(journal, limits, call, compactor)
            except ContextOverflow as overflow:
                await journal.append(Failed(code="overflow", reason=str(overflow)))
                raise
            await journal.append(reply)
            return reply

    async def compact(self, where: Where, *, focus: str = "", dry_run: bool = False) -> CompactionReport:
        """Folds what is old under a summary, now. UsageError if there is nothing to gain."""
        row = await self.session(where)
        agent = await self.agent(row.agent)
        limits = await self._scaled(agent)
        async with self.store.lease(row.id, wait_s=EDIT_WAIT_S) as lease:
            journal = await self._runner.take(row.id, lease, mark=not dry_run)
            step = _asked_for(journal, limits)
            folded = await agent.compactor.fold(journal, step, limits, focus)
            if not dry_run:
                await journal.append(folded.body, *folded.along)
        body = folded.body
        return CompactionReport(
            summary=body.summary,
            first_kept=body.first_kept,
            covers=body.covers,
            tokens_before=body.tokens_before,
            tokens_after=body.tokens_after,
            applied=not dry_run,
        )

    def stop(self, session_id: str) -> bool:
        """Stops the turn that runs in this process, keeping what was said; whether there was one."""
        return self.queue.stop(session_id)

    async def stop_anywhere(self, session_id: str) -> bool:
        """The same, also where another server of the same store runs the turn."""
        return await stopping.stop_anywhere(self.store, self.queue, session_id)

    async def resume(self, *, rerun: bool = False) -> int:
        """After a start: answers what was left waiting, and marks turns that a crash cut short."""
        return await self.queue.resume(rerun=rerun)


def _own(summarise: Summarise) -> Summarise:
    """Somebody else's function: whatever it raises is a summary that failed, and the ladder goes on without it."""

    async def call(prompt: Prompt) -> str:
        try:
            return await summarise(prompt)
        except TurnlogError:
            raise
        except Exception as error:
            raise ProviderRefused(f"{type(error).__name__}: {error}") from error

    return call


async def _fitted(journal: Journal, limits: Limits, call: OwnCall, compactor: Compactor) -> Assistant:
    async def attempt(shown: History) -> AsyncIterator[Event | Assistant]:
        answer = await call(shown)
        yield Assistant(content=answer, stop="end_turn") if isinstance(answer, str) else answer

    reply: Assistant | None = None
    async for item in climb(journal, limits, attempt, compactor, compact_first=True):
        reply = item if isinstance(item, Assistant) else reply
    assert reply is not None  # climb ends with an answer or raises
    return reply


def _asked_for(journal: Journal, limits: Limits) -> Compact:
    """By hand even what would fit is folded: where a budget of tokens keeps everything, all but the last turn."""
    transcript = journal.transcript
    plan = guard.worthwhile(transcript, limits)
    if plan is None and limits.keep.kind == "tokens":
        plan = guard.worthwhile(transcript, replace(limits, keep=Keep("turns", 1)))
    if plan is None:
        raise UsageError("nothing to compact", hint="There is too little before what is kept; go on talking.")
    return Compact(plan, "manual", guard.measure(transcript, limits), guard.again_shortened(plan))


def _words(inbound: Inbound) -> Content | None:
    if inbound.blocks:
        return [*inbound.blocks, *([{"type": "text", "text": inbound.text}] if inbound.text else [])]
    return inbound.text or None
