"""Finds the session that a person means by an id, a key or a label, or by the beginning of one."""

from ..core import principals, query as queries
from ..core.principals import Principal
from ..core.query import PAGE_MAX, Query
from ..core.session import Session
from ..errors import Ambiguous, NotFound
from ..stores import Store


async def resolve(store: Store, principal: Principal, text: str, within: Query) -> Session:
    """`within`: the key and the agent that narrow the search."""
    for query in queries.readings(text, within):
        rows = [row for row in (await store.find(query)).items if principals.sees(principal, row)]
        if query.key is not None and query == Query(key=query.key, agent=within.agent, limit=PAGE_MAX):
            rows = [row for row in rows if row.status == "active"] or rows[:1]
        if len(rows) == 1:
            return rows[0]
        if rows:
            names = [f"{row.id} ({row.label})" if row.label else row.id for row in rows[:20]]
            raise Ambiguous(f"{text!r} fits {len(rows)} sessions: {', '.join(names)}", matches=[r.id for r in rows])
    raise NotFound(f"no session fits {text[:80]!r}")
