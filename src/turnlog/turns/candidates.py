"""Which sessions of a place a request is compared with: those that gave one of its answers, or the newest ones."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress

from msgspec import Struct

from ..core.entries import Origin
from ..core.query import Query
from ..core.request_messages import RequestMessages
from ..core.session import Session
from ..errors import NotFound
from ..sessions import own_answers
from ..stores import Store
from .repeats import Repeats, Signs

COMPARED = 64
"""Sessions of a place that a request is compared with, newest first."""
_USED = ("active", "inactive")


class ClientPlace(Struct, frozen=True):
    """Where a request belongs: the key that principal, agent and the client's name for its conversation make."""

    key: str
    named: bool
    row: Session | None = None
    """The session, if the request names it by its id."""


class Candidates:
    def __init__(self, store: Store, repeats: Repeats) -> None:
        self._store = store
        self._repeats = repeats

    async def of(self, place: ClientPlace, said: RequestMessages, signs: Signs) -> AsyncGenerator[list[Session]]:
        """One list after the other, each newest first. Without a name, a session is recognised only by an answer, so
        the index is asked first.
        """
        if not place.named:
            yield await self._rows(place, await own_answers.find(self._store.ledger, place.key, said.atoms))
        if not place.named and all(atom.kind not in ("assistant", "call") for atom in said.atoms):
            yield await self._rows(place, self._repeats.lost(signs))  # no answer can identify it; it may be a repeat
        else:
            yield (await self._store.find(Query(key=place.key, status=_USED, limit=COMPARED))).items

    async def forks(self, row: Session, seq: int) -> list[Session]:
        """The newest forks of a session at this entry."""
        found = (await self._store.find(Query(key=row.key, status=_USED, limit=COMPARED))).items
        return [one for one in found if one.forked_from == Origin(id=row.id, seq=seq)]

    async def _rows(self, place: ClientPlace, ids: Sequence[str]) -> list[Session]:
        rows: list[Session] = []
        for session_id in ids:
            with suppress(NotFound):
                row = await self._store.describe(session_id)
                if row.key == place.key and row.status in _USED:  # an id may be in use again, elsewhere
                    rows.append(row)
        return sorted(rows, key=lambda row: -row.last_at)[:COMPARED]
