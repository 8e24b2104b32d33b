"""The page Approvals, for administrators: who approved what, when, and what ran."""

from typing import Annotated

from litestar import Response, get
from litestar.params import Parameter
from msgspec.structs import replace

from ...access.auditing import AuditFilter, AuditState, audit
from ...errors import UsageError
from ..service import AnyRequest, acting, principal_of, service_of
from .view import show, wants_part

ROWS = 50
STATES = ("waiting", "approved", "denied", "ran", "failed")
Piece = Annotated[str, Parameter(max_length=200)]
Cursor = Annotated[str, Parameter(max_length=200)]


@get("/approvals")
async def approvals_page(
    request: AnyRequest,
    agent: Piece = "",
    tool: Piece = "",
    by: Piece = "",
    q: Piece = "",
    after: Cursor = "",
    outcome: AuditState = "",
) -> Response[str]:
    who = principal_of(request, "admin")
    if agent:
        service_of(request).check_agent(who, agent)
    wanted = AuditFilter(agent=agent or None, state=outcome, tool=tool, by=by, q=q)
    try:
        page = await audit(acting(request, "admin").sessions, wanted, limit=ROWS, cursor=after or None)
    except UsageError:  # a cursor that somebody made up
        page = await audit(acting(request, "admin").sessions, wanted, limit=ROWS)
    template = "part_audit.html" if wants_part(request) else "approvals.html"
    return await show(request, template, wanted=replace(wanted, agent=agent), page=page, states=STATES)
