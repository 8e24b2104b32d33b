"""Sessions over HTTP: lists, histories, titles, deletion, compaction, forks, rewinding, prompts, live entries."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Annotated, Any, Literal

import msgspec
from litestar import Controller, delete, get, patch, post
from litestar.params import JSONBody, QueryParameter
from litestar.types import ASGIApp

from ...access import Access
from ...access.former_files import FormerFile
from ...codecs.native import encode_plain
from ...core import names, prompt as prompts
from ...core.approvals import ApprovalRecord
from ...core.entries import Entry
from ...core.query import PAGE_MAX, Query, named_status
from ...core.rows import SessionRow, public_row
from ...core.session import Session
from ...errors import Conflict, Corrupt
from ...sessions import Sessions
from ...sessions.erasing import check_asked
from ...sessions.erasing_text import EraseRequest
from ..http import bodies, idempotency, sse
from ..http.bodies import AgentId, CallId, SessionId
from ..http.problems import state_conflicts
from ..rejoin import Rejoin
from ..service import AnyRequest, acting, principal_of, reading, service_of, writing
from .chat import stream

ENTRIES_MAX = 1_000
"""Entries in one answer; `next` leads to older ones."""
Limit = Annotated[int, QueryParameter(ge=1, le=PAGE_MAX, description="How many at most.")]
Cursor = Annotated[
    str | None,
    QueryParameter(description="`next` of the page before.", pattern=r"^[0-9]{1,15}\.[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"),
]
Words = Annotated[
    str | None, QueryParameter(description="Words in title, label or key, or the beginning of an id.", max_length=1_000)
]
StatusName = Annotated[
    Literal["untrashed", "active", "inactive", "archived", "trashed", "all"],
    QueryParameter(description="Only these; `untrashed`: all but what is in the trash."),
]
# Not `int | None`: then `?at=null` would be accepted.
Seq = Annotated[int, QueryParameter(gt=-1, le=2**53, description="The seq of an entry; 0 stands for the end.")]
Since = Annotated[
    int, QueryParameter(gt=-2, le=2**53, description="The seq of the last entry that is known; -1: only new ones.")
]


class SessionsApi(Controller):
    """Mounted at /api/agents/{agent}/sessions and at /api/sessions/{agent}."""

    path = "/"
    tags = ("sessions",)

    @get("/", summary="List sessions, newest first")
    async def list_sessions(
        self,
        request: AnyRequest,
        agent: AgentId,
        limit: Limit = 50,
        cursor: Cursor = None,
        q: Words = None,
        status: StatusName = "untrashed",
    ) -> bodies.SessionList:
        access = acting(request, "chat", "read", agent=agent)
        query = Query(agent=agent, limit=limit, cursor=cursor, q=q or None, status=named_status(status))
        page = await access.sessions.list(query)
        return bodies.SessionList(sessions=[public_row(row) for row in page.items], next=page.next, total=page.total)

    @get("/{sid:str}", summary="A session with its whole history")
    async def view(
        self,
        request: AnyRequest,
        agent: AgentId,
        sid: SessionId,
        limit: Annotated[int, QueryParameter(ge=1, le=ENTRIES_MAX)] = ENTRIES_MAX,
        before: Seq = 0,
    ) -> bodies.SessionView:
        access, row = await reading(request, agent, sid)
        entries = await _entries(access.sessions, row, limit, before or None)
        older = entries[0].seq if entries and entries[0].seq > 1 else None
        encoded: Any = [msgspec.Raw(encode_plain(entry)) for entry in entries]
        return bodies.SessionView(session=public_row(row), entries=encoded, next=older)

    @patch("/{sid:str}", summary="Give a session a title")
    async def rename(
        self, request: AnyRequest, agent: AgentId, sid: SessionId, data: JSONBody[bodies.TitleBody]
    ) -> SessionRow:
        access, _ = await writing(request, agent, sid)
        with state_conflicts():  # a title without a visible character
            return public_row(await access.sessions.rename(sid, data.title))

    @delete("/{sid:str}", summary="Erase a session, at once and for good")
    async def erase(self, request: AnyRequest, agent: AgentId, sid: SessionId) -> None:
        access, _ = await writing(request, agent, sid)
        await access.sessions.delete(sid)

    @post(
        "/{sid:str}/erase", status_code=200, summary="Erase words of a session; without `apply`, list what holds them"
    )
    async def erase_words(
        self, request: AnyRequest, agent: AgentId, sid: SessionId, data: JSONBody[bodies.EraseBody]
    ) -> bodies.EraseReport:
        who = principal_of(request, "admin")
        _, row = await reading(request, agent, sid)
        seqs, text = data.seqs or (), data.text or None
        asked = EraseRequest(row=row, seqs=seqs, text=text, redact=data.redact, derived=data.derived, apply=data.apply)
        check_asked(who, seqs, text, everywhere=False)
        return await erase_asked(request, asked)

    @post("/{sid:str}/compact", status_code=200, summary="Fold what is old under a summary")
    async def compact(
        self, request: AnyRequest, agent: AgentId, sid: SessionId, data: JSONBody[bodies.CompactBody | None] = None
    ) -> bodies.CompactionView:
        access, row = await writing(request, agent, sid)
        asked = data or bodies.CompactBody()

        async def act() -> bodies.CompactionView:
            with state_conflicts():
                report = await access.compact(row, focus=asked.focus or "", dry_run=asked.dry_run)
            return msgspec.convert(msgspec.to_builtins(report), bodies.CompactionView)

        return await idempotency.once(request, bodies.CompactionView, act)

    @post("/{sid:str}/undo-compact", status_code=200, summary="Take back the newest compaction")
    async def undo(self, request: AnyRequest, agent: AgentId, sid: SessionId) -> SessionRow:
        return await _edit(request, agent, sid, lambda access, _: access.sessions.undo(sid))

    @post("/{sid:str}/fork", status_code=200, summary="A new session that shares the past up to an entry")
    async def fork(
        self, request: AnyRequest, agent: AgentId, sid: SessionId, data: JSONBody[bodies.ForkBody | None] = None
    ) -> SessionRow:
        asked = data or bodies.ForkBody()
        label = _printable(asked.label)
        return await _edit(request, agent, sid, lambda access, _: access.sessions.fork(sid, at=asked.at, label=label))

    @post("/{sid:str}/rewind", status_code=200, summary="Go on from an earlier entry")
    async def rewind(
        self, request: AnyRequest, agent: AgentId, sid: SessionId, data: JSONBody[bodies.RewindBody]
    ) -> SessionRow:
        return await _edit(request, agent, sid, lambda access, _: access.sessions.rewind(sid, data.to))

    @post("/{sid:str}/model", status_code=200, summary="Choose the model that answers from the next turn on")
    async def model(
        self, request: AnyRequest, agent: AgentId, sid: SessionId, data: JSONBody[bodies.ModelBody]
    ) -> SessionRow:
        return await _edit(request, agent, sid, lambda access, row: access.choose_model(row, data.model))

    @post("/{sid:str}/retry", status_code=200, summary="Send the words of the last turn again, if it failed")
    async def retry(self, request: AnyRequest, agent: AgentId, sid: SessionId) -> ASGIApp:
        service = service_of(request)
        service.check_open()
        access, row = await writing(request, agent, sid)

        async def act() -> bodies.RetryView:
            with state_conflicts():
                ticket = await access.accept_retry(row)
            turn, _ = await ticket.turn
            return bodies.RetryView(turn.seq)

        begun = await idempotency.once(request, bodies.RetryView, act)
        return stream(request, sid, Rejoin(access, service.turns).of_turn(row, begun.turn))

    @post("/{sid:str}/discard", status_code=200, summary="Hide the last turn, if it failed")
    async def discard(self, request: AnyRequest, agent: AgentId, sid: SessionId) -> SessionRow:
        return await _edit(request, agent, sid, lambda access, _: access.sessions.discard(sid))

    @get("/{sid:str}/prompt", summary="What would be sent to the model now, or was sent when the log ended at `at`")
    async def prompt(self, request: AnyRequest, agent: AgentId, sid: SessionId, at: Seq = 0) -> bodies.PromptView:
        access, row = await reading(request, agent, sid)
        if at > row.last_seq:
            raise Conflict(f"the session has no entry {at}", hint=f"It has entries 1 to {row.last_seq}.")
        found = prompts.as_dict(await access.prompt(row, at=at or None))
        return bodies.PromptView(found["system"], found["messages"], found["tools"], found.get("parameters", {}))

    @get("/{sid:str}/files", summary="The files that tools wrote in this session, and that can be undone")
    async def files(self, request: AnyRequest, agent: AgentId, sid: SessionId) -> bodies.FilesView:
        access, row = await reading(request, agent, sid)
        return bodies.FilesView(await access.former_files(row))

    @post("/{sid:str}/files/undo", status_code=200, summary="Give a file its former content")
    async def undo_file(
        self, request: AnyRequest, agent: AgentId, sid: SessionId, data: JSONBody[bodies.UndoFileBody | None] = None
    ) -> FormerFile:
        access, row = await writing(request, agent, sid)
        asked = data or bodies.UndoFileBody()
        return await idempotency.once(request, FormerFile, lambda: access.undo_file(row, asked.path, force=asked.force))

    @get("/{sid:str}/approvals", summary="The calls that waited for a person's approval, and what came of them")
    async def approvals(self, request: AnyRequest, agent: AgentId, sid: SessionId) -> bodies.ApprovalsView:
        access, row = await reading(request, agent, sid)
        return bodies.ApprovalsView(await access.approvals(row))

    @post("/{sid:str}/approvals/{call:str}", status_code=200, summary="Approve or deny a call that waits")
    async def answer(
        self, request: AnyRequest, agent: AgentId, sid: SessionId, call: CallId, data: JSONBody[bodies.ApprovalBody]
    ) -> ApprovalRecord:
        access, row = await writing(request, agent, sid)

        async def act() -> ApprovalRecord:
            if data.word == "approved":
                await access.approve(row, call, input=data.input, always=data.always, request=data.seq)
            else:
                await access.deny(row, call, data.words, request=data.seq)
            return next(one for one in reversed(await access.approvals(row)) if one.call_id == call)

        return await idempotency.once(request, ApprovalRecord, act)

    @get("/{sid:str}/coverage", summary="What became of each entry")
    async def coverage(self, request: AnyRequest, agent: AgentId, sid: SessionId) -> bodies.CoverageView:
        access, _ = await reading(request, agent, sid)
        found = await access.sessions.explain(sid)
        return bodies.CoverageView([bodies.CoverageRow(row.seq, row.type, row.state, row.by) for row in found])

    @get("/{sid:str}/events", summary="New entries as they are stored")
    async def events(self, request: AnyRequest, agent: AgentId, sid: SessionId, after: Since = -1) -> ASGIApp:
        access, row = await reading(request, agent, sid)
        service_of(request).hold_stream(request)
        last = request.headers.get("last-event-id")
        start = int(last) if last and last.isascii() and last.isdecimal() and len(last) < 16 else after
        # A seq beyond the end counts as the end: otherwise no later entry would be sent either.
        known = row.last_seq if start < 0 else min(start, row.last_seq)
        return stream(request, sid, _tail(access, row, known))


async def erase_asked(request: AnyRequest, asked: EraseRequest) -> bodies.EraseReport:
    async def act() -> bodies.EraseReport:
        with state_conflicts():  # entries that still count, or do not exist
            return await service_of(request).erase(principal_of(request, "admin"), asked)

    return await idempotency.once(request, bodies.EraseReport, act, secret=True)


async def _edit(
    request: AnyRequest, agent: str, session_id: str, edit: Callable[[Access, Session], Awaitable[Session]]
) -> SessionRow:
    access, row = await writing(request, agent, session_id)

    async def act() -> SessionRow:
        with state_conflicts():
            return public_row(await edit(access, row))

    return await idempotency.once(request, SessionRow, act)


async def _entries(sessions: Sessions, row: Session, limit: int, before: int | None) -> list[Entry]:
    end = min(before or row.last_seq + 1, row.last_seq + 1)
    try:
        return await sessions.read(row, before=end, limit=limit)
    except Corrupt:
        # The readable entries are shown; `turnlog doctor` names the damage.
        whole = (await sessions.transcript(row.id)).entries
        return [entry for entry in whole if entry.seq < end][-limit:]


async def _tail(access: Access, row: Session, after: int) -> AsyncGenerator[bytes]:
    """Ends when the session is deleted."""
    yield b": from here\n\n"
    async with aclosing(access.watch(row, after=after)) as entries:
        async for entry in entries:
            yield sse.frame(entry, at=str(entry.seq))


def _printable(label: str | None) -> str | None:
    """Without characters that cannot be seen."""
    seen = names.one_line(label or "")
    return seen if names.is_seen(seen) else None
