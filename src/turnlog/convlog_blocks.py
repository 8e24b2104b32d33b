"""Finding any piece of what was said in a PostgreSQL convlog, without reading all of it.

Messages are gathered into blocks after they were written, each with all the runs of three characters in it. A keyword
can only be where all its own runs are; whether it is there is then looked up in the messages themselves. What no block
holds yet is looked through, so nothing has to be waited for and nothing is ever missed.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from .stores.postgres_pool import Database
from .stores.postgres_statements import WORDS_MAX_BYTES, lexeme

PIECE_CHARS = 3
BLOCK_MESSAGES = 64
"""Of one block at most; as many may be in none. Migration 0002 has the same number."""
BLOCK_CHARS = 60_000
"""Where a block ends sooner: the longer, the more pieces occur in every one of them."""
CONVERSATIONS_AT_ONCE = 50
WANTED_MAX = 40
"""Pieces of a keyword that are looked up; a longer one is compared whole all the same."""

_BEHIND = """
SELECT agent, channel_id, indexed_to FROM turnlog.conversations
WHERE message_count - indexed_to >= 64 ORDER BY agent, channel_id LIMIT %s
"""
_NEXT = """
SELECT n, folded FROM turnlog.messages
WHERE agent = %s AND channel_id = %s AND n > %s AND n <= %s ORDER BY n
"""


async def make_blocks(db: Database) -> bool:
    """The next block of each conversation that is behind; whether there may be more."""
    behind = await db.all(_BEHIND, (CONVERSATIONS_AT_ONCE,))
    advanced = False
    for agent, channel, done in behind:
        rows = await db.all(_NEXT, (agent, channel, done, done + BLOCK_MESSAGES))
        reached, size, found = done, 0, set[str]()
        for n, folded in rows:
            if size and size + len(folded) > BLOCK_CHARS:
                break
            reached, size = n, size + len(folded)
            found |= pieces(folded)
        if reached > done:
            advanced = True
            await db.all("SELECT turnlog.block_1(%s, %s, %s, %s, %s)", (agent, channel, done, reached, _kept(found)))
    return advanced


def pieces(folded: str) -> set[str]:
    """One begins at each character, shorter at the end: so every run of one or two characters begins one as well."""
    return {folded[at : at + PIECE_CHARS] for at in range(len(folded))}


def _kept(found: Iterable[str]) -> list[str] | None:
    several = sorted(found)
    return several if sum(len(piece.encode()) + 4 for piece in several) <= WORDS_MAX_BYTES else None


def hits(keyword: str, parts: Sequence[str], values: Sequence[Any]) -> tuple[str, list[Any]]:
    """A statement for the messages (agent, channel_id, n) that have it. `parts`: further clauses, on `messages m`."""
    same = "m.agent = c.agent AND m.channel_id = c.channel_id"
    said = " AND ".join(["strpos(m.folded, %s) > 0", *parts])
    sql = (
        "SELECT m.agent, m.channel_id, m.n FROM turnlog.blocks c JOIN turnlog.messages m"
        f" ON {same} AND m.n BETWEEN c.first_n AND c.last_n"
        f" WHERE (c.pieces @@ %s::tsquery OR c.pieces IS NULL) AND {said}"
        " UNION ALL SELECT m.agent, m.channel_id, m.n FROM turnlog.conversations c CROSS JOIN LATERAL ("
        f"SELECT * FROM turnlog.messages m WHERE {same} AND m.n > c.indexed_to ORDER BY m.n"
        # Lets nobody plan to read all messages for the sake of a few in each conversation.
        f" LIMIT c.message_count - c.indexed_to) m WHERE {said}"
    )
    return sql, [_wanted(keyword), keyword, *values, keyword, *values]


def _wanted(keyword: str) -> str:
    if len(keyword) < PIECE_CHARS:
        return f"{lexeme(keyword)}:*"
    runs = [keyword[at : at + PIECE_CHARS] for at in range(len(keyword) - PIECE_CHARS + 1)]
    return " & ".join(lexeme(run) for run in list(dict.fromkeys(runs))[:WANTED_MAX])
