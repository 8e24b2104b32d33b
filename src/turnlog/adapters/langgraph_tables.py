"""Reads the tables of LangGraph's SqliteSaver and PostgresSaver, checkpoint by checkpoint, into threads of a store.

Values are read and written by the adapter's own serializer, which is strict: a type that is neither LangChain's nor
Python's own becomes plain data, unless LANGGRAPH_STRICT_MSGPACK=false allows all. Pending writes are taken over as they
are.
"""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from ..errors import TurnlogError
from ..interchange.importing import Imported
from ..library import Turnlog
from .checkpoints import CheckpointAddress, PendingFact
from .langgraph import TurnlogSaver
from .threads import LangGraphThreads

if TYPE_CHECKING:
    from .framework_tables import FrameworkReader


async def import_threads(t: Turnlog, tables: "FrameworkReader", shown: str) -> list[Imported]:
    threads = [row[0] for row in tables.rows("SELECT DISTINCT thread_id FROM checkpoints ORDER BY 1")]
    saver = TurnlogSaver(store=t)
    return [await _Thread(t, tables, saver, str(thread)).imported(f"{shown} {thread}") for thread in threads]


class _Thread:
    def __init__(self, t: Turnlog, tables: "FrameworkReader", saver: TurnlogSaver, name: str) -> None:
        self._t = t
        self._tables = tables
        self._saver = saver
        self._threads = LangGraphThreads()
        self._name = name
        self._split = bool(tables.columns("checkpoint_blobs"))
        """Whether values are in a table of their own, as in PostgreSQL."""

    async def imported(self, source: str) -> Imported:
        try:
            added = 0
            for stored in list(self._checkpoints()):
                added += await self._put(*stored)
            row = await self._threads.log_of(self._name).find(self._t)
            return Imported(row.id if row else "", source, added, ())
        except (TurnlogError, ValueError, KeyError, TypeError) as error:
            return Imported("", source, 0, (f"not imported: {error}",))

    def _checkpoints(self) -> Iterator[tuple[str, str, str | None, Any, Any]]:
        kind = "NULL" if self._split else "type"
        sql = (
            f"SELECT checkpoint_ns, checkpoint_id, parent_checkpoint_id, {kind}, checkpoint, metadata FROM checkpoints"
            f" WHERE thread_id = {self._tables.mark} ORDER BY checkpoint_id"
        )
        for ns, number, parent, kind, data, metadata in self._tables.rows(sql, (self._name,)):
            yield ns, number, parent or None, self._value(kind, data), self._metadata(metadata)

    def _value(self, kind: str | None, data: Any) -> Any:
        if kind is None:
            return cast("Any", data) if isinstance(data, dict) else json.loads(data)
        return self._saver.serde.loads_typed((kind, data))

    def _metadata(self, data: Any) -> Any:
        if data is None or isinstance(data, dict):
            return cast("dict[str, Any]", data or {})
        return json.loads(data)

    async def _put(self, ns: str, number: str, parent: str | None, checkpoint: Any, metadata: Any) -> int:
        """Returns whether it was new."""
        place: dict[str, Any] = {"thread_id": self._name, "checkpoint_ns": ns}
        there = await self._saver.aget_tuple({"configurable": {**place, "checkpoint_id": number}})
        if there is None:
            if self._split:
                checkpoint["channel_values"] = {
                    **(checkpoint.get("channel_values") or {}),
                    **self._blobs(ns, checkpoint["channel_versions"]),
                }
            config: Any = {"configurable": {**place, "checkpoint_id": parent} if parent else place}
            await self._saver.aput(config, checkpoint, metadata, checkpoint["channel_versions"])
        await self._put_writes(ns, number)
        return int(there is None)

    def _blobs(self, ns: str, versions: dict[str, Any]) -> dict[str, Any]:
        mark = self._tables.mark
        sql = (
            "SELECT channel, version, type, blob FROM checkpoint_blobs"
            f" WHERE thread_id = {mark} AND checkpoint_ns = {mark}"
        )
        found = {
            (channel, version): (kind, blob)
            for channel, version, kind, blob in self._tables.rows(sql, (self._name, ns))
            if kind != "empty"
        }
        wanted = {channel: found.get((channel, str(version))) for channel, version in versions.items()}
        return {
            channel: self._saver.serde.loads_typed((value[0], bytes(value[1] or b"")))
            for channel, value in wanted.items()
            if value is not None
        }

    async def _put_writes(self, ns: str, number: str) -> None:
        table, data = ("checkpoint_writes", "blob") if self._split else ("writes", "value")
        path = "task_path" if "task_path" in self._tables.columns(table) else "''"
        mark = self._tables.mark
        sql = (
            f"SELECT task_id, idx, channel, {path}, type, {data} FROM {table}"
            f" WHERE thread_id = {mark} AND checkpoint_ns = {mark} AND checkpoint_id = {mark} ORDER BY task_id, idx"
        )
        pending = [
            PendingFact(task, n, channel, path or "", (kind or "null", bytes(value or b"")))
            for task, n, channel, path, kind, value in self._tables.rows(sql, (self._name, ns, number))
        ]
        if pending:
            await self._threads.put_writes(self._t, self._name, CheckpointAddress(ns, number), pending)
