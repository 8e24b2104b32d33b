"""What all pages share: language, colours, who is there, templates, errors as pages, and reading a part of a session.

A page is made in a thread: rendering a long conversation must not make everybody's stream wait.
"""

import asyncio
import hashlib
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
from litestar.exceptions import MethodNotAllowedException, NotFoundException
from msgspec import Struct

from ..core import history
from ..core.entries import Compaction, Entry
from ..core.principals import Principal
from ..core.session import Session, active
from ..errors import Corrupt
from ..sessions import Sessions
from ..web import texts
from ..web.texts import Texts
from . import markdown, problems
from .auth import Token
from .service import WHO, Asked, Service, service_of

WEB = Path(texts.__file__).parent
LANGUAGE, THEME = "turnlog_language", "turnlog_theme"
"""Names of cookies; neither is a secret."""
KEPT_S = 365 * 24 * 3600
ENTRIES_SHOWN = 200
"""Of one session in one page."""
FOLDS_SHOWN = 8
"""Active compactions above a conversation; the session view has all."""
AMBER, RED = 30_000, 60_000
"""Tokens from which a badge warns: providers get dear and forgetful about there."""
HEADERS = {"Referrer-Policy": "same-origin"}
"""With no-referrer a form of ours would come with `Origin: null`, and be refused as a stranger's."""


class Frame(Struct, frozen=True):
    """What every template is given."""

    t: Texts
    theme: Literal["", "light", "dark"]
    who: Principal | None
    path: str
    agents: tuple[str, ...]

    @property
    def is_admin(self) -> bool:
        return self.who is not None and "admin" in self.who.scopes

    @property
    def may_chat(self) -> bool:
        return self.who is not None and not self.who.scopes.isdisjoint({"admin", "chat"})


def frame_of(request: Asked) -> Frame:
    scope = cast("dict[str, Any]", request.scope)
    token = cast("Token | None", scope.get(WHO))
    who = token.principal if token else None
    query = cast("bytes", scope["query_string"]).decode("latin-1")
    theme = request.cookies.get(THEME, "")
    agents = service_of(request).agents
    return Frame(
        t=texts.choose(request.cookies.get(LANGUAGE), request.headers.get("accept-language", "")),
        theme=theme if theme in ("light", "dark") else "",  # type: ignore[arg-type]
        who=who,
        path=request.url.path + (f"?{query}" if query else "") if request.method == "GET" else "/",
        agents=tuple(name for name in agents if who is None or who.agents is None or name in who.agents),
    )


def wants_part(request: Asked) -> bool:
    """Asked by htmx for a piece of the page, not by a person for a page."""
    return request.headers.get("hx-request") == "true" and "hx-history-restore-request" not in request.headers


async def show(request: Asked, template: str, status: int = 200, **values: Any) -> Response[str]:
    frame = frame_of(request)

    def fill() -> str:
        return _templates().get_template(template).render(frame=frame, t=frame.t, **values)

    return answer(await asyncio.to_thread(fill), status)


def answer(html: str, status: int = 200, headers: Mapping[str, str] | None = None) -> Response[str]:
    return Response(html, status_code=status, media_type="text/html", headers={**HEADERS, **(headers or {})})


def lead_to(path: str, cookies: Sequence[Cookie] = ()) -> Response[str]:
    """After a form. The browser asks again the way it asked: for a page, or by htmx for a piece."""
    return Response("", status_code=303, headers={**HEADERS, "Location": path}, cookies=list(cookies))


def local_path(text: str) -> str:
    """Where a form may lead: a path of this server. Browsers take `\\` for `/` and leave out tabs and line ends."""
    plain = text.isascii() and text.isprintable() and "\\" not in text
    return text if plain and text.startswith("/") and not text.startswith("//") else "/"


def preference(name: str, value: str) -> Cookie:
    return Cookie(key=name, value=value, path="/", max_age=KEPT_S, samesite="lax")


def answer_error(request: Asked, error: Exception) -> Response[str]:
    """The same as everywhere, as a page."""
    problem = problems.of(error)
    if problem.status >= 500:
        service_of(request).log.error("failed", path=request.url.path, exc_info=error)
    template = "part_error.html" if wants_part(request) else "error.html"
    frame = frame_of(request)
    # The framework's words about a path are for programs, and in one language.
    astray = isinstance(error, NotFoundException | MethodNotAllowedException)
    html = _templates().get_template(template).render(frame=frame, t=frame.t, problem=problem, astray=astray)
    return answer(html, problem.status, problems.headers_of(error))


@lru_cache(maxsize=1)
def _templates() -> Environment:
    found = Environment(
        loader=FileSystemLoader(WEB / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = {
        "markdown": markdown.render,
        "name": markdown.name,
        "plain": markdown.plain,
        "commas": commas,
        "short": short,
        "moment": moment,
        "rev": rev,
    }
    shared: dict[str, Any] = {"asset": asset, "path": path_to, "level": level, "LONG": markdown.SHOWN_MAX_CHARS}
    found.filters.update(filters)  # pyright: ignore[reportUnknownMemberType]
    found.globals.update(shared)
    return found


@lru_cache(maxsize=64)
def asset(name: str) -> str:
    """With a digest, so that it can be kept for ever and is still renewed."""
    digest = hashlib.sha256((WEB / "static" / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?v={digest}"


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


def level(tokens: int) -> str:
    return "red" if tokens > RED else "amber" if tokens > AMBER else "calm"


def rev(item: object) -> str:
    """Tells the page's script whether it has this item as it is now."""
    return f"{zlib.crc32(repr(item).encode('utf-8', 'replace')):08x}"


class Moment(Struct, frozen=True):
    """For machines, and for people without JavaScript; with it, the page shows their own time."""

    iso: str
    shown: str


def moment(value: int | str) -> Moment:
    try:
        at = datetime.fromtimestamp(value / 1000, UTC) if isinstance(value, int) else datetime.fromisoformat(value)
    except (ValueError, OverflowError, OSError):
        return Moment("", "")
    return Moment(at.isoformat(timespec="seconds"), at.strftime("%Y-%m-%d %H:%M"))


async def read_some(
    gate: Sessions, row: Session, *, before: int | None = None, after: int = 0, limit: int = ENTRIES_SHOWN
) -> list[Entry]:
    """The last entries before that point. What can be read around damage is shown; doctor names the damage itself."""
    end = min(before or row.last_seq + 1, row.last_seq + 1)
    start = max(after, end - 1 - limit)
    try:
        found = await gate.read(row.id, after=start, before=end)
    except Corrupt:
        whole = (await gate.transcript(row.id)).entries
        found = [entry for entry in whole if start < entry.seq < end]
    for seq in history.missing(found, ()):
        try:
            found = [*(await gate.read(row.id, after=seq - 1, limit=1)), *found]
        except Corrupt:
            continue
    return sorted(found, key=lambda entry: entry.seq)


async def read_conversation(gate: Sessions, row: Session) -> tuple[list[Entry], list[Compaction]]:
    """What counts: entries from the boundary on, and the compactions that stand for what was before."""
    entries = await read_some(gate, row, after=min(row.read_from, row.boundary) - 1)
    folds: list[Compaction] = []
    for mark in active(row.marks, row.last_seq)[-FOLDS_SHOWN:]:
        folds += [e for e in await gate.read(row.id, after=mark.seq - 1, limit=1) if isinstance(e, Compaction)]
    return entries, folds


class Model(Struct, frozen=True):
    name: str
    window: int


async def model_of(service: Service, agent: str) -> Model:
    found = await service.turnlog.agent(agent)
    return Model(found.provider.model, found.limits.window)
