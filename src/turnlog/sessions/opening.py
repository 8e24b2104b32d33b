"""Creates sessions, finds a session by its name, and carries out the selection of a key: the ledger decides, then the
logs record it.

Another process may repeat every step: the next opener of a key completes what a dead process left unfinished.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress

from ..core import keys, names, principals, query as queries
from ..core.entries import Entry, Opened, Selected, Status
from ..core.keys import SessionKey
from ..core.principals import Principal
from ..core.query import PAGE_MAX, Query
from ..core.session import Session
from ..errors import Ambiguous, Conflict, NotFound
from ..stores import Store
from . import selection
from .reading import described
from .selection import RowHere, Selection

RACES_MAX = 20
"""Attempts while others change the same key; each failure means that another process succeeded."""
_UNSELECTED = Status(value="inactive", reason="another was selected")


class Opener:
    def __init__(self, store: Store, new_id: Callable[[], str], row_here: RowHere) -> None:
        self._store = store
        self._new_id = new_id
        self._row_here = row_here

    async def selected(self, key: SessionKey, label: str | None = None) -> Session:
        """The session that the ledger has selected. Completes in the log what a crash left unfinished."""
        text = keys.format(key)
        for _ in range(RACES_MAX):
            fresh = self._new_id()
            fact = await selection.settled(self._store, text, fresh)
            row = None if fact.id == fresh else await described(self._store, fact.id)
            if row and row.selected_n >= fact.n and row.status != "inactive":
                return row
            with suppress(NotFound):  # deleted meanwhile: then another one is selected
                others = await selection.others_active(self._store, text, fact)
                if done := await self._carry_out(key, fact, row, others, label):
                    return done
        raise Conflict(f"too many changes of {text} at once")

    async def _carry_out(
        self, key: SessionKey, fact: Selection, row: Session | None, others: Sequence[Session], label: str | None = None
    ) -> Session | None:
        """Makes the logs record what the ledger has selected; None if another session is selected by now.

        The other sessions come first: a log that says it is selected tells the next opener that nothing is left to do.
        """
        for other in others:
            await self._deactivate(other)
        if row is None:
            row = await self.create(key, fact.id, label, Selected(n=fact.n))
        if row.selected_n < fact.n or row.status == "inactive":
            row = await self._append(row, Selected(n=fact.n))
        now = await selection.chosen(self._store.ledger, row.key)
        if now and now.id != row.id:
            # Overtaken: the newly selected one's opener may have searched for active ones before we wrote.
            await self._append(row, _UNSELECTED)
        return row if now == fact else None

    async def create(
        self, key: SessionKey, session_id: str, label: str | None, *more: Entry, alone: bool = False
    ) -> Session:
        """`alone`: the id must be new. Otherwise another opener of the key may have created the same session first."""
        body = Opened(
            id=session_id, key=keys.format(key), agent=key.agent, channel=key.channel, label=names.check_label(label)
        )
        try:
            return (await self._store.append(session_id, [body, *more], expect=0)).row
        except Conflict:
            if alone:
                raise
            return await self._store.describe(session_id)

    async def create_somewhere(self, key: SessionKey, label: str | None) -> Session:
        for _ in range(RACES_MAX):
            with suppress(Conflict):
                return await self.create(key, self._new_id(), label, alone=True)
        raise Conflict("no free session id was found")

    async def select(self, key: SessionKey, session_id: str, row: Session | None = None) -> Session:
        """Without a row, the session is created later."""
        text = keys.format(key)
        for _ in range(RACES_MAX):
            old = await selection.chosen(self._store.ledger, text)
            fact, last = await selection.following(self._store, text, old, session_id, self._row_here)
            if await selection.change(self._store.ledger, text, old, fact):
                with suppress(NotFound):  # one of them was deleted meanwhile
                    others = await selection.others_active(self._store, text, fact, last)
                    if done := await self._carry_out(key, fact, row, others):
                        return done
                await self.selected(key)
                return await self._store.describe(session_id, incarnation=row.incarnation if row else None)
        raise Conflict(f"too many changes of {text} at once")

    async def _deactivate(self, row: Session) -> None:
        """Unless the session is no longer active. The row may be an earlier one: then the append conflicts."""
        now: Session | None = row
        for _ in range(RACES_MAX):
            if now is None or now.status != "active":
                return
            with suppress(Conflict):
                await self._store.append(now.id, [_UNSELECTED], expect=now.last_seq, incarnation=row.incarnation)
                return
            now = await described(self._store, row.id)
        raise Conflict(f"too many entries in {row.id} at once")

    async def _append(self, row: Session, body: Entry) -> Session:
        """The row after the append."""
        return (await self._store.append(row.id, [body], incarnation=row.incarnation)).row


async def resolve(store: Store, principal: Principal, text: str, within: Query) -> Session:
    """The session that a person means by an id, a key or a label, or by the beginning of one. `within`: the key and the
    agent that narrow the search.
    """
    for query in queries.readings(text, within):
        rows = [row for row in (await store.find(query)).items if principals.sees(principal, row)]
        if query.key is not None and query == Query(key=query.key, agent=within.agent, limit=PAGE_MAX):
            rows = [row for row in rows if row.status == "active"] or rows[:1]
        if len(rows) == 1:
            return rows[0]
        if rows:
            found = [f"{row.id} ({row.label})" if row.label else row.id for row in rows[:20]]
            raise Ambiguous(f"{text!r} fits {len(rows)} sessions: {', '.join(found)}", matches=[r.id for r in rows])
    raise NotFound(f"no session fits {text[:80]!r}")
