"""Keeps the search index of a PostgreSQL store up to date, and rebuilds rows.

Each session has a mark up to which it is searchable, and only one of several servers can move that mark from its
current place. So each message is indexed once, and none is missed, however late its transaction commits.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from ...codecs import native
from ...core.entries import Entry
from ...core.rows import milliseconds
from ...core.searchable import SearchUnit, calls_in, results_in, units
from .. import Progress, sql
from ..finding import TOOLS_LOOKED_BACK
from .lexemes import words_of
from .pool import PostgresPool
from .row_functions import REFOLD
from .statements import folded, told_facts, told_of

SESSIONS_AT_ONCE = 50
ENTRIES_AT_ONCE = 50
"""Entries of one session at a time."""
ENTRIES_A_CALL = 50
"""Entries of one call, or a few more: during the call nothing is appended to its sessions, and nothing else
runs here.
"""
BEHIND_MAX = 1 << 31

_BEHIND = """
SELECT session_id, last_seq FROM turnlog.sessions WHERE indexed_to < last_seq ORDER BY session_id LIMIT %s
"""
_NEXT = """
SELECT s.session_id, s.session_no, s.indexed_to, s.last_seq, m.seq, m.meta_json FROM turnlog.sessions s
LEFT JOIN LATERAL (
    SELECT seq, meta_json FROM turnlog.session_messages
    WHERE session_id = s.session_id AND seq > s.indexed_to ORDER BY seq LIMIT %s
) m ON true
WHERE s.session_id = ANY(%s) AND s.indexed_to < s.last_seq ORDER BY s.session_id, m.seq
"""


class Behind:
    """A session with messages that are not searchable yet."""

    def __init__(self, name: str, no: int = 0, done: int = 0, last: int = 0) -> None:
        self.name = name
        self.no = no
        self.done = done
        self.last = last
        self.lines: list[tuple[int, Entry | None]] = []
        """Each entry with its seq; None if it cannot be read, which a reader of the session reports."""
        self.tools: dict[str, str] = {}
        """Call → tool, of the calls before these entries that have results in them."""

    def add(self, lines: Iterable[tuple[int, str]]) -> None:
        self.lines += [(seq, _decoded(line)) for seq, line in lines]

    def told(self) -> dict[str, Any]:
        """The argument of turnlog.searchable_3."""
        reached = self.lines[-1][0] if self.lines else self.last
        told = [found for _, entry in self.lines if entry is not None for found in self._units(entry)]
        return {"id": self.name, "no": self.no, "done": self.done, "reached": reached, "units": told}

    def _units(self, entry: Entry) -> Iterator[tuple[int, int, int, str, str]]:
        """(seq, part, time, role, words) of each unit of an entry."""
        for unit in self.units(entry):
            yield entry.seq, unit.part, milliseconds(entry.ts), unit.role, words_of(unit)

    def units(self, entry: Entry) -> list[SearchUnit]:
        """Of the next entry: its results are of calls in entries before it."""
        self.tools.update(calls_in(entry))
        return units(entry, self.tools)

    def unknown_calls(self) -> bool:
        """Whether a result's call was made before these entries."""
        known = dict(self.tools)
        for _, entry in self.lines:
            if entry is not None:
                known.update(calls_in(entry))
                if not known.keys() >= set(results_in(entry)):
                    return True
        return False


async def index_some(db: PostgresPool) -> bool:
    """Makes the next messages searchable; returns whether there may be more."""
    behind = await db.all(_BEHIND, (SESSIONS_AT_ONCE,))
    await _advance(db, [name for name, _ in behind])
    return bool(behind)


async def catch_up(db: PostgresPool) -> None:
    """Makes everything stored now searchable. It does not wait for later messages, or it might never end."""
    behind = dict(await db.all(_BEHIND, (BEHIND_MAX,)))
    while behind:
        names = list(behind)[:SESSIONS_AT_ONCE]
        marks = await _advance(db, names)
        for name in names:
            if marks.get(name, behind[name]) >= behind[name]:
                del behind[name]


async def _advance(db: PostgresPool, names: list[str]) -> dict[str, int]:
    """The previous marks of these sessions. Not the current ones: another server may have been faster."""
    groups: dict[str, Behind] = {}
    for name, no, done, last, seq, line in await db.all(_NEXT, (ENTRIES_AT_ONCE, names)):
        group = groups.setdefault(name, Behind(name, no, done, last))
        # No entries where there should be some: damage, which a reader reports. The search continues after it.
        if line is not None:
            group.add([(seq, line)])
    for group in groups.values():
        await know_tools(db, group)
    call: asyncio.Task[Any] | None = None
    for few in _calls(groups.values()):
        told = msgspec.json.encode([group.told() for group in few]).decode()
        if call is not None:
            await call
        # While the database works on this call, the next one is prepared.
        call = db.spawn(db.all("SELECT turnlog.searchable_3(%s::jsonb)", (told,)))
        await asyncio.sleep(0)  # sends it
    if call is not None:
        await call
    return {name: group.done for name, group in groups.items()}


def _calls(groups: Iterable[Behind]) -> Iterator[list[Behind]]:
    """The sessions of each call."""
    few: list[Behind] = []
    for group in groups:
        few.append(group)
        if sum(len(each.lines) for each in few) >= ENTRIES_A_CALL:
            yield few
            few = []
    if few:
        yield few


def _decoded(line: str) -> Entry | None:
    try:
        return native.decode(line.encode())
    except native.Undecodable:
        return None  # a reader of the session gets the error


async def know_tools(db: PostgresPool, group: Behind) -> None:
    """Looks for the calls of results further back."""
    if group.lines and group.unknown_calls():
        lines = await db.all(_CALLS, (group.name, group.lines[0][0] - TOOLS_LOOKED_BACK, group.lines[0][0]))
        for (line,) in lines:
            if (entry := _decoded(line)) is not None:
                group.tools.update(calls_in(entry))


_CALLS = """
SELECT meta_json FROM turnlog.session_messages
WHERE session_id = %s AND seq >= %s AND seq < %s AND role = 'assistant' ORDER BY seq
"""


async def reindex(db: PostgresPool, forget: Callable[[str], None], progress: Progress | None) -> int:
    """Rebuilds every row from its transcript, and the search index too."""
    names = [name for (name,) in await db.all(_ALL_SESSIONS)]
    for n, name in enumerate(names, 1):
        while not await _refold(db, name):
            pass
        forget(name)
        if progress:
            progress(n, len(names))
    await catch_up(db)
    return len(names)


async def refold_older(db: PostgresPool, forget: Callable[[str], None]) -> None:
    """Rebuilds the rows of an older version, which does not fill in columns that it does not know.

    One pass: rows written meanwhile are left for the next list, and a row whose log is gone stays as it is.
    """
    after = ""
    while names := await db.all(_OLDER, (after, SESSIONS_AT_ONCE)):
        for (after,) in names:
            while not await _refold(db, after, search_anew=False):
                pass
            forget(after)


_OLDER = f"""
SELECT session_id FROM turnlog.sessions WHERE {sql.OLDER_ROWS} AND session_id > %s ORDER BY session_id LIMIT %s
"""


async def _refold(db: PostgresPool, session_id: str, *, search_anew: bool = True) -> bool:
    """False if another process wrote to it meanwhile."""
    fold = await folded(db, session_id)
    if fold.is_empty:
        return True
    row = fold.row()
    told: dict[str, Any] = {"id": session_id, "last": row.last_seq, "search_anew": search_anew, **told_of(row, None)}
    told["facts"] = told_facts(fold.facts)
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
"""Goes from one session to the next along the index, instead of through all their entries."""

_REFOLD = f"SELECT turnlog.{REFOLD}(%s::jsonb)"
