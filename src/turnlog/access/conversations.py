"""What one principal may do with sessions that a client keeps by id: create them, add to them, take back the end.

Any session of the principal can be used so. One that is created here has a key of its own, so no request finds it by
its words.
"""

import os
from collections.abc import Mapping, Sequence

from ..core import keys
from ..core.entries import MESSAGES, Assistant, Entry, Facts, Message, Opened, Rewind
from ..core.principals import Principal
from ..core.session import Session, live_path, on_path
from ..errors import NotFound, UsageError
from ..sessions import Sessions
from ..stores import Appended
from ..turns.asked import place_of
from .parts import Parts

APP = "conversation"
"""The name of the facts that hold a conversation's metadata."""
WAIT_S = 10.0
"""How long a change waits for the call that runs in the session."""


class OwnConversations:
    def __init__(self, parts: Parts, principal: Principal, sessions: Sessions) -> None:
        """`sessions`: the principal's."""
        self._store = parts.store
        self._places = parts.relays.places
        self._clock = parts.clock
        self._sessions = sessions
        self._principal = principal

    async def create(self, messages: Sequence[Message], metadata: Mapping[str, str]) -> Appended:
        """A new session with these messages, in one append."""
        new_id = keys.session_id(self._clock(), os.urandom(6))
        place = place_of(self._principal, keys.DEFAULT_AGENT, f"{APP}/{new_id}")
        opened = Opened(id=new_id, key=keys.format(place), agent=place.agent, channel=place.channel)
        facts = [Facts(app=APP, put=dict(metadata))] if metadata else []
        async with self._store.lease(new_id) as lease:
            return await self._store.append(new_id, [opened, *facts, *messages], expect=0, lease=lease)

    async def get(self, session_id: str) -> Session:
        row = await self._places.own_session(self._principal, session_id)
        if row is None:
            raise NotFound("there is no such conversation")
        return row

    async def metadata(self, row: Session) -> dict[str, str]:
        found = await self._store.facts(row.id, APP, incarnation=row.incarnation)
        return {fact.key: str(fact.value) for fact in found}

    async def update(self, row: Session, metadata: Mapping[str, str]) -> None:
        """These pairs instead of those that there were."""
        dropped = tuple(key for key in await self.metadata(row) if key not in metadata)
        if metadata or dropped:
            body = Facts(app=APP, put=dict(metadata), drop=dropped)
            await self._store.append(row.id, [body], incarnation=row.incarnation)

    async def delete(self, row: Session) -> None:
        """Erases the session."""
        await self._sessions.delete(row.id, incarnation=row.incarnation)

    async def add(self, row: Session, messages: Sequence[Message]) -> list[Entry]:
        async with self._store.lease(row.id, wait_s=WAIT_S) as lease:
            return await self._store.append(row.id, messages, lease=lease, incarnation=row.incarnation)

    async def entries(self, row: Session) -> list[Entry]:
        """The entries that count, in order."""
        log = await self._store.read(row.id, incarnation=row.incarnation)
        live = live_path(row.marks, row.last_seq)
        return [entry for entry in log if on_path(entry.seq, live)]

    async def take_back(self, row: Session, seq: int, left: Assistant | None) -> None:
        """Goes back before the last message, which has this seq. `left`: what stays of it."""
        async with self._store.lease(row.id, wait_s=WAIT_S) as lease:
            now = await self._store.describe(row.id, incarnation=row.incarnation)
            entries = await self.entries(now)
            said = [entry for entry in entries if isinstance(entry, MESSAGES)]
            if not said or said[-1].seq != seq:
                raise UsageError(
                    "only the last item can be deleted", hint="A log is never edited; delete from its end."
                )
            before = [entry for entry in entries if entry.seq < seq]
            bodies: list[Entry] = [Rewind(to=before[-1].seq), *([left] if left else [])]
            await self._store.append(row.id, bodies, lease=lease, incarnation=row.incarnation)
