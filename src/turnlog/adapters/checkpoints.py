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
from contextlib import suppress
from functools import cache, partial
from hashlib import blake2b
from typing import Any, Protocol, TypeAlias, cast

from msgspec import Struct

from ..core.strict_json import fields_in
from .not_storable import NotStorable
from .serialised_messages import SerialisedElement, SerialisedMessages

APP = "langgraph"
DROPPED = "g"
ELEMENTS_MIN = 4
"""Shorter lists are stored as one value."""
PART_MAX_CHARS = 110
"""A longer part of a key is replaced by its digest, so that a key stays below the limit of its length."""
JSONPLUS = "langgraph.checkpoint.serde.jsonplus"
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
    prefix: str
    """Of the keys of its elements."""
    elements: Sequence[SerialisedElement]
    is_unique: bool
    """Whether no other value can be under this key."""
    is_new: bool
    """Whether it was changed since the last checkpoint; otherwise it is probably stored."""


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
    serde: Serializer, ns: str, name: str, version: Any, value: Any, known: SerialisedMessages, *, is_new: bool
) -> ChannelFacts:
    place = part(ns)
    key = f"b|{place}|{part(name)}|{part(str(version))}"
    stored, elements = encoded(serde, value, known)
    is_unique = isinstance(version, str) and _UNIQUE.match(version) is not None
    return ChannelFacts(name, key, stored, elements_prefix(place), elements, is_unique, is_new)


def serialised(serde: Serializer, value: Any) -> SerializedValue:
    """NotStorable if LangGraph's serializer cannot write the value."""
    try:
        return serde.dumps_typed(value)
    except TypeError as error:
        raise NotStorable(f"a value cannot be stored: {error}", hint="LangGraph's serializer must know it.") from error


def encoded(serde: Serializer, value: Any, known: SerialisedMessages) -> tuple[Any, Sequence[SerialisedElement]]:
    """(the value as a fact, its elements)"""
    if type(value) is not list or len(cast("list[Any]", value)) < ELEMENTS_MIN:
        return list(serialised(serde, value)), ()
    elements = known.elements(cast("list[Any]", value), serde, partial(_element, serde))
    return {"list": [name for name, _ in elements]}, elements


def _element(serde: Serializer, item: Any) -> SerialisedElement:
    kind, data = serialised(serde, item)
    return digest(kind.encode() + b"\0" + data), [kind, bytes(data)]


def elements_prefix(place: str) -> str:
    """The beginning of the keys of elements."""
    return f"e|{place}|"


def elements_of(value: Any, place: str) -> list[str]:
    """The keys of the elements that a stored value is made of."""
    prefix = elements_prefix(place)
    return [prefix + name for name in fields_in(value).get("list", ())]


def decoded(serde: Serializer, place: str, value: Any, facts: Mapping[str, Any], known: SerialisedMessages) -> Any:
    """The value of a channel. Elements that were erased are left out of their lists."""
    if not isinstance(value, dict):
        return serde.loads_typed(typed(value))
    prefix = elements_prefix(place)
    names = fields_in(value).get("list", ())
    elements = [(name, fact) for name in names if (fact := facts.get(prefix + name)) is not None]
    items = _loaded(serde, [fact for _, fact in elements])
    known.put(items, serde, elements)
    return items


def _loaded(serde: Serializer, facts: Sequence[Any]) -> list[Any]:
    """The objects that these elements were serialised from. Many values in msgpack are one list of values in msgpack,
    so that LangGraph's own serializer is called once.
    """
    if _reads_msgpack(type(serde)) and all(kind == "msgpack" for kind, _ in facts):
        data = b"\xdd%b%b" % (len(facts).to_bytes(4, "big"), b"".join([data for _, data in facts]))
        with suppress(ValueError, RecursionError):  # then one of them is damaged, or nested too deeply for a list
            return serde.loads_typed(("msgpack", data))
    return [serde.loads_typed(typed(fact)) for fact in facts]


@cache
def _reads_msgpack(kind: type) -> bool:
    """Whether it reads msgpack as LangGraph's serializer does, and not something of its own by that name."""
    method: Any = getattr(kind, "loads_typed", None)
    return getattr(method, "__module__", "") == JSONPLUS and method.__qualname__ == "JsonPlusSerializer.loads_typed"


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
