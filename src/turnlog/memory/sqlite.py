"""The global memory as its own SQLite database, ranked by the bm25 of FTS5, over Turnlog's own tokens."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..core import search
from ..core.words import tokenise
from ..stores import Clock, boundary
from ..stores.disk.files import disk_errors, make_dir, open_private
from ..stores.sqlite.connection import SqliteConnection
from ..stores.sqlite.writer import BUSY_TIMEOUT_MS, SqliteWriter, driver_errors
from . import MEMO_MAX_CHARS, QUERY_TOKENS, RECALLED, Memo, Memos, check_limit, narrowed, no_memo, words_to_recall

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
_FOUND = "JOIN memo_words w ON w.rowid = m.id WHERE memo_words MATCH ?"
_RANKED = "ORDER BY bm25(memo_words), m.id DESC LIMIT ?"


@boundary.memory
class TableMemory:
    def __init__(self, db: SqliteConnection, clock: Clock) -> None:
        self._writer = SqliteWriter(db)
        self._db = db
        self._clock = clock

    @classmethod
    async def open(cls, place: str, clock: Clock, *, read_only: bool = False) -> "TableMemory":
        with disk_errors(f"the memory {place} cannot be opened"), driver_errors(place):
            return cls(await asyncio.to_thread(_connect, place, read_only), clock)

    async def save(self, agent: str, owner: str, text: str, *, ts: int | None = None) -> int:
        words = " ".join(tokenise(text))
        kept = text.encode("utf-8", "replace").decode()[:MEMO_MAX_CHARS]

        def add(db: SqliteConnection) -> int:
            at = self._clock() if ts is None else ts
            db.run("INSERT INTO memos (agent, owner, ts, text) VALUES (?, ?, ?, ?)", (agent, owner, at, kept))
            number = int(db.one("SELECT last_insert_rowid()"))
            db.run("INSERT INTO memo_words (rowid, words) VALUES (?, ?)", (number, words))
            return number

        return await self._writer.run(add)

    async def recall(self, agent: str, owner: str, words: str, *, limit: int = RECALLED) -> Memos:
        check_limit(limit)
        # Tokens hold letters and digits only, so there is nothing to escape.
        wanted = words_to_recall(tokenise(words)[:QUERY_TOKENS])
        query = " OR ".join(f'"{" ".join(tokens)}"' for tokens in wanted)
        if not query:
            return []
        where, values = narrowed("?", agent, owner)
        return await self._select(f"{_FOUND} AND {where} {_RANKED}", (query, *values, limit))

    async def list(
        self, *, agent: str | None = None, owner: str | None = None, before: int | None = None, limit: int = 50
    ) -> Memos:
        check_limit(limit)
        where, values = narrowed("?", agent, owner, before)
        return await self._select(f"WHERE {where} ORDER BY m.id DESC LIMIT ?", (*values, limit))

    async def search(self, words: str, *, agent: str | None = None, owner: str | None = None, limit: int = 50) -> Memos:
        check_limit(limit)
        phrases = " ".join(f'"{" ".join(term.tokens)}"' + "*" * term.open_ended for term in search.phrases(words))
        where, values = narrowed("?", agent, owner)
        return await self._select(f"{_FOUND} AND {where} {_RANKED}", (phrases, *values, limit))

    async def forget(self, number: int) -> None:
        def remove(db: SqliteConnection) -> bool:
            known = db.one("SELECT id FROM memos WHERE id = ?", (number,)) is not None
            if known:
                db.run("DELETE FROM memo_words WHERE rowid = ?", (number,))
                db.run("DELETE FROM memos WHERE id = ?", (number,))
            return known

        if not await self._writer.run(remove):
            raise no_memo(number)

    async def _select(self, rest: str, values: Sequence[Any]) -> Memos:
        def look(db: SqliteConnection) -> Sequence[tuple[Any, ...]]:
            return db.all(f"SELECT m.id, m.agent, m.owner, m.ts, m.text FROM memos m {rest}", values)

        return [Memo(*row) for row in await self._writer.run(look)]

    async def close(self) -> None:
        self._writer.close()
        self._db.close()


def _connect(place: str, read_only: bool) -> SqliteConnection:
    if read_only:
        return SqliteConnection(place, read_only=True)
    if place != ":memory:":
        make_dir(Path(place).parent)
        os.close(open_private(Path(place), os.O_RDWR | os.O_CREAT))
    db = SqliteConnection.with_log(place, synchronous="FULL", busy_ms=BUSY_TIMEOUT_MS)
    db.run(_SCHEMA)
    return db
