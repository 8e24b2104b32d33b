"""What is said to PostgreSQL to look: rows, entries, lists, searches. And how a row is spread over its columns."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from ..codecs import native
from ..core import query as queries, search
from ..core.entries import Assistant, Compaction, Entry, ToolResult, User
from ..core.query import Hit, Page, Query
from ..core.session import Session, active
from ..errors import Corrupt
from .postgres_pool import Database

GRAM_CHARS = 3
LEXEME_CHARS = 400
"""A lexeme has at most 2,046 bytes. Longer tokens are found by their beginning and then compared whole."""
WORDS_MAX_BYTES = 800_000
"""Of one tsvector, which holds a megabyte with its own bookkeeping."""
CANDIDATES = 200
"""Looked at in one go; nearly all of them are hits."""
SEARCH_S = 60.0

decode_row = msgspec.json.Decoder(Session).decode


def storable(text: str) -> str:
    """These columns are only looked at; the entry itself keeps NULs and lone surrogates."""
    text = text.replace("\x00", "")
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def role_of(entry: Entry, summary_role: str | None) -> str | None:
    match entry:
        case User():
            return "user"
        case Assistant():
            return "assistant"
        case ToolResult():
            return "tool"
        case Compaction():
            return summary_role
        case _:
            return None


def columns(row: Session, before: Session | None) -> dict[str, Any]:
    """The row as turnlog.append_1 takes it."""
    stack = active(row.marks, row.last_seq) if row.compactions else []
    found: dict[str, Any] = {
        "key": storable(row.key),
        "agent": storable(row.agent),
        "channel": storable(row.channel),
        "label": None if row.label is None else storable(row.label),
        "status": row.status,
        "title": storable(row.title),
        "messages": row.message_count,
        "turns": row.turn_count,
        "tokens": row.token_estimate,
        "compactions": row.compactions,
        "compaction_seq": stack[-1].seq if stack else 0,
        "boundary": row.boundary,
        "selected_n": row.selected_n,
        "unfinished": bool(row.received) or row.under_way,
        "created_at": row.created_at,
        "updated_at": row.last_at,
        "row": native.encode_plain(row).decode(),
    }
    if before is None or before.title != row.title:  # nothing else in the haystack ever changes
        found |= words_of_row(row)
    return found


def words_of_row(row: Session) -> dict[str, Any]:
    haystack = storable(queries.haystack(row))
    return {"haystack": haystack, "grams": sorted(grams(haystack))}


def grams(text: str) -> set[str]:
    """Every run of one to three characters, so that a word of any length can be looked up."""
    runs = (text[at : at + size] for size in range(1, GRAM_CHARS + 1) for at in range(len(text) - size + 1))
    return set(runs)


async def row_of(db: Database, session_id: str) -> Session | None:
    found = await db.one("SELECT meta_json FROM turnlog.sessions WHERE session_id = %s", (session_id,))
    return None if found is None else decode_row(found)


async def entries_of(
    db: Database, session_id: str, after: int = 0, before: int | None = None, limit: int | None = None
) -> list[Entry]:
    rows = await db.all(
        "SELECT meta_json FROM turnlog.session_messages WHERE session_id = %s AND seq > %s AND seq < %s"
        " ORDER BY seq LIMIT %s",
        (session_id, after, 1 << 62 if before is None else before, limit),
    )
    try:
        entries = native.decode_lines("\n".join([row[0] for row in rows]))
    except native.Undecodable:
        entries = [_decode(session_id, after + n, row[0]) for n, row in enumerate(rows, 1)]
    _check_gaps(session_id, entries, after)
    if after == 0 and entries:
        native.check_version(entries[0], f"session {session_id}")
    return entries


def _check_gaps(session_id: str, entries: Sequence[Entry], after: int) -> None:
    if entries and entries[-1].seq != after + len(entries):
        last = next(n for n, entry in enumerate(entries, after + 1) if entry.seq != n) - 1
        following = next(entry.seq for entry in entries if entry.seq > last)
        raise Corrupt(
            f"session {session_id}: entries {last + 1} to {following - 1} are missing", after=last, before=following
        )


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


async def find(db: Database, query: Query) -> Page[Session]:
    where, values = conditions(query)
    page = where
    more: list[Any] = []
    if query.cursor is not None:
        page, more = [*where, "(s.updated_at, s.session_id) < (%s, %s)"], [*queries.place(query.cursor)]
    # One statement, so that the page and the total are of the same moment.
    found = await db.all(
        f"SELECT (SELECT count(*) FROM turnlog.sessions s{_where(where)}), p.meta_json FROM (SELECT 1) one LEFT JOIN"
        f" (SELECT s.meta_json, s.updated_at, s.session_id FROM turnlog.sessions s{_where(page)}"
        " ORDER BY s.updated_at DESC, s.session_id DESC LIMIT %s) p ON true"
        " ORDER BY p.updated_at DESC, p.session_id DESC",
        (*values, *values, *more, query.limit + 1),
    )
    rows = [decode_row(line) for _, line in found if line is not None]
    items = rows[: query.limit]
    return Page(items, queries.cursor_after(items[-1]) if len(rows) > query.limit else None, found[0][0])


def _where(clauses: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(clauses)}" if clauses else ""


def conditions(query: Query) -> tuple[list[str], list[Any]]:
    """On `turnlog.sessions s`."""
    where: list[str] = []
    values: list[Any] = []
    equal = (
        ("session_id", query.id),
        ("session_key", query.key),
        ("agent_id", query.agent),
        ("channel", query.channel),
        ("label", query.label),
        ("status", query.status),
    )
    for column, value in equal:
        if value is not None:
            where.append(f"s.{column} = %s")
            values.append(storable(value))
    if query.ids:
        where.append("s.session_id = ANY(%s)")
        values.append([storable(name) for name in query.ids])
    if query.unfinished:
        where.append("s.unfinished")
    if query.prefix is not None:
        where.append("(s.session_id ^@ %s OR s.session_key ^@ %s OR s.label ^@ %s)")
        values += [storable(query.prefix)] * 3
    if words := storable((query.q or "").casefold()).split():
        where.append(
            "s.session_id IN (SELECT w.session_id FROM turnlog.session_words w WHERE w.grams @@ %s::tsquery"
            f"{' AND strpos(w.haystack, %s) > 0' * len(words)})"
        )
        values += [" & ".join(_lexeme(gram) for word in words for gram in _grams_wanted(word)), *words]
    return where, values


def _grams_wanted(word: str) -> list[str]:
    if len(word) <= GRAM_CHARS:
        return [word]
    return [word[at : at + GRAM_CHARS] for at in range(len(word) - GRAM_CHARS + 1)]


def _lexeme(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


async def search_in(db: Database, terms: search.Terms, scope: Query) -> list[Hit]:
    """The index gives candidates, newest first; the core's rule decides, as on every store."""
    where, values = conditions(scope)
    inside = f" AND t.session_id IN (SELECT s.session_id FROM turnlog.sessions s{_where(where)})" if where else ""
    wanted = " & ".join(lexeme for term in terms for lexeme in _lexemes_wanted(term))
    hits: list[Hit] = []
    below = 1 << 62
    while len(hits) < scope.limit:
        found = await db.all(
            "SELECT t.id, m.session_id, m.meta_json FROM turnlog.session_search t"
            " JOIN turnlog.session_messages m ON m.session_id = t.session_id AND m.seq = t.seq"
            f" WHERE (t.words @@ %s::tsquery OR t.words IS NULL) AND t.id < %s{inside} ORDER BY t.id DESC LIMIT %s",
            (wanted, below, *values, CANDIDATES),
            call_s=SEARCH_S,
        )
        hits += _hits(terms, found)
        if len(found) < CANDIDATES:
            break
        below = found[-1][0]
    return hits[: scope.limit]


def _hits(terms: search.Terms, found: Sequence[Sequence[Any]]) -> Iterator[Hit]:
    for _, session_id, line in found:
        entry = native.decode(line.encode())
        text = search.searchable(entry)
        if search.found(terms, text):
            yield Hit(
                session_id=session_id,
                seq=entry.seq,
                role=search.role_of(entry),
                snippet=search.snippet(terms, text),
            )


def _lexemes_wanted(term: search.Term) -> list[str]:
    """Neighbouring characters of Chinese and Japanese are one lexeme too, because each alone is in every other text."""
    tokens = term.tokens
    pairs = [_lexeme(first + second) for first, second in _pairs(tokens[:-1] if term.open_ended else tokens)]
    single = [_lexeme(token[:LEXEME_CHARS]) for token in tokens[:-1]]
    return [*single, _lexeme(tokens[-1][:LEXEME_CHARS]) + (":*" if term.open_ended else ""), *pairs]


def _pairs(tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
    for first, second in pairwise(tokens):
        if len(first) == len(second) == 1 and not first.isascii() and not second.isascii():
            yield first, second


def lexemes_of(entry: Entry) -> list[str] | None:
    """What an entry is found by; None if that is too much to be kept."""
    tokens = search.tokenise(search.searchable(entry))
    kept = {token[:LEXEME_CHARS] for token in tokens} | {first + second for first, second in _pairs(tokens)}
    if sum(len(word.encode()) + 4 for word in kept) > WORDS_MAX_BYTES:
        return None
    return sorted(kept)
