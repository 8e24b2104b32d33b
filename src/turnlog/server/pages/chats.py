"""The page Sessions: a table of sessions and, for administrators only, channel logs; each opens in a drawer.

The address holds all filters, so a bookmark keeps a view. A filter that only sessions have leaves
channel logs out.
"""

import heapq
from typing import Annotated, Any, Literal, get_args
from urllib.parse import quote, urlencode

import msgspec
from litestar import Response, get
from litestar.params import Parameter
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from ... import convlog as convlogs
from ...access import Access
from ...convlog import Conversation, Filter
from ...core import keys, query as queries
from ...core.principals import HOMES, Principal, home_key, owns
from ...core.query import UNTRASHED, Query
from ...core.rows import Session
from ...core.usage import Cost, cost_of
from ...errors import NotFound, UsageError
from ..service import AnyRequest, Service, acting, principal_of, reading, service_of
from . import timeline as timelines
from .replies import replies_in
from .view import ENTRIES_SHOWN, path_to, read_conversation, show

ROWS = 50
CHANNELS = ("web", "cli", "telegram", "slack", "discord", "feishu", "webhook")
MESSAGES_SHOWN = 200

Kind = Literal["", "session", "log"]
State = Literal["", "running", "waiting", "failed", "archived", "trash"]
Whose = Literal["", "mine"]
Sort = Literal["last", "messages", "tokens"]
Piece = Annotated[str, Parameter(max_length=1_000)]
Words = Annotated[str, Meta(max_length=1_000)]
Cursor = Annotated[str, Meta(max_length=2_000)]
STATES = tuple(value for value in get_args(State) if value)
Start = Annotated[int | None, Parameter(ge=0, le=2**40)]


class ChatFilter(Struct, frozen=True, kw_only=True):
    """The filters of the page."""

    kind: Kind = ""
    state: State = ""
    whose: Whose = ""
    who: Words = ""
    agent: Words = ""
    channel: Words = ""
    q: Words = ""
    sort: Sort = "last"
    sessions_after: Cursor = field(default="", name="sa")
    logs_after: Cursor = field(default="", name="la")

    @property
    def address(self) -> str:
        """The part of an address that holds them, without the place in the list."""
        names = ("kind", "state", "whose", "who", "agent", "channel", "q")
        given = {name: value for name in names if (value := getattr(self, name))}
        return urlencode({**given, "sort": self.sort} if self.sort != "last" else given)


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
    who: str = ""
    state: State = ""
    used: int | None = None
    """Tokens of all calls."""
    cost: Cost | None = None
    compactions: int = 0
    may_write: bool = False


class Lines(Struct, frozen=True):
    rows: list[ChatRow]
    total: int
    sessions_after: str = ""
    logs_after: str = ""
    more: bool = False


def filter_of(request: AnyRequest) -> ChatFilter:
    """The filters in the address."""
    given = {name: value.strip() for name, value in request.query_params.items()}
    try:
        return msgspec.convert(given, ChatFilter)
    except msgspec.ValidationError as error:
        raise UsageError(f"this is no filter: {error}", hint="Choose the filters on the page.") from error


@get("/chats")
async def chats_page(request: AnyRequest) -> Response[str]:
    wanted = filter_of(request)
    service, access = service_of(request), acting(request, "read", agent=wanted.agent or None)
    replies = await replies_in(service, access.principal)
    lines = await _lines(service, access, wanted)
    found: dict[str, Any] = {"lines": lines, "replies": replies, "channels": CHANNELS, "states": STATES}
    return await show(request, "chats.html", part="part_rows.html", wanted=wanted, **found)


async def _lines(service: Service, access: Access, wanted: ChatFilter) -> Lines:
    """Merges two lists of the same order; the next page of each starts after the last row taken from it."""
    sessions, count_s = await _sessions(service, access, wanted)
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


async def _sessions(service: Service, access: Access, wanted: ChatFilter) -> tuple[list[ChatRow], int]:
    if wanted.kind == "log":
        return [], 0
    query = query_of(service, access.principal, wanted, limit=ROWS + 1, cursor=wanted.sessions_after or None)
    page = await access.sessions.list(query)
    return [_of_session(access.principal, row, query.sort) for row in page.items], page.total


def query_of(service: Service, who: Principal, wanted: ChatFilter, *, limit: int, cursor: str | None) -> Query:
    """The sessions that the filters ask for; `Sessions.list` narrows it to what the principal may see."""
    return Query(
        agent=wanted.agent or None,
        channel=wanted.channel or None,
        peer=wanted.who or None,
        homes=_homes(service, who, wanted.agent) if wanted.whose == "mine" else (),
        q=wanted.q or None,
        status={"trash": "trashed", "archived": "archived"}.get(wanted.state, UNTRASHED),
        unfinished=wanted.state == "running",
        waiting={"running": False, "waiting": True}.get(wanted.state),
        last_role="failed" if wanted.state == "failed" else None,
        sort="newest" if wanted.sort == "last" else wanted.sort,
        limit=limit,
        cursor=cursor,
    )


def _homes(service: Service, who: Principal, agent: str) -> tuple[str, ...]:
    agents = (agent,) if agent else tuple(who.agents or service.agents)
    homes = (replace(home_key(who, name), channel=channel) for name in agents for channel in HOMES)
    return tuple(map(keys.format, homes))


async def _logs(service: Service, who: Principal, wanted: ChatFilter) -> tuple[list[ChatRow], int]:
    asks_of_sessions = wanted.state or wanted.whose or wanted.who
    if wanted.kind == "session" or asks_of_sessions or "admin" not in who.scopes:
        return [], 0
    agents = frozenset({wanted.agent}) if wanted.agent else who.agents
    filters = Filter(agents=agents, channel_type=wanted.channel or None, q=wanted.q or None)
    sort = "messages" if wanted.sort == "messages" else "newest"
    page = await service.convlog.list(filters, limit=ROWS + 1, cursor=wanted.logs_after or None, sort=sort)
    return [_of_log(item, sort) for item in page.items], page.total


def state_of(row: Session) -> State:
    """What an operator wants to know of it first."""
    if row.status == "trashed":
        return "trash"
    if row.waiting:
        return "waiting"
    if row.unfinished:
        return "running"
    if row.last_role == "failed":
        return "failed"
    return "archived" if row.status == "archived" else ""


def _of_session(who: Principal, row: Session, sort: queries.Sort) -> ChatRow:
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
        who=row.peer,
        state=state_of(row),
        used=sum(use.tokens for use in row.used) if row.used else None,
        cost=cost_of(row.used),
        compactions=row.compactions,
        may_write=owns(who, row),
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
        "drawer.html",
        part="part_drawer.html",
        agent=agent,
        row=row,
        items=timelines.conversation(row, entries, folds),
        cut=len(entries) >= ENTRIES_SHOWN,
        model=await access.model_of(row),
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
    service, who = service_of(request), acting(request, "admin", agent=agent).principal
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
    unsent = (await replies_in(service, who)).of("log", channel, agent)
    shown: dict[str, Any] = {"row": None, "items": [], "cut": False, "log": log, "unsent": unsent, "may_write": False}
    return await show(request, "drawer.html", part="part_drawer.html", agent=agent, **shown)
