"""Sessions over HTTP: lists, whole histories, titles, deletion, compaction, forks, rewinding, prompts, live tails."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Literal, cast

import msgspec
from litestar import Controller, delete, get, patch, post
from litestar.params import JSONBody, QueryParameter
from litestar.types import ASGIApp

from ..core import prompt as prompts
from ..core.entries import Entry
from ..core.query import PAGE_MAX, Query, named_status
from ..core.rows import row_of
from ..core.session import Session
from ..errors import Conflict, Corrupt
from ..library import Turnlog
from ..sessions import Sessions
from . import idempotency, sse
from .bodies import (
    AgentId,
    CompactBody,
    CompactionView,
    CoverageRow,
    CoverageView,
    ForkBody,
    PromptView,
    RewindBody,
    Row,
    SessionId,
    SessionList,
    SessionView,
    TitleBody,
)
from .chat import stream
from .problems import as_it_is
from .service import Asked, service_of, who_asks

ENTRIES_MAX = 1_000
"""Of one session in one answer; `next` leads to older ones."""
Limit = Annotated[int, QueryParameter(ge=1, le=PAGE_MAX, description="How many at most.")]
Cursor = Annotated[
    str | None,
    QueryParameter(description="`next` of the page before.", pattern=r"^[0-9]{1,15}\.[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"),
]
Words = Annotated[str | None, QueryParameter(description="Words in title, label, key or id.", max_length=1_000)]
StatusName = Annotated[
    Literal["untrashed", "active", "inactive", "archived", "trashed", "all"],
    QueryParameter(description="Only these; `untrashed`: all but what is in the trash."),
]
# Not `int | None`: then the word null would be a number that is not there.
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
        request: Asked,
        agent: AgentId,
        limit: Limit = 50,
        cursor: Cursor = None,
        q: Words = None,
        status: StatusName = "untrashed",
    ) -> SessionList:
        service, who = service_of(request), who_asks(request, "chat", "read")
        service.check_agent(who, agent)
        query = Query(agent=agent, limit=limit, cursor=cursor, q=q or None, status=named_status(status))
        page = await service.gate(who).list(query)
        return SessionList(sessions=[as_row(row) for row in page.items], next=page.next, total=page.total)

    @get("/{sid:str}", summary="A session with its whole history")
    async def view(
        self,
        request: Asked,
        agent: AgentId,
        sid: SessionId,
        limit: Annotated[int, QueryParameter(ge=1, le=ENTRIES_MAX)] = ENTRIES_MAX,
        before: Seq = 0,
    ) -> SessionView:
        service, who = service_of(request), who_asks(request, "chat", "read")
        row = await service.row(who, agent, sid)
        entries = await _entries(service.gate(who), row, limit, before or None)
        older = entries[0].seq if entries and entries[0].seq > 1 else None
        told: Any = [msgspec.Raw(sse.encode(entry)) for entry in entries]
        return SessionView(session=as_row(row), entries=told, next=older)

    @patch("/{sid:str}", summary="Give a session a title")
    async def rename(self, request: Asked, agent: AgentId, sid: SessionId, data: JSONBody[TitleBody]) -> Row:
        service, who = service_of(request), who_asks(request, "chat")
        await service.row(who, agent, sid, write=True)
        with as_it_is():  # a title of which nothing can be seen
            return as_row(await service.gate(who).rename(sid, data.title))

    @delete("/{sid:str}", summary="Erase a session, at once and for good")
    async def erase(self, request: Asked, agent: AgentId, sid: SessionId) -> None:
        service, who = service_of(request), who_asks(request, "chat")
        await service.row(who, agent, sid, write=True)
        await service.gate(who).delete(sid)

    @post("/{sid:str}/compact", status_code=200, summary="Fold what is old under a summary")
    async def compact(
        self, request: Asked, agent: AgentId, sid: SessionId, data: JSONBody[CompactBody | None] = None
    ) -> CompactionView:
        service, who = service_of(request), who_asks(request, "chat")
        row = await service.row(who, agent, sid, write=True)
        asked = data or CompactBody()

        async def act() -> CompactionView:
            with as_it_is():
                report = await service.turnlog.compact(row, focus=asked.focus or "", dry_run=asked.dry_run)
            return msgspec.convert(msgspec.to_builtins(report), CompactionView)

        return await idempotency.once(service.turnlog.store.ledger, request, CompactionView, act)

    @post("/{sid:str}/undo-compact", status_code=200, summary="Take back the newest compaction")
    async def undo(self, request: Asked, agent: AgentId, sid: SessionId) -> Row:
        service, who = service_of(request), who_asks(request, "chat")
        await service.row(who, agent, sid, write=True)

        async def act() -> Row:
            with as_it_is():
                return as_row(await service.gate(who).undo(sid))

        return await idempotency.once(service.turnlog.store.ledger, request, Row, act)

    @post("/{sid:str}/fork", status_code=200, summary="A new session that shares the past up to an entry")
    async def fork(self, request: Asked, agent: AgentId, sid: SessionId, data: JSONBody[ForkBody | None] = None) -> Row:
        service, who = service_of(request), who_asks(request, "chat")
        await service.row(who, agent, sid, write=True)
        asked = data or ForkBody()

        async def act() -> Row:
            with as_it_is():
                return as_row(await service.gate(who).fork(sid, at=asked.at, label=_printable(asked.label)))

        return await idempotency.once(service.turnlog.store.ledger, request, Row, act)

    @post("/{sid:str}/rewind", status_code=200, summary="Go on from an earlier entry")
    async def rewind(self, request: Asked, agent: AgentId, sid: SessionId, data: JSONBody[RewindBody]) -> Row:
        service, who = service_of(request), who_asks(request, "chat")
        await service.row(who, agent, sid, write=True)

        async def act() -> Row:
            with as_it_is():
                return as_row(await service.gate(who).rewind(sid, data.to))

        return await idempotency.once(service.turnlog.store.ledger, request, Row, act)

    @get("/{sid:str}/prompt", summary="What would be sent to the model now, or was sent when the log ended at `at`")
    async def prompt(self, request: Asked, agent: AgentId, sid: SessionId, at: Seq = 0) -> PromptView:
        service, who = service_of(request), who_asks(request, "chat", "read")
        row = await service.row(who, agent, sid)
        return await _prompt(service.turnlog, row, at or None)

    @get("/{sid:str}/coverage", summary="What became of each entry")
    async def coverage(self, request: Asked, agent: AgentId, sid: SessionId) -> CoverageView:
        service, who = service_of(request), who_asks(request, "chat", "read")
        await service.row(who, agent, sid)
        found = await service.gate(who).explain(sid)
        return CoverageView([CoverageRow(row.seq, row.type, row.state, row.by) for row in found])

    @get("/{sid:str}/events", summary="New entries as they are stored")
    async def events(self, request: Asked, agent: AgentId, sid: SessionId, after: Since = -1) -> ASGIApp:
        service, who = service_of(request), who_asks(request, "chat", "read")
        row = await service.row(who, agent, sid)
        last = request.headers.get("last-event-id")
        start = int(last) if last and last.isascii() and last.isdecimal() and len(last) < 16 else after
        # From beyond the end nothing would ever be told, however much is written.
        known = row.last_seq if start < 0 else min(start, row.last_seq)
        return stream(request, sid, _tail(service.turnlog, sid, known))


def as_row(row: Session) -> Row:
    return msgspec.convert(row_of(row), Row)


async def _entries(gate: Sessions, row: Session, limit: int, before: int | None) -> list[Entry]:
    end = min(before or row.last_seq + 1, row.last_seq + 1)
    try:
        return await gate.read(row.id, before=end, limit=limit)
    except Corrupt:
        # What can be read around the damage is shown; doctor names the damage itself.
        whole = (await gate.transcript(row.id)).entries
        return [entry for entry in whole if entry.seq < end][-limit:]


async def _prompt(turnlog: Turnlog, row: Session, at: int | None) -> PromptView:
    if at is not None and at > row.last_seq:
        raise Conflict(f"the session has no entry {at}", hint=f"It has entries 1 to {row.last_seq}.")
    found = prompts.as_dict(await turnlog.prompt(row, at=at))
    return PromptView(found["system"], found["messages"], found["tools"])


async def _tail(turnlog: Turnlog, session_id: str, after: int) -> AsyncGenerator[bytes]:
    """Ends when the session is deleted."""
    yield b": from here\n\n"
    watching = cast("AsyncGenerator[Entry]", turnlog.store.watch(session_id, after=after))
    async with aclosing(watching):
        async for entry in watching:
            yield sse.frame(entry, at=str(entry.seq))


def _printable(label: str | None) -> str | None:
    """What cannot be seen is left out of a name."""
    seen = "".join(char if char.isprintable() else " " for char in label or "")
    return seen if seen.strip() else None
