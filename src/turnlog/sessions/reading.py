"""Reads the log of a session: around damaged places, and with the earlier entries that a part of it refers to.

Nothing here checks a principal: `Sessions` has done that for the row.
"""

from collections.abc import Sequence
from contextlib import suppress

from msgspec import Struct

from ..core import history, turns
from ..core.entries import MESSAGES, Compaction, Entry
from ..core.session import Session, active
from ..core.user_content import with_words
from ..errors import Corrupt, UsageError
from ..stores import Store
from ..stores.stamping import unreadable


class Loaded(Struct, frozen=True):
    """The part of a session that a turn needs: its row and its tail."""

    session: Session
    entries: list[Entry]
    damage: tuple[Corrupt, ...] = ()
    """Damaged places; the entries around them are here."""


async def read(
    store: Store, row: Session, *, after: int = 0, before: int | None = None, limit: int | None = None
) -> list[Entry]:
    """Reads the session that was checked, and not another one that has its id by now."""
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
