"""One turn, top to bottom: the user's words stored, the model called through the guard, tools run, the reply stored.

    take → begin (durable from here) → [ climb → store the reply → tools → store the results ]* → done → compact if due

Events go out as they happen; of a turn's failures only those before its user entry was stored are raised, all later
ones are events and a `failed` entry. Whoever iterates holds the session's lease; cancelling the task stops the turn.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from itertools import count
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from . import retrying
from .agents import Agent
from .calibration import Calibration
from .compactor import OnRequest, unlogged
from .core import events, guard, prompt as prompts
from .core.entries import (
    MESSAGES,
    Assistant,
    Block,
    Content,
    Entry,
    Failed,
    Received,
    ToolResult,
    User,
    text_of,
    tool_uses,
)
from .core.events import CompactionEnd, Done, Event, GuardStage, Stopped, TextDelta, ThinkingDelta
from .core.guard import Limits
from .core.history import History
from .core.prompt import Prompt
from .core.query import Hit, Query
from .core.session import Session
from .errors import ProviderBusy, ProviderRefused, ToolLimit, TurnlogError
from .journal import Hold, Journal
from .ladder import climb
from .providers import Delta
from .sessions import Loaded, Sessions
from .stores import Lease, Store
from .tools import Context

ROUNDS_MAX = 25
"""Calls of tools in one turn, message by message; then the model must answer with what it has."""
WARM_SESSIONS = 256
"""Tails kept in memory between turns. The oldest is read again when its turn comes."""

Recall: TypeAlias = Callable[[str, str, str], Awaitable[list[str]]]
"""(agent, key, words) → what the global memory has on them."""

OnAnswer: TypeAlias = Callable[[Session, list[Entry]], Awaitable[None]]
"""(row, the turn's entries) of a turn that has its answer, before anybody is told `done`."""

SKIPPED = "skipped: a new message arrived"
INTERRUPTED = "interrupted"


class Job(Struct, frozen=True, kw_only=True):
    """What a turn is about: new words, words that were waiting, or, with neither, the last ones once more."""

    content: Content | None = None
    message_id: str | None = None
    dedupe_id: str | None = None
    sender: str | None = None
    since: int = 0
    """Where the log ended when this delivery was first seen."""
    waiting: tuple[Received, ...] = ()
    context: str = ""


class Took(Struct, frozen=True):
    """These waiting messages are part of the turn now, as the user entry `seq`. Not an event: nobody is told."""

    seq: int
    waiting: tuple[int, ...] = ()


class Warm(Struct, frozen=True):
    """A tail as the last turn left it, and the window it was made for."""

    end: int
    entries: list[Entry]
    window: int
    created_at: int


class Interrupt(Exception):
    """A message of mode `interrupt` came in from another process."""


class Turn:
    """What the steps of one turn share."""

    def __init__(self, journal: Journal, agent: Agent, limits: Limits, began_at: int) -> None:
        self.journal = journal
        self.agent = agent
        self.limits = limits
        self.began_at = began_at
        self.partial = ""
        self.rounds = 0
        self.prompt: Prompt | None = None

    @property
    def may_call(self) -> bool:
        return self.rounds < ROUNDS_MAX


class Runner:
    def __init__(
        self,
        store: Store,
        sessions: Sessions,
        agent: Callable[[str], Awaitable[Agent]],
        *,
        hold: Hold = "nothing",
        on_request: OnRequest = unlogged,
        recall: Recall | None = None,
        on_answer: OnAnswer | None = None,
        backoff_s: float = retrying.BACKOFF_S,
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._agent = agent
        self._on_request = on_request
        self._recall = recall
        self._on_answer = on_answer
        self._backoff_s = backoff_s
        self._warm: OrderedDict[str, Warm] = OrderedDict()
        self._untold: dict[str, CompactionEnd] = {}
        """Compactions that failed after `done`, when nobody listened any more: the next turn begins with them."""
        self.calibration = Calibration(store.ledger)
        self.hold: Hold = hold

    def forget(self, session_id: str) -> None:
        """A session that is gone leaves nothing here: another one may get its id."""
        self._warm.pop(session_id, None)
        self._untold.pop(session_id, None)

    async def take(self, session_id: str, lease: Lease, *, mark: bool = True, hold: Hold | None = None) -> Journal:
        """The session's tail, for one turn or several; a turn that a crash cut short is marked, unless told not to."""
        row = await self._store.describe(session_id)
        warm = self._warm.get(session_id)
        same = warm is not None and (warm.end, warm.created_at) == (row.last_seq, row.created_at)
        if warm and same and not row.received:
            loaded = Loaded(row, warm.entries)
        else:
            loaded = await self._sessions.load(session_id)
        journal = Journal(self._store, lease, loaded, hold=hold or self.hold)
        if mark and journal.row.under_way:
            await journal.append(Failed(code="interrupted", reason="the turn was cut short"))
        return journal

    def give_back(self, journal: Journal, window: int = 0) -> None:
        self._warm.pop(journal.session_id, None)
        if not journal.reshaped and not journal.damage:
            created_at = journal.row.created_at
            self._warm[journal.session_id] = Warm(journal.end, journal.stored, window, created_at)
        while len(self._warm) > WARM_SESSIONS:
            self._warm.popitem(last=False)

    async def begin(self, journal: Journal, job: Job) -> Took | None:
        """The user's words are durable when this returns; None: they had been delivered before."""
        seqs = tuple(entry.seq for entry in job.waiting)
        if seqs:
            [entry] = await journal.append(User(from_=seqs))
            return Took(seqs[0] if journal.held else entry.seq, seqs)
        if job.content is None:
            return Took(next((entry.seq for entry in journal.turn()), 0))
        body = User(content=job.content, message_id=job.message_id, dedupe_id=job.dedupe_id, sender=job.sender)
        if not await journal.append_once(body, dedupe_id=job.dedupe_id, since=job.since):
            return None
        return Took(journal.end)

    async def run(self, journal: Journal, job: Job, took: Took) -> AsyncIterator[Event | Took]:
        """Exactly one terminal event; what comes after `done` is done after it, and told to nobody."""
        turn: Turn | None = None
        try:
            agent = await self._agent(journal.row.agent)
            scale = await self.calibration.of(agent.provider.model)
            turn = Turn(journal, agent, agent.scaled(scale, job.context), took.seq)
            async for item in self._rounds(turn):
                yield item
            row = await self._store.describe(journal.session_id)
            if self._on_answer is not None:
                await self._on_answer(row, journal.turn())
            yield Done(session_id=row.id, token_estimate=row.token_estimate, title=row.title)
        except (asyncio.CancelledError, Interrupt):
            await self._keep(journal, turn)
            yield Stopped()
            return
        except Exception as error:
            await self._mark_failed(journal, turn, error)
            yield events.of_error(error)
            return
        async for _ in self._after(turn):
            pass

    async def _rounds(self, turn: Turn) -> AsyncIterator[Event | Took]:
        if untold := self._untold.pop(turn.journal.session_id, None):
            yield untold
        for place in turn.journal.damage:
            yield GuardStage(stage=f"damaged: {place}")
        if self._is_resumed(turn) and turn.agent.when == "after_turn":
            # What was due after the turn before may have been lost with its process.
            async for event in self._compact_due(turn, before=turn.began_at):
                yield event
        while True:
            reply: Assistant | None = None
            async for item in self._call(turn):
                if isinstance(item, Assistant):
                    reply = item
                else:
                    yield item
            assert reply is not None  # climb ends with an answer or raises
            reply = _usable(reply, turn)
            turn.partial = ""  # the reply holds it now
            await turn.journal.append(reply)
            if reply.usage:
                yield events.of_usage(reply)
            calls = tool_uses(reply)
            if not calls:
                break
            async for item in self._tools(turn, calls):
                yield item
            if took := await self._steer(turn):
                yield took
            turn.rounds += 1
        if self.hold == "until_done":
            await turn.journal.settle()

    def _is_resumed(self, turn: Turn) -> bool:
        """The first call of this process in this session, or the first with a smaller window."""
        warm = self._warm.get(turn.journal.session_id)
        return warm is None or warm.window > turn.limits.window

    async def _call(self, turn: Turn) -> AsyncIterator[Event | Assistant]:
        first = turn.rounds == 0 and (turn.agent.when != "after_turn" or self._is_resumed(turn))
        limits = _fitting_only(turn.limits) if first and turn.agent.when == "after_turn" else turn.limits
        compact_first = first or turn.agent.when == "in_loop"

        def attempt(shown: History) -> AsyncIterator[Event | Assistant]:
            return self._attempt(turn, shown)

        async for item in climb(turn.journal, limits, attempt, turn.agent.compactor, compact_first=compact_first):
            if isinstance(item, Assistant) and turn.prompt is not None:
                scale = self.calibration.learn(turn.agent.provider.model, turn.prompt, turn.limits, item)
                turn.limits = replace(turn.limits, scale=scale)
            yield item

    async def _attempt(self, turn: Turn, shown: History) -> AsyncIterator[Event | Assistant]:
        agent = turn.agent
        prompt = prompts.assemble(shown, tools=agent.toolbox.specs, max_output=agent.max_output, may_call=turn.may_call)
        turn.prompt = prompt
        turn.partial = ""
        for number in count():
            begun = False
            self._on_request("turn", turn.journal.session_id, prompt)
            try:
                async with aclosing(agent.provider.stream(prompt)) as pieces:
                    async for piece in pieces:
                        begun = True
                        if isinstance(piece, Assistant):
                            yield piece
                            return
                        turn.partial += piece.text
                        for event in _deltas(piece):
                            yield event
                raise ProviderRefused("the model's answer ended without an end")
            except ProviderBusy as error:
                if begun:
                    raise  # what was shown cannot be taken back
                await retrying.pause(error, number, self._backoff_s)
                yield GuardStage(stage="retry")

    async def _tools(self, turn: Turn, calls: Sequence[Block]) -> AsyncIterator[Event]:
        """One after another, unless their tools are declared parallel; whatever has not begun can be skipped."""
        toolbox = turn.agent.toolbox
        left = list(calls)
        while left:
            if turn.journal.held:
                await turn.journal.refresh()  # nothing of the turn is appended yet, so no seq tells what came in
            if _mode_waits(turn.journal, "steer"):
                break
            if _mode_waits(turn.journal, "interrupt"):
                raise Interrupt
            together = 1
            while together < len(left) and all(toolbox.is_parallel(str(c.get("name"))) for c in left[: together + 1]):
                together += 1
            group, left = left[:together], left[together:]
            for call in group:
                yield events.of_call(call)
            results = await self._run_group(turn, group)
            await turn.journal.append(*results)
            for result in results:
                yield events.of_result(result)
        if left:
            skipped = [ToolResult(tool_use_id=str(call["id"]), content=SKIPPED, is_error=True) for call in left]
            await turn.journal.append(*skipped)
            for call, result in zip(left, skipped, strict=True):
                yield events.of_call(call)
                yield events.of_result(result)

    async def _run_group(self, turn: Turn, group: Sequence[Block]) -> list[ToolResult]:
        session_id = turn.journal.session_id

        async def search(words: str) -> list[Hit]:
            return await self._sessions.search(words, scope=Query(id=session_id))

        async def read(first: int, last: int) -> list[Entry]:
            return await self._store.read(session_id, after=first - 1, before=last + 1)

        async def recall(words: str) -> list[str]:
            return await self._recall(turn.agent.name, turn.journal.row.key, words) if self._recall else []

        context = Context(
            session_id=session_id, agent=turn.agent.name, search=search, read=read, recall=self._recall and recall
        )
        return await asyncio.gather(*(turn.agent.toolbox.run(call, context) for call in group))

    async def _steer(self, turn: Turn) -> Took | None:
        if turn.journal.held:
            await turn.journal.refresh()
        joining = tuple(entry.seq for entry in turn.journal.waiting if entry.mode == "steer")
        if not joining:
            return None
        [entry] = await turn.journal.append(User(from_=joining))
        return Took(entry.seq, joining)

    async def _after(self, turn: Turn) -> AsyncIterator[Event]:
        if turn.agent.when == "after_turn":
            with suppress(TurnlogError):
                async for event in self._compact_due(turn):
                    if isinstance(event, CompactionEnd) and event.error:
                        self._untold[turn.journal.session_id] = event
                    yield event
        self.give_back(turn.journal, turn.limits.window)

    async def _compact_due(self, turn: Turn, before: int | None = None) -> AsyncIterator[Event]:
        """If a trigger holds for the log, or for the log as it was before an entry."""
        transcript = [entry for entry in turn.journal.transcript if before is None or entry.seq < before]
        step = guard.compact_if_due(transcript, turn.limits) if transcript else None
        if step is not None:
            async for event in turn.agent.compactor.compact(turn.journal, step, turn.limits):
                yield event

    async def _keep(self, journal: Journal, turn: Turn | None) -> None:
        """What a stopped turn leaves: its partial text as the answer, or a mark; calls under way have a result."""
        with suppress(TurnlogError):  # the session may be gone, or the store; there is nobody left to tell
            await journal.refresh()  # an append that was under way may have come to its end
            results = _open_calls(journal.turn())
            if _is_answered(journal):
                await journal.settle()
            elif turn is not None and turn.partial.strip():
                blocks: list[Block] = [{"type": "text", "text": turn.partial}]
                reply = Assistant(content=blocks, model=turn.agent.provider.model, stop="interrupted")
                await journal.settle(*results, reply)
            else:
                await journal.fail("stopped", "stopped before an answer", *results)

    async def _mark_failed(self, journal: Journal, turn: Turn | None, error: Exception) -> None:
        with suppress(TurnlogError):  # then the next holder of the lease marks it as interrupted
            await journal.refresh()
            bodies: list[Entry] = list(_open_calls(journal.turn()))
            if turn is not None and turn.partial.strip():
                blocks: list[Block] = [{"type": "text", "text": turn.partial}]
                bodies.append(Assistant(content=blocks, model=turn.agent.provider.model, stop="error"))
            await journal.fail(events.code_of(error), str(error), *bodies)


def _fitting_only(limits: Limits) -> Limits:
    """At the first turn after a start a new message counts where it may not fit; other triggers look back only."""
    return replace(limits, triggers=tuple(trigger for trigger in limits.triggers if trigger.kind == "window"))


def _usable(reply: Assistant, turn: Turn) -> Assistant:
    """An answer to build upon: it says something or calls something, and calls only if it may."""
    if tool_uses(reply) and not turn.may_call:
        if not text_of(reply.content).strip():
            raise ToolLimit(f"the model called tools for more than {ROUNDS_MAX} rounds and never answered")
        assert not isinstance(reply.content, str)  # it has calls
        kept = [block for block in reply.content if block.get("type") != "tool_use"]
        return replace(reply, content=kept, stop="end_turn")
    if not tool_uses(reply) and not text_of(reply.content).strip():
        why = f" (it stopped with {reply.stop!r})" if reply.stop not in (None, "end_turn") else ""
        raise ProviderRefused(f"the model returned nothing{why}", hint="Ask again, or in other words.")
    return reply


def _open_calls(turn: Sequence[Entry]) -> list[ToolResult]:
    calls = [str(call["id"]) for entry in turn if isinstance(entry, Assistant) for call in tool_uses(entry)]
    answered = [entry.tool_use_id for entry in turn if isinstance(entry, ToolResult)]
    for call_id in answered:
        if call_id in calls:
            calls.remove(call_id)
    return [ToolResult(tool_use_id=call_id, content=INTERRUPTED, is_error=True) for call_id in calls]


def _is_answered(journal: Journal) -> bool:
    last = next((entry for entry in reversed(journal.transcript) if isinstance(entry, (*MESSAGES, Failed))), None)
    return isinstance(last, Assistant) and not tool_uses(last)


def _mode_waits(journal: Journal, mode: str) -> bool:
    return any(entry.mode == mode for entry in journal.waiting)


def _deltas(piece: Delta) -> list[Event]:
    told: list[Event] = []
    if piece.thinking:
        told.append(ThinkingDelta(text=piece.thinking))
    if piece.text:
        told.append(TextDelta(text=piece.text))
    return told
