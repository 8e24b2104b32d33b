"""Events of ADK that were made from their JSON, kept in memory so that the next call only copies them.

A framework asks for the whole session at the beginning of each run, and making an event checks every field of it. What
is kept is found by the JSON itself, word for word, so an event that was changed or erased is made anew, and nothing has
to be forgotten in time. Of a session only the events of the latest answer are kept. Callers get copies.

A copy of each event costs half as much as making it. So a session that is asked for once keeps nothing, and what is
kept is bounded: the sessions that were not used for the longest time are forgotten first.
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar
from weakref import WeakSet

import msgspec

from .adk_events import EventJson
from .blocks import copied

KEPT_BYTES = 64 * 1024 * 1024
SESSION_BYTES = 16 * 1024 * 1024
"""A session that is larger is made anew each time."""
EVENT_BYTES = 8_000
"""About what an event takes in memory besides its words, which it has twice."""


class CopiedEvent(Protocol):
    def model_copy(self, *, deep: bool = False) -> Self: ...


E = TypeVar("E", bound=CopiedEvent)


class KeptEvents(Generic[E]):
    """`make`: an event from its JSON. Each call may come from another thread."""

    def __init__(
        self, make: Callable[[EventJson], E], most: int = KEPT_BYTES, session_most: int = SESSION_BYTES
    ) -> None:
        self._make = make
        self._most = most
        self._session_most = session_most
        self.clear()
        _everyone.add(self)

    def clear(self) -> None:
        self._lock = threading.Lock()
        self._sessions: OrderedDict[Hashable, dict[bytes, E]] = OrderedDict()
        """The latest used last. Without events: a session that was asked for once."""
        self._size = 0

    def events(self, place: Hashable, stored: Sequence[EventJson]) -> list[E]:
        """The events of a session, for the caller alone."""
        with self._lock:
            known = self._sessions.get(place)
        if known is None:
            self._keep(place, {})
            return self.made(stored)
        words = [_words(one) for one in stored]
        made = [known.get(word) or self._make(one) for word, one in zip(words, stored, strict=True)]
        self._keep(place, {word: event for word, event in zip(words, made, strict=True) if word})
        return [event.model_copy(deep=True) for event in made]

    def made(self, stored: Sequence[EventJson]) -> list[E]:
        """The same, without keeping any. What an event takes over as it is, such as a list in a state, is copied."""
        return [self._make(copied(one)) for one in stored]

    def _keep(self, place: Hashable, events: dict[bytes, E]) -> None:
        if (size := _size(events)) > self._session_most:
            events, size = {}, _size({})
        with self._lock:
            self._size += size - _size(self._sessions.pop(place, None))
            self._sessions[place] = events
            while self._size > self._most:
                self._size -= _size(self._sessions.popitem(last=False)[1])

    def forget(self, place: Hashable) -> None:
        with self._lock:
            self._size -= _size(self._sessions.pop(place, None))


_everyone: "WeakSet[KeptEvents[Any]]" = WeakSet()


def _clear_in_child() -> None:
    """Of a fork: a thread that the child does not have may have held the lock."""
    for kept in list(_everyone):
        kept.clear()


os.register_at_fork(after_in_child=_clear_in_child)


def _size(events: dict[bytes, E] | None) -> int:
    return 0 if events is None else EVENT_BYTES + sum(EVENT_BYTES + 2 * len(words) for words in events)


def _words(event: EventJson) -> bytes:
    """Its JSON; empty for an event that is not kept: one with half a character, or one that gets a new id or time each
    time it is made.
    """
    if not event.get("id") or not event.get("timestamp"):
        return b""
    try:
        return msgspec.json.encode(event)
    except UnicodeEncodeError:
        return b""
