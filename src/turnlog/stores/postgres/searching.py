"""Searches the PostgreSQL store: how the index is asked.

A tsvector holds lexemes without their places. So a phrase of several tokens gives candidates, which are then compared
with the entry's own text.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...codecs import native
from ...core import query as queries
from ...core.entries import Entry
from ...core.query import Query
from ...core.rows import Session, decode_row
from ...core.search import Candidate, Phrase, Sought, Wanted, newest_first
from ...core.words import fold
from .. import sql
from ..finding import EntryPlace, text_of_part
from .lexemes import LEXEME_CHARS, pairs
from .pool import PostgresPool
from .statements import conditions, current, lexeme, storable
from .unindexed import Unindexed, matches

SEARCH_S = 60.0
NEVER = 1 << 62
_ORDER = "t.at DESC, t.session_id, t.seq DESC, t.part"


class PostgresLooking:
    def __init__(self, db: PostgresPool, scope: Query, before: int | None, unindexed: Unindexed | None) -> None:
        self._db = db
        self._before = before
        self._unindexed = unindexed
        self._inside, self._values = _inside(scope, before)

    async def candidates(self, step: Sequence[Wanted], sought: Sought) -> list[list[Candidate]]:
        lists = await self._indexed(step, sought)
        if self._unindexed:
            for n, wanted in enumerate(step):
                if more := await self._unindexed.candidates(wanted, sought, self._before):
                    both = newest_first(list(dict.fromkeys([*more, *lists[n]])), wanted.most) if lists[n] else more
                    lists[n] = both
        return lists

    async def _indexed(self, step: Sequence[Wanted], sought: Sought) -> list[list[Candidate]]:
        found: dict[Wanted, list[Candidate]] = {}
        exact = [wanted for wanted in step if _is_exact(wanted, sought)]
        if exact:
            found.update(await self._exact(exact, sought))
        for wanted in step:
            if wanted not in found:
                found[wanted] = await self._compared(wanted, sought)
        return [found[wanted] for wanted in step]

    async def _exact(self, several: Sequence[Wanted], sought: Sought) -> dict[Wanted, list[Candidate]]:
        """Lists for which the index alone decides, in one statement."""
        parts: list[str] = []
        values: list[Any] = []
        for n, wanted in enumerate(several):
            one, some = self._statement(wanted, sought, "t.session_id, t.seq, t.part, t.at, t.role", "")
            parts.append(f"(SELECT {n} AS n, f.* FROM ({one}) f)")
            values += some
        found: dict[Wanted, list[Candidate]] = {wanted: [] for wanted in several}
        for n, *fields in await self._db.all(" UNION ALL ".join(parts), values, call_s=SEARCH_S):
            found[several[n]].append(Candidate(*fields))
        return found

    async def _compared(self, wanted: Wanted, sought: Sought) -> list[Candidate]:
        found: list[Candidate] = []
        place: Candidate | None = None
        while len(found) < wanted.most:
            text = "t.session_id, t.seq, t.part, t.at, t.role, m.meta_json"
            join = " JOIN turnlog.session_messages m ON m.session_id = t.session_id AND m.seq = t.seq"
            one, values = self._statement(wanted, sought, text, join, place)
            rows = await self._db.all(one, values, call_s=SEARCH_S)
            for *fields, line in rows:
                place = Candidate(*fields)
                if _matches(line, place.part, wanted, sought):
                    found.append(place)
            if len(rows) < wanted.most:
                break
        return found[: wanted.most]

    def _statement(
        self, wanted: Wanted, sought: Sought, shown: str, join: str, after: Candidate | None = None
    ) -> tuple[str, list[Any]]:
        where = "t.words @@ %s::tsquery AND t.at >= %s AND t.at < %s"
        until = NEVER if sought.until is None else sought.until
        values: list[Any] = [_tsquery(wanted, sought), sought.since or 0, until]
        if after is not None:  # in the order of the list
            where += (
                " AND (t.at < %s OR (t.at = %s AND (t.session_id > %s OR (t.session_id = %s"
                " AND (t.seq < %s OR (t.seq = %s AND t.part > %s))))))"
            )
            name, seq = after.session_id, after.seq
            values += [after.at, after.at, name, name, seq, seq, after.part]
        text = (
            f"SELECT {shown} FROM turnlog.session_search t{join} WHERE {where}{self._inside} ORDER BY {_ORDER} LIMIT %s"
        )
        return text, [*values, *self._values, wanted.most]

    async def rows(self, session_ids: Sequence[str]) -> Mapping[str, Session]:
        lines = await self._db.all(
            "SELECT meta_json FROM turnlog.sessions WHERE session_id = ANY(%s)", (list(session_ids),)
        )
        rows = [await current(self._db, decode_row(line)) for (line,) in lines]
        return {row.id: row for row in rows}

    async def entries(self, places: Sequence[EntryPlace]) -> Mapping[EntryPlace, Entry]:
        lines = await self._db.all(
            "SELECT m.session_id, m.seq, m.meta_json FROM unnest(%s::text[], %s::bigint[]) AS w (id, seq)"
            " JOIN turnlog.session_messages m ON m.session_id = w.id AND m.seq = w.seq",
            ([name for name, _ in places], [seq for _, seq in places]),
        )
        found: dict[EntryPlace, Entry] = {}
        for name, seq, line in lines:
            try:
                found[name, seq] = native.decode(line.encode())
            except native.Undecodable:
                continue  # a reader of the session gets the error
        return found


def _inside(scope: Query, before: int | None) -> tuple[str, list[Any]]:
    """The condition on `turnlog.session_search t` that keeps a search in its scope."""
    if [name for name, _ in queries.compared(scope)] == ["id"] and scope.id is not None and not scope.homes:
        text, values = " AND t.session_id = %s", [storable(scope.id)]
    else:
        where, values = conditions(scope)
        text = f" AND t.session_id IN (SELECT s.session_id FROM turnlog.sessions s{sql.where(where)})" if where else ""
    return (f"{text} AND t.seq < %s", [*values, before]) if before is not None else (text, values)


def _is_exact(wanted: Wanted, sought: Sought) -> bool:
    phrases = [*sought.without, *(phrase for term in wanted.terms for phrase in term.any_of)]
    return all(_is_lexeme(phrase) for phrase in phrases)


def _is_lexeme(phrase: Phrase) -> bool:
    tokens = phrase.tokens
    return len(tokens[-1]) <= LEXEME_CHARS and (
        len(tokens) == 1 or (len(tokens) == 2 and not phrase.open_ended and bool(list(pairs(tokens))))
    )


def _matches(line: str, part: int, wanted: Wanted, sought: Sought) -> bool:
    try:
        text = text_of_part(native.decode(line.encode()), part)
    except native.Undecodable:
        return False
    return matches(text, fold(text), wanted.terms, sought.without)


def _tsquery(wanted: Wanted, sought: Sought) -> str:
    needed = [_any(map(_lexemes, term.any_of)) for term in wanted.terms]
    needed += [lexeme(facet) for facet in sought.facets]
    needed += [f"!({_lexemes(phrase)})" for phrase in sought.without if _is_lexeme(phrase)]
    return " & ".join(needed)


def _any(parts: Iterable[str]) -> str:
    return f"({' | '.join(parts)})"


def _lexemes(phrase: Phrase) -> str:
    """What an entry with this phrase has at least."""
    tokens = phrase.tokens
    paired = [lexeme(storable(a + b)) for a, b in pairs(tokens[:-1] if phrase.open_ended else tokens)]
    single = [lexeme(storable(token[:LEXEME_CHARS])) for token in tokens]
    if phrase.open_ended:
        single[-1] += ":*"
    return f"({' & '.join([*single, *paired])})"
