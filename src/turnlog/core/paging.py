"""How many entries of a log are read at once, so that a log of any size can be gone through in bounded memory."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from types import NoneType
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import astuple

from .entries import Entry
from .message_writer import PICTURES

FIRST_ENTRIES = 4
"""The entries of a first page, of which nothing is known: each may have many megabytes."""
FEW_ENTRIES = 64
"""So many entries are read at once, whatever their size."""
PAGE_ENTRIES = 1_000
PAGE_BYTES = 8_000_000
"""The size of a page, if none of its entries is larger than those before it."""
FRAME_BYTES = 100
PICTURE_SHARE = 4
"""A picture is bytes without words: nothing is counted, cleaned or split in it, so it weighs a quarter."""

_SMALL = frozenset((NoneType, int, bool, float))


def weight(value: Struct) -> int:
    """About the bytes of an entry, an event or a prompt, as far as they cost memory and time."""
    return FRAME_BYTES + size_of(astuple(value))


def weight_after(entries: Sequence[Entry], seq: int) -> int:
    """Of the entries at the end of a list that come after this one."""
    return sum(map(weight, takewhile(lambda entry: entry.seq > seq, reversed(entries))))


def text_bytes(text: str) -> int:
    return len(text) if text.isascii() else 2 * len(text)


def size_of(values: Iterable[Any]) -> int:
    """About the bytes of plain values."""
    size = 0
    for value in values:
        kind = value.__class__
        if kind is str:
            size += len(value) if value.isascii() else 2 * len(value)
        elif kind in _SMALL:
            continue
        elif isinstance(value, str):
            size += text_bytes(value)
        elif isinstance(value, dict):
            block = cast("dict[str, Any]", value)
            inner = size_of(block.values())
            size += inner // PICTURE_SHARE if block.get("type") in PICTURES else inner
        elif isinstance(value, list | tuple):
            size += size_of(cast("Sequence[Any]", value))
    return size


def next_count(page: Sequence[Entry]) -> int:
    """The entries to read after this page: at most four times as many, because what comes next may be larger."""
    largest = max(map(weight, page))
    return max(1, min(PAGE_ENTRIES, len(page) * 4, PAGE_BYTES // max(1, largest)))


def batches(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """The same entries in lists of the size of a page."""
    batch: list[Entry] = []
    size = 0
    for entry in entries:
        batch.append(entry)
        size += weight(entry)
        if len(batch) >= PAGE_ENTRIES or size >= PAGE_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
