"""Facts of a session: values that a program keeps by name, apart from the messages, in entries of type `facts`.

The newest `put` of a name counts, and `drop` ends it; rewinds do not touch facts. A store keeps an index of the names,
derived from the log: `changes` says what an entry changes in it, `chosen` which names a caller asks for.

JSON has no bytes. In an entry, bytes are `{"$bytes": "<base64>"}`, and a value that looks like that gets one more `$`,
so that everything comes back as it was given.
"""

import re
from base64 import b64decode, b64encode
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias, cast

from msgspec import Struct, StructMeta
from msgspec.structs import replace

from ..errors import Conflict, UsageError
from .arguments import Named
from .content import check_json
from .entries import Entry, Facts

KEY_MAX_CHARS = 512
"""In UTF-8 it still fits into an index of PostgreSQL, together with the other columns."""
_APP = re.compile(r"[a-z0-9-]{1,32}")
_BYTES = re.compile(r"\$+bytes")

ExpectedFact: TypeAlias = tuple[str, str, int | None]
"""(app, key, seq of the entry that put it; None: there is no such fact)."""


class Fact(Struct, metaclass=Named, frozen=True, gc=False):
    """A value that a program keeps in a session, and the entry that put it there."""

    key: str
    value: Any
    seq: int


fact_of: Callable[[str, Any, int], Fact] = partial(StructMeta.__call__, Fact)
"""`Fact(key, value, seq)` without the check of its arguments, which takes longer than making it."""


class FactChange(Struct, frozen=True, gc=False):
    """A change of the index: `seq` None ends the fact."""

    app: str
    key: str
    seq: int | None


class FactChoice(Struct, frozen=True, kw_only=True):
    """What a caller asks for: all facts of a program, some by name, or those whose name begins with `prefix`."""

    app: str
    keys: tuple[str, ...] = ()
    prefix: str = ""
    last: bool = False
    """From the end of the key order, the greatest key first."""
    limit: int | None = None

    @property
    def wanted(self) -> list[str]:
        """The names asked for, each once, in order."""
        return sorted({key for key in self.keys if key.startswith(self.prefix)}, reverse=self.last)


def choice(app: str, keys: Sequence[str], prefix: str, last: bool, limit: int | None) -> FactChoice:
    check_app(app)
    if limit is not None and limit < 0:
        raise UsageError("limit cannot be negative", hint="Leave it out for all facts.")
    return FactChoice(app=app, keys=tuple(keys), prefix=prefix, last=last, limit=limit)


def check_app(app: str) -> None:
    if not _APP.fullmatch(app):
        raise UsageError(
            f"{app[:60]!r} cannot be the name of a program", hint="Use 1 to 32 small letters, digits and hyphens."
        )


def check_key(key: str) -> None:
    if not 1 <= len(key) <= KEY_MAX_CHARS:
        raise UsageError(f"the name of a fact has 1 to {KEY_MAX_CHARS} characters, not {len(key):,}")


def accepted(body: Facts) -> Facts:
    """The entry as it is stored: bytes in its values become JSON."""
    check_app(body.app)
    if not body.put and not body.drop:
        raise UsageError("a facts entry must put or drop something", hint="Give put={…} or drop=(…).")
    for key in (*body.put, *body.drop):
        check_key(key)
    if both := body.put.keys() & set(body.drop):
        raise UsageError(f"{min(both)[:60]!r} is in put and in drop", hint="Put it, or drop it.")
    if isinstance(body.put, _Packed):  # a store that collects appends checks them twice
        return body
    put = _Packed((key, packed(value)) for key, value in body.put.items())
    check_json({**put}, "put", wide=True)
    return replace(body, put=put)


class _Packed(dict[str, Any]):
    """Values that `accepted` has converted."""


def packed(value: Any) -> Any:
    """The value with its bytes as JSON."""
    if isinstance(value, bytes | bytearray):
        return {"$bytes": b64encode(value).decode()}
    if isinstance(value, list | tuple):
        return [item if item.__class__ is str else packed(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        fields = cast("dict[Any, Any]", value)
        if len(fields) == 1 and (name := next(iter(fields))).__class__ is str and _BYTES.fullmatch(name):
            return {f"${name}": packed(fields[name])}
        return {name: packed(item) for name, item in fields.items()}
    return value


def unpacked(value: Any) -> Any:
    """The value as it was given."""
    if isinstance(value, list):
        return [item if item.__class__ is str else unpacked(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if len(fields) == 1 and _BYTES.fullmatch(name := next(iter(fields))):
            inner: Any = fields[name]
            if name != "$bytes":
                return {name[1:]: unpacked(inner)}
            return _decoded(inner) if isinstance(inner, str) else {name: unpacked(inner)}
        return {name: unpacked(item) for name, item in fields.items()}
    return value


def _decoded(text: str) -> Any:
    """Another program may have written anything there."""
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return {"$bytes": text}


def changes(entries: Iterable[Entry]) -> list[FactChange]:
    """What these entries change in the index, in order. Names that could not be asked for are left out."""
    return [change for entry in entries if isinstance(entry, Facts) for change in _changes_of(entry)]


def _changes_of(entry: Facts) -> Iterator[FactChange]:
    if not _APP.fullmatch(entry.app):
        return
    for key in entry.drop:
        if 1 <= len(key) <= KEY_MAX_CHARS:
            yield FactChange(entry.app, key, None)
    for key in entry.put:
        if 1 <= len(key) <= KEY_MAX_CHARS:
            yield FactChange(entry.app, key, entry.seq)


def chosen(ordered: Sequence[str], wanted: FactChoice) -> list[str]:
    """The keys among these, which are in order, that the caller asks for."""
    first = bisect_left(ordered, wanted.prefix)
    past = bisect_left(ordered, True, first, key=lambda key: not key.startswith(wanted.prefix))
    size = past - first if wanted.limit is None else min(wanted.limit, past - first)
    found = ordered[past - size : past] if wanted.last else ordered[first : first + size]
    return [*reversed(found)] if wanted.last else [*found]


def fact_in(entry: Entry, app: str, key: str) -> Fact | None:
    """The fact that this entry put; None if it is not there (damage, or the entry was erased)."""
    if not isinstance(entry, Facts) or entry.app != app or key not in entry.put:
        return None
    return Fact(key, unpacked(entry.put[key]), entry.seq)


def check_expected(expected: ExpectedFact, seq: int | None) -> None:
    """`seq`: the entry that holds the fact now."""
    app, key, wanted = expected
    if seq != wanted:
        now = "does not exist" if seq is None else f"was put by entry {seq}"
        raise Conflict(
            f"the fact {key[:60]!r} of {app} {now}, not {wanted or 'absent'}", hint="Read it again, then decide anew."
        )
