"""Imports the sessions that agent frameworks keep in their own tables, so that their adapters continue them.

Known: openai-agents (SQLiteSession, SQLAlchemySession), LangGraph (SqliteSaver, PostgresSaver) and ADK
(SqliteSessionService, DatabaseSessionService), in a SQLite file or a PostgreSQL database. The tables decide, not names
of files. A session gets the key under which its adapter looks for it. Nothing in the source is changed, and a repeated
import adds what is new; a session that differs is reported and left alone.
"""

import asyncio
import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from ..codecs.lines import timestamp
from ..core.entries import Entry
from ..errors import StoreUnavailable, TurnlogError
from ..interchange.importing import Imported, databases
from ..library import Turnlog
from ..stores import postgres_driver
from . import responses
from .session_log import LiveEntries, SessionLog, key_of

AT_ONCE = 500
"""The items in one append."""
URLS = ("postgresql://", "postgres://")
_MESSAGES = {"id", "session_id", "message_data", "created_at"}
_CHECKPOINTS = {"thread_id", "checkpoint_ns", "checkpoint_id", "parent_checkpoint_id", "checkpoint", "metadata"}
_EVENTS = {"app_name", "user_id", "session_id", "id", "invocation_id", "timestamp"}


class FrameworkReader(Protocol):
    """A database of a framework, to be read. `mark`: stands for a value in its SQL."""

    mark: str

    def rows(self, sql: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]: ...
    def columns(self, table: str) -> set[str]: ...
    def tables(self) -> list[str]: ...


class SqliteTables:
    mark = "?"

    def __init__(self, reader: databases.Reader) -> None:
        self._reader = reader

    def rows(self, sql: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        return self._reader.rows(sql, values)

    def columns(self, table: str) -> set[str]:
        return self._reader.columns(table)

    def tables(self) -> list[str]:
        return [row[0] for row in self.rows("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]


class PostgresTables:
    mark = "%s"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def rows(self, sql: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        import psycopg

        try:
            yield from self._connection.execute(sql, values).fetchall()
        except psycopg.Error as error:
            raise StoreUnavailable(f"the database cannot be read: {error}") from error

    def columns(self, table: str) -> set[str]:
        found = self.rows(
            "SELECT column_name FROM information_schema.columns"
            " WHERE table_schema = current_schema() AND table_name = %s",
            (table,),
        )
        return {row[0] for row in found}

    def tables(self) -> list[str]:
        found = self.rows(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema() ORDER BY 1"
        )
        return [row[0] for row in found]


def is_framework(source: str) -> bool:
    """Whether this is the address of a PostgreSQL database, or a SQLite file with tables of a known framework."""
    if source.startswith(URLS):
        return True
    path = Path(source)
    if not path.is_file() or path.is_symlink():
        return False
    with path.open("rb") as file:
        if file.read(len(databases.MAGIC)) != databases.MAGIC:
            return False
    with _opened(source) as tables:
        return bool(_kinds(tables))


@contextmanager
def _opened(source: str) -> "Generator[FrameworkReader]":
    if not source.startswith(URLS):
        with databases.reading(Path(source)) as reader:
            yield SqliteTables(reader)
        return
    with postgres_driver():
        import psycopg
    try:
        connection = psycopg.connect(source, autocommit=True)
    except psycopg.Error as error:
        raise StoreUnavailable(f"the database cannot be opened: {error}", hint="Check the address.") from error
    with connection:
        yield PostgresTables(connection)


def _kinds(tables: FrameworkReader) -> list[tuple[str, str]]:
    """(kind, table) of each set of tables that is known."""
    found: list[tuple[str, str]] = []
    for name in tables.tables():
        columns = tables.columns(name)
        if columns >= _MESSAGES:
            found.append(("openai-agents", name))
        elif name == "checkpoints" and columns >= _CHECKPOINTS:
            found.append(("langgraph", name))
        elif name == "events" and columns >= _EVENTS:
            found.append(("adk", name))
    return found


async def import_framework(t: Turnlog, source: str) -> list[Imported]:
    """Imports all sessions of a framework's database: a file, or the address of a PostgreSQL database."""
    imported: list[Imported] = []
    with _opened(source) as tables:
        shown = source.partition("?")[0].rpartition("@")[2] if source.startswith(URLS) else source
        kinds = await asyncio.to_thread(_kinds, tables)
        for kind, table in kinds:
            imported += await _IMPORTERS[kind](t, tables, table, shown, source)
    if not kinds:
        imported.append(Imported("", shown, 0, ("not imported: no tables of a known framework are there",)))
    return imported


async def _openai_agents(t: Turnlog, tables: FrameworkReader, table: str, shown: str, _: str) -> list[Imported]:
    names = [row[0] for row in tables.rows(f'SELECT DISTINCT session_id FROM "{table}" ORDER BY 1')]
    return [await _openai_session(t, tables, table, shown, name) for name in names]


async def _openai_session(t: Turnlog, tables: FrameworkReader, table: str, shown: str, name: str) -> Imported:
    notes: list[str] = []
    items: list[tuple[Any, Any]] = []
    sql = f'SELECT id, message_data, created_at FROM "{table}" WHERE session_id = {tables.mark} ORDER BY id'
    for number, data, created in tables.rows(sql, (name,)):
        try:
            items.append((json.loads(data) if isinstance(data, str | bytes) else data, created))
        except ValueError:
            notes.append(f"row {number} is not JSON, and left out, as the framework itself does")
    source = f"{shown} {name}"
    try:
        log = SessionLog(key_of(responses.CHANNEL, name))
        return await _add_items(t, log, source, items, notes)
    except TurnlogError as error:
        return Imported("", source, 0, (*notes, f"not imported: {error}"))


async def _add_items(
    t: Turnlog, log: SessionLog, source: str, items: Sequence[tuple[Any, Any]], notes: Sequence[str]
) -> Imported:
    row = await log.find(t)
    there = [] if row is None else [entry async for entry in LiveEntries(t, row)][::-1]
    known = [item for entry in there for item in responses.items_of(entry)]
    if known[: len(items)] != [item for item, _ in items[: len(known)]]:
        differs = "the session is there already and differs; nothing was changed"
        return Imported(row.id if row else "", source, 0, (*notes, differs))
    new = items[len(known) :]
    for first in range(0, len(new), AT_ONCE):
        row = (await log.append(t, [_entry(item, at) for item, at in new[first : first + AT_ONCE]])).row
    row = row or await log.open(t)
    return Imported(row.id, source, len(new), tuple(notes))


def _entry(item: Any, at: Any) -> Entry:
    from msgspec.structs import replace

    entry = responses.entry_of(item, len(json.dumps(item)))
    moment = timestamp(at if isinstance(at, str | int | float) else str(at))
    return replace(entry, ts=moment)


async def _langgraph(t: Turnlog, tables: FrameworkReader, table: str, shown: str, _: str) -> list[Imported]:
    from .langgraph_tables import import_threads

    return await import_threads(t, tables, shown)


async def _adk(t: Turnlog, tables: FrameworkReader, table: str, shown: str, source: str) -> list[Imported]:
    from .adk_tables import import_sessions

    return await import_sessions(t, tables, shown, source)


_IMPORTERS: dict[str, Any] = {"openai-agents": _openai_agents, "langgraph": _langgraph, "adk": _adk}
