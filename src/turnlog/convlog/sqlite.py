"""The convlog of a SQLite store: its own database next to the sessions, so that no query can join the two."""

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..core.session import milliseconds
from ..stores.disk.files import disk_errors, make_dir, open_private
from ..stores.disk.syncing import aside
from ..stores.sqlite.connection import SqliteConnection
from ..stores.sqlite.writer import BUSY_TIMEOUT_MS, SqliteWriter, driver_errors
from . import AgentRecord, Conversation, Filter, Record, erased_record

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


class SqliteBackend:
    def __init__(self, path: Path | None) -> None:
        """None: in memory."""
        with disk_errors(f"the convlog {path} cannot be opened"), driver_errors(str(path)):
            if path is not None:
                make_dir(path.parent)
                os.close(open_private(path, os.O_RDWR | os.O_CREAT))
            self._db = _connect(path or ":memory:")
            self._db.run(_SCHEMA)
            self._reader = _connect(path) if path else None
        """A second connection for reading, so that a long query does not delay a message."""
        self._writer = SqliteWriter(self._db, syncs=False)
        self._reading = threading.Lock()

    async def append(self, records: Sequence[AgentRecord]) -> None:
        counted: list[tuple[Any, ...]] = []
        added: list[tuple[Any, ...]] = []
        for agent, record in records:
            at = milliseconds(record.ts)
            place = (agent, record.channel_id, record.channel_type)
            folded = "\n".join((record.content, record.sender, record.channel_id)).casefold()
            counted.append((*place, at, at))
            added.append((*place, record.ts, record.role, record.sender, record.content, folded))

        def add(db: SqliteConnection) -> None:
            db.many(_COUNT, counted)
            db.many(_ADD, added)

        await self._writer.run(add)

    async def conversations(self, wanted: Filter) -> list[Conversation]:
        where, values = _conditions(wanted)
        sql = f"SELECT channel_id, channel_type, agent, message_count, first_at, last_at FROM conversations c{where}"
        rows = await self._look(lambda db: db.all(sql, values))
        return [Conversation(*row) for row in rows]

    async def records(self, agent: str, wanted: Filter, start: int, limit: int) -> tuple[list[Record], int]:
        where, values = "agent = ? AND channel_id = ?", [agent, wanted.channel_id]
        if wanted.sender is not None:
            where, values = f"{where} AND sender = ?", [*values, wanted.sender]
        if wanted.q is not None:
            where, values = f"{where} AND instr(folded, ?)", [*values, wanted.q.casefold()]
        fields = "ts, role, content, channel_id, channel_type, sender"
        page = f"SELECT {fields} FROM messages WHERE {where} ORDER BY id LIMIT ? OFFSET ?"

        def look(db: SqliteConnection) -> tuple[list[Any], int]:
            return db.all(page, [*values, limit, start]), db.one(f"SELECT count(*) FROM messages WHERE {where}", values)

        rows, total = await self._look(look)
        return [Record(*row) for row in rows], total

    async def erase(self, agent: str, channel_id: str, texts: Sequence[str]) -> int:
        def change(db: SqliteConnection) -> int:
            rows = db.all(
                "SELECT id, ts, role, content, channel_id, channel_type, sender FROM messages"
                " WHERE agent = ? AND channel_id = ?",
                (agent, channel_id),
            )
            found = [(number, erased_record(Record(*row), texts)) for number, *row in rows]
            gone = [
                (one.content, one.sender, f"{one.content}\n\n{channel_id}".casefold(), n) for n, one in found if one
            ]
            db.many("UPDATE messages SET content = ?, sender = ?, folded = ? WHERE id = ?", gone)
            return len(gone)

        self._db.run("PRAGMA secure_delete = ON")
        count = await self._writer.run(change, aside=True)
        if self._reader is not None:
            await self._look(lambda db: db.all("PRAGMA wal_checkpoint(TRUNCATE)"))
        return count

    async def _look(self, question: Callable[[SqliteConnection], T]) -> T:
        if self._reader is None:
            return await self._writer.run(question, aside=True)
        return await asyncio.to_thread(self._read, self._reader, question)

    def _read(self, db: SqliteConnection, question: Callable[[SqliteConnection], T]) -> T:
        with self._reading, driver_errors(db.path):
            return question(db)

    async def close(self) -> None:
        await aside(self._close)

    def _close(self) -> None:
        self._writer.close()
        with self._reading:  # the caller did not wait for the result
            for db in filter(None, (self._reader, self._db)):
                db.close()


def _connect(path: Path | str) -> SqliteConnection:
    return SqliteConnection.with_log(path, synchronous="NORMAL", busy_ms=BUSY_TIMEOUT_MS)


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
