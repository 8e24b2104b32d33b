"""Queries to SQLite: rows, entries, lists. Every function takes the connection to use."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import replace

from ...codecs import native
from ...core import paging, query as queries
from ...core.entries import Entry
from ...core.facts import Fact, FactChange, FactChoice
from ...core.query import Page, Query
from ...core.rows import FOLD, decode_row
from ...core.session import Interval, Session, active
from ...errors import Corrupt
from .. import sql
from ..stamping import unreadable
from .connection import SqliteConnection

REFOLD_ROWS = 100
"""Rows of an older version rebuilt in one transaction: others wait for it."""
FEW = 5_000
"""So few rows are faster to sort than to find by a walk over all."""
FEW_OF_BROAD = 500
"""The same for rows of an agent, a channel or a status: a walk usually meets them soon."""


def row_text(db: SqliteConnection, session_id: str) -> str | None:
    return db.one("SELECT meta_json FROM sessions WHERE session_id = ?", (session_id,))


def row_of(db: SqliteConnection, session_id: str) -> Session | None:
    found = row_text(db, session_id)
    if found is None:
        return None
    row = decode_row(found)
    if row.fold == FOLD:
        return row
    fold = sql.LogFold()
    fold.add(readable(db, session_id, 0, row.last_seq + 1))
    return fold.refolded(row)


def missing_columns(db: SqliteConnection) -> list[str]:
    """How to add the columns of rows that an older version made the table without."""
    there = {found[1] for found in db.all("PRAGMA table_info(sessions)")}
    wanted = sql.definitions({bool: "INTEGER", int: "INTEGER", str: "TEXT"})
    return [definition for name, definition in wanted.items() if name not in there]


def complete(db: SqliteConnection) -> None:
    """Adds what this version needs of `sessions`: its columns, their indexes, and that of rows to be rebuilt."""
    for definition in missing_columns(db):
        db.run(f"ALTER TABLE sessions ADD COLUMN {definition}")
    for name, of in sql.INDEXES.items():
        db.run(f"CREATE INDEX IF NOT EXISTS {name} ON sessions {of}")
    db.run(f"CREATE INDEX IF NOT EXISTS sessions_fold_{FOLD} ON sessions (session_id) WHERE {sql.OLDER_ROWS}")


def has_older(db: SqliteConnection) -> bool:
    return db.one(f"SELECT 1 FROM sessions WHERE {sql.OLDER_ROWS} LIMIT 1") is not None


def refold_older(db: SqliteConnection) -> bool:
    """Rebuilds some rows of an older version; returns whether there may be more."""
    found = db.all(f"SELECT session_id FROM sessions WHERE {sql.OLDER_ROWS} LIMIT ?", (REFOLD_ROWS,))
    for (session_id,) in found:
        row = row_of(db, session_id)
        assert row is not None  # it was there in this very transaction
        save(db, replace(row, fold=FOLD))
    return len(found) == REFOLD_ROWS


_STORED = (*sql.COLUMNS, "haystack")
_TEXT = sql.COLUMNS.index("meta_json")
_SAVE = (
    f"INSERT INTO sessions ({', '.join(_STORED)}) VALUES ({', '.join('?' * len(_STORED))})"
    " ON CONFLICT (session_id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in (*sql.CHANGING, "haystack"))
)


def save(db: SqliteConnection, row: Session) -> str:
    """Returns the text of the row."""
    values = sql.values_of(row, _storable)
    db.run(_SAVE, (*values, _storable(queries.haystack(row))))
    return values[_TEXT]


def update(db: SqliteConnection, before: Session, row: Session) -> str:
    """Saves the row over one that this store has saved, and returns its text.

    SQLite writes an index anew for each column that a statement sets, also to the same value; so only what changed is
    set.
    """
    fields = zip(sql.FIELD_COLUMNS, sql.fields_in(before), sql.fields_in(row), strict=True)
    changed: dict[str, Any] = {name: new for name, old, new in fields if new != old}
    if queries.haystack_of(row) != queries.haystack_of(before):
        changed["haystack"] = queries.haystack(row)
    values = [_storable(value) if isinstance(value, str) else value for value in changed.values()]
    text = native.encode_plain(row).decode()
    db.run(_setting(tuple(changed)), (*values, text, row.id))
    return text


@lru_cache(maxsize=64)
def _setting(names: tuple[str, ...]) -> str:
    return f"UPDATE sessions SET {', '.join(f'{name} = ?' for name in (*names, 'meta_json'))} WHERE session_id = ?"


def _storable(text: str) -> str:
    """Replaces lone surrogates in columns for queries; the entry itself keeps them."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def select(db: SqliteConnection, row: Session) -> None:
    """Messages for the row's key go to its session from now on."""
    db.run("INSERT OR REPLACE INTO session_index VALUES (?, ?, ?)", (row.key, row.id, row.last_at))


def save_state(db: SqliteConnection, row: Session) -> None:
    stack = active(row.marks, row.last_seq)
    if not stack:
        db.run("DELETE FROM session_state WHERE session_id = ?", (row.id,))
        return
    newest = stack[-1]
    summary = db.one(
        "SELECT json_extract(meta_json, '$.summary') FROM session_messages WHERE session_id = ? AND seq = ?",
        (row.id, newest.seq),
    )
    last = db.one(
        "SELECT max(id) FROM session_messages WHERE session_id = ? AND seq < ? AND role IS NOT NULL"
        " AND json_extract(meta_json, '$.type') <> 'compaction'",
        (row.id, newest.at),
    )
    for name, value in (("compaction_after_message_id", last), ("compaction_summary", summary)):
        db.run(
            "INSERT OR REPLACE INTO session_state VALUES (?, ?, ?)",
            (row.id, name, msgspec.json.encode(value).decode()),
        )


def ends_of(db: SqliteConnection, session_ids: Sequence[str]) -> dict[str, int]:
    """The last seq of each existing session."""
    wanted = msgspec.json.encode(session_ids).decode()
    return dict(
        db.all(
            "SELECT session_id, last_seq FROM sessions WHERE session_id IN (SELECT value FROM json_each(?))", (wanted,)
        )
    )


LINE = "coalesce(CAST(meta_json AS BLOB), x'')"
"""The line of an entry as bytes, which the decoder takes as they are. In a damaged page it may be NULL."""


def entries_of(db: SqliteConnection, session_id: str, after: int, before: int | None, limit: int | None) -> list[Entry]:
    rows = db.all(
        f"SELECT {LINE} FROM session_messages WHERE session_id = ? AND seq > ? AND seq < ? ORDER BY seq LIMIT ?",
        (session_id, after, 1 << 62 if before is None else before, -1 if limit is None else limit),
    )
    return sql.decode_entries(session_id, after, [row[0] for row in rows])


def readable(db: SqliteConnection, session_id: str, after: int = 0, before: int | None = None) -> Iterator[Entry]:
    """Entries for computing the row, read in parts: unreadable places become entries without effect."""
    count = paging.FIRST_ENTRIES
    while True:
        try:
            page = entries_of(db, session_id, after, before, count)
        except Corrupt as error:
            page = entries_of(db, session_id, after, error.after + 1, None)
            page += [unreadable(seq, error) for seq in range(error.after + 1, error.before or error.after + 2)]
        if not page:
            return
        yield from page
        after = page[-1].seq
        if before is not None and after >= before - 1:
            return
        count = paging.next_count(page)


def readable_in(db: SqliteConnection, session_id: str, wanted: Sequence[Interval]) -> Iterable[Entry]:
    """The same for several stretches of the log. Few entries are read at once."""
    if sum(last - first + 1 for first, last in wanted) <= paging.FEW_ENTRIES:
        seqs = [seq for first, last in wanted for seq in range(first, last + 1)]
        lines = db.all(_few_entries(len(seqs)), (session_id, *seqs))
        with suppress(native.Undecodable):
            entries = native.decode_each([line for (line,) in lines])
            if [entry.seq for entry in entries] == seqs:
                return entries
    return chain.from_iterable(readable(db, session_id, first - 1, last + 1) for first, last in wanted)


@lru_cache(maxsize=paging.FEW_ENTRIES)
def _few_entries(count: int) -> str:
    values = ", ".join("?" * count)
    return f"SELECT {LINE} FROM session_messages WHERE session_id = ? AND seq IN ({values}) ORDER BY seq"


def find(db: SqliteConnection, query: Query) -> Page[Session]:
    where, values = _looked_through(db, query) if query.q and not is_narrow(query) else conditions(query)
    collected, few = (_without_index(where, _BROAD), FEW) if is_narrow(query) else (where, FEW_OF_BROAD)
    total = db.one(f"SELECT count(*) FROM sessions{sql.where(collected)}", values)
    if not total:
        return Page([], None, 0)
    names = sql.RANKS[query.sort]
    place = queries.place(query) or ()
    walk = collected if total <= few else _without_index(where, (*_BROAD, *_NARROW))
    if place:
        walk = [*walk, f"({', '.join(names)}) < ({', '.join('?' * len(names))})"]
    order = ", ".join(f"{name} DESC" for name in names)
    # First the ids, from an index alone; then only these rows.
    found = db.all(
        f"SELECT meta_json FROM sessions WHERE rowid IN (SELECT rowid FROM sessions{sql.where(walk)}"
        f" ORDER BY {order} LIMIT ?) ORDER BY {order}",
        (*values, *place, query.limit + 1),
    )
    return queries.page(query, [decode_row(item[0]) for item in found], total)


_BROAD = ("channel", "status", "agent_id")
"""Columns in which many rows are equal."""
_NARROW = ("session_id", "session_key", "label", "peer", "(session_key")


def _without_index(where: Sequence[str], columns: tuple[str, ...]) -> list[str]:
    """`+` keeps the planner from an index of these columns."""
    return ["+" + clause if clause.startswith(columns) else clause for clause in where]


def _looked_through(db: SqliteConnection, query: Query) -> tuple[list[str], list[Any]]:
    """Few matching rows are collected from the index of words. Many are found soon by a walk, and only counted."""
    where, values = conditions(query)
    where = ["+" + clause for clause in where]
    found = db.all(f"SELECT rowid FROM sessions{sql.where(where)} LIMIT ?", (*values, FEW + 1))
    if len(found) > FEW:
        return where, values
    return ["rowid IN (SELECT value FROM json_each(?))"], [msgspec.json.encode([row[0] for row in found]).decode()]


def is_narrow(query: Query) -> bool:
    """Whether few can match, and an index finds them."""
    if query.ids or query.homes or query.unfinished or not sql.RARE.keys().isdisjoint(queries.compared(query)):
        return True
    return any(value is not None for value in (query.id, query.key, query.label, query.peer))


def is_quick(query: Query) -> bool:
    """Whether no table has to be read from end to end, except for counting."""
    rest = query.q is None and query.prefix is query.key_prefix is None
    return is_narrow(query) or (rest and query.sort == "newest")


def conditions(query: Query) -> tuple[list[str], list[Any]]:
    where: list[str] = []
    values: list[Any] = []
    for name, wanted in queries.compared(query):
        if rare := sql.RARE.get((name, wanted)):
            where.append(rare)
            continue
        where.append(f"{sql.column(name)} IN ({', '.join('?' * len(wanted))})")
        values += [_storable(value) if isinstance(value, str) else value for value in wanted]
    if query.prefix is not None:
        begins = "substr({}, 1, ?) = ?"
        where.append(f"({' OR '.join(begins.format(c) for c in ('session_id', 'session_key', 'label'))})")
        values += [len(query.prefix), _storable(query.prefix)] * 3
    if query.key_prefix:
        where.append("session_key >= ? AND session_key < ?")
        values += [_storable(query.key_prefix), sql.past(_storable(query.key_prefix))]
    if query.homes:
        ranges = ["session_key = ?"] * len(query.homes) + ["session_key >= ? AND session_key < ?"] * len(query.homes)
        where.append(f"({' OR '.join(ranges)})")
        values += map(_storable, query.homes)
        for begins in map(_storable, queries.threads_at(query.homes)):
            values += [begins, sql.past(begins)]
    if query.unfinished:
        where.append("unfinished")
    for word in (query.q or "").casefold().split():
        where.append("instr(haystack, ?) > 0")
        values.append(_storable(word))
    return where, values


def index_facts(db: SqliteConnection, session_id: str, changes: Sequence[FactChange]) -> None:
    for change in changes:
        place = session_id, change.app, sql.key_bytes(change.key)
        if change.seq is None:
            db.run("DELETE FROM session_facts WHERE session_id = ? AND app = ? AND key = ?", place)
        else:
            db.run("INSERT OR REPLACE INTO session_facts VALUES (?, ?, ?, ?)", (*place, change.seq))


def seq_of_fact(db: SqliteConnection, session_id: str, app: str, key: str) -> int | None:
    place = session_id, app, sql.key_bytes(key)
    return db.one("SELECT seq FROM session_facts WHERE session_id = ? AND app = ? AND key = ?", place)


def facts_of(db: SqliteConnection, session_id: str, wanted: FactChoice) -> list[Fact]:
    where, values = "f.key >= ? AND f.key < ?", [prefix := sql.key_bytes(wanted.prefix), sql.past_bytes(prefix)]
    if wanted.keys:
        names = [sql.key_bytes(key) for key in wanted.wanted]
        where, values = f"f.key IN ({', '.join('?' * len(names))})", names
    found = db.all(
        f"SELECT f.key, f.seq, {LINE} FROM session_facts f"
        " JOIN session_messages m ON m.session_id = f.session_id AND m.seq = f.seq"
        f" WHERE f.session_id = ? AND f.app = ? AND {where} ORDER BY f.key{' DESC' if wanted.last else ''} LIMIT ?",
        (session_id, wanted.app, *values, -1 if wanted.limit is None else wanted.limit),
    )
    return sql.facts_in(session_id, wanted.app, found)


def refold(db: SqliteConnection, session_id: str) -> None:
    fold = sql.LogFold()
    fold.add(readable(db, session_id))
    row = fold.row()
    db.run("DELETE FROM session_facts WHERE session_id = ?", (session_id,))
    index_facts(db, session_id, fold.facts)
    save(db, row)
    save_state(db, row)
    if row.selected_n:
        current = db.one("SELECT active_session_id FROM session_index WHERE session_key = ?", (row.key,))
        other = row_of(db, current) if current else None
        if other is None or other.selected_n <= row.selected_n:
            select(db, row)
