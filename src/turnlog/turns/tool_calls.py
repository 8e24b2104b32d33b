"""Runs the tool calls of one answer, and stores their results.

Calls run one after another, unless their tools are declared parallel. A message that steers skips the calls that have
not begun; one that interrupts ends the turn; a call that needs a person's approval pauses it.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from ..core import events
from ..core.entries import Block, ToolResult
from ..sessions import Sessions
from ..stores import Clock
from . import asking
from .telemetry import SILENT, Telemetry
from .tool_context import Recall, context_of
from .turn import RoundsEnd, Turn

SKIPPED = "skipped: a new message arrived"


class ToolCalls:
    def __init__(self, sessions: Sessions, recall: Recall | None, clock: Clock, telemetry: Telemetry) -> None:
        self._sessions = sessions
        self._recall = recall
        self._clock = clock
        self._telemetry = telemetry

    async def run(self, turn: Turn, calls: Sequence[Block]) -> RoundsEnd | None:
        """None: all have results, and the turn goes on."""
        left = list(calls)
        while left:
            modes = {entry.mode for entry in await turn.journal.look_for_waiting()}
            if "steer" in modes:
                break
            if "interrupt" in modes:
                return "stopped"
            judged = turn.asked.judge(left[0])
            if judged.verdict == "ask" and turn.asks:
                for request in await turn.asked.request(left, self._clock()):
                    turn.tell(events.of_request(request))
                return "paused"
            group = turn.asked.next_group(left) if judged.verdict == "run" else left[:1]
            left = left[len(group) :]
            for call in group:
                turn.tell(events.of_call(call))
            if judged.verdict == "run":
                results = await self._run_group(turn, group)
            else:
                words = asking.NOBODY_TO_ASK if judged.verdict == "ask" else judged.why
                results = [asking.denied(str(call["id"]), words) for call in group]
            await turn.journal.append(*results)
            for result in results:
                turn.tell(events.of_result(result))
        await self._skip(turn, left)
        return None

    async def _skip(self, turn: Turn, calls: Sequence[Block]) -> None:
        skipped = [ToolResult(tool_use_id=str(call["id"]), content=SKIPPED, is_error=True) for call in calls]
        if skipped:
            await turn.journal.append(*skipped)
        for call, result in zip(calls, skipped, strict=True):
            turn.tell(events.of_call(call))
            turn.tell(events.of_result(result))

    async def _run_group(self, turn: Turn, group: Sequence[Block]) -> list[ToolResult]:
        context = context_of(self._sessions, turn.journal, turn.agent.name, turn.began_at, self._recall)
        session_id, telemetry = turn.journal.session_id, SILENT if turn.unrecorded else self._telemetry
        running = (telemetry.tool(session_id, call, partial(turn.asked.run, call, context)) for call in group)
        return await asyncio.gather(*running)
