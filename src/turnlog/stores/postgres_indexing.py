"""What is derived in a PostgreSQL store, made anew: the search index as it falls behind, rows when asked to.

Each session says how far it has been made searchable, and only one of several servers can move that mark from where it
stands; so each message is taken in once, and none is missed, however late its transaction committed.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from ..codecs import native
from ..core import search
from ..core.session import describe
from . import Progress
from .postgres_pool import Database
from .postgres_statements import columns, entries_of, lexemes_of

SESSIONS_AT_ONCE = 50
ENTRIES_AT_ONCE = 500
"""Of one session in one go."""


async def index_some(db: Database) -> bool:
    """Makes the next messages searchable; whether there may be more."""
    behind = await db.all(
        "SELECT session_id, session_no, searched_to FROM turnlog.sessions WHERE searched_to < last_seq"
        " ORDER BY session_id LIMIT %s",
        (SESSIONS_AT_ONCE,),
    )
    for session_id, no, done in behind:
        await _index_session(db, session_id, no, done)
    return bool(behind)


async def _index_session(db: Database, session_id: str, no: int, done: int) -> None:
    lines = await db.all(
        "SELECT seq, meta_json FROM turnlog.session_messages WHERE session_id = %s AND seq > %s ORDER BY seq LIMIT %s",
        (session_id, done, ENTRIES_AT_ONCE),
    )
    found: list[tuple[int, list[str] | None]] = []
    for seq, line in lines:
        try:
            entry = native.decode(line.encode())
        except native.Undecodable:
            continue
        if search.searchable(entry) and (words := lexemes_of(entry)) != []:
            found.append((seq, words))
    reached = lines[-1][0] if lines else done
    if reached == done:
        # Rows are missing: damage, which reading reports. Searching goes on after it.
        reached = await db.one("SELECT last_seq FROM turnlog.sessions WHERE session_id = %s", (session_id,)) or done
    await db.one(
        "SELECT turnlog.searchable_1(%s, %s, %s, %s, %s::bigint[], %s::jsonb)",
        (session_id, no, done, reached, [seq for seq, _ in found], msgspec.json.encode([w for _, w in found]).decode()),
    )


async def reindex(db: Database, forget: Callable[[str], None], progress: Progress | None) -> int:
    """Every row anew from its transcript, and the search index with it."""
    names = [name for (name,) in await db.all(_ALL_SESSIONS)]
    for n, name in enumerate(names, 1):
        while not await _refold(db, name):
            pass
        forget(name)
        if progress:
            progress(n, len(names))
    while await index_some(db):
        pass
    return len(names)


async def _refold(db: Database, session_id: str) -> bool:
    """False if somebody wrote to it meanwhile."""
    entries = await entries_of(db, session_id)
    if not entries:
        return True
    row = describe(None, entries)
    told: dict[str, Any] = {"id": session_id, "last": row.last_seq, **columns(row, None)}
    return bool(await db.one(_REFOLD, (msgspec.json.encode(told).decode(),), changes=True))


_ALL_SESSIONS = """
WITH RECURSIVE names AS (
    (SELECT session_id FROM turnlog.session_messages ORDER BY session_id LIMIT 1)
    UNION ALL
    SELECT (SELECT m.session_id FROM turnlog.session_messages m WHERE m.session_id > n.session_id
            ORDER BY m.session_id LIMIT 1)
    FROM names n WHERE n.session_id IS NOT NULL
)
SELECT session_id FROM names WHERE session_id IS NOT NULL
"""
"""From one session to the next along the index, instead of through all their entries."""

_REFOLD = "SELECT turnlog.refold_1(%s::jsonb)"
