"""What all pages share: language, colours, principal, templates, errors as pages, and reading a part of a session.

Pages are rendered in a thread, so that a long conversation does not block the streams of others.
"""

import asyncio
import gzip
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from litestar import Response
from litestar.datastructures import Cookie
from litestar.exceptions import MethodNotAllowedException, NotFoundException, ValidationException
from msgspec import Struct
from msgspec.structs import replace

from ... import web
from ...core import history
from ...core.entries import Compaction, Entry
from ...core.marks import Mark
from ...core.principals import Principal, homes_of
from ...core.session import Session, active, marks_of
from ...core.usage import Cost
from ...errors import Corrupt
from ...sessions import Sessions
from ...texts import Texts, of_header
from .. import markdown
from ..http import problems
from ..http.auth import LANGUAGE, Token
from ..http.limits import BODY_MAX_BYTES, IMAGES_MAX, TEXT_MAX_BYTES
from ..http.problems import Problem
from ..service import CALLER, AnyRequest, service_of

WEB = Path(web.__file__).parent
ASSETS = tuple(sorted(path.name for path in (WEB / "static").iterdir() if path.is_file()))
"""The files that the page may use, all of them in one folder."""
ZIPPED_MIN_BYTES = 1_400
"""A smaller answer fits into one packet as it is."""
THEME = "turnlog_theme"
"""Names of cookies; neither is a secret."""
KEPT_S = 365 * 24 * 3600
ENTRIES_SHOWN = 200
"""Of one session in one page."""
FOLDS_SHOWN = 8
"""Active compactions above a conversation; the page of the session shows all."""
COMMANDS = (
    *("new", "model", "rename", "compact", "undo", "fork", "rewind", "retry", "pin"),
    *("search", "details", "stop", "delete", "help"),
)
"""What can be typed after a slash; the page's script carries them out."""
AMBER, RED = 30_000, 60_000
"""Tokens from which a badge warns: larger contexts cost much, and models overlook parts of them."""
HEADERS = {"Referrer-Policy": "same-origin"}
"""With `no-referrer`, browsers send our own forms with `Origin: null`, which the gate refuses."""


class Frame(Struct, frozen=True):
    """The values that every template gets."""

    t: Texts
    theme: Literal["", "light", "dark"]
    who: Principal | None
    path: str
    agents: tuple[str, ...]

    def may(self, scope: Literal["chat", "read", "admin"]) -> bool:
        """`read`: the sessions of others. An administrator may do everything."""
        return self.who is not None and not self.who.scopes.isdisjoint({"admin", scope})


def frame_of(request: AnyRequest) -> Frame:
    scope = cast("dict[str, Any]", request.scope)
    token = cast("Token | None", scope.get(CALLER))
    who = token.principal if token else None
    query = cast("bytes", scope["query_string"]).decode("latin-1")
    theme = request.cookies.get(THEME, "")
    agents = service_of(request).agents
    return Frame(
        t=Texts("page", of_header(request.cookies.get(LANGUAGE), request.headers.get("accept-language", ""))),
        theme=theme if theme in ("light", "dark") else "",  # type: ignore[arg-type]
        who=who,
        path=request.url.path + (f"?{query}" if query else "") if request.method == "GET" else "/",
        agents=tuple(name for name in agents if who is None or who.agents is None or name in who.agents),
    )


def wants_part(request: AnyRequest) -> bool:
    """Whether htmx asks for a part of a page."""
    return request.headers.get("hx-request") == "true" and "hx-history-restore-request" not in request.headers


async def show(
    request: AnyRequest,
    template: str,
    *,
    part: str = "",
    status: int = 200,
    problem: Problem | None = None,
    **values: Any,
) -> Response[str]:
    """`part`: the template if htmx asks for a part. `problem`: what went wrong; the answer has its status."""
    frame, zipped = frame_of(request), takes_gzip(request)
    problem = problem and problems.for_people(problem, frame.t)
    is_part = bool(part) and wants_part(request)

    def work() -> Response[str]:
        html = fill(part if is_part else template, frame, part=is_part, problem=problem, **values)
        return _page(html, problem.status if problem else status, zipped)

    return await asyncio.to_thread(work)


def fill(template: str, frame: Frame, **values: Any) -> str:
    return _templates().get_template(template).render(frame=frame, t=frame.t, **values)


def takes_gzip(request: AnyRequest) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "")


def _page(html: str, status: int, zipped: bool, headers: Mapping[str, str] | None = None) -> Response[str]:
    """Compressed where the browser takes it. That tells nobody what is inside by its size: other sites cannot make a
    browser ask with its cookie, which is `SameSite=Strict`.
    """
    content: Any = html.encode()
    own = {**HEADERS, "Vary": "Accept-Encoding, Cookie", **(headers or {})}
    if zipped and len(content) >= ZIPPED_MIN_BYTES:
        content = gzip.compress(content, 5)
        own["Content-Encoding"] = "gzip"
    return Response(content, status_code=status, media_type="text/html", headers=own)


def lead_to(path: str, cookies: Sequence[Cookie] = ()) -> Response[str]:
    """A redirect after a form. The browser repeats the kind of request: for a page, or by htmx for a part."""
    return Response("", status_code=303, headers={**HEADERS, "Location": path}, cookies=list(cookies))


def local_path(text: str) -> str:
    """The path, if it is one of this server; otherwise `/`. Browsers read `\\` as `/` and skip tabs and line ends."""
    plain = text.isascii() and text.isprintable() and "\\" not in text
    return text if plain and text.startswith("/") and not text.startswith("//") else "/"


def preference(name: str, value: str) -> Cookie:
    return Cookie(key=name, value=value, path="/", max_age=KEPT_S, samesite="lax")


def wants_json(request: AnyRequest) -> bool:
    """Whether a script of the page asks, which shows the outcome itself."""
    return request.headers.get("accept") == "application/json"


def answer_error(request: AnyRequest, error: Exception) -> Response[Any]:
    """An error as a page; for a script of the page as a problem document."""
    frame = frame_of(request)
    problem = problems.for_people(problems.of(error), frame.t)
    if problem.status >= 500:
        service_of(request).log.error("failed", path=request.url.path, exc_info=error)
    if wants_json(request):
        headers, kind = {**HEADERS, **problems.headers_of(error)}, problems.MEDIA_TYPE
        return Response(problems.encode(problem), status_code=problem.status, media_type=kind, headers=headers)
    template = "part_error.html" if wants_part(request) else "error.html"
    # The framework's text about an address is for programs, and only in English.
    astray = ""
    if isinstance(error, NotFoundException | MethodNotAllowedException):
        astray = "no_page"
    elif isinstance(error, ValidationException):
        astray = "bad_address"
    html = fill(template, frame, problem=problem, astray=astray)
    return _page(html, problem.status, takes_gzip(request), problems.headers_of(error))


@lru_cache(maxsize=1)
def _templates() -> Environment:
    found = Environment(
        loader=FileSystemLoader(WEB / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    named = (markdown.name, markdown.plain, commas, short, moment, dollars, rev, gist)
    filters: dict[str, Any] = {"markdown": markdown.render, **{one.__name__: one for one in named}}
    limits = {"images": IMAGES_MAX, "text_bytes": TEXT_MAX_BYTES, "body_bytes": BODY_MAX_BYTES}
    shared: dict[str, Any] = {
        "limits": limits,
        "commands": COMMANDS,
        "asset": asset,
        "path": path_to,
        "level": level,
        "LONG": markdown.SHOWN_MAX_CHARS,
    }
    found.filters.update(filters)  # pyright: ignore[reportUnknownMemberType]
    found.globals.update(shared)
    return found


def asset(name: str) -> str:
    """Browsers may cache it for ever: when any file changes, all of them have another URL."""
    return f"/static/{version()}/{name}"


@lru_cache(maxsize=1)
def version() -> str:
    digest = hashlib.sha256()
    for name in ASSETS:
        digest.update(name.encode() + (WEB / "static" / name).read_bytes())
    return digest.hexdigest()[:12]


def path_to(*parts: object) -> str:
    return "/" + "/".join(quote(str(part), safe="") for part in parts)


def commas(number: int) -> str:
    return f"{number:,}"


def short(number: int) -> str:
    if number < 1_000:
        return str(number)
    if number < 1_000_000:
        return f"{number / 1_000:.1f}k" if number < 100_000 else f"{number // 1_000}k"
    return f"{number / 1_000_000:.1f}M"


def dollars(cost: Cost) -> str:
    """Small amounts keep two digits that say something; ≥ where a price is unknown."""
    amount = cost.dollars
    places = 2 if amount >= 0.1 or not amount else 4
    shown = f"${amount:,.{places}f}" if amount >= 0.0001 or not amount else "<$0.0001"
    return shown if cost.whole else f"≥ {shown}"


def level(tokens: int) -> str:
    return "red" if tokens > RED else "amber" if tokens > AMBER else "calm"


GIST_MAX_CHARS = 80


def gist(given: str) -> str:
    """The values of a call's input on one line, to tell calls apart without opening them."""
    try:
        values: Any = json.loads(given)
    except ValueError:
        return ""
    values = list(cast("dict[str, Any]", values).values()) if isinstance(values, dict) else []
    return markdown.name(" · ".join(str(value) for value in values if value not in (None, "")), GIST_MAX_CHARS)


def rev(item: object) -> str:
    """A checksum by which the page's script knows whether its copy of this item is current."""
    return f"{zlib.crc32(repr(item).encode('utf-8', 'replace')):08x}"


def own_homes(who: Principal, agent: str) -> tuple[str, ...]:
    """The keys of somebody's own sessions with an agent; none for those who may only read."""
    return () if who.scopes.isdisjoint({"admin", "chat"}) else homes_of(who, agent)


class Moment(Struct, frozen=True):
    """A time in UTC; with JavaScript the page shows local time instead."""

    iso: str
    shown: str


def moment(value: int | str) -> Moment:
    try:
        at = datetime.fromtimestamp(value / 1000, UTC) if isinstance(value, int) else datetime.fromisoformat(value)
    except (ValueError, OverflowError, OSError):
        return Moment("", "")
    return Moment(at.isoformat(timespec="seconds"), at.strftime("%Y-%m-%d %H:%M"))


async def read_some(
    sessions: Sessions, row: Session, *, before: int | None = None, after: int = 0, limit: int = ENTRIES_SHOWN
) -> list[Entry]:
    """The last entries before that point, without damaged ones, which `turnlog doctor` names."""
    end = min(before or row.last_seq + 1, row.last_seq + 1)
    start = max(after, end - 1 - limit)
    try:
        found = await sessions.read(row, after=start, before=end)
    except Corrupt:
        whole = (await sessions.transcript(row.id)).entries
        found = [entry for entry in whole if start < entry.seq < end]
    for seq in history.missing(found, ()):
        try:
            found = [*(await sessions.read(row, after=seq - 1, limit=1)), *found]
        except Corrupt:
            continue
    return sorted(found, key=lambda entry: entry.seq)


async def with_marks(sessions: Sessions, row: Session, entries: Sequence[Entry]) -> Session:
    """The row with all marks of these entries: in a long log, a row keeps only the latest marks."""
    if not entries or entries[0].seq > row.pruned_to:
        return row
    return replace(row, marks=tuple(marks_of((await sessions.transcript(row.id)).entries)), pruned_compactions=0)


async def read_conversation(sessions: Sessions, row: Session) -> tuple[list[Entry], list[Compaction]]:
    """The current history: entries from the boundary on, and the active compactions before it."""
    entries = await read_some(sessions, row, after=min(row.read_from, row.boundary) - 1)
    return entries, await read_folds(sessions, row, active(row.marks, row.last_seq)[-FOLDS_SHOWN:])


async def read_folds(sessions: Sessions, row: Session, marks: Sequence[Mark]) -> list[Compaction]:
    """The compactions of these marks."""
    found: list[Compaction] = []
    for mark in marks:
        found += [e for e in await sessions.read(row, after=mark.seq - 1, limit=1) if isinstance(e, Compaction)]
    return found
