"""The audit list: every call that needed approval, in all sessions that a principal may see.

It is read from the logs of the sessions, so it needs no record of its own and cannot differ from them. Rows say which
sessions ever had such a call, so no other log is read. One page looks at a limited number of these sessions, the newest
first; `next` leads to older ones, also if a page found nothing.
"""

from contextlib import suppress
from typing import Literal, TypeAlias

from msgspec import Struct

from ..core import approvals
from ..core.approvals import ApprovalRecord
from ..core.query import Query
from ..core.session import Session
from ..errors import Corrupt, NotFound
from ..sessions import Sessions

SESSIONS_READ = 20
"""Sessions that are read before the page is looked at again."""
SESSIONS_MAX = 200
"""Sessions that one page looks at."""
AuditState: TypeAlias = Literal["", "waiting", "approved", "denied", "ran", "failed"]


class AuditFilter(Struct, frozen=True, kw_only=True):
    """All given fields must match."""

    agent: str | None = None
    state: AuditState = ""
    """`ran`: approved, and the call ran to a result; `failed`: that result is an error."""
    tool: str = ""
    by: str = ""
    """A piece of the name of the person who answered, in any case."""
    q: str = ""
    """Words in title, label or key of the session."""


class AuditLine(Struct, frozen=True, kw_only=True, rename="camel"):
    """One call that needed approval, and its session."""

    session_id: str
    agent: str
    key: str
    title: str
    approval: ApprovalRecord


class AuditPage(Struct, frozen=True):
    items: list[AuditLine]
    next: str | None = None


async def audit(sessions: Sessions, wanted: AuditFilter, *, limit: int = 50, cursor: str | None = None) -> AuditPage:
    """At least `limit` lines, if the sessions that it looks at have as many."""
    found: list[AuditLine] = []
    for _ in range(SESSIONS_MAX // SESSIONS_READ):
        query = Query(agent=wanted.agent, q=wanted.q or None, needed_approval=True, limit=SESSIONS_READ, cursor=cursor)
        page = await sessions.list(query)
        for row in page.items:
            found += await _lines(sessions, row, wanted)
        cursor = page.next
        if cursor is None or len(found) >= limit:
            break
    return AuditPage(found, cursor)


async def _lines(sessions: Sessions, row: Session, wanted: AuditFilter) -> list[AuditLine]:
    """The newest first. A session that was deleted meanwhile or cannot be read hides no other."""
    with suppress(NotFound, Corrupt):
        records = approvals.records(await sessions.read(row.id, incarnation=row.incarnation))
        return [_line(row, one) for one in reversed(records) if _fits(one, wanted)]
    return []


def _line(row: Session, record: ApprovalRecord) -> AuditLine:
    return AuditLine(session_id=row.id, agent=row.agent, key=row.key, title=row.label or row.title, approval=record)


def _fits(record: ApprovalRecord, wanted: AuditFilter) -> bool:
    states = {record.state, *(("ran",) if record.ran else ()), *(("failed",) if record.ran and record.failed else ())}
    if wanted.state and wanted.state not in states:
        return False
    return wanted.tool in ("", record.tool) and wanted.by.lower() in record.by.lower()
