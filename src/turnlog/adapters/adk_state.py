"""What a session of Google's ADK is in a store: its keys, its head, and its state as facts.

Pure: `adk_sessions` reads and writes what this module defines.
"""

from collections.abc import Iterable
from functools import lru_cache
from math import inf
from typing import Any, TypeAlias

from msgspec import Struct, field

from ..core import keys as session_keys
from ..core.entries import Compaction
from ..core.facts import Fact
from ..errors import Conflict
from .adk_events import EventJson
from .session_log import fact_name, key_of

CHANNEL = "google_adk"
APP = "google-adk"
HEAD = "h"
PENDING = "p"
STATE = "s|"
EVENT = "e|"

StateValues: TypeAlias = dict[str, Any]


class AdkPlace(Struct, frozen=True):
    """Which session of ADK."""

    app: str
    user: str
    session: str

    @property
    def key(self) -> session_keys.SessionKey:
        return _session_key(self.app, self.user, self.session)

    @property
    def user_key(self) -> session_keys.SessionKey:
        return user_key(self.app, self.user)

    @property
    def app_key(self) -> session_keys.SessionKey:
        return key_of(CHANNEL, "%app", account=self.app)


@lru_cache(maxsize=4096)
def _session_key(app: str, user: str, session: str) -> session_keys.SessionKey:
    """Remembered, because every event needs it."""
    return key_of(CHANNEL, reserved(user), account=app, thread=reserved(session))


def user_key(app: str, user: str) -> session_keys.SessionKey:
    return key_of(CHANNEL, reserved(user), account=app, thread="%user")


def reserved(name: str) -> str:
    """Names that begin with `%` are Turnlog's own, so another one gets a second `%`."""
    return f"%{name}" if name.startswith("%") else name


def freed(name: str) -> str:
    return name[1:] if name.startswith("%") else name


class AdkHead(Struct, frozen=True):
    """How much of a session its copy has seen."""

    incarnation: str
    seq: int
    """The end of the log."""
    listed: int
    """The entry that put `h`. The ids of later events are no facts yet."""
    events: int = -1
    """How many events the copy has, if it has all; -1: it has some."""
    newest: float = -inf
    """The latest time of these events."""

    @property
    def marker(self) -> str:
        return f"turnlog:{self.incarnation}:{self.seq}:{self.listed}:{self.events}:{self.newest!r}"

    def shows_as_new(self, timestamp: float, events: int) -> bool:
        """Whether no event of this time can be stored: the copy has all events, `events` of them, and all are older.
        An event that is delivered again has its old time.
        """
        return events == self.events and timestamp > self.newest


class StoredEvent(Struct, frozen=True):
    event: EventJson
    seq: int
    compaction: Compaction | None = None
    """Instead of an event: a summary that stands for the events before its boundary."""


class StoredSession(Struct, frozen=True):
    place: AdkPlace
    head: AdkHead
    updated: float
    state: StateValues
    """Of session, user and app, with ADK's prefixes."""
    events: list[StoredEvent] = []

    @property
    def said(self) -> list[EventJson]:
        """The events that are no compactions."""
        return [one.event for one in self.events if one.compaction is None]


class StateChange(Struct, frozen=True):
    session: StateValues = field(default_factory=dict[str, Any])
    user: StateValues = field(default_factory=dict[str, Any])
    app: StateValues = field(default_factory=dict[str, Any])

    @property
    def is_empty(self) -> bool:
        return not (self.session or self.user or self.app)

    @property
    def is_shared(self) -> bool:
        return bool(self.user or self.app)


class WrongHead(Conflict):
    """The session has been modified in storage since it was loaded."""

    hint = "Load the session again, or use append_event(..., retry=True)."


def newer(change: StateValues, at: int, facts: Iterable[Fact], end: int | None) -> StateValues:
    """The values of a change that are not there yet, and not replaced by later ones.

    `end`: where the log of the state ended when the change was announced. What follows is later, whatever the clocks of
    the writers say. None: an older version has announced the change, and its time `at` decides.
    """
    later = {fact.value[0] for fact in facts if (fact.value[2] >= at if end is None else fact.seq > end)}
    return {name: value for name, value in change.items() if name not in later}


@lru_cache(maxsize=256)
def head_of(marker: str | None) -> AdkHead | None:
    """The head that a marker names; None if the marker is not of this store. An append asks for it twice."""
    match (marker or "").split(":"):
        case ["turnlog", incarnation, seq, listed, events, newest]:
            return AdkHead(incarnation, int(seq), int(listed), int(events), float(newest))
        case _:
            return None


def event_facts(events: Iterable[StoredEvent]) -> StateValues:
    """They say which entry holds an event of an id."""
    return {event_fact(one.event["id"]): one.seq for one in events}


def event_fact(event_id: Any) -> str:
    return EVENT + fact_name(str(event_id))


def state_facts(values: StateValues, at: int = 0) -> StateValues:
    return {STATE + fact_name(name): [name, value, at] for name, value in values.items()}


def values_of(facts: Iterable[Fact]) -> StateValues:
    """In the order in which they were first named: facts come in the order of their keys."""
    return {fact.value[0]: fact.value[1] for fact in facts}


def merged(session: StateValues, user: StateValues, app: StateValues) -> StateValues:
    return {
        **session,
        **{f"app:{name}": value for name, value in app.items()},
        **{f"user:{name}": value for name, value in user.items()},
    }
