"""Relays: one guarded model call for a client that runs its own loop and its own tools.

    enter (words durable, under the lease) → guarded call → answer appended → told to its end

A call runs in a task of its own, so it survives its client, can be joined, and is stopped like a turn. The prompt is
built from the log, with the request's own system text and tools and the model's window. Nothing here waits for another
call: `places` forks instead. Once a piece of the answer has gone out, no further step of the guard is tried; an answer
to a prompt that was too large is kept, and the next call compacts first.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..core import events, guard, overflow, prompt as prompts
from ..core.answers import told_as_one
from ..core.content import salvaged
from ..core.entries import Assistant, Compaction, Failed
from ..core.events import Done, GuardStage, Stopped, Tell
from ..core.guard import Compact, Limits
from ..core.history import History
from ..core.prompt import Prompt, ToolDefinition
from ..core.rows import milliseconds
from ..core.session import Session
from ..core.tokens import input_tokens
from ..errors import Busy, ProviderBusy, ProviderRefused, TurnlogError
from ..runtime import tracing
from ..stores import Store
from . import context_edits, guarded_call, relay_ends, replaying, retry, stopping
from .agent import Agent
from .asked import Asked
from .compactor import OnRequest, unlogged
from .context_edits import COMPACTED
from .journal import Journal
from .places import Entrance, Places
from .relay_call import CompactionNote, RelayCall, RelayedTurn, pieces_of, stopped
from .runner import Runner, TurnRequest
from .stored_calls import StoredCall
from .stream import TurnStream
from .telemetry import SILENT
from .upstream import Upstream as Upstream

LINGER_S = 10.0
"""How long a call whose client went away waits for the client to come back."""
ELSEWHERE_S = 600.0
"""How long a repeat waits for a call that runs in another process."""
ELSEWHERE_LOOK_S = 0.5
CLOSING_S = 10.0
"""For calls to store what was said when Turnlog closes."""


class Relays:
    def __init__(
        self,
        store: Store,
        places: Places,
        runner: Runner,
        *,
        on_request: OnRequest = unlogged,
        linger_s: float = LINGER_S,
        backoff_s: float = retry.BACKOFF_S,
    ) -> None:
        self.places = places
        self._store = store
        self._runner = runner
        self._on_request = on_request
        self._linger_s = linger_s
        self._backoff_s = backoff_s
        self._calls: dict[tuple[str, int], RelayCall] = {}
        self._running: dict[asyncio.Task[None], RelayCall] = {}
        self._on_turn: list[Callable[[TurnStream], object]] = []
        self._stop_watcher = stopping.StopWatcher(store.ledger, self)
        self._is_closing = False

    def on_turn(self, call: Callable[[TurnStream], object]) -> None:
        """Calls it with every stored call that begins in this process."""
        self._on_turn.append(call)

    async def start(self, asked: Asked, upstream: Upstream) -> RelayCall:
        """Returns when the words are durable. The answer may be that of an earlier call for the same request.

        The caller listens: it must call `detach` on what it gets.
        """
        if self._is_closing:
            raise Busy("Turnlog is closing", hint="Send it again after the next start.")
        call = RelayCall(linger_s=None if upstream.is_turn or upstream.goes_on else self._linger_s)
        call.is_turn = upstream.is_turn
        call.attach()
        self._start(call, self._run(call, asked, upstream), "relay")
        try:
            found = await asyncio.shield(call.started)
        except asyncio.CancelledError:
            call.detach(whole=False)
            raise
        if found is not call:
            found.attach()
        return found

    def _start(self, call: RelayCall, doing: Coroutine[Any, Any, None], name: str) -> None:
        call.task = asyncio.create_task(doing, name=name)
        self._running[call.task] = call
        call.task.add_done_callback(self._running.pop)

    def under_way(self) -> list[TurnStream]:
        return [call.stream for call in self._calls.values() if call.stream and not call.stream.over]

    def call(self, session_id: str, turn: int) -> RelayCall | None:
        """A call that runs in this process."""
        return self._calls.get((session_id, turn))

    async def told(self, stored: StoredCall, *, listens: bool = False) -> RelayCall:
        """A call as it runs here, or as the log tells it. `listens`: the caller must call `detach` on it."""
        call = self._calls.get((stored.row.id, stored.turn))
        if call is None:
            call = await replaying.from_log(self._store, stored)
            if listens and not call.over:
                self._start(call, replaying.follow(self._store, call, stored), "replaying")
        if listens:
            call.attach()
        return call

    def running(self, session_id: str) -> TurnStream | None:
        return next((stream for stream in self.under_way() if stream.session_id == session_id), None)

    def stop(self, session_id: str) -> bool:
        """Whether there was a call to stop in this session."""
        calls = [call for (found, _), call in self._calls.items() if found == session_id]
        return sum(call.stop() for call in calls) > 0

    def stop_paused(self, row: Session) -> bool:
        """Calls of a relay are never paused: nobody is asked about them."""
        return False

    async def idle(self) -> None:
        """Returns when no call runs."""
        while self._running:
            await asyncio.wait(set(self._running))

    async def close(self) -> None:
        self._is_closing = True
        for call in list(self._running.values()):
            call.stop()
        if self._running:
            _, late = await asyncio.wait(set(self._running), timeout=CLOSING_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._stop_watcher.close()
        await self.places.close()

    async def _run(self, call: RelayCall, asked: Asked, upstream: Upstream) -> None:
        try:
            async with self.places.enter(asked) as entered:
                if entered.journal is not None:
                    await self._lead(call, entered, entered.journal, upstream)
                    return
            await self._repeat(call, entered)
        except BaseException as error:
            failure = error if isinstance(error, Exception) else stopped()
            call.end(None, failure)
            if not call.started.done():
                call.started.set_exception(failure)
            if not isinstance(error, TurnlogError | asyncio.CancelledError):
                raise
        finally:
            if self._calls.get((call.session_id, call.turn)) is call:
                del self._calls[call.session_id, call.turn]

    def _begin(self, call: RelayCall, entered: Entrance) -> None:
        call.session_id, call.turn = entered.session_id, entered.turn
        call.match, call.stored = entered.match, entered.stored
        call.began_ms = milliseconds(entered.ts)
        call.on_left(partial(self.places.left, entered.session_id, entered.turn))

    async def _lead(self, call: RelayCall, entered: Entrance, journal: Journal, upstream: Upstream) -> None:
        self._begin(call, entered)
        call.estimate = journal.row.token_estimate
        if entered.stored:
            self._calls[call.session_id, call.turn] = call
            call.stream = TurnStream(
                journal.session_id, entered.turn, incarnation=journal.incarnation, lease=journal.lease
            )
            self._stop_watcher.start()
            for tell in self._on_turn:
                tell(call.stream)
        call.started.set_result(call)
        try:
            await (self._turn if upstream.is_turn else self._answer)(call, journal, upstream)
        finally:
            if call.stream is not None:
                call.stream.add(Stopped())  # heard only if nothing else has ended it

    async def _answer(self, call: RelayCall, journal: Journal, upstream: Upstream) -> None:
        try:
            reply = await self._fitted(call, journal, upstream)
            if reply.stop == COMPACTED:
                self._tell_end(call, journal)
                call.end(reply)
                return
            stored = (await journal.append(*relay_ends.pieces(call, upstream, reply), reply))[-1]
        except asyncio.CancelledError:
            with suppress(TurnlogError):  # the session or the store may be gone
                await relay_ends.keep(
                    journal, *relay_ends.partial(call, upstream, "interrupted"), Failed(code="stopped")
                )
            call.end(None, stopped())
            return
        except Exception as error:  # noqa: BLE001 - every error ends the call and is told
            with suppress(TurnlogError):
                await relay_ends.keep(
                    journal, *relay_ends.partial(call, upstream, "error"), relay_ends.failed(error), fails=True
                )
            if call.stream is not None:
                call.stream.add(events.of_error(error))
            call.end(None, error)
            return
        assert isinstance(stored, Assistant)
        if call.stream is not None:
            call.stream.add(events.of_usage(stored))
        self._tell_end(call, journal)
        call.end(stored)

    def _tell_end(self, call: RelayCall, journal: Journal) -> None:
        if call.stream is not None:
            row = journal.row
            call.stream.add(Done(session_id=row.id, token_estimate=row.token_estimate, title=row.title))

    async def _fitted(self, call: RelayCall, journal: Journal, upstream: Upstream) -> Assistant:
        agent, limits = await self._ready(upstream)
        agent, limits = upstream.edits.agent(agent), upstream.edits.limits(limits)
        last = journal.end
        made: list[Prompt] = []
        telemetry = self._runner.telemetry if call.stored else SILENT
        agent = agent if call.stored else agent.unrecorded()
        if edited := await context_edits.apply(call, journal, agent, limits, upstream.edits):
            return edited
        await _compact_after_overflow(call, journal, agent, limits)
        fitted = await guarded_call.run(
            journal,
            limits,
            partial(self._attempt, call, agent, upstream, _Attempts(journal, last, made)),
            agent.compactor,
            call.tell,
            compact_first=True,
            is_shown=lambda: call.is_shown,
            reported=partial(telemetry.call, journal, agent.provider.model),
        )
        if call.stored:
            await self._learn(call, agent, limits, made[-1], fitted.reply, fitted.window)
        return replace(fitted.reply, content=salvaged(fitted.reply.content))

    async def _ready(self, upstream: Upstream) -> tuple[Agent, Limits]:
        agent = upstream.agent.narrowed(await self._runner.windows.of(upstream.agent.place))
        return agent, agent.scaled(await self._runner.calibration.of(agent.provider.model))

    async def _learn(
        self, call: RelayCall, agent: Agent, limits: Limits, prompt: Prompt, reply: Assistant, window: int
    ) -> None:
        if window:
            await self._runner.windows.learn(agent.place, window)
        self._runner.calibration.learn(call.session_id, agent.provider.model, prompt, limits, reply)

    async def _attempt(
        self, call: RelayCall, agent: Agent, upstream: Upstream, attempts: "_Attempts", shown: History, tell: Tell
    ) -> Assistant:
        if made := _compaction(attempts.journal, attempts.last):  # known before the first piece is told
            call.note_compaction(made)
        prompt = prompts.assemble(
            shown,
            tools=[ToolDefinition.of(tool) for tool in agent.limits.tools],
            max_output=upstream.max_output or agent.max_output,
            may_call=upstream.parameters.tool_choice != "none",
            parameters=upstream.parameters,
        )
        attempts.made.append(prompt)

        def ask() -> Awaitable[Assistant]:
            if call.stored:
                self._on_request("turn", call.session_id, prompt)
            return _stream(call, agent, prompt, tell)

        return await retry.call(
            ask,
            may_retry=lambda: not call.is_shown,
            on_retry=lambda: tell(GuardStage(stage="retry")),
            backoff_s=self._backoff_s,
        )

    async def _turn(self, call: RelayCall, journal: Journal, upstream: Upstream) -> None:
        """A turn of one of our agents, with its own tools."""
        begun, told = journal.end, RelayedTurn(call)
        await self._runner.run(
            journal,
            TurnRequest(unrecorded=not call.stored, trace=tracing.current()),
            call.turn,
            told,
            lambda seqs: None,
        )
        if made := _compaction(journal, begun):
            call.compaction = CompactionNote(made.seq, made.tokens_before, made.tokens_after)
        said = [entry for entry in journal.stored if isinstance(entry, Assistant) and entry.seq > begun]
        if told.error is not None:
            call.end(None, told.error)
        elif said:
            reply = told_as_one(said)
            if kept := relay_ends.pieces(call, upstream, reply):
                with suppress(TurnlogError):  # the answer is stored; without this only its pieces are not known later
                    await journal.append(*kept)
            call.end(reply)
        else:
            call.end(None, Busy("the turn was stopped", hint="Send the request again."))

    async def _repeat(self, call: RelayCall, entered: Entrance) -> None:
        """The answer of an earlier call: of one that runs here, of one that runs elsewhere, or from the log."""
        running = self._calls.get((entered.session_id, entered.turn))
        if running is not None and not running.over:
            running.match = entered.match
            call.started.set_result(running)
            return
        self._begin(call, entered)
        call.started.set_result(call)
        reply = entered.answer or await self._from_elsewhere(entered)
        for piece in pieces_of(reply):
            call.add(piece)
        call.end(reply)

    async def _from_elsewhere(self, entered: Entrance) -> Assistant:
        """The answer that another process is about to store."""
        deadline = asyncio.get_running_loop().time() + ELSEWHERE_S
        while asyncio.get_running_loop().time() < deadline:
            is_over = await replaying.is_free(self._store, entered.session_id)
            if (answer := await self.places.answer(entered.session_id, entered.turn)) is not None:
                return answer
            if is_over:
                break
            await asyncio.sleep(ELSEWHERE_LOOK_S)
        raise ProviderBusy("the call that was made for this request was cut short")


class _Attempts(Struct, frozen=True):
    """What the attempts of one call share."""

    journal: Journal
    last: int
    """The end of the log when the call began."""
    made: list[Prompt]


async def _stream(call: RelayCall, agent: Agent, prompt: Prompt, tell: Tell) -> Assistant:
    async with aclosing(agent.provider.stream(prompt)) as pieces:
        async for piece in pieces:
            if isinstance(piece, Assistant):
                return piece
            if piece.repairs:
                for repair in piece.repairs:
                    tell(GuardStage(stage=f"repaired: {repair}"))
                continue
            call.add(piece)
            if len(call.pieces) == 1:
                await asyncio.sleep(0)  # further ones may be here already: the first is passed on before them
    raise ProviderRefused("the model's answer was incomplete", hint="Send the request again.")


async def _compact_after_overflow(call: RelayCall, journal: Journal, agent: Agent, limits: Limits) -> None:
    """Compacts first if the newest answer was to a prompt that was too large, and nothing was compacted since."""
    told = [entry for entry in journal.stored if isinstance(entry, Assistant | Compaction)]
    if not told or not isinstance(told[-1], Assistant):
        return
    taken = input_tokens(told[-1].usage)
    if not overflow.is_silent(input_tokens=taken, window=limits.believed or limits.window, stop=told[-1].stop):
        return
    transcript = journal.transcript
    if plan := guard.on_overflow(transcript, limits):
        step = Compact(plan, "overflow", guard.measure(transcript, limits), guard.again_shortened(plan))
        await agent.compactor.compact(journal, step, limits, call.tell)


def _compaction(journal: Journal, after: int) -> Compaction | None:
    """The newest compaction after this entry."""
    return next((e for e in reversed(journal.stored) if isinstance(e, Compaction) and e.seq > after), None)
