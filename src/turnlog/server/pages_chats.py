"""Chats, for administrators: channel logs and sessions in one table, and each of them in a drawer."""

from typing import Annotated, Literal
from urllib.parse import quote

from litestar import Response, get
from litestar.params import Parameter
from msgspec import Struct

from ..convlog import Conversation, Filter
from ..core.principals import Principal, owns
from ..core.query import PAGE_MAX, Query, cursor_after
from ..core.session import Session
from ..errors import NotFound
from . import pages_timeline as timelines
from .pages_view import ENTRIES_SHOWN, model_of, path_to, read_conversation, show, wants_part
from .service import Asked, Service, service_of, who_asks

ROWS = 50
SORTED_MAX = 1_000
"""Rows that the other two orders are made of: stores keep the newest first and no other order."""
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
    cut: bool
    """Only the newest were put in order."""
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
    lines = await (_newest(service, who, wanted) if sort == "last" else _sorted(service, who, wanted))
    part = wants_part(request)
    template = "part_rows.html" if part else "chats.html"
    return await show(
        request, template, wanted=wanted, lines=lines, channels=CHANNELS, sorted_max=SORTED_MAX, part=part
    )


async def _newest(service: Service, who: Principal, wanted: Wanted) -> Lines:
    """Two lists, each newest first, as one; each goes on after the last row that was taken from it."""
    sessions, count_s = await _sessions(service, who, wanted, ROWS + 1, wanted.sessions_after)
    logs, count_l = await _logs(service, who, wanted, ROWS + 1, wanted.logs_after)
    merged = sorted([*sessions, *logs], key=lambda line: (-line.last_at, line.kind, line.id))
    page = merged[:ROWS]
    return Lines(
        rows=page,
        total=count_s + count_l,
        cut=False,
        sessions_after=next((x.cursor for x in reversed(page) if x.kind == "session"), wanted.sessions_after),
        logs_after=next((x.cursor for x in reversed(page) if x.kind == "log"), wanted.logs_after),
        more=len(merged) > len(page),
    )


async def _sorted(service: Service, who: Principal, wanted: Wanted) -> Lines:
    sessions, count_s = await _sessions(service, who, wanted, SORTED_MAX, "")
    logs, count_l = await _logs(service, who, wanted, PAGE_MAX, "")
    by_tokens = wanted.sort == "tokens"
    found = sorted([*sessions, *logs], key=lambda x: (-((x.tokens or 0) if by_tokens else x.messages), -x.last_at))
    return Lines(found[: 2 * ROWS], count_s + count_l, count_s > len(sessions) or len(found) > 2 * ROWS)


async def _sessions(
    service: Service, who: Principal, wanted: Wanted, limit: int, cursor: str
) -> tuple[list[Line], int]:
    if wanted.kind == "log":
        return [], 0
    gate = service.gate(who)
    after: str | None = cursor or None
    found: list[Session] = []
    total = 0
    while len(found) < limit:
        page = await gate.list(
            Query(
                agent=wanted.agent or None,
                channel=wanted.channel or None,
                q=wanted.q or None,
                status="trashed" if wanted.kind == "trash" else None,
                limit=min(PAGE_MAX, limit - len(found)),
                cursor=after,
            )
        )
        found += page.items
        total, after = page.total, page.next
        if after is None:
            break
    return [_of_session(row) for row in found], total


async def _logs(service: Service, who: Principal, wanted: Wanted, limit: int, cursor: str) -> tuple[list[Line], int]:
    if wanted.kind in ("session", "trash"):
        return [], 0
    agents = frozenset({wanted.agent}) if wanted.agent else who.agents
    filters = Filter(agents=agents, channel_type=wanted.channel or None, q=wanted.q or None)
    page = await service.convlog.list(filters, limit=min(limit, PAGE_MAX), cursor=cursor or None)
    return [_of_log(item) for item in page.items], page.total


def _of_session(row: Session) -> Line:
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
        cursor=cursor_after(row),
    )


def _of_log(item: Conversation) -> Line:
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
        cursor=f"{item.last_at}.{item.agent_id}.{item.channel_id}",
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
    return await show(request, template, agent=agent, row=None, items=[], cut=False, log=log, may_write=False)
