"""A LangGraph checkpoint as facts of a session, and back.

    c|ns|checkpoint            the checkpoint without its channel values, its metadata, its parent
    b|ns|channel|version       the value of a channel; of a longer list only the digests of its elements
    e|ns|digest                one element: a message is stored once, however many checkpoints hold it
    w|ns|checkpoint|task|n     one pending write
    m|message                  this message is in the log as an entry (`langchain_messages`)
    g                          changes whenever something was dropped

Everything is serialised by LangGraph's own serializer, in the caller's thread. This module knows no store.
"""

import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Protocol, TypeAlias, cast

from msgspec import Struct

from ..core.strict_json import fields_in
from .serialised_messages import SerialisedElement, SerialisedMessages

APP = "langgraph"
DROPPED = "g"
ELEMENTS_MIN = 4
"""Shorter lists are stored as one value."""
PART_MAX_CHARS = 110
"""A longer part of a key is replaced by its digest, so that a key stays below the limit of its length."""
_UNIQUE = re.compile(r"[0-9]{32}\.0\.[0-9]+\Z")
"""A version with a random part: nobody else has given it to another value."""

SerializedValue: TypeAlias = tuple[str, bytes]


class Serializer(Protocol):
    def dumps_typed(self, obj: Any) -> SerializedValue: ...
    def loads_typed(self, data: SerializedValue) -> Any: ...


class CheckpointAddress(Struct, frozen=True):
    """A checkpoint's place in its thread; without `id`, the newest of its namespace."""

    ns: str
    id: str | None = None

    @property
    def key(self) -> str:
        return f"c|{part(self.ns)}|{part(self.id or '')}"

    @property
    def prefix(self) -> str:
        """Of all checkpoints of the namespace."""
        return f"c|{part(self.ns)}|"

    @property
    def writes(self) -> str:
        """The beginning of the keys of its pending writes."""
        return f"w|{part(self.ns)}|{part(self.id or '')}|"


class ChannelFacts(Struct, frozen=True):
    """One channel's value as facts."""

    name: str
    key: str
    value: Any
    elements: dict[str, Any]
    is_new: bool
    """Whether no other value can be under this key."""


class StoredCheckpoint(Struct, frozen=True):
    """The fact of one checkpoint."""

    ns: str
    id: str
    parent: str | None
    checkpoint: SerializedValue
    metadata: SerializedValue
    inline: dict[str, Any]
    """Values of channels that have no version, or share one with another value."""

    @property
    def address(self) -> CheckpointAddress:
        return CheckpointAddress(self.ns, self.id)

    @property
    def fact(self) -> Any:
        inline = {"x": self.inline} if self.inline else {}
        return [self.ns, self.id, self.parent, *self.checkpoint, *self.metadata, inline]


class PendingFact(Struct, frozen=True):
    """The fact of one pending write."""

    task: str
    n: int
    channel: str
    path: str
    value: SerializedValue

    @property
    def order(self) -> tuple[str, str, int]:
        return self.path, self.task, self.n

    def key(self, address: CheckpointAddress) -> str:
        return f"{address.writes}{part(self.task)}|{self.n}"

    @property
    def fact(self) -> Any:
        return [self.task, self.n, self.channel, self.path, *self.value]


def part(text: str) -> str:
    """A part of a key: without the separator, and of limited length."""
    plain = text.replace("%", "%25").replace("|", "%7C") if "%" in text or "|" in text else text
    return plain if len(plain) <= PART_MAX_CHARS else f"#{digest(text.encode('utf-8', 'surrogatepass'))}"


def digest(data: bytes) -> str:
    return urlsafe_b64encode(blake2b(data, digest_size=16).digest()).rstrip(b"=").decode()


def encoded_channel(
    serde: Serializer, ns: str, name: str, version: Any, value: Any, known: SerialisedMessages
) -> ChannelFacts:
    place = part(ns)
    key = f"b|{place}|{part(name)}|{part(str(version))}"
    stored, elements = encoded(serde, place, value, known)
    return ChannelFacts(name, key, stored, elements, isinstance(version, str) and _UNIQUE.match(version) is not None)


def encoded(serde: Serializer, place: str, value: Any, known: SerialisedMessages) -> tuple[Any, dict[str, Any]]:
    """(the value as a fact, its elements as facts)"""
    if type(value) is not list or len(cast("list[Any]", value)) < ELEMENTS_MIN:
        return list(serde.dumps_typed(value)), {}
    elements = [known.get(item, serde) or _element(serde, item, known) for item in cast("list[Any]", value)]
    return {"list": [one.name for one in elements]}, {f"e|{place}|{one.name}": one.fact for one in elements}


def _element(serde: Serializer, item: Any, known: SerialisedMessages) -> SerialisedElement:
    kind, data = serde.dumps_typed(item)
    element = SerialisedElement(digest(kind.encode() + b"\0" + data), [kind, bytes(data)])
    known.put(item, serde, element)
    return element


def elements_of(value: Any, place: str) -> list[str]:
    """The keys of the elements that a stored value is made of."""
    return [f"e|{place}|{name}" for name in fields_in(value).get("list", ())]


def decoded(serde: Serializer, place: str, value: Any, facts: Mapping[str, Any], known: SerialisedMessages) -> Any:
    """The value of a channel. Elements that were erased are left out of their lists."""
    if not isinstance(value, dict):
        return serde.loads_typed(typed(value))
    found: list[Any] = []
    for name in fields_in(value).get("list", ()):
        if (fact := facts.get(f"e|{place}|{name}")) is None:
            continue
        found.append(item := serde.loads_typed(typed(fact)))
        known.put(item, serde, SerialisedElement(name, fact))
    return found


def typed(value: Sequence[Any]) -> SerializedValue:
    return value[0], value[1]


def read_checkpoint(value: Any) -> StoredCheckpoint:
    ns, name, parent, kind, data, meta_kind, meta_data, more = value
    return StoredCheckpoint(ns, name, parent, (kind, data), (meta_kind, meta_data), more.get("x", {}))


def read_write(value: Any) -> PendingFact:
    task, n, channel, path, kind, data = value
    return PendingFact(task, n, channel, path, (kind, data))


def channel_keys(ns: str, versions: Mapping[str, Any], but: Iterable[str] = ()) -> dict[str, str]:
    """The key of each channel's value at these versions."""
    place, left_out = part(ns), set(but)
    return {
        name: f"b|{place}|{part(name)}|{part(str(version))}"
        for name, version in versions.items()
        if name not in left_out
    }
