"""Google's Agent Development Kit: its sessions in a Turnlog store.

    Runner(…, session_service=TurnlogSessionService("sqlite:app.db"))

An event is one entry of its session's log (`adk_events`), so the session has a title, is found by search and is shown
on the page. State of a session, its user and its app are facts (`adk_sessions`). A compaction of Turnlog's is shown as
a compaction event of ADK's, which ADK itself applies; when it is undone, the event is gone.

`TurnlogPlugin` makes each model call fit (`adk_plugin`). `register_session_service` lets `adk web` use this service.
"""

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ..core.entries import Compaction, Entry
from ..core.history import SUMMARY_NOTE, fence
from ..core.rows import Session as Row, milliseconds
from ..core.session import live_path, marks_of, on_path
from ..core.strict_json import fields_in
from ..errors import Conflict, NotFound, UsageError
from ..library import Turnlog
from ..stores import GivenLease
from .adk_events import EventJson, event_of
from .adk_inputs import TEMP, EventInput, event_input, state_change
from .adk_sessions import AdkSessions
from .adk_state import AdkHead, AdkPlace, StoredEvent, StoredSession, WrongHead, head_of
from .framework import framework
from .kept_events import KeptEvents
from .resident import holder
from .session_log import check_id

with framework("adk"):
    from google.adk import errors as _errors
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.errors.session_not_found_error import SessionNotFoundError
    from google.adk.events.event import Event
    from google.adk.events.event_actions import EventActions, EventCompaction
    from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
    from google.adk.sessions.session import Session
    from google.genai import types

if TYPE_CHECKING:
    from google.adk.errors import StaleSessionError as _AdkStale

    from .adk_plugin import TurnlogPlugin as TurnlogPlugin
else:
    # Releases before 2.6 raise a plain ValueError.
    _AdkStale = getattr(_errors, "StaleSessionError", ValueError)

SCHEME = "turnlog"
RACES_MAX = 20
"""Attempts of `append_event(…, retry=True)` while others write to the same session."""
_id_of = attrgetter("id")


class StaleSessionError(Conflict, _AdkStale):
    """The session has been modified in storage since it was loaded."""

    hint = "Load the session again, or use append_event(..., retry=True)."


class SessionExists(Conflict, AlreadyExistsError):
    """A session with this id already exists."""

    hint = "Get that session, or create one with another id."


class SessionGone(NotFound, SessionNotFoundError):
    """The session does not exist."""

    hint = "Create it first; a deleted session cannot be continued."


class TurnlogSessionService(BaseSessionService):
    """A session service of ADK. `url`: the store; None means that of the settings. `uri`: the same as ADK's command
    line names it, `turnlog:sqlite:app.db`. `store`: a Turnlog that the caller has opened, instead of a URL.
    """

    def __init__(self, url: str | None = None, *, uri: str | None = None, store: Turnlog | None = None) -> None:
        if uri is not None and url is not None:
            raise UsageError("both url and uri were given", hint="Give one of them.")
        self.holder = holder(url if uri is None else url_of(uri), store)
        self.sessions = AdkSessions()
        self._kept = KeptEvents(Event.model_validate)

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        """SessionExists if there is a session of this id. Without one, the session gets a new id."""
        from google.adk.platform import time, uuid

        name = (_stripped(session_id) if session_id else "") or uuid.new_uuid()
        place = _place(app_name, user_id, name)
        change = state_change(state or {})
        now = time.get_time()
        made = await self.holder.call(lambda t: self.sessions.create(t, place, change, now))
        if made is None:
            raise SessionExists(f"Session with id {name} already exists.")
        return _session(made)

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        place = _place(app_name, user_id, _stripped(session_id))
        recent, since = (config.num_recent_events, config.after_timestamp) if config else (None, None)
        found = await self.holder.call(lambda t: self.sessions.load(t, place, recent, since))
        if found is None:
            return None
        whole = recent is None and since is None
        said = found.said
        return _session(found, self._kept.events(place, said) if whole else self._kept.made(said))

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Without events, the oldest update first."""
        check_id("app name", app_name)
        if user_id is not None:
            check_id("user id", user_id)
        found = await self.holder.call(lambda t: self.sessions.list(t, app_name, user_id))
        return ListSessionsResponse(sessions=[_session(one) for one in found])

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Deletes the session for good. The state of its user and its app stays."""
        place = _place(app_name, user_id, _stripped(session_id))
        self._kept.forget(place)
        await self.holder.call(lambda t: self.sessions.delete(t, place))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        check_id("app name", app_name)
        check_id("user id", user_id)
        return await self.holder.call(lambda t: self.sessions.user_state(t, app_name, user_id))

    async def append_event(self, session: Session, event: Event, *, retry: bool = False) -> Event:
        """Stores the event and its changes of the state, all or none; durable on return.

        StaleSessionError if the session has other events by now than this copy of it. `retry`: then the copy is read
        again, and the event is appended to what it has become.
        """
        if event.partial:
            return event
        place = _place(session.app_name, session.user_id, session.id)
        delta = event.actions.state_delta if event.actions else {}
        if any(name.startswith(TEMP) for name in delta):
            if _has(session, event):
                return event
            session.state.update({name: value for name, value in delta.items() if name.startswith(TEMP)})
            delta = {name: value for name, value in delta.items() if not name.startswith(TEMP)}
            event.actions.state_delta = delta
        given = event_input(event, delta)

        async def work(t: Turnlog) -> bool:
            async with self.sessions.lock(place):
                return await self._append(t, place, session, given, retry=retry)

        try:
            is_new = await self.holder.call(work, lambda t: self._append_at_once(t, place, session, given))
        except WrongHead as error:
            raise StaleSessionError from error
        except NotFound as error:
            raise SessionGone(f"Session {session.id} not found.") from error
        if is_new:
            session.state.update(delta)
            session.events.append(event)
        return event

    async def _append(self, t: Turnlog, place: AdkPlace, session: Session, given: EventInput, *, retry: bool) -> bool:
        """Whether the event is new: ADK's own service ignores one that is delivered again, too."""
        try:
            return await self._append_once(t, place, session, given, "own")
        except WrongHead:
            if not retry:
                raise
        for _ in range(RACES_MAX):
            with suppress(WrongHead):
                async with self.sessions.alone(t, place) as lease:
                    await self._reload(t, place, session)
                    return await self._append_once(t, place, session, given, lease)
        raise WrongHead

    async def _append_once(
        self, t: Turnlog, place: AdkPlace, session: Session, given: EventInput, lease: GivenLease
    ) -> bool:
        """WrongHead if the session has other events by now than this copy of it."""
        timestamp = given.stored["timestamp"]
        head = head_of(session._storage_update_marker) or await self._found(t, place, session)
        if not head.shows_as_new(timestamp, len(session.events)) and (
            _has(session, given.event) or await self._is_stored(t, place, given.stored)
        ):
            return False
        _take_head(session, await self.sessions.append(t, place, given, head, lease), timestamp)
        return True

    def _append_at_once(self, t: Turnlog, place: AdkPlace, session: Session, given: EventInput) -> bool | None:
        """The same without waiting; None, and nothing is stored, if that is not possible."""
        timestamp = given.stored["timestamp"]
        head = head_of(session._storage_update_marker)
        if head is None or not head.shows_as_new(timestamp, len(session.events)):
            return None
        if (now := self.sessions.append_at_once(t, place, given, head)) is None:
            return None
        _take_head(session, now, timestamp)
        return True

    async def _is_stored(self, t: Turnlog, place: AdkPlace, event: EventJson) -> bool:
        stored = await self.sessions.stored(t, place, event["id"])
        # Compared as events: an older version has stored the fields that a new event has, too.
        return stored is not None and Event.model_validate(stored) == Event.model_validate(event)

    async def _found(self, t: Turnlog, place: AdkPlace, session: Session) -> AdkHead:
        """The head for a copy that somebody else has made; WrongHead if it is not of the session as it is now.

        A copy may have no events, such as that of a list: then its time must be that of the last event.
        """
        found = await self.sessions.load(t, place, recent=1)
        if found is None:
            raise NotFound
        shown = _session(found, self._kept.made(found.said)).events
        is_current = (
            session.events[-1].id in map(_id_of, shown) if session.events else session.last_update_time == found.updated
        )
        if shown and not is_current:
            raise WrongHead
        return found.head

    async def _reload(self, t: Turnlog, place: AdkPlace, session: Session) -> None:
        """Makes the caller's copy what is stored now. Temporary state is only there, and stays."""
        found = await self.sessions.load(t, place)
        if found is None:
            raise NotFound
        now = _session(found, self._kept.made(found.said))
        temporary = {name: value for name, value in session.state.items() if name.startswith(TEMP)}
        session.state = {**now.state, **temporary}
        session.events[:] = now.events
        session.last_update_time = now.last_update_time
        session._storage_update_marker = now._storage_update_marker

    async def close(self) -> None:
        """Gives up the store. What is stored stays."""
        await self.holder.aclose()


def url_of(uri: str) -> str | None:
    """The store that `turnlog:sqlite:app.db` names; None, that of the settings, for `turnlog:` alone."""
    scheme, colon, rest = uri.partition(":")
    if scheme != SCHEME or not colon:
        raise UsageError(f"{uri[:80]!r} is not a URI of Turnlog's", hint="Write turnlog:sqlite:app.db.")
    return rest.removeprefix("//") or None


def register_session_service() -> None:
    """Lets ADK's command line use Turnlog: `adk web --session_service_uri turnlog:sqlite:app.db`.

    Call it in the file `services.py` of the agents' folder.
    """
    from google.adk.cli.service_registry import get_service_registry

    def made(uri: str, **_: Any) -> TurnlogSessionService:
        return TurnlogSessionService(uri=uri)

    get_service_registry().register_session_service(SCHEME, made)


def _stripped(session_id: str) -> str:
    """ADK's own services ignore blanks around an id."""
    check_id("session id", session_id)
    return session_id.strip()


def _place(app: str, user: str, session: str) -> AdkPlace:
    try:
        return _checked_place(app, user, session)
    except TypeError:  # it cannot be looked up among those that were checked, so it is no text
        return _checked_place.__wrapped__(app, user, session)


@lru_cache(maxsize=4096)
def _checked_place(app: str, user: str, session: str) -> AdkPlace:
    for name, value in (("app name", app), ("user id", user), ("session id", session)):
        check_id(name, value)
    place = AdkPlace(app, user, session)
    place.key  # noqa: B018 - refuses ids that no key can hold
    return place


def _take_head(session: Session, head: AdkHead, timestamp: float) -> None:
    session._storage_update_marker = head.marker
    session.last_update_time = timestamp


def _has(session: Session, event: Event) -> bool:
    """Whether the caller's copy of the session has this very event."""
    return event.id in map(_id_of, session.events) and event in session.events


def _session(found: StoredSession, said: Iterable[Event] = ()) -> Session:
    events = iter(said)
    session = Session(
        id=found.place.session,
        app_name=found.place.app,
        user_id=found.place.user,
        state=found.state,
        events=[
            next(events) if one.compaction is None else _compaction(one.compaction, found.events)
            for one in found.events
        ],
        last_update_time=found.updated,
    )
    session._storage_update_marker = found.head.marker
    return session


def _compaction(made: Compaction, stored: Sequence[StoredEvent]) -> Event:
    """ADK leaves out the events of a time; those that are kept must not be of that time, even if clocks stood still."""
    times = [one.event["timestamp"] for one in stored if one.compaction is None and one.seq < made.first_kept]
    kept = [one.event["timestamp"] for one in stored if one.compaction is None and one.seq >= made.first_kept]
    start, end = min(times, default=0.0), max(times, default=0.0)
    if kept and min(kept) <= end:
        end = math.nextafter(min(kept), -math.inf)
    content = types.Content(role="user", parts=[types.Part(text=summary_text(made))])
    compaction = EventCompaction(start_timestamp=start, end_timestamp=end, compacted_content=content)
    return Event(
        id=f"turnlog-{made.seq}",
        invocation_id=f"turnlog-{made.seq}",
        author="user",
        actions=EventActions(compaction=compaction),
        timestamp=milliseconds(made.ts) / 1000,
    )


def summary_text(made: Compaction) -> str:
    """What the model reads instead of the events."""
    return f"{SUMMARY_NOTE}\n{fence(made.summary)}"


async def live_events(t: Turnlog, row: Row) -> list[tuple[Entry, EventJson]]:
    """The events that ADK shows to a model, each with its entry: those that have content, without rewound ones."""
    entries = await t.store.read(row.id, incarnation=row.incarnation)
    path = live_path(marks_of(entries), row.last_seq)
    found = [(entry, event_of(entry)) for entry in entries if on_path(entry.seq, path)]
    return [(entry, event) for entry, event in found if event and fields_in(event.get("content")).get("parts")]


def __getattr__(name: str) -> Any:
    if name == "TurnlogPlugin":
        from .adk_plugin import TurnlogPlugin

        return TurnlogPlugin
    raise AttributeError(name)
