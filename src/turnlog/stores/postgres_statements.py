"""What is said to PostgreSQL to look: rows, entries, lists, searches. And how a row is spread over its columns."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec

from ..codecs import native
from ..core import query as queries, search
from ..core.entries import Assistant, Compaction, Entry, ToolResult, User
from ..core.query import Hit, Page, Query, Sort
from ..core.session import Session, active
from ..errors import Corrupt
from .postgres_pool import Database

GRAM_CHARS = 3
LEXEME_CHARS = 400
"""A lexeme has at most 2,046 bytes. Longer tokens are found by their beginning and then compared whole."""
WORDS_MAX_BYTES = 800_000
"""Of one tsvector, which holds a megabyte with its own bookkeeping."""
BYTES_A_CHAR_MAX = 4
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
    names = _RANKS[query.sort]
    page, more = where, queries.place(query) or ()
    if more:
        page = [*where, f"({_listed(names, 's.{}')}) < ({_listed(names, '%s')})"]
    # One statement, so that the page and the total are of the same moment.
    found = await db.all(
        f"SELECT (SELECT count(*) FROM turnlog.sessions s{_where(where)}), p.meta_json FROM (SELECT 1) one LEFT JOIN"
        f" (SELECT s.* FROM turnlog.sessions s{_where(page)} ORDER BY {_listed(names, 's.{} DESC')} LIMIT %s) p ON true"
        f" ORDER BY {_listed(names, 'p.{} DESC')}",
        (*values, *values, *more, query.limit + 1),
    )
    return queries.page(query, [decode_row(line) for _, line in found if line is not None], found[0][0])


_RANKS: dict[Sort, tuple[str, ...]] = {
    "newest": ("updated_at", "session_id"),
    "messages": ("message_count", "updated_at", "session_id"),
    "tokens": ("token_estimate", "updated_at", "session_id"),
}


def _listed(names: Sequence[str], form: str) -> str:
    return ", ".join(form.format(name) for name in names)


def _where(clauses: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(clauses)}" if clauses else ""


def conditions(query: Query) -> tuple[list[str], list[Any]]:
    """On `turnlog.sessions s`."""
    where: list[str] = []
    values: list[Any] = []
    equal = (
        ("session_id", query.id),
        ("session_key", query.key),
        ("channel", query.channel),
        ("label", query.label),
    )
    for column, value in equal:
        if value is not None:
            where.append(f"s.{column} = %s")
            values.append(storable(value))
    for column, any_of in (
        ("agent_id", queries.agents(query)),
        ("status", queries.statuses(query)),
        ("session_id", query.ids or None),
    ):
        if any_of is not None:
            # One by itself, so that the planner sees an index in its order, or one of a part of the table.
            one = len(any_of) == 1
            where.append(f"s.{column} = %s" if one else f"s.{column} = ANY(%s)")
            values.append(storable(any_of[0]) if one else [storable(name) for name in any_of])
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
        values += [" & ".join(lexeme(gram) for word in words for gram in _grams_wanted(word)), *words]
    return where, values


def _grams_wanted(word: str) -> list[str]:
    if len(word) <= GRAM_CHARS:
        return [word]
    return [word[at : at + GRAM_CHARS] for at in range(len(word) - GRAM_CHARS + 1)]


def lexeme(text: str) -> str:
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
    pairs = [lexeme(first + second) for first, second in _pairs(tokens[:-1] if term.open_ended else tokens)]
    single = [lexeme(token[:LEXEME_CHARS]) for token in tokens[:-1]]
    return [*single, lexeme(tokens[-1][:LEXEME_CHARS]) + (":*" if term.open_ended else ""), *pairs]


def _pairs(tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
    for first, second in pairwise(tokens):
        if len(first) == len(second) == 1 and not first.isascii() and not second.isascii():
            yield first, second


def lexemes_of(entry: Entry) -> list[str] | None:
    """What an entry is found by; None if that is too much to be kept."""
    text = search.searchable(entry)
    tokens = search.tokenise(text)
    kept = {token[:LEXEME_CHARS] for token in tokens}
    if not text.isascii():
        kept.update(first + second for first, second in _pairs(tokens))
    # Counted in bytes only where characters leave it open: nearly every entry is far too small for that.
    if BYTES_A_CHAR_MAX * sum(map(len, kept)) + 4 * len(kept) > WORDS_MAX_BYTES and (
        sum(len(word.encode()) + 4 for word in kept) > WORDS_MAX_BYTES
    ):
        return None
    return sorted(kept)
