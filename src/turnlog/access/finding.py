"""Finds the session that a caller names, if the principal may see it, or with `write` change it.

A text is read as an id, a key or a plain name (`core.keys.named`). A row that was found before is checked again by its
own values, without asking the store; its incarnation proves that it is still the same session.
"""

from ..core import keys
from ..core.keys import Inbound, SessionById, SessionKey
from ..core.principals import Principal
from ..core.query import Query
from ..core.session import Session
from ..errors import Conflict, NotFound
from ..sessions import Sessions, expiry
from ..sessions.checking import checked_methods
from .parts import BoundSession, Parts, SessionPlace, Where


class SessionFinder:
    def __init__(self, parts: Parts, sessions: Sessions) -> None:
        self.home = parts.settings.home
        self._sessions = sessions
        self._settings = parts.settings.session
        self._store = parts.store
        self._agents = parts.agents
        self._clock = parts.clock

    async def found(self, where: Where, *, write: bool = False) -> Session | SessionKey:
        """The row, or the key that it can be opened at."""
        match meant(where):
            case Session() as row:
                self._sessions.admit(row, write=write)
                if row.status == "trashed":  # it may have been restored since
                    return await self._sessions.get(row.id, incarnation=row.incarnation)
                return row
            case SessionKey() as key:
                return self._sessions.own_key(key)
            case SessionById(id=session_id):
                return await self._by_id(session_id, write=write)

    async def _by_id(self, session_id: str, *, write: bool) -> Session:
        try:
            return await (self._sessions.writable(session_id) if write else self._sessions.get(session_id))
        except NotFound as error:
            raise NotFound(str(error), hint=_not_found_hint(session_id)) from error

    async def opened(self, where: Where, *, write: bool = False) -> Session:
        """The row; a session is made if a key is given that has none."""
        place = await self.found(where, write=write)
        return place if isinstance(place, Session) else await self._sessions.open(place)

    async def now(self, where: Where, *, write: bool = False) -> Session:
        """The same, as the row is now."""
        place = await self.found(where, write=write)
        if isinstance(place, SessionKey):
            return await self._sessions.open(place)
        return await self._sessions.get(place.id, incarnation=place.incarnation)

    async def existing(self, where: Where, *, write: bool = False) -> Session:
        """The row; nothing is made. NotFound if there is no session at the key that is given."""
        place = await self.found(where, write=write)
        if isinstance(place, Session):
            return place
        text = keys.format(place)
        rows = (await self._sessions.list(Query(key=text, status="active", limit=1))).items
        if not rows:
            raise NotFound(f"there is no session at {text}", hint="Nobody has used it yet: send a message first.")
        return self._sessions.admit(rows[0], write=write)

    async def answered(self, where: Where) -> Session:
        """The session; UsageError, before one is opened, where no agent could answer."""
        place = await self.found(where, write=True)
        self._agents.check(place.agent)
        return place if isinstance(place, Session) else await self._sessions.open(place)

    async def receiving(self, where: Where) -> Session:
        """The session a message goes to; a new one where the key's old one has expired, or no sessions are kept."""
        place = await self.found(where, write=True)
        self._agents.check(place.agent)
        if not self._settings.enabled:
            key = place.key if isinstance(place, Session) else place
            return await self._sessions.new(key, select=False)
        if isinstance(place, Session):
            return untrashed(place)
        return await self.renewed(untrashed(await self._sessions.open(place)))

    async def renewed(self, row: Session) -> Session:
        self._sessions.admit(row, write=True)
        return await expiry.renewed(self._sessions, self._store, row, self._settings.reset, self._clock)


def meant(where: Where) -> SessionPlace:
    match where:
        case BoundSession():
            return where.place
        case Inbound():
            return keys.resolve(where)
        case str():
            return keys.named(where)
        case _:
            return where


def untrashed(row: Session) -> Session:
    if row.status == "trashed":
        raise Conflict(f"session {row.id} is in the trash", hint="Restore it, or start a new session.")
    return row


def _not_found_hint(session_id: str) -> str:
    if keys.MADE_ID.match(session_id):
        return (
            "A text of this form is read as an id. List the sessions to see which exist; a deleted one cannot be "
            "restored. If the text is the name of a user, write t.session(user=…)."
        )
    return f"It was asked for as an id. For the session of this name, write t.session({session_id!r})."


@checked_methods
class AccessBase:
    """What the methods of an `Access` use."""

    def __init__(self, parts: Parts, sessions: Sessions) -> None:
        self.sessions = sessions
        self._finder = SessionFinder(parts, sessions)
        self._settings = parts.settings.session
        self._store = parts.store
        self._queue = parts.queue
        self._runner = parts.runner
        self._relays = parts.relays
        self._agents = parts.agents
        self._memory = parts.memory
        self._clock = parts.clock
        self._deleting = parts.deleting

    @property
    def principal(self) -> Principal:
        return self.sessions.principal
