"""Queries to PostgreSQL: rows, entries, lists; and how a row is stored in its columns."""

import time
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

from ...core import paging, query as queries
from ...core.entries import Entry
from ...core.facts import Fact, FactChange, FactChoice
from ...core.query import Page, Query
from ...core.rows import FOLD, decode_row
from ...core.session import Session, active
from ...errors import Corrupt
from .. import sql
from ..stamping import unreadable
from .pool import PostgresPool
from .row_functions import CHANGING, COLUMNS, HAS_OLDER

GRAM_CHARS = 3


def storable(text: str) -> str:
    """Replaces NULs and lone surrogates in columns for queries; the entry itself keeps them."""
    text = text.replace("\x00", "")
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def told_of(row: Session, before: Session | None) -> dict[str, Any]:
    """The row as an argument of the functions in `rows.sql`. `before`: the row that the database has."""
    stack = active(row.marks, row.last_seq) if row.compactions else []
    values = (*sql.values_of(row, storable), stack[-1].seq if stack else 0)
    columns = dict(zip(COLUMNS, values, strict=True))
    told: dict[str, Any] = columns if before is None else {name: columns[name] for name in CHANGING}
    if before is None or before.title != row.title:  # nothing else in the searched text ever changes
        told |= words_of_row(row)
    return told


def told_facts(changes: Iterable[FactChange]) -> list[tuple[str, str, int | None]] | None:
    """The changes of the index of facts, as an argument of the same functions."""
    newest = {(change.app, change.key): change.seq for change in changes}
    return [(app, sql.key_bytes(key).hex(), seq) for (app, key), seq in newest.items()] or None


async def seq_of_fact(db: PostgresPool, session_id: str, app: str, key: str) -> int | None:
    return await db.one(
        "SELECT seq FROM turnlog.session_facts WHERE session_id = %s AND app = %s AND key = %s",
        (session_id, app, sql.key_bytes(key)),
    )


async def facts_of(db: PostgresPool, session_id: str, wanted: FactChoice) -> list[Fact]:
    prefix = sql.key_bytes(wanted.prefix)
    where = "f.key >= %s AND f.key < %s"
    values: tuple[Any, ...] = (prefix, sql.past_bytes(prefix))
    if wanted.keys:
        where = "f.key IN (SELECT decode(k, 'hex') FROM unnest(%s::text[]) AS k)"
        values = ([sql.key_bytes(key).hex() for key in wanted.wanted],)
    found = await db.all(
        "SELECT f.key, f.seq, m.meta_json FROM turnlog.session_facts f"
        " JOIN turnlog.session_messages m ON m.session_id = f.session_id AND m.seq = f.seq"
        f" WHERE f.session_id = %s AND f.app = %s AND {where} ORDER BY f.key{' DESC' if wanted.last else ''} LIMIT %s",
        (session_id, wanted.app, *values, wanted.limit),
    )
    return sql.facts_in(session_id, wanted.app, [(key, seq, line.encode()) for key, seq, line in found])


def words_of_row(row: Session) -> dict[str, Any]:
    haystack = storable(queries.haystack(row))
    return {"haystack": haystack, "grams": sorted(grams(haystack))}


def grams(text: str) -> set[str]:
    """Every run of one to three characters, so that a word of any length can be found."""
    runs = (text[at : at + size] for size in range(1, GRAM_CHARS + 1) for at in range(len(text) - size + 1))
    return set(runs)


async def row_of(db: PostgresPool, session_id: str) -> Session | None:
    found = await db.one("SELECT meta_json FROM turnlog.sessions WHERE session_id = %s", (session_id,))
    return None if found is None else await current(db, decode_row(found))


async def current(db: PostgresPool, row: Session) -> Session:
    """The row; rebuilt from the log if another version made it."""
    return row if row.fold == FOLD else (await folded(db, row.id, before=row.last_seq + 1)).refolded(row)


async def folded(db: PostgresPool, session_id: str, before: int | None = None) -> sql.LogFold:
    fold = sql.LogFold()
    async for page in readable_pages(db, session_id, before=before):
        fold.add(page)
    return fold


async def entries_of(
    db: PostgresPool, session_id: str, after: int = 0, before: int | None = None, limit: int | None = None
) -> list[Entry]:
    rows = await db.all(_ENTRIES, (session_id, after, 1 << 62 if before is None else before, limit))
    return sql.decode_entries(session_id, after, [line.encode() for _, line in rows])


async def row_and_entries(
    db: PostgresPool, session_id: str, after: int, before: int | None, limit: int | None
) -> tuple[Session | None, list[Entry]]:
    """The row and entries of the same moment, in one call."""
    rows = await db.all(
        "SELECT 0 AS seq, meta_json FROM turnlog.sessions WHERE session_id = %s"
        f" UNION ALL SELECT * FROM ({_ENTRIES}) e ORDER BY seq",
        (session_id, session_id, after, 1 << 62 if before is None else before, limit),
    )
    lines = [line.encode() for seq, line in rows if seq]
    row = await current(db, decode_row(rows[0][1])) if len(rows) > len(lines) else None
    return row, sql.decode_entries(session_id, after, lines) if row else []


_ENTRIES = """
SELECT seq, meta_json FROM turnlog.session_messages
WHERE session_id = %s AND seq > %s AND seq < %s ORDER BY seq LIMIT %s
"""


async def readable(db: PostgresPool, session_id: str, after: int = 0, before: int | None = None) -> list[Entry]:
    """Entries for computing the row: unreadable places become entries without effect."""
    return [entry async for page in readable_pages(db, session_id, after, before) for entry in page]


async def readable_pages(
    db: PostgresPool, session_id: str, after: int = 0, before: int | None = None
) -> AsyncIterator[list[Entry]]:
    """The same, a part at a time."""
    count = paging.FIRST_ENTRIES
    while True:
        try:
            page = await entries_of(db, session_id, after, before, count)
        except Corrupt as error:
            page = await entries_of(db, session_id, after, error.after + 1)
            page += [unreadable(seq, error) for seq in range(error.after + 1, error.before or error.after + 2)]
        if not page:
            return
        yield page
        after, count = page[-1].seq, paging.next_count(page)


MANY_SESSIONS = 10_000
TOTAL_KEPT_S = 10.0


class LargeTotals:
    """Remembers for ten seconds how many sessions a long list has: to count a million takes longer than to read a page.

    Totals of fewer than MANY_SESSIONS are always counted.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[int, float]] = {}

    def get(self, asked: str) -> int | None:
        total, until = self._kept.get(asked, (None, 0.0))
        return total if time.monotonic() < until else None

    def keep(self, asked: str, total: int) -> None:
        if total < MANY_SESSIONS:
            self._kept.pop(asked, None)
            return
        now = time.monotonic()
        self._kept = {name: kept for name, kept in self._kept.items() if now < kept[1]}
        self._kept[asked] = total, now + TOTAL_KEPT_S


async def find(db: PostgresPool, query: Query, totals: LargeTotals) -> tuple[Page[Session], bool]:
    """The page, and whether there are rows of an older version: they must be rebuilt, and the page read again."""
    where, values = conditions(query)
    asked = repr((where, values))
    known = totals.get(asked)
    names = sql.RANKS[query.sort]
    page, more = where, queries.place(query) or ()
    if more:
        page = [*where, f"({_listed(names, 's.{}')}) < ({_listed(names, '%s')})"]
    shown = f"SELECT s.* FROM turnlog.sessions s{sql.where(page)} ORDER BY {_listed(names, 's.{} DESC')} LIMIT %s"
    has_older = "false" if sql.names_sessions(query) else f"(SELECT turnlog.{HAS_OLDER}())"
    total, counted = f"(SELECT count(*) FROM turnlog.sessions s{sql.where(where)})", values
    if known is not None:
        total, counted = "%s::bigint", [known]
    # One statement, so that the page and a total that is counted are from the same moment.
    found = await db.all(
        f"SELECT {total}, p.meta_json, {has_older} FROM (SELECT 1) one LEFT JOIN"
        f" ({shown}) p ON true ORDER BY {_listed(names, 'p.{} DESC')}",
        (*counted, *values, *more, query.limit + 1),
    )
    rows = [decode_row(line) for _, line, _ in found if line is not None]
    if known is None:
        totals.keep(asked, found[0][0])
    return queries.page(query, rows, found[0][0]), found[0][2] or any(row.fold < FOLD for row in rows)


def _listed(names: Sequence[str], form: str) -> str:
    return ", ".join(form.format(name) for name in names)


def conditions(query: Query) -> tuple[list[str], list[Any]]:
    """On `turnlog.sessions s`."""
    where: list[str] = []
    values: list[Any] = []
    for name, wanted in queries.compared(query):
        if rare := sql.RARE.get((name, wanted)):
            where.append(f"s.{rare}")
            continue
        # A single value as such, so that the planner sees an index in its order, or a partial one.
        one = len(wanted) == 1
        kept = [storable(value) if isinstance(value, str) else value for value in wanted]
        where.append(f"s.{sql.column(name)} = {'%s' if one else 'ANY(%s)'}")
        values.append(kept[0] if one else kept)
    if query.unfinished:
        where.append("s.unfinished")
    if query.prefix is not None:
        where.append("(s.session_id ^@ %s OR s.session_key ^@ %s OR s.label ^@ %s)")
        values += [storable(query.prefix)] * 3
    if query.key_prefix is not None:
        where.append("s.session_key ^@ %s")
        values.append(storable(query.key_prefix))
    if query.homes:
        where.append("(s.session_key = ANY(%s) OR s.session_key ^@ ANY(%s))")
        values += [list(map(storable, query.homes)), list(map(storable, queries.threads_at(query.homes)))]
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
