"""What is derived in a PostgreSQL store, made anew: the search index as it falls behind, rows when asked to.

Each session says how far it has been made searchable, and only one of several servers can move that mark from where it
stands; so each message is taken in once, and none is missed, however late its transaction committed.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from ..codecs import native
from ..core.session import describe
from . import Progress
from .postgres_pool import Database
from .postgres_statements import columns, entries_of, lexemes_of

SESSIONS_AT_ONCE = 50
ENTRIES_AT_ONCE = 50
"""Of one session in one go."""
ENTRIES_A_CALL = 50
"""Of one call or a little more: while it lasts, nothing is appended to its sessions, and nothing else is done here."""
BEHIND_MAX = 1 << 31

_BEHIND = """
SELECT session_id, last_seq FROM turnlog.sessions WHERE searched_to < last_seq ORDER BY session_id LIMIT %s
"""
_NEXT = """
SELECT s.session_id, s.session_no, s.searched_to, s.last_seq, m.seq, m.meta_json FROM turnlog.sessions s
LEFT JOIN LATERAL (
    SELECT seq, meta_json FROM turnlog.session_messages
    WHERE session_id = s.session_id AND seq > s.searched_to ORDER BY seq LIMIT %s
) m ON true
WHERE s.session_id = ANY(%s) AND s.searched_to < s.last_seq ORDER BY s.session_id, m.seq
"""


class Behind:
    """A session with messages that are not searchable yet."""

    def __init__(self, name: str, no: int, done: int, last: int) -> None:
        self.name = name
        self.no = no
        self.done = done
        self.last = last
        self.lines: list[tuple[int, str]] = []

    def told(self) -> dict[str, Any]:
        """As turnlog.searchable_1 takes it."""
        words = [(seq, found) for seq, line in self.lines if (found := _words(line)) != []]
        reached = self.lines[-1][0] if self.lines else self.last
        return {"id": self.name, "no": self.no, "done": self.done, "reached": reached, "words": words}


async def index_some(db: Database) -> bool:
    """Makes the next messages searchable; whether there may be more."""
    behind = await db.all(_BEHIND, (SESSIONS_AT_ONCE,))
    await _advance(db, [name for name, _ in behind])
    return bool(behind)


async def catch_up(db: Database) -> None:
    """All that is there now is searchable afterwards. What comes meanwhile is not waited for: it might never end."""
    behind = dict(await db.all(_BEHIND, (BEHIND_MAX,)))
    while behind:
        names = list(behind)[:SESSIONS_AT_ONCE]
        marks = await _advance(db, names)
        for name in names:
            if marks.get(name, behind[name]) >= behind[name]:
                del behind[name]


async def _advance(db: Database, names: list[str]) -> dict[str, int]:
    """Where each of those that are behind was before. Not where it is now: another server may have been faster."""
    groups: dict[str, Behind] = {}
    for name, no, done, last, seq, line in await db.all(_NEXT, (ENTRIES_AT_ONCE, names)):
        group = groups.setdefault(name, Behind(name, no, done, last))
        # Without entries where there should be some: damage, which reading reports. Searching goes on after it.
        if line is not None:
            group.lines.append((seq, line))
    few: list[Behind] = []
    for group in groups.values():
        few.append(group)
        if sum(len(each.lines) for each in few) >= ENTRIES_A_CALL:
            await _make_searchable(db, few)
            few = []
    await _make_searchable(db, few)
    return {name: group.done for name, group in groups.items()}


async def _make_searchable(db: Database, few: list[Behind]) -> None:
    if few:
        told = msgspec.json.encode([group.told() for group in few]).decode()
        await db.all("SELECT turnlog.searchable_1(%s::jsonb)", (told,))


def _words(line: str) -> list[str] | None:
    try:
        return lexemes_of(native.decode(line.encode()))
    except native.Undecodable:
        return []


async def reindex(db: Database, forget: Callable[[str], None], progress: Progress | None) -> int:
    """Every row anew from its transcript, and the search index with it."""
    names = [name for (name,) in await db.all(_ALL_SESSIONS)]
    for n, name in enumerate(names, 1):
        while not await _refold(db, name):
            pass
        forget(name)
        if progress:
            progress(n, len(names))
    await catch_up(db)
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
