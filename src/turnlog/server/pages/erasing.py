"""The page on which administrators erase words of a session: what to erase, the list of what holds it, and the
confirmation. It shows places, never the words themselves; only the form holds what was typed into it.
"""

from litestar import Response, get, post
from msgspec import Struct

from ...core.session import Session
from ...errors import Busy, Conflict, UsageError
from ...sessions.erasing_text import EraseReport, EraseRequest
from ..http import problems
from ..http.bodies import SEQS_MAX
from ..http.problems import Problem
from ..service import AnyRequest, principal_of, reading, service_of
from .signin import form_of
from .view import show

SHOWN_MAX = 500
"""Places in the list; all of them are erased."""
FIELD_MAX_CHARS = 10_000


class EraseForm(Struct, frozen=True, kw_only=True):
    """What the administrator entered."""

    text: str = ""
    seqs: str = ""
    redact: bool = False
    derived: bool = False
    everywhere: bool = False
    confirmed: bool = False


@get("/session/{agent:str}/{sid:str}/erasing")
async def erasing_page(request: AnyRequest, agent: str, sid: str) -> Response[str]:
    principal_of(request, "admin")
    _, row = await reading(request, agent, sid)
    return await _show(request, row, EraseForm())


@post("/session/{agent:str}/{sid:str}/erasing", status_code=200)
async def erase_on_page(request: AnyRequest, agent: str, sid: str) -> Response[str]:
    """Lists what holds the words; if that list was confirmed, they are erased."""
    who = principal_of(request, "admin")
    _, row = await reading(request, agent, sid)
    asked = _read(await form_of(request))
    try:
        report = await service_of(request).erase(who, _request(row, asked))
    except (UsageError, Conflict, Busy) as error:
        return await _show(request, row, asked, problem=problems.of(error))
    return await _show(request, row, asked, report=report)


def _read(form: dict[str, str]) -> EraseForm:
    ticked = {name: form.get(name) == "1" for name in ("redact", "derived", "everywhere", "confirmed")}
    text, seqs = form.get("text", "")[:FIELD_MAX_CHARS], form.get("seqs", "")[:FIELD_MAX_CHARS]
    return EraseForm(text=text, seqs=seqs.strip(), **ticked)


def _request(row: Session, asked: EraseForm) -> EraseRequest:
    return EraseRequest(
        row=None if asked.everywhere else row,
        seqs=_numbers(asked.seqs),
        text=asked.text.strip() or None,
        redact=asked.redact,
        derived=asked.derived,
        apply=asked.confirmed,
    )


def _numbers(text: str) -> list[int]:
    """Reads `3, 5-8`."""
    found: list[int] = []
    for part in filter(None, text.replace(",", " ").replace("，", " ").split()):
        first, dash, last = part.partition("-")
        ends = (first, last) if dash else (first, first)
        if not all(end.isascii() and end.isdecimal() and len(end) < 16 for end in ends):
            raise UsageError(f"{part[:40]!r} is not the number of an entry", hint="Write numbers, such as 3, 5-8.")
        start, stop = map(int, ends)
        if len(found) + max(0, stop - start) >= SEQS_MAX:
            raise UsageError(f"more than {SEQS_MAX:,} entries", hint="Erase them in several steps.")
        found += range(start, stop + 1)
    return sorted(set(found))


async def _show(
    request: AnyRequest,
    row: Session,
    asked: EraseForm,
    *,
    report: EraseReport | None = None,
    problem: Problem | None = None,
) -> Response[str]:
    places = _places(report, asked) if report else []
    return await show(
        request,
        "erase.html",
        problem=problem,
        agent=row.agent,
        row=row,
        asked=asked,
        report=report,
        places=places[:SHOWN_MAX],
        total=len(places),
    )


def _places(report: EraseReport, asked: EraseForm) -> list[tuple[str, str, str, int, str]]:
    """(what, session, where, how many, what happens) for each place; the first and the last are names of texts."""
    done = "erase_applied" if report.applied else "erase_will"
    found = [(one, done if one.free or asked.redact else "erase_counts") for one in report.entries]
    found += [(one, done if asked.derived else "erase_listed") for one in report.derived]
    found += [(one, "erase_kept") for one in report.kept]
    return [
        (
            f"erased_{one.made}",
            one.session_id,
            f"{one.seq} {one.type}" if one.seq else f"{one.where} {one.type}",
            one.count,
            becomes,
        )
        for one, becomes in found
    ]
