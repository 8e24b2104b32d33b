"""Forks: what a new session takes over from its source, and how it finds what it left there.

Nothing here checks a principal. A fork has the key of its source, so a principal that may see one of them may see both.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, suppress

from msgspec import Struct
from msgspec.structs import replace

from ..core import forks, paging, path as paths
from ..core.atoms import Atom
from ..core.entries import MESSAGES, Compaction, Entry, Opened, Origin, Rewind, Title
from ..core.forks import CutPast
from ..core.marks import active, live_path, on_path, pinned
from ..core.outline import bare
from ..core.path import Path
from ..core.session import Session
from ..errors import Corrupt, NotFound, TurnlogError, UsageError
from ..stores import Store
from . import reading


class _Left(Struct, frozen=True):
    """What a fork left in its source."""

    source: Session
    log: list[Entry]
    """Of the source, up to the entry at which it was forked."""
    compaction: Compaction


async def whole(store: Store, source: Session, at: int, opened: Opened) -> list[Entry]:
    """The log of a fork that takes over everything up to this entry. Seqs are those of the source."""
    past = await reading.past(store, source, at)
    return [_opened(opened, source, past), *forks.inherited(past[1:], forks.taken_in(past))]


def _opened(opened: Opened, source: Session, past: list[Entry], *, in_parts: bool = False) -> Opened:
    at, summary = past[-1].seq, paths.summary_of_source(past)
    origin = Origin(id=source.id, seq=at, compaction=summary, copied=at if summary else 0, in_parts=in_parts)
    return replace(opened, forked_from=origin)


async def write(store: Store, source: Session, at: int, opened: Opened) -> Session:
    """Writes the same log to the store, in bounded memory: a log that is larger than a page is appended in parts, and
    the fork is in the trash until the last of them is written. If that fails it is deleted; if the process dies, it
    stays in the trash, and expires there.
    """
    async with aclosing(_batches(reading.past_pages(store, source, at))) as batches:
        first = await anext(batches)
        in_parts = first[-1].seq < at
        past = await _outline(store, source, at) if in_parts else first
        begin, taken = _opened(opened, source, past, in_parts=in_parts), forks.taken_in(past)
        async with store.lease(opened.id) as lease:
            log = [begin, *forks.inherited(first[1:], taken)]
            row = (await store.append(opened.id, log, expect=0, lease=lease)).row
            try:
                async for batch in batches:
                    more = forks.inherited(batch, taken)
                    done = await store.append(
                        row.id, more, expect=row.last_seq, lease=lease, incarnation=row.incarnation
                    )
                    row = done.row
            except BaseException:
                with suppress(TurnlogError):  # it is in the trash already
                    await store.delete(row.id, incarnation=row.incarnation)
                raise
            return row


async def _outline(store: Store, source: Session, at: int) -> list[Entry]:
    return [bare(entry) async for page in reading.past_pages(store, source, at) for entry in page]


async def _batches(pages: AsyncIterator[list[Entry]]) -> AsyncGenerator[list[Entry]]:
    held: list[Entry] = []
    async for page in pages:
        *full, held = paging.batches([*held, *page])
        for batch in full:
            yield batch
    yield held


async def counting(store: Store, source: Session, at: int) -> CutPast | None:
    """What counts of the source, if a summary stands for the rest; None: everything has to be taken over."""
    marks = [mark for mark in source.marks if mark.seq <= at]
    stack = active(marks, at)
    if at <= source.pruned_to or not stack or not on_path(at, live_path(source.marks, source.last_seq)):
        return None
    begin = min(stack[-1].at, stack[-1].seq)
    entries, damage = await reading.around_damage(store, source, begin - 1, before=at + 1)
    if damage or not entries:
        return None
    entries = await reading.with_named(store, source, entries, pinned(marks, at))
    return forks.cut(entries, _title(source))


def _title(source: Session) -> Title | None:
    return Title(title=source.title, by="user" if source.title_by == "user" else "auto") if source.title else None


def begin(opened: Opened, source: Session, at: int, past: CutPast) -> list[Entry]:
    """The log of a fork that takes over only what `counting` gives."""
    origin = Origin(id=source.id, seq=at, compaction=past.compaction.seq, copied=past.last)
    return [replace(opened, forked_from=origin), *past.entries]


async def path_of(store: Store, row: Session, log: list[Entry]) -> Path:
    """The path of a whole log, which may be that of a fork."""
    steps = [step async for step in _sources(store, log)]
    said: Sequence[Atom] | None = None
    for n, left in reversed(list(enumerate(steps))):
        source = paths.of_log(left.source.id, left.log, said if n + 1 < len(steps) else None)
        said = None if source.is_lost else paths.said_before(source, left.compaction.first_kept)
    return paths.of_log(row.id, log, said)


async def originals(store: Store, log: list[Entry]) -> list[Entry]:
    """The messages that the summary of a fork stands for, if its source still has them."""
    found: list[Entry] = []
    async for left in _sources(store, log):
        copies = paths.summary_of_source(left.log)
        found[:0] = [entry for entry in forks.before_summary(left.log, left.compaction) if entry.seq >= copies]
        log = left.log
    if paths.summary_of_source(log):
        raise UsageError(
            "the originals are not here: the session that this one was forked from was deleted",
            hint="The summary and everything after it stay.",
        )
    return found


async def covered(store: Store, row: Session, seq: int | None) -> AsyncGenerator[list[Entry]]:
    """The messages that a compaction replaces, also one that a fork took over, a part at a time."""
    stack = active(row.marks, row.last_seq)
    seq = seq or (stack[-1].seq if stack else None)
    if seq is None or not is_of_source(row, seq):
        async for page in reading.covered(store, row, seq):
            yield page
        return
    found = await originals(store, await reading.read(store, row))
    yield [entry for entry in found if isinstance(entry, MESSAGES)]


def is_of_source(row: Session, seq: int) -> bool:
    """Whether this active compaction stands for what a fork left in its source."""
    origin = row.forked_from
    if origin is None or not origin.compaction or seq > origin.copied:
        return False
    return any(mark.seq == seq for mark in active(row.marks, row.last_seq)[:1])


async def undone(store: Store, row: Session) -> list[Entry]:
    """What a fork appends to undo the compaction that it took over: the originals, and what came after them."""
    log = await reading.read(store, row)
    before = await originals(store, log)
    return [Rewind(to=1), *forks.whole_again(before, log, row.last_seq + 2)]


async def _sources(store: Store, log: list[Entry]) -> AsyncIterator[_Left]:
    """The session that a fork was made from, that one's source and so on, while a summary stands for their logs."""
    seen: set[str] = set()  # a forged log may name itself
    while paths.summary_of_source(log) and (left := await _left(store, log)) and left.source.id not in seen:
        yield left
        log = left.log
        seen.add(left.source.id)


async def _left(store: Store, log: list[Entry]) -> _Left | None:
    """None: the source is gone, or cannot be read."""
    origin = log[0].forked_from if isinstance(log[0], Opened) else None
    assert origin is not None
    with suppress(NotFound, Corrupt):
        source = await store.describe(origin.id)
        past = await store.read(source.id, before=origin.seq + 1, incarnation=source.incarnation)
        compaction = next((entry for entry in past if entry.seq == origin.compaction), None)
        if isinstance(compaction, Compaction):
            return _Left(source, past, compaction)
    return None
