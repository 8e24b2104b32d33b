"""What the tools of a turn may know and reach: their own session, through the gate, and the memory of its principal."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from ..core.entries import Entry, User
from ..core.principals import of_agent
from ..core.query import Hit, Query
from ..core.states import LogStates
from ..sessions import Sessions
from ..tools import Context
from .journal import Journal

Recall: TypeAlias = Callable[[str, str, str], Awaitable[list[str]]]
"""(agent, key, words) → matching memos of the global memory."""
HITS_MAX = 200


def context_of(sessions: Sessions, journal: Journal, agent: str, began_at: int, recall: Recall | None) -> Context:
    """`began_at`: the seq of the message that the turn answers."""
    session_id = journal.session_id
    gate = sessions.acting_for(of_agent(agent))

    async def search(words: str) -> list[Hit]:
        # The model sees the turn that runs; its question would be the best hit for every word of it.
        scope = Query(id=session_id, limit=HITS_MAX)
        return await gate.search(words, scope=scope, before=_first_of(journal, began_at))

    async def read(first: int, last: int) -> list[Entry]:
        return await gate.read(session_id, after=first - 1, before=last + 1, incarnation=journal.incarnation)

    async def remember(words: str) -> Sequence[str]:
        return await recall(agent, journal.row.key, words) if recall else []

    return Context(
        session_id=session_id,
        agent=agent,
        search=search,
        read=read,
        state=LogStates(journal.row).of,
        recall=remember if recall else None,
    )


def _first_of(journal: Journal, began_at: int) -> int:
    """The first entry of a turn: its message, or what that was made from."""
    begun = next((entry for entry in journal.transcript if entry.seq == began_at and isinstance(entry, User)), None)
    return min(began_at, *begun.from_) if begun and begun.from_ else began_at
