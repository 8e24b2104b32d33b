"""Reads facts of the ledger, all of a space or as values of a type. A fact that cannot be read affects nothing else.

Whatever wrote it (a newer version, another program, a failing disk), it counts as absent. Each is logged once, and all
are counted: `/metrics` shows how many, by space.
"""

import logging
from collections import Counter
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    from . import Ledger, LedgerFact

log = logging.getLogger("turnlog.stores.facts")

PAGE = 10_000
TOLD_MAX = 10_000
"""The number of facts that are remembered as logged; others are logged again."""

T = TypeVar("T")
_told: set[tuple[str, str]] = set()
_unreadable: Counter[str] = Counter()


async def every_fact(ledger: "Ledger", space: str) -> "AsyncIterator[LedgerFact]":
    """All facts of a space, read some at a time."""
    after = ""
    while page := await ledger.list(space, after=after, limit=PAGE):
        for fact in page:
            yield fact
        after = page[-1].key


def decode(text: str | bytes) -> Any:
    """Decodes a stored value. A value that is not JSON becomes its text, which no reader accepts as a fact."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text if isinstance(text, str) else text.decode("utf-8", "replace")


def write(value: msgspec.Struct) -> Any:
    """A fact as the ledger takes it; `read` gives the value back."""
    return msgspec.to_builtins(value)


def read(space: str, key: str, value: Any, kind: type[T]) -> T | None:
    """None: the fact does not exist or cannot be read."""
    if value is None:
        return None
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        report(space, key, str(error))
        return None


def report(space: str, key: str, why: str) -> None:
    if (space, key) in _told:
        return
    if len(_told) >= TOLD_MAX:
        _told.clear()
    _told.add((space, key))
    _unreadable[space] += 1
    log.error("the fact %s/%s in the ledger cannot be read, and counts as absent: %s", space, key[:200], why)


def unreadable() -> dict[str, int]:
    """The number of unreadable facts found in this process, by space."""
    return dict(_unreadable)
