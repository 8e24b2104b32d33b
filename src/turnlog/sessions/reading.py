"""Reads the log of a session: around damaged places, and with the earlier entries that a part of it refers to.

Nothing here checks a principal: `Sessions` has done that for the row.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress

from msgspec import Struct

from ..core import history, oversized, turns
from ..core.entries import MESSAGES, Compaction, Entry, Received, User
from ..core.session import Interval, Session, active, pinned
from ..core.user_content import with_words
from ..errors import Corrupt, UsageError
from ..stores import Store
from ..stores.stamping import unreadable

FEW_ENTRIES = 64
"""The number of entries that are read at once, whatever their size."""
PAGE_ENTRIES = 1_000
PAGE_BYTES = 8_000_000
"""The size of a page, if none of its entries is larger than those before it."""


class Loaded(Struct, frozen=True):
    """The part of a session that a turn needs: its row and its tail."""

    session: Session
    entries: list[Entry]
    damage: tuple[Corrupt, ...] = ()
    """Damaged places; the entries around them are here."""
    is_partial: bool = False
    """Whether these are only the newest entries of a tail that is larger than any prompt (`core/oversized`)."""


async def load(store: Store, row: Session, *, may_be_partial: bool = False) -> Loaded:
    with suppress(Corrupt):  # read below, around the damage
        if may_be_partial and (part := await newest(store, row)):
            return Loaded(row, await with_named(store, row, part, _named(row)), is_partial=True)
    entries, damage = await around_damage(store, row, row.read_from - 1)
    return Loaded(row, await with_named(store, row, entries, _named(row)), damage)


def _named(row: Session) -> list[Interval]:
    return [*row.pins, *((seq, seq) for seq in (*row.received, *row.heard))]


async def read(
    store: Store, row: Session, *, after: int = 0, before: int | None = None, limit: int | None = None
) -> list[Entry]:
    """Reads the session that was checked, and not another session that has got the same id since."""
    return await store.read(row.id, after=after, before=before, limit=limit, incarnation=row.incarnation)


async def around_damage(
    store: Store, row: Session, after: int, *, before: int | None = None
) -> tuple[list[Entry], tuple[Corrupt, ...]]:
    found: list[Entry] = []
    damage: list[Corrupt] = []
    while True:
        try:
            found += await read(store, row, after=after, before=before)
            return found, tuple(damage)
        except Corrupt as error:
            damage.append(error)
            if error.after > after:
                found += await read(store, row, after=after, before=error.after + 1)
            if error.before is None or error.before - 1 <= after:  # nothing more, or nothing new
                return found, tuple(damage)
            after = error.before - 1


async def newest(store: Store, row: Session) -> list[Entry] | None:
    """The newest part of a tail that is larger than a turn may hold; None if all of it may be read."""
    if row.last_seq - row.read_from < FEW_ENTRIES:
        return None
    found: list[Entry] = []
    size, before = 0, row.last_seq + 1
    async for page in pages_back(store, row, before):
        found = [*page, *found]
        size += sum(map(oversized.weight, page))
        if page[0].seq <= row.read_from:
            return None
        if size > oversized.TAIL_MAX_BYTES and oversized.begins_turn(found):
            return found
    return None


async def pages(store: Store, row: Session, after: int = 0, before: int | None = None) -> AsyncGenerator[list[Entry]]:
    """The entries in order, as many at once as fit `PAGE_BYTES`, judged by the entries before them."""
    end, count = row.last_seq + 1 if before is None else before, FEW_ENTRIES
    while after < end - 1:
        found = await read(store, row, after=after, limit=min(count, end - 1 - after))
        if not (page := [entry for entry in found if entry.seq < end]):
            return
        yield page
        after, count = page[-1].seq, _next_count(page)


async def pages_around_damage(
    store: Store, row: Session, after: int = 0, damage: list[Corrupt] | None = None
) -> AsyncGenerator[list[Entry]]:
    """The same without the damaged places, which are added to `damage`."""
    while True:
        try:
            async for page in pages(store, row, after):
                yield page
                after = page[-1].seq
            return
        except Corrupt as error:
            if damage is not None:
                damage.append(error)
            if error.after > after:
                yield await read(store, row, after=after, before=error.after + 1)
            if error.before is None or error.before - 1 <= after:  # nothing more, or nothing new
                return
            after = error.before - 1


async def pages_back(store: Store, row: Session, before: int) -> AsyncGenerator[list[Entry]]:
    """The same from the newest page to the oldest; each page is in order."""
    count = FEW_ENTRIES
    while before > 1:
        page = await read(store, row, before=before, limit=count)
        if not page:
            return
        yield page
        before, count = page[0].seq, _next_count(page)


def _next_count(page: Sequence[Entry]) -> int:
    """At most four times as many as before: what comes next may be larger."""
    largest = max(map(oversized.weight, page))
    return max(1, min(PAGE_ENTRIES, len(page) * 4, PAGE_BYTES // max(1, largest)))


async def with_named(
    store: Store, row: Session, entries: list[Entry], pins: Sequence[tuple[int, int]] = ()
) -> list[Entry]:
    """Adds the entries that these refer to, as far as they can be read."""
    while wanted := history.missing(entries, pins):
        found: list[Entry] = []
        for seq in wanted:
            with suppress(Corrupt):
                found += await read(store, row, after=seq - 1, limit=1)
        if not any(entry.seq in wanted for entry in found):
            break  # referenced, but damaged or missing
        entries = sorted([*found, *entries], key=lambda entry: entry.seq)
    return entries


async def past(store: Store, row: Session, at: int) -> list[Entry]:
    """Entries up to this one. Damaged places become entries without effect, so that later ones keep their seqs."""
    found, damage = await around_damage(store, row, 0, before=at + 1)
    there = {entry.seq: entry for entry in found}
    return [
        there.get(seq) or unreadable(seq, next(error for error in reversed(damage) if error.after < seq))
        for seq in range(1, at + 1)
    ]


async def as_of(store: Store, row: Session, at: int, *, with_reply: bool) -> list[Entry]:
    """What history needed when the log ended at `at`: its tail, or all, if the row does not remember where it began.

    `with_reply`: user rows are written with their reply, so that a call is made while they are only `received`.
    """
    if at > max(row.pruned_to, row.dead_to) and not with_reply:
        entries, _ = await around_damage(store, row, _tail_from(row, at) - 1, before=at + 1)
        return await with_named(store, row, entries, pinned(row.marks, at))
    whole, _ = await around_damage(store, row, 0)
    past = [entry for entry in whole if entry.seq <= at]
    if with_reply and past and isinstance(past[-1], Received):
        past += [entry for entry in whole if isinstance(entry, User) and at in entry.from_][:1]
    return past


def _tail_from(row: Session, at: int) -> int:
    stack = active(row.marks, at)
    return min(stack[-1].at, stack[-1].seq) if stack else 1


async def is_oversized_at(store: Store, row: Session, at: int) -> bool:
    """Whether the tail was larger than any prompt when the log ended there."""
    begin = _tail_from(row, at) if at > max(row.pruned_to, row.dead_to) else 1
    size = 0
    async for page in pages_back(store, row, at + 1):
        size += sum(oversized.weight(entry) for entry in page if entry.seq >= begin)
        if size > oversized.TAIL_MAX_BYTES or page[0].seq <= begin:
            break
    return size > oversized.TAIL_MAX_BYTES


async def ends_a_turn(store: Store, row: Session, to: int) -> bool:
    """Whether no turn was running when the log ended there; False if the row does not remember that part."""
    path = row.shape.path_to(to, row.last_seq) if 1 <= to <= row.last_seq else None
    said: list[Entry] = []
    for first, last in turns.looked_at(path or ()):
        found, _ = await around_damage(store, row, first - 1, before=last + 1)  # damage does not stop a rewind
        said = [*found, *said]
        if (over := turns.is_over_after(said)) is not None:
            return over
    return path is not None and not row.pruned_to


async def covered(store: Store, row: Session, seq: int | None) -> list[Entry]:
    """The messages that the compaction at `seq` replaces; of the newest active one, if none is given."""
    stack = active(row.marks, row.last_seq)
    seq = seq or (stack[-1].seq if stack else None)
    if seq is None:
        raise UsageError("no compaction is active in this session", hint="All messages are shown as they are.")
    match await read(store, row, after=seq - 1, limit=1):
        case [Compaction() as entry]:
            found = await read(store, row, after=entry.covers[0] - 1, before=entry.first_kept)
            whole = with_words(await with_named(store, row, found))
            return [item for item in whole if isinstance(item, MESSAGES)]
        case _:
            raise UsageError(f"entry {seq} is not a compaction", hint="Name the entry of a compaction.")
