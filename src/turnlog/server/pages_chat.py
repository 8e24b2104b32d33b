"""Chat: the sessions one has, and one of them to talk in."""

from typing import Annotated, Any

from litestar import Response, get
from litestar.params import Parameter

from ..core.principals import owns
from ..core.query import UNTRASHED, Hit, Query
from ..core.session import Session
from ..errors import UsageError
from ..sessions import Sessions
from . import pages_timeline as timelines
from .pages_view import (
    ENTRIES_SHOWN,
    lead_to,
    model_of,
    path_to,
    read_conversation,
    show,
    wants_part,
)
from .service import Asked, Service, service_of, who_asks

LISTED = 40
"""Sessions in the list at once."""
HITS_SHOWN = 20

Words = Annotated[str, Parameter(max_length=1_000)]
Cursor = Annotated[str | None, Parameter(max_length=200)]


@get("/")
async def home(request: Asked) -> Response[str]:
    who = who_asks(request, "chat", "read")
    agents = [name for name in service_of(request).agents if who.agents is None or name in who.agents]
    return lead_to(path_to("chat", agents[0] if agents else "main"))


@get(["/chat/{agent:str}", "/chat/{agent:str}/{sid:str}"])
async def chat_page(request: Asked, agent: str, sid: str = "", q: Words = "", trash: bool = False) -> Response[str]:
    """The whole page; or of a session only what changes when a turn ends, where that is asked for."""
    service, who = service_of(request), who_asks(request, "chat", "read")
    service.check_agent(who, agent)
    row = await service.row(who, agent, sid) if sid else None
    values: dict[str, Any] = await _session(service, service.gate(who), row)
    values["may_write"] = row is None or (owns(who, row) and row.status != "trashed")
    values["model"] = await model_of(service, agent)
    values.update(await _list(service.gate(who), agent, q, None, trash))
    template = "part_chat.html" if wants_part(request) and row else "chat.html"
    return await show(request, template, agent=agent, row=row, **values)


@get("/list/{agent:str}")
async def session_list(
    request: Asked, agent: str, q: Words = "", cursor: Cursor = None, trash: bool = False, current: str = ""
) -> Response[str]:
    """The list alone: while somebody types what they look for, and for more of it."""
    service, who = service_of(request), who_asks(request, "chat", "read")
    service.check_agent(who, agent)
    values = await _list(service.gate(who), agent, q, cursor, trash)
    return await show(request, "part_list.html", agent=agent, current=current, **values)


async def _session(service: Service, gate: Sessions, row: Session | None) -> dict[str, Any]:
    if row is None:
        return {"items": [], "running": False, "cut": False}
    entries, folds = await read_conversation(gate, row)
    running = row.under_way or service.turns.running(row.id) is not None
    items = timelines.conversation(row, entries, folds)
    if running:
        # What the turn has said so far comes again with its stream, from its first event on.
        begun = timelines.running_turn(entries)
        items = [item for item in items if item.seq <= begun or item.kind == "compaction" or "waiting" in item.tags]
    cut = len(entries) >= ENTRIES_SHOWN and entries[0].seq > max(2, min(row.boundary, row.read_from))
    return {"items": items, "running": running or bool(row.received), "cut": cut}


async def _list(gate: Sessions, agent: str, q: str, cursor: str | None, trash: bool) -> dict[str, Any]:
    status = "trashed" if trash else UNTRASHED
    page = await gate.list(Query(agent=agent, limit=LISTED, cursor=cursor, q=q.strip() or None, status=status))
    hits = await _hits(gate, agent, q) if q.strip() and cursor is None and not trash else []
    return {"rows": page.items, "more": page.next, "hits": hits, "q": q, "trash": trash}


async def _hits(gate: Sessions, agent: str, q: str) -> list[tuple[Hit, Session]]:
    """Messages with these words, each with its session."""
    try:
        found = await gate.search(q, scope=Query(agent=agent, status=UNTRASHED))
    except UsageError:
        return []  # only signs, no word to look for; titles were looked through all the same
    rows: dict[str, Session] = {}
    for hit in found[:HITS_SHOWN]:
        if hit.session_id not in rows:
            rows[hit.session_id] = await gate.get(hit.session_id)
    return [(hit, rows[hit.session_id]) for hit in found[:HITS_SHOWN]]
