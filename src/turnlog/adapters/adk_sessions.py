"""The sessions of Google's ADK in a store: reads and writes their logs and the state of sessions, users and apps.

    agent:main:google_adk:<app>:direct:<user>:thread:<session>     events, and facts of the session
        h           the head: [time of the last update, number of events]; every event puts it anew
        e|<id>      this event is stored
        s|<key>     a value of the session's state
        p           values of user and app that this session's last event brings: [time, app, user]
    agent:main:google_adk:<app>:direct:<user>:thread:%user         s|<key>: a value of the user's state
    agent:main:google_adk:<app>:direct:%app                        s|<key>: a value of the app's state

An event, its session's state and its head are one append, which expects the head that the caller has seen: so a copy of
the session that is out of date cannot write. Each value of a state is a fact of its own: writers of different keys
never overwrite each other. Values of user and app follow in appends of their own; if the process dies before them, `p`
holds them, and the next process that reads the session writes them, unless a newer value is there.

Everything here runs in the store's loop, with events and values as JSON.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from functools import lru_cache
from typing import Any

from ..core import keys as session_keys
from ..core.entries import Compaction, Entry, Facts, Title
from ..core.facts import Fact
from ..core.query import Query
from ..core.session import Session, active, live_path, marks_of, on_path
from ..errors import Conflict, NotFound
from ..library import Turnlog
from ..stores.finding import every_row
from .adk_events import EventJson, entry_of, event_of
from .adk_state import (
    APP,
    CHANNEL,
    EVENT,
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
    freed,
    merged,
    newer,
    pending,
    read_head,
    reserved,
    state_facts,
    user_key,
    values_of,
)
from .kept_entries import kept_entries
from .session_log import AGENT, SessionLog, fact_name, key_of, newest_first

LOGS_MAX = 4096
RACES_MAX = 20


class AdkSessions:
    def __init__(self) -> None:
        self.log_of: Callable[[session_keys.SessionKey], SessionLog] = lru_cache(LOGS_MAX)(SessionLog)
        self._locks: dict[session_keys.SessionKey, asyncio.Lock] = {}

    def lock(self, place: AdkPlace) -> asyncio.Lock:
        """Held while an event is appended: the copies of a session that one process has are written one by one."""
        lock = self._locks.get(place.key)
        if lock is None:
            for other in [key for key, one in self._locks.items() if not one.locked()][:-LOGS_MAX]:
                del self._locks[other]
            lock = self._locks[place.key] = asyncio.Lock()
        return lock

    async def create(self, t: Turnlog, place: AdkPlace, change: StateChange, now: float) -> StoredSession | None:
        """None if this session exists already."""
        log = self.log_of(place.key)
        put = {HEAD: [now, 0], **state_facts(change.session), **pending(change)}
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
            head = AdkHead(appended.row.incarnation, appended[-1].seq, now, 0)
            user, app = await self._shared(t, place)
            return StoredSession(place, head, merged(change.session, user, app))
        raise Conflict("too many changes of this session at once")

    async def append(
        self, t: Turnlog, place: AdkPlace, event: EventJson, change: StateChange, head: AdkHead, size: int
    ) -> AdkHead:
        """WrongHead unless the session's head is still this one; NotFound if it was deleted."""
        log = self.log_of(place.key)
        row = await log.known(t)
        if row is None:
            raise NotFound(f"there is no session {place.session[:80]!r}")
        if row.incarnation != head.incarnation:
            log.forget()
            raise WrongHead
        put = {HEAD: [event["timestamp"], head.events + 1], **state_facts(change.session), **pending(change)}
        put[EVENT + fact_name(str(event["id"]))] = True
        bodies: list[Entry] = [entry_of(event, size), Facts(app=APP, put=put)]
        try:
            appended = await log.append_to(t, row, bodies, expect_fact=(APP, HEAD, head.seq))
        except NotFound:
            log.forget()
            raise
        except Conflict as error:
            raise WrongHead from error
        await self._share(t, place, change, put)
        return AdkHead(row.incarnation, appended[-1].seq, event["timestamp"], head.events + 1)

    async def head(self, t: Turnlog, place: AdkPlace) -> AdkHead | None:
        row = await self.log_of(place.key).find(t)
        if row is None:
            return None
        with suppress(NotFound):
            found = await t.store.facts(row.id, APP, keys=[HEAD], incarnation=row.incarnation)
            return read_head(row, found[0]) if found else None
        return None

    async def stored(self, t: Turnlog, place: AdkPlace, event_id: str) -> EventJson | None:
        """The event of this id, if it is stored."""
        row = await self.log_of(place.key).find(t)
        if row is None:
            return None
        key = EVENT + fact_name(event_id)
        found = await t.store.facts(row.id, APP, keys=[key], incarnation=row.incarnation)
        if not found:
            return None
        before = await t.store.read(row.id, before=found[0].seq, limit=1, incarnation=row.incarnation)
        return event_of(before[0]) if before else None

    async def load(
        self, t: Turnlog, place: AdkPlace, recent: int | None = None, since: float | None = None
    ) -> StoredSession | None:
        """`recent`: only that many of the newest events. `since`: only those after the last one that is older."""
        log = self.log_of(place.key)
        for _ in range(RACES_MAX):
            row = await log.find(t)
            if row is None:
                return None
            try:
                # The head comes first: if somebody writes meanwhile, what is read is newer than its head, and stale.
                first = await t.store.facts(row.id, APP, keys=[HEAD, PENDING], incarnation=row.incarnation)
                facts = {fact.key: fact for fact in first}
                if HEAD not in facts:
                    return None
                found = await t.store.facts(row.id, APP, prefix=STATE, incarnation=row.incarnation)
                if facts[HEAD].seq > row.last_seq:
                    row = await t.store.describe(row.id, incarnation=row.incarnation)
                events = await _events(t, row, recent, since)
            except NotFound:
                log.forget()
                continue
            user, app = await self._shared(t, place, facts.get(PENDING))
            return StoredSession(place, read_head(row, facts[HEAD]), merged(values_of(found), user, app), events)
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
                state = merged(values_of(facts), states[place.user], of_app)
                found.append(StoredSession(place, read_head(row, heads[0]), state))
        return sorted(found, key=lambda one: (one.head.updated, one.place.user, one.place.session))

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
        at, app_change, user_change = announced.value
        missing = StateChange(user=newer(user_change, at, user), app=newer(app_change, at, app))
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


async def _events(t: Turnlog, row: Session, recent: int | None, since: float | None) -> list[StoredEvent]:
    if recent == 0:
        return []
    if recent is None and not row.pruned_to and since is None:
        entries = await kept_entries(t).read(t, row, 1, row.last_seq)
        if any(mark.kind == "rewind" for mark in row.marks):
            path = live_path(marks_of(entries), row.last_seq)
            entries = [entry for entry in entries if on_path(entry.seq, path)]
        return _shown(entries, row)
    count = 0
    newest: list[Entry] = []
    async with aclosing(newest_first(t, row, expected=recent * 2 if recent else 64)) as entries:
        async for entry in entries:
            event = event_of(entry)
            if event is not None:
                if since is not None and event["timestamp"] < since:
                    break
                count += 1
            newest.append(entry)
            if recent is not None and count >= recent:
                break
    return _shown(newest[::-1], row)


def _shown(entries: Iterable[Entry], row: Session) -> list[StoredEvent]:
    """Events, and the compactions in effect."""
    summaries = {mark.seq for mark in active(row.marks, row.last_seq)}
    found: list[StoredEvent] = []
    for entry in entries:
        if isinstance(entry, Compaction) and entry.seq in summaries:
            found.append(StoredEvent({}, entry.seq, entry))
        elif (event := event_of(entry)) is not None:
            found.append(StoredEvent(event, entry.seq))
    return found
