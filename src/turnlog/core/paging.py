"""How many entries of a log are read at once, so that a log of any size can be gone through in bounded memory."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any, cast

from .entries import Entry
from .message_writer import PICTURES

FEW_ENTRIES = 64
"""So many entries are read at once, whatever their size."""
PAGE_ENTRIES = 1_000
PAGE_BYTES = 8_000_000
"""The size of a page, if none of its entries is larger than those before it."""
FRAME_BYTES = 100
PICTURE_SHARE = 4
"""A picture is bytes without words: nothing is counted, cleaned or split in it, so it weighs a quarter."""


def weight(entry: Entry) -> int:
    """About the bytes of an entry, as far as they cost memory and time."""
    return FRAME_BYTES + sum(_size(getattr(entry, name)) for name in entry.__struct_fields__)


def weight_after(entries: Sequence[Entry], seq: int) -> int:
    """Of the entries at the end of a list that come after this one."""
    return sum(map(weight, takewhile(lambda entry: entry.seq > seq, reversed(entries))))


def _size(value: Any) -> int:
    if isinstance(value, str):
        return len(value) if value.isascii() else 2 * len(value)
    if isinstance(value, dict):
        block = cast("dict[str, Any]", value)
        size = sum(map(_size, block.values()))
        return size // PICTURE_SHARE if block.get("type") in PICTURES else size
    if isinstance(value, list | tuple):
        return sum(map(_size, cast("Sequence[Any]", value)))
    return 0


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
