"""Messages of LangChain and what they were serialised to, so that a message is serialised once in its life.

A graph gives all messages of a thread with every checkpoint, and nearly all of them are the objects that it was given
before. A message can be changed, though, so what it holds is compared first: its fields must be the same objects, and
whatever of them can itself be changed (lists, objects) must hold the same values. That takes a seventh of the time.
Anything that is no plain message, or holds something else than plain values, is serialised each time.
"""

import marshal
import weakref
from functools import cache
from operator import is_
from typing import Any, NamedTuple

from msgspec import Struct

ROOM_MIN = 1_000
"""When so many are known, those of messages that are gone are forgotten."""
_PLAIN = frozenset((str, type(None), bool, int, float))
_VERSION = 2
"""Of marshal: the last one whose bytes depend on nothing but the values."""


class SerialisedElement(NamedTuple):
    """One element of a list: its digest, and its fact."""

    name: str
    fact: list[Any]


class _Seen(Struct, frozen=True, gc=False):
    message: "weakref.ref[Any]"
    serializer: Any
    names: tuple[str, ...]
    values: tuple[Any, ...]
    boxes: tuple[Any, ...]
    """Those of the values that can be changed; first those that are no field of its class."""
    held: bytes | None
    """What they held; None: nothing."""
    element: SerialisedElement


class SerialisedMessages:
    """May be used from any thread. Little is kept longer than its message lives."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}
        """Messages of one class share them."""
        self._room = ROOM_MIN

    def get(self, message: Any, serializer: Any) -> SerialisedElement | None:
        """What this object was serialised to, unless it has changed since."""
        seen = self._seen.get(id(message))
        if seen is None or seen.message() is not message or seen.serializer is not serializer:
            return None
        fields = message.__dict__
        if seen.names != (*fields,) or not all(map(is_, seen.values, fields.values())):
            return None
        if message.__pydantic_extra__ is not seen.boxes[0]:
            return None
        if seen.held is None:
            return None if any(seen.boxes) else seen.element
        return seen.element if _held(seen.boxes) == seen.held else None

    def put(self, message: Any, serializer: Any, element: SerialisedElement) -> None:
        if not _is_plain_message(message.__class__):
            return
        fields = message.__dict__
        values = (*fields.values(),)
        boxes = (message.__pydantic_extra__, *[one for one in values if one.__class__ not in _PLAIN])
        try:
            held = _held(boxes) if any(boxes) else None
        except ValueError:  # something that is no plain value
            return
        names = self._names.setdefault(names := (*fields,), names)
        seen = _Seen(weakref.ref(message), serializer, names, values, boxes, held, element)
        self._seen[id(message)] = seen
        if len(self._seen) > self._room:
            self._seen = {place: one for place, one in [*self._seen.items()] if one.message() is not None}
            self._room = max(ROOM_MIN, 2 * len(self._seen))


@cache
def _is_plain_message(kind: type) -> bool:
    return kind.__module__.startswith("langchain_core.messages.") and hasattr(kind, "__pydantic_extra__")


def _held(boxes: tuple[Any, ...]) -> bytes:
    return marshal.dumps(boxes, _VERSION)
