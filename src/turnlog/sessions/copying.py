"""Copies one store to another, resumable, and proves the copy equal by digest.

Each session is appended page by page from where the target ends, after a comparison of what exists. So an interrupted
copy can be continued, a repeated copy adds nothing, and a session that differs is never overwritten.
"""

import hashlib
from collections.abc import AsyncIterator

from msgspec import Struct
from msgspec.structs import replace

from ..codecs import native
from ..core import paging
from ..core.entries import Entry, Opened
from ..core.query import Query
from ..errors import Conflict
from ..stores import Clock, LedgerFact, Progress, Store, open_store
from ..stores.facts import every_fact
from ..stores.finding import every_row
from ..stores.stamping import now_ms
from .checking import checked_async
from .reading import described
from .selection import SELECTED

SPACES = (
    *(SELECTED, "delivered", "attempts"),
    *("outbox", "pending", "sent", "unsent", "questions"),
    *("tokens", "cookies", "first", "idempotency"),
    *("scales", "windows", "own_answers", "usage", "used"),
)
"""Spaces of the ledger that belong to the data and not to one process."""
LEFT_BEHIND = ("signin", "stops", "ready")
"""Short-lived spaces: unused sign-in links, requests to stop a turn, the marker of a writable store."""


class Copied(Struct, frozen=True):
    sessions: int
    entries: int
    """Entries written now, without those that existed already."""
    facts: int
    digest: str
    """A digest of all sessions' digests, in order of id: equal for two stores with the same content."""


@checked_async
async def copy(source: Store, target: Store, *, progress: Progress | None = None, clock: Clock = now_ms) -> Copied:
    """Afterwards everything in `source` is in `target`, or an error names the session that is not, and why.
    Example: `async with open_store("sqlite:app.db") as a, open_store("jsonl:files") as b: await turnlog.copy(a, b)`
    """
    total = hashlib.sha256()
    entries = 0
    ids = sorted([session_id async for session_id in all_ids(source)])
    for n, session_id in enumerate(ids, 1):
        written, digest = await copy_session(source, target, session_id)
        entries += written
        total.update(f"{session_id} {digest}\n".encode())
        if progress:
            progress(n, len(ids))
    facts = 0
    for space in SPACES:
        async for fact in every_fact(source.ledger, space):
            facts += await copy_fact(target, space, fact, clock)
    return Copied(len(ids), entries, facts, total.hexdigest())


async def copy_fact(target: Store, space: str, fact: LedgerFact, clock: Clock) -> bool:
    """Whether it was written: not if there is one already."""
    ttl_s = None if fact.until is None else max(0.001, (fact.until - clock()) / 1000)
    return await target.ledger.put_if_absent(space, fact.key, fact.value, ttl_s=ttl_s) is None


async def copy_between(source: str, target: str, *, progress: Progress | None = None) -> Copied:
    """The same for two URLs of stores."""
    async with open_store(source, create=False) as old, open_store(target) as new:
        return await copy(old, new, progress=progress)


async def copy_session(source: Store, target: Store, session_id: str) -> tuple[int, str]:
    """(entries written, digest of the whole)."""
    row = await source.describe(session_id)
    end, held = row.last_seq, row.incarnation
    there = await described(target, session_id)
    done, made = (there.last_seq, there.incarnation) if there else (0, None)
    if there and await digest(source, session_id, to=min(done, end), incarnation=held) != await digest(
        target, session_id, to=done, incarnation=made
    ):
        raise Conflict(
            f"session {session_id} is in the target already and differs",
            hint="Delete or move one of the two; nothing was overwritten.",
        )
    async with target.lease(session_id) as lease:
        async for page in pages(source, session_id, after=done, to=end, incarnation=held):
            bodies = [replace(entry, seq=0) for entry in page]
            written = await target.append(session_id, bodies, expect=page[0].seq - 1, lease=lease, incarnation=made)
            made = written.row.incarnation
    ours = await digest(source, session_id, to=end, incarnation=held)
    if await digest(target, session_id, to=end, incarnation=made) != ours:
        raise Conflict(f"session {session_id} was copied but is not equal", hint="Copy it again, and report this.")
    return max(0, end - done), ours


async def digest(store: Store, session_id: str, *, to: int | None = None, incarnation: str | None = None) -> str:
    """SHA-256 over the native lines of a transcript, the same on every store."""
    total = hashlib.sha256()
    async for page in pages(store, session_id, after=0, to=to, incarnation=incarnation):
        for entry in page:
            # Each store sets its own incarnation.
            same = replace(entry, incarnation=None) if isinstance(entry, Opened) else entry
            total.update(native.encode(same) + b"\n")
    return total.hexdigest()


async def pages(
    store: Store, session_id: str, *, after: int, to: int | None = None, incarnation: str | None = None
) -> AsyncIterator[list[Entry]]:
    """A transcript in pieces of limited size."""
    count = paging.FIRST_ENTRIES
    while to is None or after < to:
        room = count if to is None else min(count, to - after)
        page = await store.read(session_id, after=after, limit=room, incarnation=incarnation)
        if not page:
            return
        yield page
        after, count = page[-1].seq, paging.next_count(page)


async def all_ids(store: Store) -> AsyncIterator[str]:
    async for row in every_row(store.find, Query()):
        yield row.id
