"""Reads the log of a session: around damaged places, and with the earlier entries that a part of it refers to.

Nothing here checks a principal: `Sessions` has done that for the row.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from ..core import history, oversized, paging, turns
from ..core.entries import MESSAGES, Compaction, Entry, Received, User
from ..core.outline import bare
from ..core.oversized import OversizedTail
from ..core.session import Interval, Session, active, check_entry, marks_of, pinned
from ..core.user_content import with_words
from ..errors import Corrupt, NotFound, UsageError
from ..stores import Store
from ..stores.stamping import unreadable

LARGE_TAIL_TOKENS = oversized.TAIL_MAX_BYTES // 8
"""A tail of so many tokens may be larger than a turn may hold, however few entries it has."""


class Loaded(Struct, frozen=True):
    """The part of a session that a turn needs: its row and its tail."""

    session: Session
    entries: list[Entry]
    damage: tuple[Corrupt, ...] = ()
    """Damaged places; the entries around them are here."""
    is_partial: bool = False
    """Whether these are only the newest entries of a tail that is larger than any prompt (`core/oversized`)."""


async def described(store: Store, session_id: str) -> Session | None:
    """The row of a session; None if there is none."""
    with suppress(NotFound):
        return await store.describe(session_id)
    return None


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
    is_large = row.token_estimate > LARGE_TAIL_TOKENS
    if not is_large and row.last_seq - row.read_from < paging.FEW_ENTRIES:
        return None
    first = paging.FIRST_ENTRIES if is_large else paging.FEW_ENTRIES
    found: list[Entry] = []
    size, before = 0, row.last_seq + 1
    async for page in pages_back(store, row, before, first):
        found = [*page, *found]
        size += sum(map(paging.weight, page))
        if page[0].seq <= row.read_from:
            return None
        if size > oversized.TAIL_MAX_BYTES and oversized.begins_turn(found):
            return found
    return None


async def pages(store: Store, row: Session, after: int = 0, before: int | None = None) -> AsyncGenerator[list[Entry]]:
    """The entries in order, as many at once as fit `paging.PAGE_BYTES`, judged by the entries before them."""
    end, count = row.last_seq + 1 if before is None else before, paging.FIRST_ENTRIES
    while after < end - 1:
        found = await read(store, row, after=after, limit=min(count, end - 1 - after))
        if not (page := [entry for entry in found if entry.seq < end]):
            return
        yield page
        after, count = page[-1].seq, paging.next_count(page)


async def pages_around_damage(
    store: Store, row: Session, after: int = 0, damage: list[Corrupt] | None = None, before: int | None = None
) -> AsyncGenerator[list[Entry]]:
    """The same without the damaged places, which are added to `damage`."""
    while True:
        try:
            async for page in pages(store, row, after, before):
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


async def pages_back(
    store: Store, row: Session, before: int, count: int = paging.FIRST_ENTRIES
) -> AsyncGenerator[list[Entry]]:
    """The same from the newest page to the oldest; each page is in order. `count`: the entries of the first page."""
    while before > 1:
        page = await read(store, row, before=before, limit=count)
        if not page:
            return
        yield page
        before, count = page[0].seq, paging.next_count(page)


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
    return [entry async for page in past_pages(store, row, at) for entry in page]


async def past_pages(store: Store, row: Session, at: int) -> AsyncGenerator[list[Entry]]:
    """The same, a part at a time."""
    damage: list[Corrupt] = []
    done = 0
    async for page in pages_around_damage(store, row, 0, damage, before=at + 1):
        yield [*_unreadable(done, page[0].seq, damage), *page]
        done = page[-1].seq
    if done < at:
        yield _unreadable(done, at + 1, damage)


def _unreadable(after: int, before: int, damage: Sequence[Corrupt]) -> list[Entry]:
    return [
        unreadable(seq, next(error for error in reversed(damage) if error.after < seq))
        for seq in range(after + 1, before)
    ]


async def outline(store: Store, row: Session, at: int | None = None) -> list[Entry]:
    """The readable entries up to this one without their words (`core/outline`)."""
    before = None if at is None else at + 1
    return [bare(entry) async for page in pages_around_damage(store, row, before=before) for entry in page]


async def as_of(store: Store, row: Session, at: int, *, with_reply: bool) -> list[Entry]:
    """What history needed when the log ended at `at`: its tail, or all, if the row does not remember where it began.

    `with_reply`: user rows are written with their reply, so that a call is made while they are only `received`.
    """
    then = await row_at(store, row, at)
    entries, _ = await around_damage(store, row, then.read_from - 1, before=at + 1)
    entries = await with_named(store, row, entries, then.pins)
    if with_reply and entries and isinstance(entries[-1], Received):
        entries += await _made_from(store, row, at)
    return entries


async def _made_from(store: Store, row: Session, received: int) -> list[Entry]:
    """The user entry that was made from this one."""
    async for page in pages_around_damage(store, row, received):
        for entry in page:
            if isinstance(entry, User) and received in entry.from_:
                return [entry]
    return []


async def row_at(store: Store, row: Session, at: int) -> Session:
    """The row as it was when the log ended there, as far as it says which entries count. All marks are read if the row
    does not remember them.
    """
    is_known = at > max(row.pruned_to, row.dead_to)
    marks = row.marks if is_known else marks_of(await outline(store, row, at))
    marks = tuple(mark for mark in marks if mark.seq <= at)
    stack = active(marks, at)
    newest = stack[-1] if stack else None
    return replace(
        row,
        last_seq=at,
        marks=marks,
        boundary=newest.at if newest else 1,
        read_from=min(newest.at, newest.seq) if newest else 1,
        pins=pinned(marks, at),
        received=(),
        heard=(),
    )


async def oversized_tail(store: Store, row: Session, at: int) -> OversizedTail | None:
    """None if the tail was not larger than any prompt when the log ended at `at`, or is damaged."""
    row = row if at == row.last_seq else await row_at(store, row, at)
    with suppress(Corrupt):
        if part := await newest(store, row):
            return await describe_tail(store, row, await with_named(store, row, part, _named(row)))
    return None


async def describe_tail(store: Store, row: Session, known: Sequence[Entry]) -> OversizedTail:
    stack = active(row.marks, row.last_seq)
    previous = await _with_named_at(store, row, stack[-1].seq) if stack else []
    first = await _with_named_at(store, row, row.boundary if row.boundary > 1 else row.first_message)
    return OversizedTail(row, known, first, next((one for one in previous if isinstance(one, Compaction)), None))


async def _with_named_at(store: Store, row: Session, seq: int) -> list[Entry]:
    """This entry with those that it names; nothing if it cannot be read."""
    try:
        return await with_named(store, row, await read(store, row, after=seq - 1, limit=1))
    except Corrupt:
        return []


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


async def covered(store: Store, row: Session, seq: int | None) -> AsyncGenerator[list[Entry]]:
    """The messages that the compaction at `seq` replaces, a part at a time; of the newest active one, if none is
    given.
    """
    stack = active(row.marks, row.last_seq)
    seq = seq or (stack[-1].seq if stack else None)
    if seq is None:
        raise UsageError("no compaction is active in this session", hint="All messages are shown as they are.")
    check_entry(row, seq)
    match await read(store, row, after=seq - 1, limit=1):
        case [Compaction() as entry]:
            async for page in pages(store, row, entry.covers[0] - 1, entry.first_kept):
                whole = with_words(await with_named(store, row, page))
                yield [item for item in whole if isinstance(item, MESSAGES)]
        case _:
            raise UsageError(f"entry {seq} is not a compaction", hint="Name the entry of a compaction.")
