"""Messages of LangChain and what they were serialised to, so that a message is serialised once in its life.

A graph gives all messages of a thread with every checkpoint, and nearly all of them are the objects that it was given
before. A message can be changed, though, so what it holds is compared first: its fields must be the same objects, and
whatever of them can itself be changed (lists, objects) must hold the same values. The fields of a whole list are
compared at once, which takes half the time of a comparison for each message: the next list usually is the last one
with a few more messages. Any other list is compared message by message.

Anything that is no plain message, or holds something else than plain values, is serialised each time.
"""

import marshal
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from operator import is_
from typing import Any, NamedTuple, TypeAlias

from msgspec import Struct

ROOM_MIN = 1_000
"""When this many are known, those of lists that are gone are forgotten."""
_PLAIN = frozenset((str, type(None), bool, int, float))
_VERSION = 2
"""Of marshal: the last one whose bytes depend on nothing but the values."""

SerialisedElement: TypeAlias = tuple[str, list[Any]]
"""One element of a list: its digest, and its fact."""
Serialise: TypeAlias = Callable[[Any], SerialisedElement]


class _Fields(Struct, frozen=True, gc=False):
    """The fields of several messages, message after message."""

    counts: list[int]
    names: list[str]
    values: list[Any]
    extras: list[Any]
    """Of each message, the fields that its class does not have."""

    @classmethod
    def of(cls, messages: Sequence[Any]) -> "_Fields":
        each = [one.__dict__ for one in messages]
        values = [*chain.from_iterable([one.values() for one in each])]
        extras = [one.__pydantic_extra__ for one in messages]
        return cls([*map(len, each)], [*chain.from_iterable(each)], values, extras)

    def begins_with(self, other: "_Fields") -> bool:
        """Whether the first of these messages hold the same objects in the same fields."""
        return (
            self.counts[: len(other.counts)] == other.counts
            and self.names[: len(other.names)] == other.names
            and all(map(is_, other.values, self.values))
            and all(map(is_, other.extras, self.extras))
        )


class _Boxes(Struct, frozen=True, gc=False):
    """Values that can be changed, and what they held."""

    boxes: list[Any]
    held: bytes | None
    """None: some are no plain values."""

    @classmethod
    def of(cls, fields: _Fields) -> "_Boxes":
        boxes = fields.extras + [one for one in fields.values if one.__class__ not in _PLAIN]
        return cls(boxes, _held(boxes))

    @property
    def are_unchanged(self) -> bool:
        return self.held is not None and _held(self.boxes) == self.held


class _Noted(NamedTuple):
    """What the plain messages among some objects hold now."""

    places: Sequence[int]
    fields: _Fields
    boxes: _Boxes

    @classmethod
    def of(cls, items: Sequence[Any]) -> "_Noted":
        if _are_messages(items):
            fields = _Fields.of(items)
            boxes = _Boxes.of(fields)
            if boxes.held is not None:
                return cls(range(len(items)), fields, boxes)
        places = [n for n, one in enumerate(items) if _is_plain_message(one.__class__) and _is_plain(one)]
        fields = _Fields.of([items[n] for n in places])
        return cls(places, fields, _Boxes.of(fields))


class _Snapshot(Struct, frozen=True, gc=False):
    """A list of plain messages as it was when it was serialised or loaded."""

    serializer: Any
    messages: "list[weakref.ref[Any]]"
    fields: _Fields
    boxes: tuple[_Boxes, ...]
    elements: list[SerialisedElement]

    def is_of(self, serializer: Any) -> bool:
        """Whether its elements are those of this serializer, and nothing inside a field was changed."""
        return self.serializer is serializer and all(one.are_unchanged for one in self.boxes)

    def is_beginning_of(self, items: Sequence[Any], fields: _Fields) -> bool:
        """Whether these are its messages with the same objects in their fields, and perhaps more after them."""
        return (
            len(self.messages) <= len(items)
            and all(map(is_, [one() for one in self.messages], items))
            and fields.begins_with(self.fields)
        )

    def unchanged(self, serializer: Any) -> dict[int, SerialisedElement]:
        """The elements of the messages that are as they were, by identity. If something inside a field was changed, it
        is not known of which message: then of none.
        """
        found: dict[int, SerialisedElement] = {}
        if not self.is_of(serializer):
            return found
        then, end = self.fields, 0
        for one, count, extra, element in zip(self.messages, then.counts, then.extras, self.elements, strict=True):
            begin, end = end, end + count
            if (message := one()) is None or message.__pydantic_extra__ is not extra:
                continue
            held = message.__dict__
            if [*held] == then.names[begin:end] and all(map(is_, held.values(), then.values[begin:end])):
                found[id(message)] = element
        return found

    @property
    def is_alive(self) -> bool:
        """Whether all its messages are: otherwise its list is in use no more."""
        return all(one() is not None for one in self.messages)


class _Latest:
    """The newest snapshot of a list that grows."""

    def __init__(self, snapshot: _Snapshot) -> None:
        self.snapshot = snapshot


class SerialisedMessages:
    """May be used from any thread. Little is kept longer than its messages live."""

    def __init__(self) -> None:
        self._lists: dict[int, _Latest] = {}
        """By the identity of each message."""
        self._room = ROOM_MIN

    def elements(self, items: Sequence[Any], serializer: Any, serialise: Serialise) -> list[SerialisedElement]:
        """What these objects are serialised to; those that are not known, or have changed, are serialised now."""
        latest = self._lists.get(id(items[0])) if items else None
        if latest is None or not _are_messages(items):
            return self._one_by_one(items, serializer, serialise)
        before, fields = latest.snapshot, _Fields.of(items)
        if not before.is_beginning_of(items, fields) or not before.is_of(serializer):
            return self._one_by_one(items, serializer, serialise)
        if len(before.elements) == len(items):
            return before.elements
        new = items[len(before.elements) :]
        noted = _Noted.of(new)  # before they are serialised: a change meanwhile is seen next time
        if len(noted.places) < len(new):
            return self._one_by_one(items, serializer, serialise)
        found = [*before.elements, *map(serialise, new)]
        refs = [*before.messages, *map(weakref.ref, new)]
        latest.snapshot = _Snapshot(serializer, refs, fields, (*before.boxes, noted.boxes), found)
        self._add(new, latest)
        return found

    def _one_by_one(self, items: Sequence[Any], serializer: Any, serialise: Serialise) -> list[SerialisedElement]:
        noted = _Noted.of(items)
        known: dict[_Latest, dict[int, SerialisedElement]] = {}
        found: list[SerialisedElement] = []
        for item in items:
            latest = self._lists.get(id(item))
            if latest is not None and latest not in known:
                known[latest] = latest.snapshot.unchanged(serializer)
            found.append((latest and known[latest].get(id(item))) or serialise(item))
        self._keep(items, serializer, found, noted)
        return found

    def put(self, items: Sequence[Any], serializer: Any, elements: Sequence[SerialisedElement]) -> None:
        """Notes what these objects were loaded from. Nobody else may have them yet."""
        self._keep(items, serializer, elements, _Noted.of(items))

    def _keep(
        self, items: Sequence[Any], serializer: Any, elements: Sequence[SerialisedElement], noted: _Noted
    ) -> None:
        if len(noted.places) < len(items):
            items, elements = [items[n] for n in noted.places], [elements[n] for n in noted.places]
        refs = [*map(weakref.ref, items)]
        self._add(items, _Latest(_Snapshot(serializer, refs, noted.fields, (noted.boxes,), [*elements])))

    def _add(self, items: Sequence[Any], latest: _Latest) -> None:
        self._lists.update(dict.fromkeys(map(id, items), latest))
        if len(self._lists) > self._room:
            there = [*self._lists.items()]
            alive = {one for one in {one for _, one in there} if one.snapshot.is_alive}
            self._lists = {place: one for place, one in there if one in alive}
            self._room = max(ROOM_MIN, 2 * len(self._lists))


def _are_messages(items: Sequence[Any]) -> bool:
    return all(map(_is_plain_message, {*map(type, items)}))


def _is_plain(message: Any) -> bool:
    return _Boxes.of(_Fields.of([message])).held is not None


@cache
def _is_plain_message(kind: type) -> bool:
    return kind.__module__.startswith("langchain_core.messages.") and hasattr(kind, "__pydantic_extra__")


def _held(boxes: list[Any]) -> bytes | None:
    """None: something that is no plain value."""
    try:
        return marshal.dumps(boxes, _VERSION)
    except ValueError:
        return None
