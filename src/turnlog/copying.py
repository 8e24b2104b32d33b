"""Store → store, proved equal by digest, resumable.

Each session is appended page by page where the target left off, after comparing what is there already. So a copy that
was cut off goes on, a copy repeated adds nothing, and a session that differs is never overwritten.
"""

import hashlib
from collections.abc import AsyncIterator

from msgspec import Struct
from msgspec.structs import replace

from .codecs import native
from .core.entries import Entry
from .core.query import PAGE_MAX, Query
from .errors import Conflict, NotFound
from .sessions import SELECTED
from .stores import Clock, Progress, Store
from .stores.stamping import now_ms

PAGE_ENTRIES = 500
SPACES = (SELECTED, "dedupe", "idempotency", "outbox", "tokens")
"""Spaces of the ledger that belong to the data and not to one process."""


class Copied(Struct, frozen=True):
    sessions: int
    entries: int
    """Entries written now; those that were there already are not counted."""
    facts: int
    digest: str
    """Over all sessions' digests, in order of id: the same for two stores that hold the same."""


async def copy(source: Store, target: Store, *, progress: Progress | None = None, clock: Clock = now_ms) -> Copied:
    """Everything in `source` is in `target` afterwards, or an error says which session is not, and why."""
    total = hashlib.sha256()
    entries = 0
    ids = sorted([session_id async for session_id in _all_ids(source)])
    for n, session_id in enumerate(ids, 1):
        written, digest = await copy_session(source, target, session_id)
        entries += written
        total.update(f"{session_id} {digest}\n".encode())
        if progress:
            progress(n, len(ids))
    facts = 0
    for space in SPACES:
        for fact in await source.ledger.list(space, limit=1_000_000):
            ttl_s = None if fact.until is None else max(0.001, (fact.until - clock()) / 1000)
            facts += await target.ledger.put_if_absent(space, fact.key, fact.value, ttl_s=ttl_s) is None
    return Copied(len(ids), entries, facts, total.hexdigest())


async def copy_session(source: Store, target: Store, session_id: str) -> tuple[int, str]:
    """(entries written, digest of the whole)."""
    end = (await source.describe(session_id)).last_seq
    try:
        there = (await target.describe(session_id)).last_seq
    except NotFound:
        there = 0
    if there and await digest(source, session_id, to=min(there, end)) != await digest(target, session_id, to=there):
        raise Conflict(
            f"session {session_id} is in the target already and differs",
            hint="Delete or move one of the two; nothing was overwritten.",
        )
    async with target.lease(session_id) as lease:
        async for page in pages(source, session_id, after=there, to=end):
            bodies = [replace(entry, seq=0) for entry in page]
            await target.append(session_id, bodies, expect=page[0].seq - 1, lease=lease)
    ours = await digest(source, session_id, to=end)
    if await digest(target, session_id, to=end) != ours:
        raise Conflict(f"session {session_id} was copied but is not equal", hint="Copy it again, and report this.")
    return max(0, end - there), ours


async def digest(store: Store, session_id: str, *, to: int | None = None) -> str:
    """SHA-256 over the native lines of a transcript, the same on every store."""
    total = hashlib.sha256()
    async for page in pages(store, session_id, after=0, to=to):
        for entry in page:
            total.update(native.encode(entry) + b"\n")
    return total.hexdigest()


async def pages(store: Store, session_id: str, *, after: int, to: int | None = None) -> AsyncIterator[list[Entry]]:
    """A transcript in bounded pieces."""
    while to is None or after < to:
        room = PAGE_ENTRIES if to is None else min(PAGE_ENTRIES, to - after)
        page = await store.read(session_id, after=after, limit=room)
        if not page:
            return
        yield page
        after = page[-1].seq


async def _all_ids(store: Store) -> AsyncIterator[str]:
    query = Query(limit=PAGE_MAX)
    while True:
        page = await store.find(query)
        for row in page.items:
            yield row.id
        if page.next is None:
            return
        query = replace(query, cursor=page.next)
