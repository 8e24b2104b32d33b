"""Chats, for administrators: channel logs and sessions in one table, and each of them in a drawer."""

import heapq
from typing import Annotated, Literal
from urllib.parse import quote

from litestar import Response, get
from litestar.params import Parameter
from msgspec import Struct

from .. import convlog as convlogs
from ..convlog import Conversation, Filter
from ..core import query as queries
from ..core.principals import Principal, owns
from ..core.query import UNTRASHED, Query
from ..core.session import Session
from ..errors import NotFound
from . import pages_timeline as timelines
from .pages_replies import replies_in
from .pages_view import ENTRIES_SHOWN, model_of, path_to, read_conversation, show, wants_part
from .service import Asked, Service, service_of, who_asks

ROWS = 50
CHANNELS = ("web", "cli", "telegram", "slack", "discord", "feishu", "webhook")
MESSAGES_SHOWN = 200

Kind = Literal["", "session", "log", "trash"]
Sort = Literal["last", "messages", "tokens"]
Piece = Annotated[str, Parameter(max_length=1_000)]
Cursor = Annotated[str, Parameter(max_length=2_000)]
Start = Annotated[int | None, Parameter(ge=0, le=2**40)]


class Wanted(Struct, frozen=True, kw_only=True):
    """The filters of the page."""

    kind: Kind = ""
    agent: str = ""
    channel: str = ""
    q: str = ""
    sort: Sort = "last"
    sessions_after: str = ""
    logs_after: str = ""


class Line(Struct, frozen=True, kw_only=True):
    """One row of the table."""

    kind: Literal["session", "log"]
    name: str
    id: str
    agent: str
    channel: str
    messages: int
    tokens: int | None
    last_at: int
    compactions: int
    path: str
    status: str = ""
    cursor: str = ""


class Lines(Struct, frozen=True):
    rows: list[Line]
    total: int
    sessions_after: str = ""
    logs_after: str = ""
    more: bool = False


@get("/chats")
async def chats_page(
    request: Asked,
    kind: Kind = "",
    agent: Piece = "",
    channel: Piece = "",
    q: Piece = "",
    sort: Sort = "last",
    sa: Cursor = "",
    la: Cursor = "",
) -> Response[str]:
    service, who = service_of(request), who_asks(request, "admin")
    if agent:
        service.check_agent(who, agent)
    wanted = Wanted(kind=kind, agent=agent, channel=channel, q=q.strip(), sort=sort, sessions_after=sa, logs_after=la)
    replies = await replies_in(service)
    lines = await _lines(service, who, wanted)
    part = wants_part(request)
    template = "part_rows.html" if part else "chats.html"
    return await show(
        request,
        template,
        wanted=wanted,
        lines=lines,
        replies=replies,
        channels=CHANNELS,
        part=part,
    )


async def _lines(service: Service, who: Principal, wanted: Wanted) -> Lines:
    """Two lists in the same order, as one; each goes on after the last row that was taken from it."""
    sessions, count_s = await _sessions(service, who, wanted)
    logs, count_l = await _logs(service, who, wanted)
    merged = list(heapq.merge(sessions, logs, key=lambda line: _place(wanted.sort, line)))
    page = merged[:ROWS]
    return Lines(
        rows=page,
        total=count_s + count_l,
        sessions_after=next((x.cursor for x in reversed(page) if x.kind == "session"), wanted.sessions_after),
        logs_after=next((x.cursor for x in reversed(page) if x.kind == "log"), wanted.logs_after),
        more=len(merged) > len(page),
    )


def _place(sort: Sort, line: Line) -> tuple[int, int]:
    """Where a row belongs among those of the other list. Within its own it keeps its place: merging is stable."""
    match sort:
        case "last":
            return 0, -line.last_at
        case "messages":
            return -line.messages, -line.last_at
        case "tokens":
            return (1 if line.tokens is None else -line.tokens), -line.last_at


async def _sessions(service: Service, who: Principal, wanted: Wanted) -> tuple[list[Line], int]:
    if wanted.kind == "log":
        return [], 0
    query = Query(
        agent=wanted.agent or None,
        channel=wanted.channel or None,
        q=wanted.q or None,
        status="trashed" if wanted.kind == "trash" else UNTRASHED,
        sort="newest" if wanted.sort == "last" else wanted.sort,
        limit=ROWS + 1,
        cursor=wanted.sessions_after or None,
    )
    page = await service.gate(who).list(query)
    return [_of_session(row, query.sort) for row in page.items], page.total


async def _logs(service: Service, who: Principal, wanted: Wanted) -> tuple[list[Line], int]:
    if wanted.kind in ("session", "trash"):
        return [], 0
    agents = frozenset({wanted.agent}) if wanted.agent else who.agents
    filters = Filter(agents=agents, channel_type=wanted.channel or None, q=wanted.q or None)
    sort = "messages" if wanted.sort == "messages" else "newest"
    page = await service.convlog.list(filters, limit=ROWS + 1, cursor=wanted.logs_after or None, sort=sort)
    return [_of_log(item, sort) for item in page.items], page.total


def _of_session(row: Session, sort: queries.Sort) -> Line:
    return Line(
        kind="session",
        name=row.label or row.title,
        id=row.id,
        agent=row.agent,
        channel=row.channel,
        messages=row.message_count,
        tokens=row.token_estimate,
        last_at=row.last_at,
        compactions=row.compactions,
        path=path_to("chats", "session", row.agent, row.id),
        status=row.status,
        cursor=queries.cursor_after(row, sort),
    )


def _of_log(item: Conversation, sort: convlogs.Sort) -> Line:
    return Line(
        kind="log",
        name=item.channel_id,
        id=item.channel_id,
        agent=item.agent_id,
        channel=item.channel_type,
        messages=item.message_count,
        tokens=None,
        last_at=item.last_at,
        compactions=0,
        path=log_path(item.agent_id, item.channel_id),
        cursor=convlogs.cursor_after(item, sort),
    )


@get("/chats/session/{agent:str}/{sid:str}")
async def session_drawer(request: Asked, agent: str, sid: str) -> Response[str]:
    service, who = service_of(request), who_asks(request, "admin")
    row = await service.row(who, agent, sid)
    entries, folds = await read_conversation(service.gate(who), row)
    return await show(
        request,
        "part_drawer.html" if wants_part(request) else "drawer.html",
        agent=agent,
        row=row,
        items=timelines.conversation(row, entries, folds),
        cut=len(entries) >= ENTRIES_SHOWN,
        model=await model_of(service, agent),
        may_write=owns(who, row),
        log=None,
        unsent=(await replies_in(service)).of("session", sid, agent),
    )


def log_path(agent: str, channel: str) -> str:
    """A channel's id may hold a slash, which no part of a path can."""
    return f"{path_to('chats', 'log', agent)}?channel={quote(channel, safe='')}"


@get("/chats/log/{agent:str}")
async def log_drawer(request: Asked, agent: str, channel: Piece, after: Start = None) -> Response[str]:
    """The newest messages of a channel's log, oldest first; `after` leads through the older ones."""
    service, who = service_of(request), who_asks(request, "admin")
    service.check_agent(who, agent)
    total = (await service.convlog.messages(agent, channel, limit=1)).total
    if not total:
        raise NotFound("there is no such log", hint="Choose one of the list.")
    start = max(0, total - MESSAGES_SHOWN) if after is None else after
    page = await service.convlog.messages(agent, channel, limit=MESSAGES_SHOWN, cursor=str(start))
    log = {
        "channel": channel,
        "path": log_path(agent, channel),
        "messages": page.items,
        "start": start,
        "total": total,
        "size": MESSAGES_SHOWN,
    }
    template = "part_drawer.html" if wants_part(request) else "drawer.html"
    unsent = (await replies_in(service)).of("log", channel, agent)
    return await show(
        request, template, agent=agent, row=None, items=[], cut=False, log=log, unsent=unsent, may_write=False
    )
