"""Finds any part of a text in a PostgreSQL convlog, without reading all of it.

Some time after messages were written, they are collected into blocks; each block lists all groups of three characters
in it. A keyword can only be in blocks that have all its groups; the messages themselves then decide. Messages in no
block yet are searched directly, so nothing has to wait and nothing is missed.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from ..stores.postgres.pool import PostgresPool
from ..stores.postgres.statements import lexeme

PIECE_CHARS = 3
BLOCK_MESSAGES = 64
"""The most messages of a block; as many may be in none. Migration 0002 has the same number."""
BLOCK_CHARS = 60_000
"""The most characters of a block: in longer blocks, most groups would occur in every one."""
CONVERSATIONS_AT_ONCE = 50
WORDS_MAX_BYTES = 800_000
"""The groups of one tsvector, which holds a megabyte including its own overhead."""
WANTED_MAX = 40
"""The number of groups of a keyword that are looked up; the whole keyword is compared anyway."""

_BEHIND = """
SELECT agent, channel_id, indexed_to FROM turnlog.conversations
WHERE message_count - indexed_to >= 64 ORDER BY agent, channel_id LIMIT %s
"""
_NEXT = """
SELECT n, folded FROM turnlog.messages
WHERE agent = %s AND channel_id = %s AND n > %s AND n <= %s ORDER BY n
"""


async def make_blocks(db: PostgresPool) -> bool:
    """Makes the next block of each conversation that needs one; returns whether there may be more."""
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
    """One group begins at each character, shorter ones at the end: so each run of one or two characters also begins a
    group.
    """
    return {folded[at : at + PIECE_CHARS] for at in range(len(folded))}


def _kept(found: Iterable[str]) -> list[str] | None:
    several = sorted(found)
    return several if sum(len(piece.encode()) + 4 for piece in several) <= WORDS_MAX_BYTES else None


def hits(keyword: str, parts: Sequence[str], values: Sequence[Any]) -> tuple[str, list[Any]]:
    """A statement for the messages (agent, channel_id, n) that contain it. `parts`: further conditions, on
    `messages m`.
    """
    same = "m.agent = c.agent AND m.channel_id = c.channel_id"
    said = " AND ".join(["strpos(m.folded, %s) > 0", *parts])
    sql = (
        "SELECT m.agent, m.channel_id, m.n FROM turnlog.blocks c JOIN turnlog.messages m"
        f" ON {same} AND m.n BETWEEN c.first_n AND c.last_n"
        f" WHERE (c.pieces @@ %s::tsquery OR c.pieces IS NULL) AND {said}"
        " UNION ALL SELECT m.agent, m.channel_id, m.n FROM turnlog.conversations c CROSS JOIN LATERAL ("
        f"SELECT * FROM turnlog.messages m WHERE {same} AND m.n > c.indexed_to ORDER BY m.n"
        # Keeps the planner from reading all messages because of a few in each conversation.
        f" LIMIT c.message_count - c.indexed_to) m WHERE {said}"
    )
    return sql, [_wanted(keyword), keyword, *values, keyword, *values]


def _wanted(keyword: str) -> str:
    if len(keyword) < PIECE_CHARS:
        return f"{lexeme(keyword)}:*"
    runs = [keyword[at : at + PIECE_CHARS] for at in range(len(keyword) - PIECE_CHARS + 1)]
    return " & ".join(lexeme(run) for run in list(dict.fromkeys(runs))[:WANTED_MAX])
