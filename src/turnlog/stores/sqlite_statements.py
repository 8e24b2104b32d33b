"""What is said to SQLite: rows, entries, lists, searches. Every function takes the connection it is to use."""

from collections.abc import Sequence
from typing import Any

import msgspec

from ..codecs import native
from ..core import query as queries, search
from ..core.entries import Entry
from ..core.query import Hit, Page, Query, Sort
from ..core.session import Session, active, describe
from ..errors import Corrupt
from .sqlite_db import Database

INDEX_ROWS = 500
"""Messages made searchable in one go."""
FEW = 5_000
"""Rows that are put in order faster than they are met by walking all."""

_row_decoder = msgspec.json.Decoder(Session)


def row_of(db: Database, session_id: str) -> Session | None:
    found = db.one("SELECT meta_json FROM sessions WHERE session_id = ?", (session_id,))
    return None if found is None else _row_decoder.decode(found)


_SAVE = """
INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (session_id) DO UPDATE SET
    status = excluded.status, title = excluded.title, message_count = excluded.message_count,
    turn_count = excluded.turn_count, token_estimate = excluded.token_estimate, compactions = excluded.compactions,
    last_seq = excluded.last_seq, boundary = excluded.boundary, updated_at = excluded.updated_at,
    haystack = excluded.haystack, meta_json = excluded.meta_json
"""


def save(db: Database, row: Session) -> None:
    """Columns that never change (id, key, agent, channel, label, creation) are not touched, nor are their indexes."""
    db.run(
        _SAVE,
        (
            row.id,
            row.key,
            row.agent,
            row.channel,
            row.label,
            row.status,
            _storable(row.title),
            row.message_count,
            row.turn_count,
            row.token_estimate,
            row.compactions,
            row.last_seq,
            row.boundary,
            row.created_at,
            row.last_at,
            _storable(queries.haystack(row)),
            native.encode_plain(row).decode(),
        ),
    )


def _storable(text: str) -> str:
    """These columns are only looked at; the entry itself keeps lone surrogates."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def save_state(db: Database, row: Session) -> None:
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


def ends_of(db: Database, session_ids: Sequence[str]) -> dict[str, int]:
    """The last seq of each that there is."""
    wanted = msgspec.json.encode(session_ids).decode()
    return dict(
        db.all(
            "SELECT session_id, last_seq FROM sessions WHERE session_id IN (SELECT value FROM json_each(?))", (wanted,)
        )
    )


def entries_of(db: Database, session_id: str, after: int, before: int | None, limit: int | None) -> list[Entry]:
    rows = db.all(
        "SELECT meta_json FROM session_messages WHERE session_id = ? AND seq > ? AND seq < ? ORDER BY seq LIMIT ?",
        (session_id, after, 1 << 62 if before is None else before, -1 if limit is None else limit),
    )
    try:
        entries = native.decode_lines("\n".join([row[0] for row in rows]))
    except native.Undecodable:
        entries = [_decode(session_id, after + n, row[0]) for n, row in enumerate(rows, 1)]
    if entries and entries[-1].seq != after + len(entries):
        last = next(n for n, entry in enumerate(entries, after + 1) if entry.seq != n) - 1
        following = next(entry.seq for entry in entries if entry.seq > last)
        raise Corrupt(
            f"session {session_id}: entries {last + 1} to {following - 1} are missing", after=last, before=following
        )
    if after == 0 and entries:
        native.check_version(entries[0], f"session {session_id}")
    return entries


def _decode(session_id: str, seq: int, line: str) -> Entry:
    try:
        return native.decode(line.encode())
    except native.Undecodable as error:
        raise Corrupt(
            f"session {session_id}, entry {seq}: not a readable entry ({error})",
            path=f"session_messages of {session_id}",
            line=seq,
            after=seq - 1,
            before=seq + 1,
        ) from error


def find(db: Database, query: Query) -> Page[Session]:
    where, values = _looked_through(db, query) if query.q and not is_narrow(query) else _conditions(query)
    total = db.one(f"SELECT count(*) FROM sessions{_where(where)}", values)
    if not total:
        return Page([], None, 0)
    names = _RANKS[query.sort]
    place = queries.place(query) or ()
    # Most sessions have the same channel and status, or one of several agents: walking them in order meets enough at
    # once, collecting and sorting them does not. `+` keeps the planner from that.
    common = ("channel", "status") if isinstance(query.agent, str) else ("channel", "status", "agent_id")
    walk = ["+" + clause if clause.startswith(common) else clause for clause in where]
    if place:
        walk.append(f"({', '.join(names)}) < ({', '.join('?' * len(names))})")
    order = ", ".join(f"{name} DESC" for name in names)
    # Which rows, from an index alone; and only then these rows themselves.
    found = db.all(
        f"SELECT meta_json FROM sessions WHERE rowid IN (SELECT rowid FROM sessions{_where(walk)}"
        f" ORDER BY {order} LIMIT ?) ORDER BY {order}",
        (*values, *place, query.limit + 1),
    )
    return queries.page(query, [_row_decoder.decode(item[0]) for item in found], total)


def _looked_through(db: Database, query: Query) -> tuple[list[str], list[Any]]:
    """Few that have the words are collected from the words' index. Many are soon met by a walk, and only counted."""
    where, values = _conditions(query)
    where = ["+" + clause for clause in where]
    found = db.all(f"SELECT rowid FROM sessions{_where(where)} LIMIT ?", (*values, FEW + 1))
    if len(found) > FEW:
        return where, values
    return ["rowid IN (SELECT value FROM json_each(?))"], [msgspec.json.encode([row[0] for row in found]).decode()]


def is_narrow(query: Query) -> bool:
    """Few can match, and an index of their own finds them."""
    return bool(query.ids) or any(value is not None for value in (query.id, query.key, query.label))


def is_quick(query: Query) -> bool:
    """Nothing has to be looked through from end to end, except to count."""
    rest = query.q is None and query.prefix is None and not query.unfinished
    return is_narrow(query) or (rest and query.sort == "newest")


_RANKS: dict[Sort, tuple[str, ...]] = {
    "newest": ("updated_at", "session_id"),
    "messages": ("message_count", "updated_at", "session_id"),
    "tokens": ("token_estimate", "updated_at", "session_id"),
}


def _where(conditions: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _conditions(query: Query) -> tuple[list[str], list[Any]]:
    where: list[str] = []
    values: list[Any] = []
    columns = (
        ("session_id", query.id),
        ("session_key", query.key),
        ("channel", query.channel),
        ("label", query.label),
    )
    for column, value in columns:
        if value is not None:
            where.append(f"{column} = ?")
            values.append(_storable(value))
    for column, any_of in (
        ("agent_id", queries.agents(query)),
        ("status", queries.statuses(query)),
        ("session_id", query.ids or None),
    ):
        if any_of is not None:
            where.append(f"{column} IN ({', '.join('?' * len(any_of))})")
            values += map(_storable, any_of)
    if query.prefix is not None:
        begins = "substr({}, 1, ?) = ?"
        where.append(f"({' OR '.join(begins.format(c) for c in ('session_id', 'session_key', 'label'))})")
        values += [len(query.prefix), _storable(query.prefix)] * 3
    if query.unfinished:
        # Asked once, at a start: reading every row costs less over the years than an index that every turn changes.
        where.append(_UNFINISHED)
    for word in (query.q or "").casefold().split():
        where.append("instr(haystack, ?) > 0")
        values.append(_storable(word))
    return where, values


_UNFINISHED = (
    "(json_extract(meta_json, '$.lastRole') IN ('user', 'call', 'tool')"
    " OR json_extract(meta_json, '$.received') IS NOT NULL)"
)


def search_in(db: Database, terms: search.Terms, scope: Query) -> list[Hit]:
    where, values = _conditions(scope)
    phrases = " ".join(_phrase(term) for term in terms)
    inside = f" AND m.session_id IN (SELECT session_id FROM sessions{_where(where)})" if where else ""
    found = db.all(
        "SELECT m.session_id, m.meta_json FROM session_search s JOIN session_messages m ON m.id = s.rowid"
        f" WHERE s.words MATCH ?{inside} ORDER BY s.rowid DESC LIMIT ?",
        (phrases, *values, scope.limit),
    )
    hits: list[Hit] = []
    for session_id, line in found:
        entry = native.decode(line.encode())
        text = search.searchable(entry)
        hits.append(
            Hit(
                session_id=session_id,
                seq=entry.seq,
                role=search.role_of(entry),
                snippet=search.snippet(terms, text),
            )
        )
    return hits


def _phrase(term: search.Term) -> str:
    """Tokens hold letters and digits only, so there is nothing to escape."""
    return f'"{" ".join(term.tokens)}"' + ("*" if term.open_ended else "")


def index_some(db: Database) -> bool:
    """Makes the next messages searchable; whether there may be more."""
    done = db.one("SELECT value FROM store_facts WHERE name = 'search_indexed_to'")
    rows = db.all("SELECT id, meta_json FROM session_messages WHERE id > ? ORDER BY id LIMIT ?", (done, INDEX_ROWS))
    if not rows:
        return False
    words = [(number, " ".join(search.tokenise(_searchable(line)))) for number, line in rows]
    db.many("INSERT INTO session_search (rowid, words) VALUES (?, ?)", [w for w in words if w[1]])
    db.run("UPDATE store_facts SET value = ? WHERE name = 'search_indexed_to'", (rows[-1][0],))
    return len(rows) == INDEX_ROWS


def _searchable(line: str) -> str:
    try:
        return search.searchable(native.decode(line.encode()))
    except native.Undecodable:
        return ""


def erase_some(db: Database) -> bool:
    """Merges the search index, which only then lets go of deleted words; whether there may be more to do."""
    before = db.changes
    db.run("INSERT INTO session_search (session_search, rank) VALUES ('merge', -500)")
    return db.changes - before >= 2


def forget_search(db: Database) -> None:
    db.run("DELETE FROM session_search")
    db.run("UPDATE store_facts SET value = 0 WHERE name = 'search_indexed_to'")


def refold(db: Database, session_id: str) -> None:
    row = describe(None, entries_of(db, session_id, 0, None, None))
    save(db, row)
    save_state(db, row)
    if row.selected_n:
        current = db.one("SELECT active_session_id FROM session_index WHERE session_key = ?", (row.key,))
        other = row_of(db, current) if current else None
        if other is None or other.selected_n <= row.selected_n:
            db.run("INSERT OR REPLACE INTO session_index VALUES (?, ?, ?)", (row.key, row.id, row.last_at))
