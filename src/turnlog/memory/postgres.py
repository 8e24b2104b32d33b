"""The global memory of a PostgreSQL store: its own schema, shared by all servers of the store.

The database computes bm25 over the words of one agent and owner: only their own memos decide how rare a word is, so
nothing about others shows. Every statement can be repeated, as in the store itself.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ..core import search
from ..core.words import tokenise
from ..stores import Clock, boundary
from ..stores.postgres.ledger import new_token
from ..stores.postgres.pool import PostgresPool
from ..stores.postgres.schema import MEMORY, open_beside
from . import (
    MEMO_MAX_CHARS,
    QUERY_TOKENS,
    RECALLED,
    Memo,
    Memos,
    check_limit,
    is_character,
    narrowed,
    no_memo,
    words_to_recall,
)

SATURATION, LENGTH_SHARE = 1.2, 0.75
"""bm25's k1 and b, at their usual values."""
WORD_MAX_CHARS = 400
"""Longer words are found by their beginning; an index entry has at most 2,700 bytes."""
CANDIDATES_MAX = 1_000
"""The number of newest memos with all the words that a search examines."""

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


@boundary.memory
class PostgresMemory:
    def __init__(self, db: PostgresPool, clock: Clock) -> None:
        self._db = db
        self._clock = clock

    @classmethod
    async def open(cls, store_url: str, clock: Clock) -> "PostgresMemory":
        return cls(await open_beside(store_url, MEMORY), clock)

    async def save(self, agent: str, owner: str, text: str, *, ts: int | None = None) -> int:
        kept = text.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")[:MEMO_MAX_CHARS]
        tokens = tokenise(kept)
        words = Counter(_words_of(tokens))
        at = self._clock() if ts is None else ts
        return await self._db.one(
            "SELECT turnlog.save_1(%s, %s, %s, %s, %s, %s, %s, %s)",
            (agent, owner, at, len(tokens), kept, list(words), list(words.values()), new_token()),
            changes=True,
        )

    async def recall(self, agent: str, owner: str, words: str, *, limit: int = RECALLED) -> Memos:
        check_limit(limit)
        tokens = tokenise(words)[:QUERY_TOKENS]
        sought = ["".join(some)[:WORD_MAX_CHARS] for some in words_to_recall(tokens)]
        if not sought:
            return []
        wanted = {"agent": agent, "owner": owner, "words": sought, "limit": limit}
        return [Memo(*row) for row in await self._db.all(_RECALL, wanted)]

    async def list(
        self, *, agent: str | None = None, owner: str | None = None, before: int | None = None, limit: int = 50
    ) -> Memos:
        check_limit(limit)
        return await self._newest(*narrowed("%s", agent, owner, before), limit)

    async def search(self, words: str, *, agent: str | None = None, owner: str | None = None, limit: int = 50) -> Memos:
        """The index gives candidates, and the rule of `core.search` decides, as on every store."""
        check_limit(limit)
        terms = search.phrases(words)
        where, values = narrowed("%s", agent, owner)
        for word, whole in (sought for term in terms for sought in _sought(term)):
            same = "=" if whole else "^@"
            where += f" AND m.id IN (SELECT w.memo FROM turnlog.memo_words w WHERE w.word {same} %s)"
            values.append(word)
        found = [memo for memo in await self._newest(where, values, CANDIDATES_MAX) if search.found(terms, memo.text)]
        found.sort(key=lambda memo: -_density(terms, memo.text))  # stable: among equals the newest first
        return found[:limit]

    async def forget(self, number: int) -> None:
        gone = await self._db.all("DELETE FROM turnlog.memos WHERE id = %s RETURNING id", (number,), changes=True)
        if not gone:
            raise no_memo(number)

    async def _newest(self, where: str, values: Sequence[Any], limit: int) -> Memos:
        newest = f"FROM turnlog.memos m WHERE {where} ORDER BY m.id DESC LIMIT %s"
        rows = await self._db.all(f"SELECT m.id, m.agent, m.owner, m.ts, m.text {newest}", (*values, limit))
        return [Memo(*row) for row in rows]

    async def close(self) -> None:
        await self._db.close()


def _words_of(tokens: Sequence[str]) -> list[str]:
    pairs = [first + second for first, second in pairwise(tokens) if is_character(first) and is_character(second)]
    return [*(token[:WORD_MAX_CHARS] for token in tokens), *pairs]


def _sought(term: search.Phrase) -> list[tuple[str, bool]]:
    """The words that a memo with this term must have, and whether they are complete."""
    *firsts, last = (token[:WORD_MAX_CHARS] for token in term.tokens)
    return [*((word, True) for word in firsts), (last, not term.open_ended)]


def _density(terms: Sequence[search.Phrase], text: str) -> float:
    """How often the words occur, relative to the length; every memo has all of them, so rarity does not matter."""
    tokens = tokenise(text)
    heads = Counter(tokens)
    return sum(heads[term.tokens[0]] or 1 for term in terms) / (len(tokens) + 1)
