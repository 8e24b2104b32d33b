"""The sessions of Google's ADK in a store: reads and writes their logs and the state of sessions, users and apps.

    agent:main:google_adk:<app>:direct:<user>:thread:<session>     events, and facts of the session
        h           [time of the last update]: put with every change of a state, and with every sixteenth event
        e|<id>      the entry of the event of this id: put with the next `h`
        s|<key>     a value of the session's state
        p           values of user and app that this session's last event brings: [time, app, user, where each of the
                    two states is: its incarnation and the end of its log]
    agent:main:google_adk:<app>:direct:<user>:thread:%user         s|<key>: a value of the user's state
    agent:main:google_adk:<app>:direct:%app                        s|<key>: a value of the app's state

An event and its session's state are one append, which expects the log to end where the caller has seen it end. If it
does not, and all that follows is Turnlog's own (a title, a compaction), the event is appended there; otherwise the copy
of the session is out of date and cannot write. Each value of a state is a fact of its own: writers of different keys
never overwrite each other. Values of user and app follow in appends of their own; if the process dies before them, `p`
holds them, and the next process that reads the session writes them, unless a newer value is there, or somebody has
deleted or erased what was written.

Everything here runs in the store's loop, with events and values as JSON.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ..core import keys as session_keys
from ..core.entries import MESSAGES, Entry, Facts, Foreign, Rewind, Title
from ..core.facts import Fact
from ..core.query import Query
from ..core.session import Session
from ..errors import Conflict, NotFound
from ..library import Turnlog
from ..stores import GivenLease
from ..stores.finding import every_row
from ..stores.stamping import now_ms
from .adk_events import EventJson, entry_of, event_of
from .adk_reading import shown_events, unlisted, updated_at
from .adk_state import (
    APP,
    CHANNEL,
    HEAD,
    PENDING,
    STATE,
    AdkHead,
    AdkPlace,
    StateChange,
    StateValues,
    StoredEvent,
    StoredSession,
    WrongHead,
    event_fact,
    event_facts,
    freed,
    merged,
    newer,
    reserved,
    state_facts,
    user_key,
    values_of,
)
from .blocks import copied
from .session_log import AGENT, READ_MAX, SessionLog, key_of

if TYPE_CHECKING:
    from .adk_inputs import EventInput

LOGS_MAX = 4096
RACES_MAX = 20
LISTED_TOGETHER = 16
"""So many entries may follow the last `h` before another one is put: who looks for an event by its id reads these."""


class AdkSessions:
    def __init__(self) -> None:
        self.log_of: Callable[[session_keys.SessionKey], SessionLog] = lru_cache(LOGS_MAX)(SessionLog)
        self._locks: dict[AdkPlace, asyncio.Lock] = {}

    def lock(self, place: AdkPlace) -> asyncio.Lock:
        """Held while an event is appended: the copies of a session that one process has are written one by one."""
        lock = self._locks.get(place)
        if lock is None:
            for other in [one for one, held in self._locks.items() if not held.locked()][:-LOGS_MAX]:
                del self._locks[other]
            lock = self._locks[place] = asyncio.Lock()
        return lock

    async def create(self, t: Turnlog, place: AdkPlace, change: StateChange, now: float) -> StoredSession | None:
        """None if this session exists already."""
        log = self.log_of(place.key)
        put = {HEAD: [now, 0], **state_facts(change.session), **await self._announced(t, place, change)}
        for _ in range(RACES_MAX):
            row = await log.open(t)
            try:
                appended = await log.append_to(t, row, [Facts(app=APP, put=put)], expect_fact=(APP, HEAD, None))
            except NotFound:
                log.forget()
                continue
            except Conflict:
                return None
            await self._share(t, place, change, put)
            end = appended[-1].seq
            user, app = await self._shared(t, place)
            head = AdkHead(appended.row.incarnation, end, end, 0)
            return StoredSession(place, head, now, merged(change.session, user, app))
        raise Conflict("too many changes of this session at once")

    @asynccontextmanager
    async def alone(self, t: Turnlog, place: AdkPlace) -> AsyncGenerator[GivenLease]:
        """See `SessionLog.alone`."""
        log = self.log_of(place.key)
        async with log.alone(t, await log.find(t)) as lease:
            yield lease

    async def append(
        self, t: Turnlog, place: AdkPlace, given: "EventInput", head: AdkHead, lease: GivenLease
    ) -> AdkHead:
        """WrongHead if the session has other events by now than this head says; NotFound if it was deleted.

        Always with a lease, also for an event that is no message: so nobody writes while another holds it.
        """
        event, change = given.stored, given.change
        log = self.log_of(place.key)
        body = entry_of(event, given.size)
        for attempt in range(RACES_MAX):
            row = await (log.find(t) if attempt else log.known(t))
            if row is None:
                raise NotFound(f"there is no session {place.session[:80]!r}")
            if attempt and row.incarnation != head.incarnation:
                raise WrongHead
            if attempt and row.last_seq != head.seq:
                head = await _moved(t, row, head)
            if (row.incarnation, row.last_seq) != (head.incarnation, head.seq):
                continue  # the row is of an earlier call
            has_facts = _has_facts(change, head)
            put = await _put(t, row, event, change, head) if has_facts else {}
            put |= await self._announced(t, place, change)
            bodies: list[Entry] = [body, Facts(app=APP, put=put)] if has_facts else [body]
            try:
                appended = await log.append_to(t, row, bodies, expect=head.seq, lease=lease)
            except NotFound:
                log.forget()
                raise
            except Conflict:
                continue
            if has_facts:
                await self._share(t, place, change, put)
            return _after(head, event, appended[-1].seq, is_listed=has_facts)
        raise WrongHead

    def append_at_once(self, t: Turnlog, place: AdkPlace, given: "EventInput", head: AdkHead) -> AdkHead | None:
        """The same without waiting, for an event that brings no facts; None if that is not possible."""
        if _has_facts(given.change, head) or self.lock(place).locked():
            return None
        body = entry_of(given.stored, given.size)
        appended = self.log_of(place.key).append_at_once(t, [body], after=(head.incarnation, head.seq))
        return None if appended is None else _after(head, given.stored, appended[-1].seq, is_listed=False)

    async def stored(self, t: Turnlog, place: AdkPlace, event_id: str) -> EventJson | None:
        """The newest event of this id, if there is one."""
        row = await self.log_of(place.key).find(t)
        if row is None:
            return None
        key = event_fact(event_id)
        found = await t.store.facts(row.id, APP, keys=[HEAD, key], incarnation=row.incarnation)
        facts = {fact.key: fact for fact in found}
        new = await unlisted(t, row, facts[HEAD].seq) if HEAD in facts else []
        if same := [one.event for one in new if one.event["id"] == event_id]:
            return same[-1]
        if key not in facts:
            return None
        # Older versions put the id of each event right after it, with the value true.
        seq = facts[key].seq - 1 if facts[key].value is True else facts[key].value
        entries = await t.store.read(row.id, after=seq - 1, before=seq + 1, limit=1, incarnation=row.incarnation)
        return event_of(entries[0]) if entries else None

    async def load(
        self, t: Turnlog, place: AdkPlace, recent: int | None = None, since: float | None = None
    ) -> StoredSession | None:
        """`recent`: only that many of the newest events. `since`: only those after the last one that is older."""
        log = self.log_of(place.key)
        for attempt in range(1, RACES_MAX + 1):
            # The row comes first: if somebody writes meanwhile, what is read is newer than its head, and stale.
            row = await log.find(t)
            if row is None:
                return None
            try:
                first = await t.store.facts(row.id, APP, keys=[HEAD, PENDING], incarnation=row.incarnation)
                facts = {fact.key: fact for fact in first}
                if HEAD not in facts:
                    return None
                if facts[HEAD].seq > row.last_seq and attempt < RACES_MAX:
                    continue
                found = await t.store.facts(row.id, APP, prefix=STATE, incarnation=row.incarnation)
                events = await shown_events(t, row, recent, since)
                updated = await updated_at(t, row, facts[HEAD], events)
            except NotFound:
                log.forget()
                continue
            user, app = await self._shared(t, place, facts.get(PENDING))
            head = AdkHead(row.incarnation, row.last_seq, facts[HEAD].seq)
            if recent is None and since is None:
                newest = max((one.event["timestamp"] for one in events if one.compaction is None), default=-inf)
                head = replace(head, events=len(events), newest=newest)
            return StoredSession(place, head, updated, merged(values_of(found), user, app), events)
        return None

    async def list(self, t: Turnlog, app: str, user: str | None) -> "list[StoredSession]":
        """Without events, the oldest update first."""
        prefix = f"agent:{AGENT}:{CHANNEL}:{session_keys.encode_part(app)}:direct:"
        if user is not None:
            prefix += f"{session_keys.encode_part(reserved(user))}:thread:"
        states: dict[str, StateValues] = {}
        of_app = values_of(await self._state(t, key_of(CHANNEL, "%app", account=app)))
        found: list[StoredSession] = []
        for row in [one async for one in every_row(t.store.find, Query(key_prefix=prefix, status="active"))]:
            key = session_keys.parse(row.key)
            if key.thread is None or key.thread == "%user":
                continue
            place = AdkPlace(app, freed(key.peer), freed(key.thread))
            with suppress(NotFound):
                facts = await t.store.facts(row.id, APP, prefix=STATE, incarnation=row.incarnation)
                heads = await t.store.facts(row.id, APP, keys=[HEAD], incarnation=row.incarnation)
                if not heads:
                    continue
                if place.user not in states:
                    states[place.user] = values_of(await self._state(t, place.user_key))
                state = merged(values_of(facts), copied(states[place.user]), copied(of_app))
                updated = await updated_at(t, row, heads[0])
                head = AdkHead(row.incarnation, row.last_seq, heads[0].seq)
                found.append(StoredSession(place, head, updated, state))
        return sorted(found, key=lambda one: (one.updated, one.place.user, one.place.session))

    async def delete(self, t: Turnlog, place: AdkPlace) -> None:
        await self.log_of(place.key).delete(t)

    async def user_state(self, t: Turnlog, app: str, user: str) -> StateValues:
        return values_of(await self._state(t, user_key(app, user)))

    async def _shared(
        self, t: Turnlog, place: AdkPlace, announced: Fact | None = None
    ) -> tuple[StateValues, StateValues]:
        """The state of user and app; what a process has announced and not written, because it died, is added."""
        user, app = await self._state(t, place.user_key), await self._state(t, place.app_key)
        if announced is None:
            return values_of(user), values_of(app)
        at, app_change, user_change, *places = announced.value
        ends: dict[str, int] = {name: end for name, (_, end) in places[0].items()} if places else {}
        missing = StateChange(
            user=newer(user_change, at, user, ends.get("user")), app=newer(app_change, at, app, ends.get("app"))
        )
        if missing.user and places and not await self._is_unwritten(t, place.user_key, places[0]["user"]):
            missing = replace(missing, user={})
        if missing.app and places and not await self._is_unwritten(t, place.app_key, places[0]["app"]):
            missing = replace(missing, app={})
        await self._share(t, place, missing, {PENDING: [at]})
        return {**values_of(user), **missing.user}, {**values_of(app), **missing.app}

    async def _state(self, t: Turnlog, key: session_keys.SessionKey) -> "list[Fact]":
        log = self.log_of(key)
        for _ in range(2):
            row = await log.known(t)
            if row is None:
                return []
            with suppress(NotFound):
                return await t.store.facts(row.id, APP, prefix=STATE, incarnation=row.incarnation)
            log.forget()
        return []

    async def _announced(self, t: Turnlog, place: AdkPlace, change: StateChange) -> StateValues:
        """The fact `p` for the values of user and app in a change."""
        if not change.is_shared:
            return {}
        places: dict[str, tuple[str, int]] = {}
        for name, key, values in (("user", place.user_key, change.user), ("app", place.app_key, change.app)):
            if values:
                log = self.log_of(key)
                row = await log.find(t) or await log.open(t)
                places[name] = row.incarnation, row.last_seq
        return {PENDING: [now_ms(), change.app, change.user, places]}

    async def _is_unwritten(self, t: Turnlog, key: session_keys.SessionKey, announced: tuple[str, int]) -> bool:
        """Whether values that are missing were never written: the state was not deleted since, and nothing erased."""
        incarnation, end = announced
        row = await self.log_of(key).find(t)
        if row is None or row.incarnation != incarnation:
            return False
        return not any(entry.erased for entry in await t.store.read(row.id, after=end, incarnation=incarnation))

    async def _share(self, t: Turnlog, place: AdkPlace, change: StateChange, put: Mapping[str, Any]) -> None:
        """Writes the values of user and app that an append has announced."""
        if not change.is_shared:
            return
        at = put[PENDING][0]
        await self._write(t, place.user_key, change.user, at)
        await self._write(t, place.app_key, change.app, at)

    async def _write(self, t: Turnlog, key: session_keys.SessionKey, values: StateValues, at: int) -> None:
        if not values:
            return
        log = self.log_of(key)
        for _ in range(RACES_MAX):
            row = await log.open(t)
            bodies: list[Entry] = [Facts(app=APP, put=state_facts(values, at))]
            if not row.title:
                owner = f"user {freed(key.peer)}" if key.thread else f"app {key.account}"
                bodies.insert(0, Title(title=f"State of {owner}"[:200], by="auto"))
            with suppress(NotFound):
                await log.append_to(t, row, bodies)
                return
            log.forget()
        raise Conflict("too many changes of this state at once")


async def _moved(t: Turnlog, row: Session, head: AdkHead) -> AdkHead:
    """The head with a later end of the log; WrongHead if an event has been stored or rewound since."""
    entries = await t.store.read(row.id, after=head.seq, limit=READ_MAX, incarnation=row.incarnation)
    if not entries or any(map(_changes_events, entries)):
        raise WrongHead
    return replace(head, seq=entries[-1].seq)


def _changes_events(entry: Entry) -> bool:
    """Whether it changes the events of a session: an event, which may be erased by now, facts of one, or a rewind."""
    if isinstance(entry, Facts):
        return entry.app == APP
    if isinstance(entry, Rewind):
        return True
    return event_of(entry) is not None or (entry.erased and isinstance(entry, (*MESSAGES, Foreign)))


def _has_facts(change: StateChange, head: AdkHead) -> bool:
    """Whether facts are put with an event. Most events have none: an entry of facts costs as much as the event."""
    return not change.is_empty or head.seq - head.listed >= LISTED_TOGETHER


async def _put(t: Turnlog, row: Session, event: EventJson, change: StateChange, head: AdkHead) -> StateValues:
    """The facts to append after the event."""
    new = [*await unlisted(t, row, head.listed), StoredEvent(event, head.seq + 1)]
    return {HEAD: [event["timestamp"]], **state_facts(change.session), **event_facts(new)}


def _after(head: AdkHead, event: EventJson, end: int, *, is_listed: bool) -> AdkHead:
    return AdkHead(
        incarnation=head.incarnation,
        seq=end,
        listed=end if is_listed else head.listed,
        events=-1 if head.events < 0 else head.events + 1,
        newest=max(head.newest, event["timestamp"]),
    )
