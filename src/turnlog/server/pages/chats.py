"""The page Chats: a table of sessions and, for administrators only, channel logs; each opens in a drawer."""

import heapq
from typing import Annotated, Literal
from urllib.parse import quote

from litestar import Response, get
from litestar.params import Parameter
from msgspec import Struct

from ... import convlog as convlogs
from ...access import Access
from ...convlog import Conversation, Filter
from ...core import query as queries
from ...core.principals import Principal, owns
from ...core.query import UNTRASHED, Query
from ...core.rows import Session, SessionRow, public_row
from ...errors import NotFound
from ..service import AnyRequest, Service, acting, principal_of, reading, service_of
from . import timeline as timelines
from .replies import replies_in
from .view import ENTRIES_SHOWN, path_to, read_conversation, show, wants_part

ROWS = 50
CHANNELS = ("web", "cli", "telegram", "slack", "discord", "feishu", "webhook")
MESSAGES_SHOWN = 200

Kind = Literal["", "session", "log", "trash"]
Sort = Literal["last", "messages", "tokens"]
Piece = Annotated[str, Parameter(max_length=1_000)]
Cursor = Annotated[str, Parameter(max_length=2_000)]
Start = Annotated[int | None, Parameter(ge=0, le=2**40)]


class ChatFilter(Struct, frozen=True, kw_only=True):
    """The filters of the page."""

    kind: Kind = ""
    agent: str = ""
    channel: str = ""
    q: str = ""
    sort: Sort = "last"
    sessions_after: str = ""
    logs_after: str = ""


class ChatRow(Struct, frozen=True, kw_only=True):
    """One row of the table."""

    kind: Literal["session", "log"]
    name: str
    id: str
    agent: str
    channel: str
    messages: int
    tokens: int | None
    last_at: int
    path: str
    cursor: str = ""
    session: SessionRow | None = None
    """Of a session, all that lists show of it."""


class Lines(Struct, frozen=True):
    rows: list[ChatRow]
    total: int
    sessions_after: str = ""
    logs_after: str = ""
    more: bool = False


@get("/chats")
async def chats_page(
    request: AnyRequest,
    kind: Kind = "",
    agent: Piece = "",
    channel: Piece = "",
    q: Piece = "",
    sort: Sort = "last",
    sa: Cursor = "",
    la: Cursor = "",
) -> Response[str]:
    service, access = service_of(request), acting(request, "read", agent=agent or None)
    wanted = ChatFilter(
        kind=kind, agent=agent, channel=channel, q=q.strip(), sort=sort, sessions_after=sa, logs_after=la
    )
    replies = await replies_in(service, access.principal)
    lines = await _lines(service, access, wanted)
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


async def _lines(service: Service, access: Access, wanted: ChatFilter) -> Lines:
    """Merges two lists of the same order; the next page of each starts after the last row taken from it."""
    sessions, count_s = await _sessions(access, wanted)
    logs, count_l = await _logs(service, access.principal, wanted)
    merged = list(heapq.merge(sessions, logs, key=lambda line: _place(wanted.sort, line)))
    page = merged[:ROWS]
    return Lines(
        rows=page,
        total=count_s + count_l,
        sessions_after=next((x.cursor for x in reversed(page) if x.kind == "session"), wanted.sessions_after),
        logs_after=next((x.cursor for x in reversed(page) if x.kind == "log"), wanted.logs_after),
        more=len(merged) > len(page),
    )


def _place(sort: Sort, line: ChatRow) -> tuple[int, int]:
    """The order between rows of the two lists. Rows of one list keep their order, because merging is stable."""
    match sort:
        case "last":
            return 0, -line.last_at
        case "messages":
            return -line.messages, -line.last_at
        case "tokens":
            return (1 if line.tokens is None else -line.tokens), -line.last_at


async def _sessions(access: Access, wanted: ChatFilter) -> tuple[list[ChatRow], int]:
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
    page = await access.sessions.list(query)
    return [_of_session(row, query.sort) for row in page.items], page.total


async def _logs(service: Service, who: Principal, wanted: ChatFilter) -> tuple[list[ChatRow], int]:
    if wanted.kind in ("session", "trash") or "admin" not in who.scopes:
        return [], 0
    agents = frozenset({wanted.agent}) if wanted.agent else who.agents
    filters = Filter(agents=agents, channel_type=wanted.channel or None, q=wanted.q or None)
    sort = "messages" if wanted.sort == "messages" else "newest"
    page = await service.convlog.list(filters, limit=ROWS + 1, cursor=wanted.logs_after or None, sort=sort)
    return [_of_log(item, sort) for item in page.items], page.total


def _of_session(row: Session, sort: queries.Sort) -> ChatRow:
    return ChatRow(
        kind="session",
        name=row.label or row.title,
        id=row.id,
        agent=row.agent,
        channel=row.channel,
        messages=row.message_count,
        tokens=row.token_estimate,
        last_at=row.last_at,
        path=path_to("chats", "session", row.agent, row.id),
        cursor=queries.cursor_after(row, sort),
        session=public_row(row),
    )


def _of_log(item: Conversation, sort: convlogs.ConversationOrder) -> ChatRow:
    return ChatRow(
        kind="log",
        name=item.channel_id,
        id=item.channel_id,
        agent=item.agent_id,
        channel=item.channel_type,
        messages=item.message_count,
        tokens=None,
        last_at=item.last_at,
        path=log_path(item.agent_id, item.channel_id),
        cursor=convlogs.cursor_after(item, sort),
    )


@get("/chats/session/{agent:str}/{sid:str}")
async def session_drawer(request: AnyRequest, agent: str, sid: str) -> Response[str]:
    principal_of(request, "read")
    access, row = await reading(request, agent, sid)
    entries, folds = await read_conversation(access.sessions, row)
    return await show(
        request,
        "part_drawer.html" if wants_part(request) else "drawer.html",
        agent=agent,
        row=row,
        items=timelines.conversation(row, entries, folds),
        cut=len(entries) >= ENTRIES_SHOWN,
        model=await access.model(agent),
        may_write=owns(access.principal, row),
        log=None,
        unsent=(await replies_in(service_of(request), access.principal)).of("session", sid, agent),
    )


def log_path(agent: str, channel: str) -> str:
    """The channel is in the query, because its id may contain a slash."""
    return f"{path_to('chats', 'log', agent)}?channel={quote(channel, safe='')}"


@get("/chats/log/{agent:str}")
async def log_drawer(request: AnyRequest, agent: str, channel: Piece, after: Start = None) -> Response[str]:
    """The newest messages of a channel's log, oldest first; `after` leads through the older ones."""
    service, who = service_of(request), principal_of(request, "admin")
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
    unsent = (await replies_in(service, who)).of("log", channel, agent)
    return await show(
        request, template, agent=agent, row=None, items=[], cut=False, log=log, unsent=unsent, may_write=False
    )
