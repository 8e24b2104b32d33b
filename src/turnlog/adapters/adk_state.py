"""What a session of Google's ADK is in a store: its keys, its head, and its state as facts.

Pure: `adk_sessions` reads and writes what this module defines.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, TypeAlias

from msgspec import Struct, field

from ..core import keys as session_keys
from ..core.entries import Compaction
from ..core.facts import Fact
from ..core.session import Session
from ..errors import Conflict
from ..stores.stamping import now_ms
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
    """What `h` says, and the entry that says it: the revision of a session."""

    incarnation: str
    seq: int
    updated: float
    events: int

    @property
    def marker(self) -> str:
        return f"turnlog:{self.incarnation}:{self.seq}:{self.events}"


class StoredEvent(Struct, frozen=True):
    event: EventJson
    seq: int
    compaction: Compaction | None = None
    """Instead of an event: a summary that stands for the events before its boundary."""


class StoredSession(Struct, frozen=True):
    place: AdkPlace
    head: AdkHead
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
    def is_shared(self) -> bool:
        return bool(self.user or self.app)


class WrongHead(Conflict):
    """The session has been modified in storage since it was loaded."""

    hint = "Load the session again, or use append_event(..., retry=True)."


def newer(change: StateValues, at: int, facts: Iterable[Fact]) -> StateValues:
    """The values of a change that are not there yet, and not replaced by later ones."""
    times = {fact.value[0]: fact.value[2] for fact in facts}
    return {name: value for name, value in change.items() if times.get(name, -1) < at}


def read_head(row: Session, fact: Fact) -> AdkHead:
    updated, events = fact.value
    return AdkHead(row.incarnation, fact.seq, updated, events)


def head_of(marker: str | None, updated: float) -> AdkHead | None:
    """The head that a marker names; None if the marker is not of this store."""
    match (marker or "").split(":"):
        case ["turnlog", incarnation, seq, events]:
            return AdkHead(incarnation, int(seq), updated, int(events))
        case _:
            return None


def pending(change: StateChange) -> StateValues:
    return {PENDING: [now_ms(), change.app, change.user]} if change.is_shared else {}


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
