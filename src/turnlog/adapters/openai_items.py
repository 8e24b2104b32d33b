"""Reads the items of a session of openai-agents from its log.

After a compaction, one item, the summary, stands for the items before the boundary. Instructions among these are not
summarised: a summary has no authority. They are pinned by the compaction, and come first, word for word.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TypeAlias

from ..core.admission import PINS_MAX
from ..core.entries import Entry, Foreign, Pin, User
from ..core.history import survey
from ..core.session import Session, live_path, marks_of, on_path
from ..core.user_content import with_words
from ..errors import Corrupt
from ..library import Turnlog
from . import responses
from .dialects import ResponsesDialect
from .kept_entries import kept_entries
from .responses import Item
from .session_log import LiveEntries, SessionLog, lacks_words, worded

LiveItem: TypeAlias = tuple[Entry, Item]
"""An item and the entry that it was read from."""
_DIALECT = ResponsesDialect()


async def items_of(t: Turnlog, where: SessionLog, most: int | None) -> list[Item]:
    row = await where.find(t)
    if row is None:
        return []
    if most is None and row.boundary == 1:
        return responses.items_in(_live(await _tail(t, row), row))
    found = await all_items(t, row) if most is None else await newest(t, row, most)
    return [item for _, item in found]


async def newest(t: Turnlog, row: Session, most: int) -> list[LiveItem]:
    """That many items from the end, oldest first."""
    return await newest_of(t, row, LiveEntries(t, row, expected=most + 1), most)


async def newest_of(t: Turnlog, row: Session, live: LiveEntries, most: int) -> list[LiveItem]:
    found: list[LiveItem] = []
    async for entry in live:
        if entry.seq < row.boundary:
            return (await all_items(t, row))[-most:]  # the summary is among them
        whole = await worded(t, row, entry) if lacks_words(entry) else entry
        found += [(whole, item) for item in reversed(responses.items_of(whole))]
        if len(found) >= most:
            break
    return found[:most][::-1]


async def all_items(t: Turnlog, row: Session) -> list[LiveItem]:
    """All items from the boundary on, after those that stand for what is before it."""
    entries = await _tail(t, row)
    live = _live(entries, row)
    found: list[LiveItem] = []
    if row.boundary > 1:
        view = survey(entries)
        assert view.compaction is not None  # the boundary is one's
        pinned = {target for _, target in row.pins}
        leading = [
            entry for entry in live if entry.seq < row.boundary and entry.seq in pinned and is_instruction(entry)
        ]
        found += [(entry, item) for entry in leading for item in responses.items_of(entry)]
        found += [(view.compaction, item) for item in responses.summary_item(view.compaction, view)]
        live = await _from_boundary(t, row, live)
    found += [(entry, item) for entry in live for item in responses.items_of(entry)]
    return found


async def _tail(t: Turnlog, row: Session) -> list[Entry]:
    """The entries from the boundary on, and those that they name. All have their words."""
    if row.read_from == 1:
        with suppress(Corrupt):  # read below, around the damage
            return with_words(await kept_entries(t).read(t, row, 1, row.last_seq))
    return with_words((await t.sessions.load(row)).entries)


def _live(entries: list[Entry], row: Session) -> list[Entry]:
    """Those that count."""
    if all(mark.kind != "rewind" for mark in row.marks):
        return entries
    path = live_path(marks_of(entries), row.last_seq)
    return [entry for entry in entries if on_path(entry.seq, path)]


async def _from_boundary(t: Turnlog, row: Session, live: Sequence[Entry]) -> list[Entry]:
    """The entries from the boundary on, and the reasoning and calls right before it, which belong to what is there."""
    kept = [entry for entry in live if entry.seq >= row.boundary]
    if isinstance(next(filter(responses.items_of, kept), None), User):
        return kept
    path, seq = live_path(row.marks, row.last_seq), row.boundary
    while (seq := max((min(last, seq - 1) for first, last in path if first < seq), default=0)) > row.pruned_to:
        [before] = await kept_entries(t).read(t, row, seq, seq)
        if not responses.needs_next(before):
            break
        kept.insert(0, before)
    return kept


def is_instruction(entry: Entry) -> bool:
    return isinstance(entry, Foreign) and any(map(_DIALECT.is_instruction, responses.items_of(entry)))


def pins_of(row: Session, entries: Iterable[Entry], first_kept: int) -> list[Entry]:
    """What keeps the instructions among these entries that a compaction is about to cover."""
    pinned = {target for _, target in row.pins}
    covered = [one.seq for one in entries if one.seq < first_kept and one.seq not in pinned and is_instruction(one)]
    return [Pin(target=seq) for seq in covered[-room:]] if (room := PINS_MAX - len(row.pins)) > 0 else []
