"""Which calls of a turn wait for a person's approval, how they are asked for, and how an approved call runs.

    judge ── ask ──▶ request (one append) ── the turn is paused ── take_up (one append) ──▶ run, at most once

`take_up` appends `resumed` and the results of denied calls before anything runs. If the process dies after that, the
turn counts as cut short like any other, and no call of it is run again (`core/approvals`).
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

from msgspec.structs import replace

from ..core import approvals, call_patterns
from ..core.approvals import WaitingCall
from ..core.entries import Approval, Block, Entry, ToolResult
from ..core.session import Session
from ..core.user_content import join_content
from ..tools import Context
from ..tools.approval import RUN, Judgement
from .agent import Agent
from .journal import Journal

MayAsk: TypeAlias = Callable[[Session], bool]
"""Whether there is a person who may approve calls in this session."""
NOBODY_TO_ASK = (
    "nobody can be asked for approval here. Tell the user that this call needs approval, which the setting "
    "tools.approval or a pattern in tools.allow can give"
)
ELSEWHERE = "not run: it was approved for another workspace, which this process does not work in"
ASKED_MAX = 32
"""The calls that a person is asked about at once; those beyond are asked about after these."""


class Asking:
    """The calls of one running turn."""

    def __init__(self, journal: Journal, agent: Agent) -> None:
        self._journal = journal
        self._agent = agent
        self.approved: dict[str, WaitingCall] = {}
        """Calls that were approved and have not begun, by id."""

    def judge(self, call: Block) -> Judgement:
        if str(call.get("id")) in self.approved:
            return RUN
        return self._agent.toolbox.judge(call, self._agent.approval, self._journal.row.allowed)

    def next_group(self, calls: Sequence[Block]) -> Sequence[Block]:
        """The first call, and with it those that follow if all of them may run in parallel."""
        is_parallel = self._agent.toolbox.is_parallel
        runs = [is_parallel(str(call.get("name"))) and self.judge(call).verdict == "run" for call in calls]
        together = 1
        while together < len(calls) and all(runs[: together + 1]):
            together += 1
        return calls[:together]

    async def request(self, calls: Sequence[Block], now_ms: int) -> list[Approval]:
        """Asks for all calls of a message that need a word, at once. Those before them have their results."""
        expires = now_ms + int(self._agent.approval.expires_s * 1000)
        asked: dict[str, Approval] = {}
        for call in calls:
            judged, call_id = self.judge(call), str(call["id"])
            if judged.verdict == "ask" and call_id not in asked and len(asked) < ASKED_MAX:
                asked[call_id] = await self._request(call_id, call, judged.why, expires)
        await self._journal.settle()
        return cast("list[Approval]", await self._journal.append(*asked.values()))

    async def _request(self, call_id: str, call: Block, why: str, expires: int) -> Approval:
        name, given = str(call.get("name")), cast("dict[str, Any]", call["input"])
        return Approval(
            state="requested",
            call=call_id,
            tool=name,
            input=given,
            why=why,
            preview=await self._agent.toolbox.preview(call),
            place=self._agent.toolbox.place(name) or "",
            always=call_patterns.offered(name, given),
            expires=expires,
        )

    async def run(self, call: Block, context: Context) -> ToolResult:
        """An approved call runs with the arguments that the person saw or wrote, and only where it was asked for."""
        toolbox = self._agent.toolbox
        given = self.approved.pop(str(call.get("id")), None)
        if given is None:
            return await toolbox.run(call, context)
        if not can_run(self._agent, given):
            return ToolResult(tool_use_id=given.request.call, content=ELSEWHERE, is_error=True)
        changed = given.answer.input if given.answer else None
        result = await toolbox.run({**call, "input": given.request.input if changed is None else changed}, context)
        if changed is None:
            return result
        note = f"[the user changed the arguments to {json.dumps(changed, ensure_ascii=False)}]"
        return replace(result, content=join_content([note, result.content]))


def can_run(agent: Agent, asked: WaitingCall) -> bool:
    """Whether the tool of this call works here where it worked when the call was asked for."""
    return agent.toolbox.place(asked.request.tool) == asked.request.place


async def take_up(
    journal: Journal, turn: Sequence[Entry]
) -> tuple[dict[str, WaitingCall], list[Block], list[ToolResult]]:
    """(approved calls by id, calls left to run, results of the denied ones). Afterwards the turn is not paused."""
    found, left = approvals.asked(turn), approvals.open_blocks(turn)
    approved = {call: one for call, one in found.items() if one.answer is not None and one.answer.word == "approved"}
    words = {call: one.answer.words if one.answer else "" for call, one in found.items() if call not in approved}
    results = [denied(call_id, words[call_id]) for call in left if (call_id := str(call["id"])) in words]
    await journal.append(Approval(state="resumed"), *results)
    return approved, [call for call in left if str(call["id"]) not in words], results


def denied(call_id: str, words: str) -> ToolResult:
    return ToolResult(tool_use_id=call_id, content=approvals.denial(words), is_error=True)
