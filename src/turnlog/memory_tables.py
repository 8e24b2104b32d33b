"""The global memory as a SQLite database of its own: ranked by the bm25 of FTS5, over tokens of our own making."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .core import search
from .errors import NotFound
from .memory import MEMO_MAX_CHARS, QUERY_TOKENS, RECALLED, Memo, Memos, check_limit, words_to_recall
from .stores import Clock
from .stores.files import disk_errors, make_dir, open_private
from .stores.sqlite import driver_errors
from .stores.sqlite_db import Database
from .stores.sqlite_writer import BUSY_TIMEOUT_MS, Writer

_SCHEMA = """
CREATE TABLE IF NOT EXISTS memos (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    agent  TEXT NOT NULL,
    owner  TEXT NOT NULL,
    ts     INTEGER NOT NULL,
    text   TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS memos_by_owner ON memos (agent, owner, id);
CREATE VIRTUAL TABLE IF NOT EXISTS memo_words USING fts5 (words, tokenize = 'ascii');
"""


class TableMemory:
    def __init__(self, db: Database, clock: Clock) -> None:
        self._writer = Writer(db)
        self._db = db
        self._clock = clock

    @classmethod
    async def open(cls, place: str, clock: Clock) -> "TableMemory":
        with disk_errors(f"the memory {place} cannot be opened"), driver_errors():
            return cls(await asyncio.to_thread(_connect, place), clock)

    async def save(self, agent: str, owner: str, text: str) -> int:
        words = " ".join(search.tokenise(text))
        kept = text.encode("utf-8", "replace").decode()[:MEMO_MAX_CHARS]

        def add(db: Database) -> int:
            db.run(
                "INSERT INTO memos (agent, owner, ts, text) VALUES (?, ?, ?, ?)", (agent, owner, self._clock(), kept)
            )
            number = int(db.one("SELECT last_insert_rowid()"))
            db.run("INSERT INTO memo_words (rowid, words) VALUES (?, ?)", (number, words))
            return number

        return await self._writer.run(add)

    async def recall(self, agent: str, owner: str, words: str, *, limit: int = RECALLED) -> Memos:
        # Tokens hold letters and digits only, so there is nothing to escape.
        wanted = words_to_recall(search.tokenise(words)[:QUERY_TOKENS])
        query = " OR ".join(f'"{" ".join(tokens)}"' for tokens in wanted)
        if not query:
            return []
        return await self._select(
            "JOIN memo_words w ON w.rowid = m.id WHERE memo_words MATCH ? AND m.agent = ? AND m.owner = ?"
            " ORDER BY bm25(memo_words), m.id DESC LIMIT ?",
            (query, agent, owner, limit),
        )

    async def list(
        self, *, agent: str | None = None, owner: str | None = None, before: int | None = None, limit: int = 50
    ) -> Memos:
        check_limit(limit)
        where, values = _narrowed(agent, owner)
        if before is not None:
            where, values = [*where, "m.id < ?"], [*values, before]
        return await self._select(f"{_where(where)} ORDER BY m.id DESC LIMIT ?", (*values, limit))

    async def search(self, words: str, *, agent: str | None = None, owner: str | None = None, limit: int = 50) -> Memos:
        check_limit(limit)
        phrases = " ".join(f'"{" ".join(term.tokens)}"' + "*" * term.open_ended for term in search.terms(words))
        where, values = _narrowed(agent, owner)
        return await self._select(
            f"JOIN memo_words w ON w.rowid = m.id{_where(['memo_words MATCH ?', *where])}"
            " ORDER BY bm25(memo_words), m.id DESC LIMIT ?",
            (phrases, *values, limit),
        )

    async def forget(self, number: int) -> None:
        def remove(db: Database) -> bool:
            known = db.one("SELECT id FROM memos WHERE id = ?", (number,)) is not None
            if known:
                db.run("DELETE FROM memo_words WHERE rowid = ?", (number,))
                db.run("DELETE FROM memos WHERE id = ?", (number,))
            return known

        if not await self._writer.run(remove):
            raise NotFound(f"there is no memo {number}", hint="List the memory to see what it holds.")

    async def _select(self, rest: str, values: Sequence[Any]) -> Memos:
        def look(db: Database) -> Sequence[tuple[Any, ...]]:
            return db.all(f"SELECT m.id, m.agent, m.owner, m.ts, m.text FROM memos m {rest}", values)

        rows = await self._writer.run(look)
        return [Memo(id=a, agent=b, owner=c, ts=d, text=e) for a, b, c, d, e in rows]

    async def close(self) -> None:
        self._writer.close()
        self._db.close()


def _narrowed(agent: str | None, owner: str | None) -> tuple[list[str], list[Any]]:
    given = [("m.agent = ?", agent), ("m.owner = ?", owner)]
    return [clause for clause, value in given if value is not None], [v for _, v in given if v is not None]


def _where(conditions: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _connect(place: str) -> Database:
    if place != ":memory:":
        make_dir(Path(place).parent)
        os.close(open_private(Path(place), os.O_RDWR | os.O_CREAT))
    db = Database(place)
    db.wait_when_busy(BUSY_TIMEOUT_MS)
    db.run("PRAGMA journal_mode = WAL")
    db.run("PRAGMA synchronous = FULL")
    db.run(_SCHEMA)
    return db
