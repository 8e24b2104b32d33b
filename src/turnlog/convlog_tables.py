"""The convlog of a SQLite store: a database of its own beside the sessions, so that no query can join the two."""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import apsw

from .convlog import Conversation, Filter, Record, milliseconds
from .stores.files import make_dir, open_private
from .stores.sqlite_db import Database
from .stores.sqlite_writer import BUSY_TIMEOUT_MS, Writer, mapped

T = TypeVar("T")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS conversations (
  agent TEXT NOT NULL, channel_id TEXT NOT NULL, channel_type TEXT NOT NULL,
  message_count INTEGER NOT NULL, first_at INTEGER NOT NULL, last_at INTEGER NOT NULL,
  PRIMARY KEY (agent, channel_id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS messages (
  id INTEGER PRIMARY KEY, agent TEXT NOT NULL, channel_id TEXT NOT NULL, channel_type TEXT NOT NULL,
  ts TEXT NOT NULL, role TEXT NOT NULL, sender TEXT NOT NULL, content TEXT NOT NULL, folded TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS messages_of_channel ON messages (agent, channel_id, id);
CREATE INDEX IF NOT EXISTS messages_of_sender ON messages (sender, agent, channel_id);
"""
_COUNT = """
INSERT INTO conversations VALUES (?, ?, ?, 1, ?, ?) ON CONFLICT DO UPDATE SET
  message_count = message_count + 1,
  first_at = min(first_at, excluded.first_at),
  last_at = max(last_at, excluded.last_at)
"""
_ADD = (
    "INSERT INTO messages (agent, channel_id, channel_type, ts, role, sender, content, folded) VALUES (?,?,?,?,?,?,?,?)"
)


class TableShelf:
    def __init__(self, path: Path | None) -> None:
        """None: in memory."""
        if path is not None:
            make_dir(path.parent)
            os.close(open_private(path, os.O_RDWR | os.O_CREAT))
        self._db = _connect(path or ":memory:")
        self._db.run(_SCHEMA)
        self._writer = Writer(self._db, syncs=False)
        self._reader = _connect(path) if path else None
        """What is looked up at length must not make a message wait."""
        self._reading = threading.Lock()

    async def append(self, agent: str, record: Record) -> None:
        at = milliseconds(record.ts)
        place = (agent, record.channel_id, record.channel_type)
        folded = "\n".join((record.content, record.sender, record.channel_id)).casefold()

        def add(db: Database) -> None:
            db.run(_COUNT, (*place, at, at))
            db.run(_ADD, (*place, record.ts, record.role, record.sender, record.content, folded))

        await self._writer.run(add)

    async def conversations(self, wanted: Filter) -> list[Conversation]:
        where, values = _conditions(wanted)
        sql = f"SELECT channel_id, channel_type, agent, message_count, first_at, last_at FROM conversations c{where}"
        rows = await self._look(lambda db: db.all(sql, values))
        return [
            Conversation(channel_id=a, channel_type=b, agent_id=c, message_count=d, first_at=e, last_at=f)
            for a, b, c, d, e, f in rows
        ]

    async def records(self, agent: str, wanted: Filter, start: int, limit: int) -> tuple[list[Record], int]:
        where, values = "agent = ? AND channel_id = ?", [agent, wanted.channel_id]
        if wanted.sender is not None:
            where, values = f"{where} AND sender = ?", [*values, wanted.sender]
        if wanted.q is not None:
            where, values = f"{where} AND instr(folded, ?)", [*values, wanted.q.casefold()]
        fields = "ts, role, content, channel_id, channel_type, sender"
        page = f"SELECT {fields} FROM messages WHERE {where} ORDER BY id LIMIT ? OFFSET ?"

        def look(db: Database) -> tuple[list[Any], int]:
            return db.all(page, [*values, limit, start]), db.one(f"SELECT count(*) FROM messages WHERE {where}", values)

        rows, total = await self._look(look)
        return [
            Record(ts=a, role=b, content=c, channel_id=d, channel_type=e, sender=f) for a, b, c, d, e, f in rows
        ], total

    async def _look(self, question: Callable[[Database], T]) -> T:
        if self._reader is None:
            return await self._writer.run(question, aside=True)
        return await asyncio.to_thread(self._read, self._reader, question)

    def _read(self, db: Database, question: Callable[[Database], T]) -> T:
        with self._reading:
            try:
                return question(db)
            except apsw.Error as error:
                raise mapped(error) from error

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._writer.close()
        with self._reading:  # of somebody who did not wait for the answer
            for db in filter(None, (self._reader, self._db)):
                db.close()


def _connect(path: Path | str) -> Database:
    db = Database(path)
    db.wait_when_busy(BUSY_TIMEOUT_MS)
    db.pragma("journal_mode", "wal")
    db.pragma("synchronous", "normal")
    return db


def _conditions(wanted: Filter) -> tuple[str, list[Any]]:
    parts: list[str] = []
    values: list[Any] = []
    if wanted.agents is not None:
        parts.append(f"agent IN ({','.join('?' * len(wanted.agents))})")
        values += sorted(wanted.agents)
    for column, value in (("channel_id", wanted.channel_id), ("channel_type", wanted.channel_type)):
        if value is not None:
            parts.append(f"{column} = ?")
            values.append(value)
    same = "m.agent = c.agent AND m.channel_id = c.channel_id"
    if wanted.sender is not None:
        parts.append(f"EXISTS (SELECT 1 FROM messages m WHERE {same} AND m.sender = ?)")
        values.append(wanted.sender)
    if wanted.q is not None:
        parts.append(f"EXISTS (SELECT 1 FROM messages m WHERE {same} AND instr(m.folded, ?))")
        values.append(wanted.q.casefold())
    return (" WHERE " + " AND ".join(parts) if parts else ""), values
