"""Searches the SQLite store: keeps its index of words up to date from a high-water mark, and asks it."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ...codecs import native
from ...core.entries import Entry
from ...core.query import Query
from ...core.rows import Session
from ...core.search import Candidate, Sought, Wanted, newest_first
from ...core.searchable import calls_in
from .. import sql, word_index
from ..finding import TOOLS_LOOKED_BACK, EntryPlace
from ..word_index import Indexer, Within
from . import statements as statements
from .connection import SqliteConnection

INDEX_ROWS = 200
INDEX_BYTES = 2_000_000
"""Entries that are indexed in one transaction, by number and by size: appends wait for it."""
FEW_SESSIONS = 200
"""So few are named in the query of the index; a scope with more is checked match by match."""

T = TypeVar("T")


def index_some(db: SqliteConnection) -> bool:
    """Makes the next messages searchable; returns whether there may be more."""
    done = db.one("SELECT value FROM search_facts WHERE name = 'indexed_to'")
    rows = _next_rows(db, done)
    if not rows:
        return False
    index_rows(db, db, rows)
    db.run("UPDATE search_facts SET value = ? WHERE name = 'indexed_to'", (rows[-1][0],))
    return True


def _next_rows(db: SqliteConnection, done: int) -> list[tuple[Any, ...]]:
    sizes = db.all(
        "SELECT id, length(meta_json) FROM session_messages WHERE id > ? ORDER BY id LIMIT ?", (done, INDEX_ROWS)
    )
    last = total = 0
    for number, size in sizes:
        total += size or 0  # a damaged page may give anything
        if last and total > INDEX_BYTES:
            break
        last = number
    return db.all(
        f"SELECT id, session_id, {statements.LINE} FROM session_messages WHERE id > ? AND id <= ? ORDER BY id",
        (done, last),
    )


def index_rows(db: SqliteConnection, index: SqliteConnection, rows: Iterable[tuple[Any, ...]]) -> None:
    """`index`: the database that has the index; usually the same."""
    indexers: dict[str, Indexer] = {}
    for _, session_id, line in rows:
        if not isinstance(session_id, str):
            continue  # a damaged page; a reader of the session gets the error
        if session_id not in indexers:
            no = word_index.number_of(index, session_id)
            indexers[session_id] = Indexer(index, no, _earlier(db, session_id))
        try:
            entry = native.decode(line)
        except native.Undecodable:
            continue  # likewise
        indexers[session_id].add(entry)


def _earlier(db: SqliteConnection, session_id: str) -> Callable[[str, int], str]:
    def tool(call: str, before: int) -> str:
        lines = db.all(
            f"SELECT {statements.LINE} FROM session_messages WHERE session_id = ? AND seq < ? AND seq >= ?"
            " AND role = 'assistant' ORDER BY seq DESC",
            (session_id, before, before - TOOLS_LOOKED_BACK),
        )
        for (line,) in lines:
            if call.encode("utf-8", "surrogatepass") in line:
                try:
                    named = calls_in(native.decode(line))
                except native.Undecodable:
                    continue
                if call in named:
                    return named[call]
        return ""

    return tool


class SqliteLooking:
    """`look`: asks the store's reading connection, in a thread. `rest`: an index in memory of what the one in the file
    lacks, if nothing can be written.
    """

    def __init__(
        self,
        look: Callable[[Callable[[SqliteConnection], Any]], Awaitable[Any]],
        scope: Query,
        before: int | None,
        rest: SqliteConnection | None = None,
    ) -> None:
        self._look = look
        self._scope = scope
        self._before = before
        self._rest = rest

    async def candidates(self, step: Sequence[Wanted], sought: Sought) -> list[list[Candidate]]:
        return await self._look(lambda db: self._candidates(db, step, sought))

    def _candidates(self, db: SqliteConnection, step: Sequence[Wanted], sought: Sought) -> list[list[Candidate]]:
        indexes = [one for one in (db, self._rest) if one is not None and word_index.is_ready(one)]
        withins = [self._within(db, index) for index in indexes]
        found: list[list[Candidate]] = []
        for wanted in step:
            both = zip(indexes, withins, strict=True)
            parts = [word_index.find(index, wanted, sought, within) for index, within in both]
            found.append(parts[0] if len(parts) == 1 else newest_first([c for p in parts for c in p], wanted.most))
        return found

    def _within(self, db: SqliteConnection, index: SqliteConnection) -> Within:
        """A small part of the sessions is named to the index; otherwise matches are checked until there are enough."""
        where, values = statements.conditions(self._scope)
        if not where:
            return Within(before=self._before)
        found = f"SELECT session_id FROM sessions{sql.where(where)}"
        few = [name for (name,) in db.all(f"{found} LIMIT ?", (*values, FEW_SESSIONS + 1))]
        total = db.one("SELECT count(*) FROM sessions")
        if len(few) <= FEW_SESSIONS and word_index.is_small_part(len(few), total):
            return Within(sessions=word_index.numbers_of(index, few), before=self._before)
        if index is not db:
            few = [name for (name,) in db.all(found, values)]
            return Within(before=self._before, condition=word_index.AMONG, values=(word_index.listed(few),))
        inside = f"EXISTS (SELECT 1 FROM sessions{sql.where([*where, 'sessions.session_id = s.session_id'])})"
        return Within(before=self._before, condition=inside, values=values)

    async def rows(self, session_ids: Sequence[str]) -> Mapping[str, Session]:
        def look(db: SqliteConnection) -> dict[str, Session]:
            found = ((name, statements.row_of(db, name)) for name in session_ids)
            return {name: row for name, row in found if row is not None}

        return await self._look(look)

    async def entries(self, places: Sequence[EntryPlace]) -> Mapping[EntryPlace, Entry]:
        def look(db: SqliteConnection) -> dict[EntryPlace, Entry]:
            found: dict[EntryPlace, Entry] = {}
            for session_id, seq in places:
                line = db.one(
                    f"SELECT {statements.LINE} FROM session_messages WHERE session_id = ? AND seq = ?",
                    (session_id, seq),
                )
                try:
                    if line is not None:
                        found[session_id, seq] = native.decode(line)
                except native.Undecodable:
                    continue
            return found

        return await self._look(look)


def rest_in_memory(db: SqliteConnection, rest: SqliteConnection | None) -> SqliteConnection:
    """Indexes what the index in the file lacks, where nothing can be written."""
    if rest is None:
        rest = SqliteConnection(":memory:")
        word_index.prepare(rest)
        done = db.one("SELECT value FROM search_facts WHERE name = 'indexed_to'") if word_index.is_ready(db) else 0
        rest.run("UPDATE search_facts SET value = ? WHERE name = 'indexed_to'", (done,))
    done = rest.one("SELECT value FROM search_facts WHERE name = 'indexed_to'")
    while rows := _next_rows(db, done):
        index_rows(db, rest, rows)
        done = rows[-1][0]
    rest.run("UPDATE search_facts SET value = ? WHERE name = 'indexed_to'", (done,))
    return rest
