"""The chat page: the list of sessions, and one of them to talk in."""

from typing import Annotated, Any

from litestar import Response, get
from litestar.params import Parameter

from ...access import Access
from ...core import turns
from ...core.keys import API
from ...core.principals import owns
from ...core.query import UNTRASHED, Hit, Query
from ...core.rows import Session, public_row
from ...errors import UsageError
from ...sessions import Sessions
from ..service import AnyRequest, acting, principal_of, reading, service_of
from . import timeline as timelines
from .view import ENTRIES_SHOWN, lead_to, path_to, read_conversation, show, wants_part

LISTED = 40
"""Sessions in the list at once."""
HITS_SHOWN = 20

Words = Annotated[str, Parameter(max_length=1_000)]
Cursor = Annotated[str | None, Parameter(max_length=200)]


@get("/")
async def home(request: AnyRequest) -> Response[str]:
    who = principal_of(request, "chat", "read")
    agents = [name for name in service_of(request).agents if who.agents is None or name in who.agents]
    return lead_to(path_to("chat", agents[0] if agents else "main"))


@get(["/chat/{agent:str}", "/chat/{agent:str}/{sid:str}"])
async def chat_page(
    request: AnyRequest, agent: str, sid: str = "", q: Words = "", trash: bool = False
) -> Response[str]:
    """The whole page; for htmx only the part that changes when a turn ends."""
    access = acting(request, "chat", "read", agent=agent)
    row = (await reading(request, agent, sid))[1] if sid else None
    values: dict[str, Any] = await _session(access, row)
    values["may_write"] = row is None or (owns(access.principal, row) and row.status != "trashed")
    values["model"] = await access.model(agent)
    values["clients"] = service_of(request).settings.api.enabled and str(request.base_url).rstrip("/")
    values.update(await _list(access.sessions, agent, q, None, trash))
    template = "part_chat.html" if wants_part(request) and row else "chat.html"
    return await show(request, template, agent=agent, row=row, **values)


@get("/list/{agent:str}")
async def session_list(
    request: AnyRequest, agent: str, q: Words = "", cursor: Cursor = None, trash: bool = False, current: str = ""
) -> Response[str]:
    """Only the list: for each change of the search field, and for its next page."""
    access = acting(request, "chat", "read", agent=agent)
    values = await _list(access.sessions, agent, q, cursor, trash)
    return await show(request, "part_list.html", agent=agent, current=current, **values)


async def _session(access: Access, row: Session | None) -> dict[str, Any]:
    if row is None:
        return {"items": [], "running": False, "cut": False}
    entries, folds = await read_conversation(access.sessions, row)
    # An open call of a client is the client's to answer: no turn runs meanwhile.
    running = (row.under_way and row.channel != API) or access.running(row) is not None
    items = timelines.conversation(row, entries, folds)
    if running:
        # The stream of the turn sends everything from its first event on.
        begun = max(turns.live_starts(entries), default=0)
        items = [item for item in items if item.seq <= begun or item.kind == "compaction" or _is_open(item)]
    cut = len(entries) >= ENTRIES_SHOWN and entries[0].seq > max(2, min(row.boundary, row.read_from))
    return {"items": items, "running": running or bool(row.received), "cut": cut}


def _is_open(item: timelines.TimelineItem) -> bool:
    """Whether no turn has taken this message yet."""
    return not {"waiting", "heard"}.isdisjoint(item.tags)


async def _list(sessions: Sessions, agent: str, q: str, cursor: str | None, trash: bool) -> dict[str, Any]:
    status = "trashed" if trash else UNTRASHED
    page = await sessions.list(Query(agent=agent, limit=LISTED, cursor=cursor, q=q.strip() or None, status=status))
    hits = await _hits(sessions, agent, q) if q.strip() and cursor is None and not trash else []
    return {"rows": [public_row(row) for row in page.items], "more": page.next, "hits": hits, "q": q, "trash": trash}


async def _hits(sessions: Sessions, agent: str, q: str) -> list[tuple[Hit, Session]]:
    """Messages with these words, each with its session."""
    try:
        found = await sessions.search(q, scope=Query(agent=agent, status=UNTRASHED))
    except UsageError:
        return []  # the query has no word to search for; titles are searched all the same
    rows: dict[str, Session] = {}
    for hit in found[:HITS_SHOWN]:
        if hit.session_id not in rows:
            rows[hit.session_id] = await sessions.get(hit.session_id)
    return [(hit, rows[hit.session_id]) for hit in found[:HITS_SHOWN]]
