"""The pages Failures, with the turns that ended without an answer, and Is everything well?, with the store and what
runs in the background.
"""

import time
from typing import Any

from litestar import Response, get
from msgspec import Struct

from ... import __version__
from ...access import Access
from ...core import masking
from ...core.entries import Failed
from ...core.query import UNTRASHED, Query
from ...core.rows import Session
from ...errors import Corrupt, NotFound, StoreUnavailable, TurnlogError
from ...runtime import background
from ...stores import facts
from ...texts import Texts
from ..service import AnyRequest, Service, acting, principal_of, service_of
from .view import frame_of, show

SHOWN = 50
LOOKED_AT = 20
"""Entries at the end of a log among which its failure is searched."""
REASON_CHARS = 500
STARTED = time.time()


class FailureRow(Struct, frozen=True):
    row: Session
    code: str
    reason: str
    at: str


class Check(Struct, frozen=True):
    """One line of the page: the name of its text, whether all is well, and a note."""

    name: str
    ok: bool
    says: str


@get("/failures")
async def failures_page(request: AnyRequest, cursor: str = "") -> Response[str]:
    """Sessions whose last turn ended without an answer, newest first."""
    access = acting(request, "read")
    query = Query(last_role="failed", status=UNTRASHED, limit=SHOWN, cursor=cursor[:2_000] or None)
    page = await access.sessions.list(query)
    found = [await _failure(access, row) for row in page.items]
    return await show(request, "failures.html", found=found, total=page.total, more=page.next)


async def _failure(access: Access, row: Session) -> FailureRow:
    try:
        entries = await access.sessions.read(row, after=max(0, row.last_seq - LOOKED_AT))
    except (Corrupt, NotFound):
        entries = []
    failed = next((entry for entry in reversed(entries) if isinstance(entry, Failed)), None)
    if failed is None:
        return FailureRow(row, "", "", "")
    return FailureRow(row, failed.code, masking.mask(failed.reason)[:REASON_CHARS], failed.ts)


@get("/well")
async def health_page(request: AnyRequest) -> Response[str]:
    principal_of(request, "admin")
    service = service_of(request)
    checks = [await _store(service), *_loops(), *await _replies(service), *_facts()]
    numbers: dict[str, Any] = {
        "well_turns": service.turns.running,
        "well_streams": len(service.streams),
        "well_connections": len(service.connections),
        "sessions": await _count(request),
        "well_up": _lasting(time.time() - STARTED, frame_of(request).t),
        "well_version": __version__,
        "well_store": service.settings.store_url().partition(":")[0],
    }
    return await show(request, "well.html", checks=checks, numbers=numbers, ok=all(check.ok for check in checks))


async def _count(request: AnyRequest) -> int | str:
    try:
        return (await acting(request, "admin").sessions.list(Query(limit=1))).total
    except StoreUnavailable:
        return "–"


async def _store(service: Service) -> Check:
    try:
        await service.prove_writable()
    except TurnlogError as error:
        return Check("well_writable", ok=False, says=str(error))
    return Check("well_writable", ok=True, says="")


def _loops() -> list[Check]:
    """What runs in the background; failures since the start are told even if it is well again."""
    failing = background.failing()
    return [
        Check(f"loop_{name.replace(' ', '_')}", ok=name not in failing, says=str(count) if count else "")
        for name, count in sorted(background.failures().items())
    ]


async def _replies(service: Service) -> list[Check]:
    states = [reply.state for _, reply in await service.undelivered()]
    ended = [state for state in states if state != "waiting"]
    return [Check("well_replies", ok=not ended, says=f"{len(states) - len(ended)} / {len(ended)}")] if states else []


def _facts() -> list[Check]:
    unreadable = facts.unreadable()
    return [Check("well_facts", ok=False, says=str(sum(unreadable.values())))] if unreadable else []


def _lasting(seconds: float, t: Texts) -> str:
    days, rest = divmod(int(seconds), 86_400)
    hours, rest = divmod(rest, 3_600)
    if days:
        return t("lasting_days", days=days, hours=hours)
    return t("lasting_hours", hours=hours, minutes=rest // 60) if hours else t("lasting_minutes", minutes=rest // 60)
