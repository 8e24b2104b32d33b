"""The page Approvals, for administrators: who approved what, when, and what ran."""

from typing import Annotated

from litestar import Response, get
from litestar.params import Parameter
from msgspec.structs import replace

from ...access.auditing import AuditFilter, AuditState, audit
from ...errors import UsageError
from ..service import AnyRequest, acting
from .view import show

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
    sessions = acting(request, "admin", agent=agent or None).sessions
    wanted = AuditFilter(agent=agent or None, state=outcome, tool=tool, by=by, q=q)
    try:
        page = await audit(sessions, wanted, limit=ROWS, cursor=after or None)
    except UsageError:  # a cursor that somebody made up
        page = await audit(sessions, wanted, limit=ROWS)
    shown = replace(wanted, agent=agent)
    return await show(request, "approvals.html", part="part_audit.html", wanted=shown, page=page, states=STATES)
