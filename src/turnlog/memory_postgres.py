"""The global memory beside a PostgreSQL store: a schema of its own, one memory for all servers of the store.

Recall is bm25, reckoned by the database over the words of one agent and owner: how rare a word is, is judged by their
own memos, so nothing of others shows through. Every statement may be repeated, as in the store itself.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from .core import search
from .errors import NotFound
from .memory import MEMO_MAX_CHARS, QUERY_TOKENS, RECALLED, Memo, Memos, check_limit, is_character, words_to_recall
from .stores import Clock
from .stores.postgres_ledger import new_token
from .stores.postgres_pool import Database
from .stores.postgres_schema import MEMORY, open_beside

SATURATION, LENGTH_SHARE = 1.2, 0.75
"""bm25's k1 and b, at their usual values."""
WORD_MAX_CHARS = 400
"""Longer words are found by their beginning; an index takes 2,700 bytes."""
CANDIDATES_MAX = 1_000
"""Of a search: the newest memos with all its words are looked at."""

_RECALL = f"""
WITH all_of_them AS (
    SELECT count(*)::float8 AS memos, greatest(avg(length), 1)::float8 AS length
    FROM turnlog.memos WHERE agent = %(agent)s AND owner = %(owner)s
), hits AS (
    SELECT memo, word, times::float8 AS times, count(*) OVER (PARTITION BY word) AS memos
    FROM turnlog.memo_words WHERE word = ANY(%(words)s) AND agent = %(agent)s AND owner = %(owner)s
)
SELECT m.id, m.agent, m.owner, m.ts, m.text
FROM hits h JOIN turnlog.memos m ON m.id = h.memo CROSS JOIN all_of_them a
GROUP BY m.id
ORDER BY sum(
    ln(1 + (a.memos - h.memos + 0.5) / (h.memos + 0.5))
    * h.times / (h.times + {SATURATION} * ({1 - LENGTH_SHARE} + {LENGTH_SHARE} * m.length / a.length))
) DESC, m.id DESC
LIMIT %(limit)s
"""


class PostgresMemory:
    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock

    @classmethod
    async def open(cls, store_url: str, clock: Clock) -> "PostgresMemory":
        return cls(await open_beside(store_url, MEMORY), clock)

    async def save(self, agent: str, owner: str, text: str) -> int:
        kept = text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")[:MEMO_MAX_CHARS]
        tokens = search.tokenise(kept)
        words = Counter(_words_of(tokens))
        return await self._db.one(
            "SELECT turnlog.save_1(%s, %s, %s, %s, %s, %s, %s, %s)",
            (agent, owner, self._clock(), len(tokens), kept, list(words), list(words.values()), new_token()),
            changes=True,
        )

    async def recall(self, agent: str, owner: str, words: str, *, limit: int = RECALLED) -> Memos:
        wanted = words_to_recall(search.tokenise(words)[:QUERY_TOKENS])
        sought = ["".join(tokens)[:WORD_MAX_CHARS] for tokens in wanted]
        if not sought:
            return []
        return _memos(await self._db.all(_RECALL, {"agent": agent, "owner": owner, "words": sought, "limit": limit}))

    async def list(
        self, *, agent: str | None = None, owner: str | None = None, before: int | None = None, limit: int = 50
    ) -> Memos:
        check_limit(limit)
        where, values = _narrowed(agent, owner)
        if before is not None:
            where, values = [*where, "m.id < %s"], [*values, before]
        return await self._newest(where, values, limit)

    async def search(self, words: str, *, agent: str | None = None, owner: str | None = None, limit: int = 50) -> Memos:
        """The index gives candidates; the core's rule decides, as on every store."""
        check_limit(limit)
        terms = search.terms(words)
        where, values = _narrowed(agent, owner)
        for term in terms:
            for word, whole in _sought(term):
                where.append(
                    f"m.id IN (SELECT w.memo FROM turnlog.memo_words w WHERE w.word {'=' if whole else '^@'} %s)"
                )
                values.append(word)
        found = [memo for memo in await self._newest(where, values, CANDIDATES_MAX) if search.found(terms, memo.text)]
        found.sort(key=lambda memo: -_density(terms, memo.text))  # stable: of equal ones the newest
        return found[:limit]

    async def forget(self, number: int) -> None:
        gone = await self._db.all("DELETE FROM turnlog.memos WHERE id = %s RETURNING id", (number,), changes=True)
        if not gone:
            raise NotFound(f"there is no memo {number}", hint="List the memory to see what it holds.")

    async def _newest(self, where: Sequence[str], values: Sequence[Any], limit: int) -> Memos:
        clause = f" WHERE {' AND '.join(where)}" if where else ""
        rows = await self._db.all(
            f"SELECT m.id, m.agent, m.owner, m.ts, m.text FROM turnlog.memos m{clause} ORDER BY m.id DESC LIMIT %s",
            (*values, limit),
        )
        return _memos(rows)

    async def close(self) -> None:
        await self._db.close()


def _memos(rows: Sequence[Sequence[Any]]) -> Memos:
    return [Memo(id=a, agent=b, owner=c, ts=d, text=e) for a, b, c, d, e in rows]


def _narrowed(agent: str | None, owner: str | None) -> tuple[list[str], list[Any]]:
    given = [("m.agent = %s", agent), ("m.owner = %s", owner)]
    return [clause for clause, value in given if value is not None], [v for _, v in given if v is not None]


def _words_of(tokens: Sequence[str]) -> list[str]:
    pairs = [first + second for first, second in pairwise(tokens) if is_character(first) and is_character(second)]
    return [*(token[:WORD_MAX_CHARS] for token in tokens), *pairs]


def _sought(term: search.Term) -> list[tuple[str, bool]]:
    """Words that a memo with this term has, and whether they are whole."""
    *firsts, last = (token[:WORD_MAX_CHARS] for token in term.tokens)
    return [*((word, True) for word in firsts), (last, not term.open_ended)]


def _density(terms: search.Terms, text: str) -> float:
    """How often the words are there, the length considered; every memo has them all, so none counts as the rarer."""
    tokens = search.tokenise(text)
    heads = Counter(tokens)
    return sum(heads[term.tokens[0]] or 1 for term in terms) / (len(tokens) + 1)
