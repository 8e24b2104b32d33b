"""Runs one turn: stores the user's words, calls the model through the guard, runs tools, stores the reply.

    open_journal → begin (durable from here) → [ guarded call → store the reply → tools → store the results ]*
        → done → compact if due

Events are told as they happen, results are returned. A failure before the user entry is stored is raised; every later
one is an event and a `failed` entry. The caller holds the session's lease; cancelling its task stops the turn.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import TypeAlias

from msgspec.structs import replace

from ..core import approvals, events, guard, heard, history, prompt as prompts, repairs, turns
from ..core.content import salvaged
from ..core.entries import Assistant, Block, Entry, Rewind, User, text_of, tool_uses
from ..core.events import CompactionEnd, Done, GuardStage, Stopped, Tell
from ..core.guard import Limits
from ..core.history import History
from ..core.prompt import Prompt
from ..core.repairs import ReportedRepairs
from ..core.session import Session
from ..core.tokens import input_tokens
from ..errors import ProviderRefused, ToolLimit, TurnlogError, UsageError
from ..sessions import Sessions
from ..stores import Clock, Lease, Store
from ..stores.stamping import now_ms
from . import asking, guarded_call, oversized, retry
from .agent import Agent
from .asking import MayAsk
from .calibration import Calibration, Windows
from .compactor import OnRequest, unlogged
from .journal import Journal
from .requests import TurnRequest
from .stream import events_of
from .telemetry import SILENT, Telemetry
from .tickets import Incoming
from .tool_calls import ToolCalls
from .tool_context import Recall
from .turn import ROUNDS_MAX, OnJoined, RoundsEnd, Turn
from .warm import WARM_SESSIONS, WarmTails

OnAnswer: TypeAlias = Callable[[Session, list[Entry]], Awaitable[None]]
"""(row, the turn's entries) of a turn that has its answer, before `done` is told."""


class Runner:
    def __init__(  # noqa: PLR0913 - each is a part that wiring joins, nearly all with a default
        self,
        store: Store,
        sessions: Sessions,
        agent: Callable[[Session], Awaitable[Agent]],
        *,
        journal: type[Journal] = Journal,
        on_request: OnRequest = unlogged,
        recall: Recall | None = None,
        on_answer: OnAnswer | None = None,
        may_ask: MayAsk = lambda _: True,
        backoff_s: float = retry.BACKOFF_S,
        telemetry: Telemetry | None = None,
        clock: Clock = now_ms,
    ) -> None:
        self._store = store
        self.telemetry = telemetry or Telemetry()
        self._sessions = sessions
        self._agent = agent
        self.journal = journal
        """The kind that turns write to."""
        self._on_request = on_request
        self._on_answer = on_answer
        self._may_ask = may_ask
        self._backoff_s = backoff_s
        self._warm = WarmTails(store, sessions)
        self._tools = ToolCalls(sessions, recall, clock, self.telemetry)
        self.load = self._warm.load
        self.is_warm = self._warm.is_warm
        self.row_here = self._warm.row
        self._repairs = ReportedRepairs(WARM_SESSIONS)
        self.calibration = Calibration(store.ledger)
        self.windows = Windows(store.ledger, clock)

    async def agent(self, row: Session) -> Agent:
        return await self._agent(row)

    def forget(self, session_id: str) -> None:
        """Forgets the cached state of a deleted session."""
        self._warm.forget(session_id)
        self._repairs.forget(session_id)

    async def open_journal(
        self, session_id: str, lease: Lease, incarnation: str | None = None, *, known: Session | None = None
    ) -> Journal:
        """For one turn or several. `known`: a row that was read before the lease was taken.

        If the log still ends where that row says, nothing is asked of the store: the first append makes sure of it.
        """
        if known is not None and (loaded := await self._warm.as_of(known)):
            journal = self.journal(self._store, lease, loaded, is_assumed=True)
        else:
            journal = self.journal(self._store, lease, await self.load(session_id, incarnation))
        journal.tail_cache = self._warm.tail_cache(session_id) or journal.tail_cache
        return journal

    async def begin(self, journal: Journal, request: TurnRequest) -> int | None:
        """Stores the user's words. Gives the seq that the turn is known by; None: they had been delivered before."""
        if request.resumes:
            return journal.began_at()
        if request.waiting:
            seqs = [entry.seq for entry in request.waiting]
            turn = await journal.take_waiting(seqs, await self._heard(journal))
            journal.heard = []
            return turn
        with journal.failing_at_once():
            if request.ticket and request.ticket.incoming.retry:
                await self._take_back_failure(journal)
            if request.ticket is None or request.message is None:
                return next((entry.seq for entry in journal.turn()), 0)
            return await self._store_message(journal, request.message, request.ticket.since)

    async def _store_message(self, journal: Journal, new: Incoming, since: int) -> int | None:
        words = User(content=new.content, message_id=new.message_id, dedupe_id=new.dedupe_id, sender=new.sender)
        if new.rewind_to is not None:
            return await self._store_after(journal, words, new.rewind_to)
        is_new = await journal.append_once(words, dedupe_id=new.dedupe_id, since=since)
        return journal.end if is_new else None

    async def _store_after(self, journal: Journal, body: User, to: int) -> int:
        """Goes back and stores the words in one append. Then the tail is another one, and is read."""
        *_, words = await journal.append(Rewind(to=to), body)
        journal.take_tail(
            await self._sessions.load(journal.session_id, incarnation=journal.incarnation, may_be_partial=True)
        )
        return words.seq

    async def _heard(self, journal: Journal) -> tuple[int, ...]:
        """The heard messages since the last turn that join this one."""
        if not journal.heard:
            return ()
        try:
            return heard.joining(journal.heard, (await self._agent(journal.row)).limits.window)
        except TurnlogError:
            return ()  # an agent that cannot be opened is an error of the turn, reported there

    async def _take_back_failure(self, journal: Journal) -> None:
        """From here on the last turn has not failed: what was left out because of that is shown again."""
        found = turns.unanswered(journal.transcript)
        if found is None:
            raise UsageError("the last turn did not fail", hint="There is nothing to retry; send a message instead.")
        await journal.append(Rewind(to=found.last))

    async def run(self, journal: Journal, request: TurnRequest, began_at: int, tell: Tell, on_joined: OnJoined) -> bool:
        """Tells exactly one terminal event; what happens after `done` is told to nobody.

        True: the turn is paused, because calls wait for a person, and has told no end yet.
        """
        row = journal.row
        with self._telemetry(request).turn(row.id, row.agent, began_at, request.trace, tell) as told:
            return await self._run(journal, request, began_at, told, on_joined)

    def _telemetry(self, about: TurnRequest | Turn) -> Telemetry:
        return SILENT if about.unrecorded else self.telemetry

    async def _run(
        self, journal: Journal, request: TurnRequest, began_at: int, tell: Tell, on_joined: OnJoined
    ) -> bool:
        turn: Turn | None = None
        outcome: RoundsEnd = "stopped"
        try:
            agent, limits = await self._ready(journal, request.context)
            agent = agent.unrecorded() if request.unrecorded else agent
            turn = Turn(journal, agent, limits, began_at, tell, on_joined)
            if journal.row.model not in ("", agent.chosen, agent.provider.model):
                tell(GuardStage(stage=f"model: {journal.row.model}"))
            turn.unrecorded = request.unrecorded
            turn.asks = request.asks and self._may_ask(journal.row)
            await oversized.fold(journal, self._store, limits, tell)
            outcome = await self._rounds(turn, await self._resumed(turn) if request.resumes else None)
            if outcome == "answered":
                await self._tell_done(turn)
        except asyncio.CancelledError:
            outcome = "stopped"
        except Exception as error:  # noqa: BLE001 - every error ends the turn and is told
            with suppress(TurnlogError):  # then the next holder of the lease marks it as interrupted
                await journal.fail(events.code_of(error), str(error), turn and turn.partial("error"))
            tell(events.of_error(error))
            return False
        if outcome == "paused":
            return True
        if turn and outcome == "answered":
            await self._after(turn)
        else:
            with suppress(TurnlogError):  # the session or the store may be gone; nobody can be told
                await journal.stop(turn and turn.partial("interrupted"))
            tell(Stopped())
        return False

    async def _ready(self, journal: Journal, context: str) -> tuple[Agent, Limits]:
        agent = await self._agent(journal.row)
        agent = agent.narrowed(await journal.through_outage(partial(self.windows.of, agent.place)))
        scale = await journal.through_outage(partial(self.calibration.of, agent.provider.model))
        return agent, agent.scaled(scale, context)

    async def _tell_done(self, turn: Turn) -> None:
        row = turn.journal.row
        if self._on_answer is not None:
            await self._on_answer(row, turn.journal.turn())
        turn.tell(Done(session_id=row.id, token_estimate=row.token_estimate, title=row.title))

    async def _rounds(self, turn: Turn, calls: Sequence[Block] | None) -> RoundsEnd:
        """Calls the model until it calls no more tools. `calls`: those of a turn that was paused, which come first."""
        if calls is None:
            await self._look_back(turn)
        elif not calls and "interrupt" in {entry.mode for entry in await turn.journal.look_for_waiting()}:
            return "stopped"
        while True:
            if calls is None:
                reply = await self._reply(turn)
                await turn.journal.append(reply)
                if reply.usage:
                    turn.tell(events.of_usage(reply))
                if not (calls := tool_uses(reply)):
                    await turn.journal.finish()
                    return "answered"
            if (ended := await self._tools.run(turn, calls)) is not None:
                return ended
            await self._steer(turn)
            turn.rounds += 1
            calls = None

    async def _resumed(self, turn: Turn) -> Sequence[Block]:
        """The calls of a paused turn that are left to run."""
        entries = turn.journal.turn()
        turn.rounds = sum(isinstance(entry, Assistant) for entry in entries) - 1
        turn.asked.approved, left, results = await asking.take_up(turn.journal, entries)
        blocks = {str(call["id"]): call for call in approvals.open_blocks(entries)}
        for result in results:
            turn.tell(events.of_call(blocks[result.tool_use_id]))
            turn.tell(events.of_result(result))
        return left

    async def _look_back(self, turn: Turn) -> None:
        """Reports what listeners of earlier turns could not know, and repeats what may have been lost with
        a process.
        """
        if failed := self._warm.take_failure(turn):
            turn.tell(failed)
        for place in turn.journal.damage:
            turn.tell(GuardStage(stage=f"damaged: {place}"))
        if self._warm.is_resumed(turn):
            self._tell_repairs(turn, repairs.of_tail(history.survey(turn.journal.transcript).tail))
            if turn.agent.when == "after_turn":
                await self._compact_due(turn, before=turn.began_at)

    def _tell_repairs(self, turn: Turn, found: Sequence[str]) -> None:
        for what in self._repairs.news(turn.journal.session_id, found):
            turn.tell(GuardStage(stage=f"repaired: {what}"))

    async def _reply(self, turn: Turn) -> Assistant:
        first = turn.rounds == 0 and (turn.agent.when != "after_turn" or self._warm.is_resumed(turn))
        limits = _fitting_only(turn.limits) if first and turn.agent.when == "after_turn" else turn.limits
        fitted = await guarded_call.run(
            turn.journal,
            limits,
            partial(self._attempt, turn),
            turn.agent.compactor,
            turn.tell,
            compact_first=first or turn.agent.when == "in_loop",
            reported=partial(self._telemetry(turn).call, turn.journal, turn.agent.provider.model),
        )
        if fitted.window:
            await self.windows.learn(turn.agent.place, fitted.window)
        await self._learn(turn, fitted.reply)
        reply = _usable(replace(fitted.reply, content=salvaged(fitted.reply.content)), turn)
        turn.pieces = []  # the reply holds them now
        return reply

    async def _learn(self, turn: Turn, reply: Assistant) -> None:
        """Learns from the reported size how this model counts, and whether its window is larger."""
        prompt = turn.prompt
        assert prompt is not None  # it was sent
        if turn.limits.believed:
            taken = input_tokens(reply.usage) or guard.of_history(History(prompt.system, prompt.messages), turn.limits)
            await self.windows.outgrow(turn.agent.place, taken)
        scale = self.calibration.learn(turn.journal.session_id, turn.agent.provider.model, prompt, turn.limits, reply)
        turn.limits = replace(turn.limits, scale=scale)

    async def _attempt(self, turn: Turn, shown: History, tell: Tell) -> Assistant:
        agent = turn.agent
        prompt = prompts.assemble(shown, tools=agent.toolbox.specs, max_output=agent.max_output, may_call=turn.may_call)
        turn.prompt = prompt
        turn.pieces = []
        return await retry.call(
            partial(self._stream, turn, prompt, tell),
            may_retry=lambda: not turn.has_streamed,
            on_retry=lambda: tell(GuardStage(stage="retry")),
            backoff_s=self._backoff_s,
        )

    async def _stream(self, turn: Turn, prompt: Prompt, tell: Tell) -> Assistant:
        turn.has_streamed = False
        if not turn.unrecorded:
            self._on_request("turn", turn.journal.session_id, prompt)
        async with aclosing(turn.agent.provider.stream(prompt)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Assistant):
                    return piece
                if piece.repairs:
                    self._tell_repairs(turn, piece.repairs)
                turn.has_streamed = turn.has_streamed or bool(piece.text or piece.thinking)
                turn.pieces.append(piece.text)
                for event in events_of(piece):
                    tell(event)
        raise ProviderRefused("the model's answer was incomplete", hint="Try again; your message is stored.")

    async def _steer(self, turn: Turn) -> None:
        """Messages that steer join the turn."""
        joining = [entry.seq for entry in await turn.journal.look_for_waiting() if entry.mode == "steer"]
        if joining:
            await turn.journal.take_waiting(joining)
            turn.on_joined(joining)

    async def _after(self, turn: Turn) -> None:
        failed: CompactionEnd | None = None
        if turn.agent.when == "after_turn":
            with suppress(TurnlogError):
                end = await self._compact_due(turn)
                failed = end if end and end.error else None
        self._warm.keep(turn, failed)

    async def _compact_due(self, turn: Turn, before: int | None = None) -> CompactionEnd | None:
        """If a trigger holds for the log, or for the log as it was before an entry."""
        transcript = [entry for entry in turn.journal.transcript if before is None or entry.seq < before]
        step = guard.compact_if_due(transcript, turn.limits) if transcript else None
        if step is None:
            return None
        end = await turn.agent.compactor.compact(turn.journal, step, turn.limits, turn.tell)
        if end.error:
            await turn.journal.refresh()  # no append has told what came in while the summary was made
        return end


def _fitting_only(limits: Limits) -> Limits:
    """At the first turn after a start a new message counts where it may not fit; other triggers look back only."""
    return replace(limits, triggers=tuple(trigger for trigger in limits.triggers if trigger.kind == "window"))


def _usable(reply: Assistant, turn: Turn) -> Assistant:
    """Checks that an answer says or calls something, and calls tools only if it may."""
    if tool_uses(reply) and not turn.may_call:
        if not text_of(reply.content).strip():
            raise ToolLimit(f"the model called tools for more than {ROUNDS_MAX} rounds and never answered")
        assert not isinstance(reply.content, str)  # it has calls
        kept = [block for block in reply.content if block.get("type") != "tool_use"]
        return replace(reply, content=kept, stop="end_turn")
    if not tool_uses(reply) and not text_of(reply.content).strip():
        why = f" (it stopped with {reply.stop!r})" if reply.stop not in (None, "end_turn") else ""
        raise ProviderRefused(f"the model returned nothing{why}", hint="Try again, or rephrase the message.")
    return reply
