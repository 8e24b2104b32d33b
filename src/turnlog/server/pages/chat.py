"""The chat page: the list of sessions, and one of them to talk in, a window of messages at a time.

The window is the newest messages, or those around an entry (`show`), or an older or newer page (`before`, `after`).
`at` shows another branch of the log, as it was when the log ended there; nothing is written by looking.
"""

from collections.abc import Sequence
from typing import Annotated, Any

from litestar import Response, get, post
from litestar.params import Parameter
from msgspec import Struct

from ...access import Access
from ...core import tokens, turns
from ...core.entries import Entry, User
from ...core.keys import API
from ...core.marks import live_path, on_path
from ...core.principals import owns
from ...core.query import UNTRASHED, Query
from ...core.rows import Session, public_row
from ...core.session import active, describe
from ...sessions import Sessions
from ..http.limits import check_text
from ..service import AnyRequest, acting, principal_of, reading, service_of
from . import timeline as timelines, versions
from .search import SearchText, find_in_chat
from .view import HEADERS, lead_to, own_homes, path_to, read_folds, read_some, show as show_page, with_marks

LISTED = 40
"""Sessions in the list at once."""
WINDOW = 120
"""Entries in one window of a chat."""
WINDOW_MAX = 600
"""Entries in the newest window after it has grown while a page was open; then it begins later."""
WHOLE_TURN = 60
"""How many entries a window is cut by, so that it begins with a turn."""

Cursor = Annotated[str | None, Parameter(max_length=200)]
Seq = Annotated[int | None, Parameter(ge=1, le=2**53)]


class ChatWindow(Struct, frozen=True):
    """A stretch of one branch."""

    items: list[timelines.TimelineItem]
    first: int = 0
    last: int = 0
    older: int | None = None
    """The next older window ends before this entry."""
    newer: int | None = None
    """The next newer window begins after this entry."""


@get("/")
async def home(request: AnyRequest) -> Response[str]:
    who = principal_of(request, "chat", "read")
    agents = [name for name in service_of(request).agents if who.agents is None or name in who.agents]
    return lead_to(path_to("chat", agents[0] if agents else "main"))


@get(["/chat/{agent:str}", "/chat/{agent:str}/{sid:str}"])
async def chat_page(
    request: AnyRequest,
    agent: str,
    sid: str = "",
    trash: bool = False,
    at: Seq = None,
    show: Seq = None,
    first: Seq = None,
    q: SearchText = "",
) -> Response[str]:
    """The whole page; for the page's script only the parts that change. `first`: where its newest window begins. `q`:
    words to be found in it.
    """
    access = acting(request, "chat", "read", agent=agent)
    row = (await reading(request, agent, sid))[1] if sid else None
    values: dict[str, Any] = await _session(access, row, at, show, first)
    values["find"] = await find_in_chat(access, row, q, show) if row else None
    values["may_write"] = row is None or (owns(access.principal, row) and row.status != "trashed")
    values["model"] = await (access.model_of(row) if row else access.model(agent))
    values["models"] = labelled(access.models(agent))
    values["clients"] = service_of(request).settings.api.enabled and str(request.base_url).rstrip("/")
    values.update(await _list(access, agent, None, trash))
    part = "part_chat.html" if row else ""
    return await show_page(request, "chat.html", part=part, agent=agent, row=row, **values)


def labelled(models: Sequence[str]) -> list[tuple[str, str]]:
    """(name, what people see) of each model; without the provider, where that is clear."""
    short = [name.partition(":")[2] or name for name in models]
    return [(name, one if short.count(one) == 1 else name) for name, one in zip(models, short, strict=True)]


@get("/chat/{agent:str}/{sid:str}/window")
async def window(
    request: AnyRequest, agent: str, sid: str, before: Seq = None, after: Seq = None, at: Seq = None
) -> Response[str]:
    """An older or newer part of the conversation."""
    access, row = await reading(request, agent, sid)
    shown_row, log = await _branch(access.sessions, row, at, None)
    found = await _window(access.sessions, shown_row, before=before, after=after)
    values: dict[str, Any] = {
        "window": found,
        "versions": versions.find(log, shown_row.last_seq),
        "may_write": owns(access.principal, row) and row.status != "trashed",
        "running": _runs(access, row),
        "at": at,
    }
    return await show_page(request, "part_window.html", agent=agent, row=row, **values)


@get("/list/{agent:str}")
async def session_list(
    request: AnyRequest, agent: str, cursor: Cursor = None, trash: bool = False, current: str = ""
) -> Response[str]:
    """Only the list: its next page, or all of it again."""
    access = acting(request, "chat", "read", agent=agent)
    values = await _list(access, agent, cursor, trash)
    return await show_page(request, "part_list.html", agent=agent, current=current, **values)


@post("/count-tokens", status_code=200)
async def count_tokens(request: AnyRequest) -> Response[dict[str, int]]:
    """About how many tokens a text has that is being typed."""
    principal_of(request, "chat")
    text = (await request.body()).decode("utf-8", "replace")
    return Response({"tokens": tokens.of_text(check_text("the text", text))}, headers=HEADERS)


async def _session(
    access: Access, row: Session | None, at: int | None, show: int | None, first: int | None
) -> dict[str, Any]:
    if row is None:
        return {"window": ChatWindow([]), "running": "", "versions": {}, "at": None, "show": None}
    at = at if at and at < row.last_seq else None
    branch, log = await _branch(access.sessions, row, at, show)
    is_elsewhere = branch.last_seq < row.last_seq
    found = await _window(access.sessions, branch, around=show, first=first)
    runs = "" if is_elsewhere or found.newer else _runs(access, row)
    if runs and (stream := access.running(row)) is not None:
        # The live stream sends everything of the turn from its first event on.
        begun = stream.seq
        kept = [item for item in found.items if item.seq <= begun or item.kind == "compaction" or _is_open(item)]
        found = ChatWindow(kept, found.first, found.last, found.older, found.newer)
    return {
        "window": found,
        "running": runs,
        "versions": versions.find(log, branch.last_seq),
        "at": branch.last_seq if is_elsewhere else None,
        "show": show,
    }


def _runs(access: Access, row: Session) -> str:
    """`here`: its pieces are in the live stream. `elsewhere`: a turn of another process, or one that is about to begin.

    An open call of a client is the client's to answer: no turn runs meanwhile.
    """
    if access.running(row) is not None:
        return "here"
    return "elsewhere" if (row.under_way and row.channel != API) or row.received else ""


def _is_open(item: timelines.TimelineItem) -> bool:
    """Whether no turn has taken this message yet."""
    return not {"waiting", "heard"}.isdisjoint(item.tags)


async def _branch(
    sessions: Sessions, row: Session, at: int | None, show: int | None
) -> tuple[Session, Sequence[Entry]]:
    """The row of the branch to show, and the part of the log in which other versions of its turns are looked for."""
    has_branches = any(mark.kind == "rewind" for mark in row.marks) or bool(row.dead_to)
    log = await read_some(sessions, row, limit=versions.READ_MAX) if has_branches else []
    if at is None and show is not None and log and not on_path(show, live_path(row.marks, row.last_seq)):
        at = versions.end_with(log, show)
    if at is None or at >= row.last_seq:
        return row, log
    return describe(None, await sessions.past(row, at)), log


async def _window(
    sessions: Sessions,
    row: Session,
    *,
    before: int | None = None,
    after: int | None = None,
    around: int | None = None,
    first: int | None = None,
) -> ChatWindow:
    """`row`: of the branch, which ends at its `last_seq`."""
    stop = row.last_seq + 1
    if around is not None and around < stop - WINDOW // 2:
        stop = around + WINDOW // 2
    elif after is not None:
        stop = min(stop, after + 1 + WINDOW)
    elif before is not None:
        stop = min(stop, before)
    start = after if after is not None else max(0, stop - 1 - WINDOW)
    if first is not None and 0 < stop - first <= WINDOW_MAX:
        start = first - 1
    entries = await read_some(sessions, row, before=stop, after=start, limit=WINDOW_MAX)
    begin = start + 1 if after is not None or first is not None else _turn_from(entries, start + 1, around)
    row = await with_marks(sessions, row, entries)
    entries = [entry for entry in entries if entry.seq >= begin or entry.seq <= start]  # `received` of these, earlier
    here = [mark for mark in active(row.marks, row.last_seq) if begin <= mark.at < stop]
    folds = await read_folds(sessions, row, here)
    items = [item for item in timelines.chat(row, entries, folds) if item.seq >= begin or item.kind == "compaction"]
    older = begin if begin > max(2, row.first_message) else None
    return ChatWindow(items, begin, stop - 1, older, stop - 1 if stop <= row.last_seq else None)


def _turn_from(entries: Sequence[Entry], start: int, around: int | None) -> int:
    """Where a turn begins near the start of a window; the start itself, if none does."""
    if start <= 1:
        return start
    limit = min(start + WHOLE_TURN, around or start + WHOLE_TURN)
    begun = [seq for seq in turns.starts([e for e in entries if e.seq >= start]) if seq <= limit]
    users = {entry.seq for entry in entries if isinstance(entry, User)}
    return next((seq for seq in begun if seq in users), start)


async def _list(access: Access, agent: str, cursor: str | None, trash: bool) -> dict[str, Any]:
    """The principal's own sessions; all of the agent's for those who have none of their own."""
    status = "trashed" if trash else UNTRASHED
    homes = own_homes(access.principal, agent)
    page = await access.sessions.list(Query(agent=agent, limit=LISTED, cursor=cursor, status=status, homes=homes))
    return {"rows": [public_row(row) for row in page.items], "more": page.next, "trash": trash}
