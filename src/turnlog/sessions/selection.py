"""The selected session of a key, as a fact in the ledger. If the fact cannot be read, the logs decide.

First the fact changes, then it is carried out: the logs of other sessions say `inactive`, then the log of the selected
one says `selected`. So a log that says `selected` proves that all earlier changes are complete, and a change only has
to check one log: that of the previous selection. If a process died between the two steps, or was overtaken, the next
one adds the sessions concerned to `unsure`, and they are checked as well. A change costs the same however many sessions
a key has, and needs no list. If the earlier selections are unknown (the fact was lost), all sessions of the key are
checked once.
"""

from collections.abc import Callable
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from ..core.keys import SESSION_ID
from ..core.query import PAGE_MAX, Query
from ..core.session import Session
from ..stores import Ledger, Store, facts
from .reading import described

SELECTED = "selected"
"""The ledger's space."""
BEFORE_KEPT = 8
"""The number of earlier selections remembered: the key returns to them when its session is deleted."""
RowHere: TypeAlias = Callable[[str], Session | None]
"""session id → its row as this process saw it last, if it did."""


class Selection(Struct, frozen=True, omit_defaults=True):
    id: Annotated[str, Meta(pattern=f"^$|^{SESSION_ID.pattern}")]
    """Empty: none is selected, because the selected session was deleted or archived."""
    n: int
    """How often a session was selected at this key, including this time."""
    before: list[str] | None = None
    """Selected earlier, the latest last. None: unknown."""
    unsure: list[str] = []
    """Those of them whose selection was not carried out in the logs before the next one."""


async def chosen(ledger: Ledger, key: str) -> Selection | None:
    value = await ledger.get(SELECTED, key)
    found = facts.read(SELECTED, key, value, Selection)
    if found is None and value is not None:
        await ledger.cas(SELECTED, key, value, None)
    return found


async def change(ledger: Ledger, key: str, old: Selection | None, new: Selection) -> bool:
    """Changes the selection, unless it has changed meanwhile."""
    return await ledger.cas(SELECTED, key, old and facts.write(old), facts.write(new))


async def settled(store: Store, key: str, fresh: str) -> Selection:
    """The current selection. If there is none, it is decided now: the session selected before, or a new one.

    `fresh`: the id for a new one.
    """
    while True:
        old = await chosen(store.ledger, key)
        if old is not None and old.id:
            return old
        if old is None or old.before is None:
            mine = await _from_logs(store, key, old, fresh)
        else:
            mine = await _from_before(store, key, old, old.before, fresh)
        if await change(store.ledger, key, old, mine):
            return mine


async def _from_before(store: Store, key: str, old: Selection, before: list[str], fresh: str) -> Selection:
    for session_id in reversed(before):
        row = await _row(store, key, session_id)
        if row is not None and row.status in ("active", "inactive"):
            return Selection(row.id, old.n + 1, _but(row.id, before), _but(row.id, old.unsure))
    return Selection(fresh, old.n + 1, before, old.unsure)


async def _from_logs(store: Store, key: str, old: Selection | None, fresh: str) -> Selection:
    rows = (await store.find(Query(key=key, limit=PAGE_MAX))).items
    usable = [row for row in rows if row.status in ("active", "inactive")]
    # Sessions of another tool were never selected; the most recent one is continued.
    best = max(usable, key=lambda row: (row.selected_n, row.last_at, row.id), default=None)
    n = (best and best.selected_n) or _next_n(rows)
    return Selection(best.id if best else fresh, max(n, old.n + 1 if old else 0), None if rows else [])


def _next_n(rows: list[Session]) -> int:
    return max((row.selected_n for row in rows), default=0) + 1


async def following(
    store: Store, key: str, old: Selection | None, session_id: str, row_here: RowHere
) -> tuple[Selection, Session | None]:
    """The selection of this session as the successor of `old`; and the row of `old`, if its log says that it is
    selected. The log may have grown since.
    """
    if old is None:
        rows = (await store.find(Query(key=key, limit=PAGE_MAX))).items
        is_alone = all(row.id == session_id for row in rows)
        return Selection(session_id, _next_n(rows), [] if is_alone else None), None
    before, unsure, last = await _earlier(store, key, old, row_here(old.id))
    return Selection(session_id, old.n + 1, before and _but(session_id, before), _but(session_id, unsure)), last


async def without(store: Store, key: str, old: Selection, *, forget: bool) -> Selection:
    """A selection of no session. `forget`: the key does not return to an earlier one either."""
    # The session that goes stays in the list: its process may die before it is gone.
    before, unsure, _ = await _earlier(store, key, old)
    return Selection("", old.n, [old.id] if forget else before, unsure)


async def _earlier(
    store: Store, key: str, old: Selection, row: Session | None = None
) -> tuple[list[str] | None, list[str], Session | None]:
    """(`before`, `unsure`) of the selection that follows this one, and this one's row if it was carried out. `row`: an
    earlier row of it, which is proof enough if it says so.
    """
    if not old.id:
        return old.before, old.unsure, None
    if row is None or row.selected_n < old.n:
        row = await _row(store, key, old.id)
    if row is not None and row.selected_n >= old.n:
        return [*_but(old.id, old.before or []), old.id][-BEFORE_KEPT:], old.unsure[-BEFORE_KEPT:], row
    if old.before is None:
        return None, old.unsure, None
    unsure = [*old.unsure, *old.before[-1:], old.id]
    return [*_but(old.id, old.before), old.id], list(dict.fromkeys(unsure)), None


async def others_active(store: Store, key: str, selection: Selection, last: Session | None = None) -> list[Session]:
    """Sessions of this key that are active in their logs, without the selected one. `last`: a row of one of them, maybe
    an earlier one.
    """
    if selection.before is None:
        found = (await store.find(Query(key=key, status="active", limit=PAGE_MAX))).items
    else:
        names = dict.fromkeys([*selection.unsure, *selection.before[-1:]])
        known = {last.id: last} if last and last.status == "active" else {}
        found = [known.get(name) or await _row(store, key, name) for name in names]
    return [row for row in found if row is not None and row.status == "active" and row.id != selection.id]


def _but(name: str, names: list[str]) -> list[str]:
    return [other for other in names if other != name]


async def _row(store: Store, key: str, session_id: str) -> Session | None:
    """None if it is gone, also if a session of another key has its id now."""
    row = await described(store, session_id)
    return row if row is not None and row.key == key else None
