"""The calls of a session that wait for a person's approval, and the ways to answer them.

Only these verbs answer: text in a message never does. Each of them needs a session that the principal may change.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from inspect import isawaitable
from typing import Any, Literal, TypeAlias, cast

from ..core import approvals
from ..core.approvals import BY_TURNLOG, EXPIRED, WORDS_MAX_CHARS, ApprovalRecord
from ..core.entries import ApprovalAnswer
from ..core.events import ApprovalRequest, Event
from ..core.session import Session
from ..errors import Conflict, Denied, NotFound, TurnlogError, UsageError
from ..sessions.checking import checked_methods
from ..settings.allowing import allow_always
from .former_files import FileVerbs
from .parts import Where

Approver: TypeAlias = Callable[[ApprovalRequest], Awaitable[Any] | Any]
"""Your function that answers for a person: True approves, False denies, a text denies with this reason, and a dict
approves with these arguments instead.
"""


@checked_methods
class ApprovalVerbs(FileVerbs):
    async def approvals(self, where: Where) -> list[ApprovalRecord]:
        """Every call of this session that needed approval, with its answer and what came of it; the newest last."""
        row = await self._finder.opened(where)
        return approvals.records(await self.sessions.read(row.id, incarnation=row.incarnation))

    async def approve(
        self,
        where: Where,
        call_id: str,
        *,
        input: dict[str, Any] | None = None,  # noqa: A002 - the name of the field
        always: bool | Literal["everywhere"] = False,
        by: str | None = None,
        request: int = 0,
    ) -> ApprovalAnswer:
        """Approves a call that waits; its turn goes on when no other call waits. Conflict if it was answered before.

        `input`: run it with these arguments instead; UsageError if the tool cannot take them. `always`: calls that
        match the pattern of the request need no approval in this session any more; "everywhere", for administrators: in
        any session (`allow`). `request`: the seq of the question that this answers; without it, the one that waits
        under this id.
        """
        if always == "everywhere":
            self._check_may_allow()
        row = await self._finder.opened(where, write=True)
        is_read = always or input is not None
        asked = approvals.asked(await self.sessions.read(row.id, incarnation=row.incarnation)) if is_read else {}
        pattern = asked[call_id].request.always if always and call_id in asked else ""
        if input is not None and call_id in asked:
            await self._check_input(row, asked[call_id].request.tool, input)
        by = by or self.sessions.principal.name
        body = ApprovalAnswer(call=call_id, word="approved", by=by, input=input, always=pattern, request=request)
        answer = await self._answer(row, body)
        if always == "everywhere" and answer.always:
            await self.allow(answer.always)
        return answer

    async def _check_input(self, row: Session, tool: str, given: dict[str, Any]) -> None:
        """The person who wrote the arguments is told what is wrong with them, not the model."""
        try:
            agent = await self._runner.agent(row)
        except TurnlogError:
            return  # the turn will tell it
        if why := agent.toolbox.misfit(tool, given):
            raise UsageError(f"{tool} cannot take these arguments: {why}", hint="Correct them, or leave them out.")

    async def allow(self, pattern: str) -> bool:
        """Calls that match this pattern need no approval any more, in any session: it is written into `tools.allow` of
        config.toml, and counts in this process at once. Whether it is new. Denied unless an administrator asks.
        """
        self._check_may_allow()
        is_new = await asyncio.to_thread(allow_always, self._finder.home, pattern)
        self._agents.allow(pattern)
        return is_new

    def _check_may_allow(self) -> None:
        who = self.sessions.principal
        if "admin" not in who.scopes or who.agents is not None:
            raise Denied(
                "only an administrator of all agents may allow calls everywhere", hint="Allow it in this chat."
            )

    async def deny(
        self, where: Where, call_id: str, words: str = "", *, by: str | None = None, request: int = 0
    ) -> ApprovalAnswer:
        """Denies a call that waits; the model reads the words. Conflict if it was answered before."""
        row = await self._finder.opened(where, write=True)
        by, words = by or self.sessions.principal.name, words[:WORDS_MAX_CHARS]
        return await self._answer(row, ApprovalAnswer(call=call_id, word="denied", by=by, words=words, request=request))

    async def _answer(self, row: Session, body: ApprovalAnswer) -> ApprovalAnswer:
        """A question whose time is over counts as denied, also if no process has noticed it yet."""
        row = await self._finder.now(row)  # it may be older than the question
        late = any(one.call == body.call and 0 < one.expires <= self._clock() for one in row.approvals)
        if late:
            body = ApprovalAnswer(call=body.call, word="denied", by=BY_TURNLOG, words=EXPIRED, request=body.request)
        appended = await self._store.append(row.id, [body], incarnation=row.incarnation)
        entry = cast("ApprovalAnswer", appended[0])
        await self._queue.answered(appended.row, entry)
        if late:
            raise Conflict(
                f"the call {body.call!r} waited too long and was denied",
                hint="Send a message; the model can call the tool again.",
            )
        return entry

    async def _answering(self, row: Session, told: AsyncIterator[Event], approve: Approver) -> AsyncGenerator[Event]:
        """The same events; each question is answered by the function first."""
        async for event in told:
            yield event
            if isinstance(event, ApprovalRequest):
                await self._answer_by(row, event, approve)

    async def _answer_by(self, row: Session, request: ApprovalRequest, approve: Approver) -> None:
        try:
            word = approve(request)
            word = await word if isawaitable(word) else word
        except Exception as error:  # noqa: BLE001 - the caller's function may raise anything; then nothing runs
            word = f"the function that approves failed: {type(error).__name__}"
        try:
            if word is True or isinstance(word, dict):
                given = cast("dict[str, Any]", word) if isinstance(word, dict) else None
                await self.approve(row, request.call_id, input=given, request=request.seq)
            else:
                await self.deny(row, request.call_id, word if isinstance(word, str) else "", request=request.seq)
        except (Conflict, NotFound):
            return  # somebody else was faster, or the turn was stopped
        except UsageError as error:
            with suppress(Conflict, NotFound):
                await self.deny(row, request.call_id, f"the function that approves: {error}", request=request.seq)
