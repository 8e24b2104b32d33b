"""LangGraph: its threads in a Turnlog store.

    graph.compile(checkpointer=TurnlogSaver("sqlite:app.db"))

A thread is one session, with all its namespaces. Checkpoints, channel values and pending writes are facts of that
session (`checkpoints`, `threads`). The messages of the root namespace are also stored as entries, once each, so threads
have titles, are found by search and are shown on the page.

`TurnlogGuard` is a middleware for `create_agent`: it makes each model call fit (`langchain_guard`).
"""

import os
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ..errors import UsageError
from ..library import Turnlog
from . import checkpoints
from .checkpoints import CheckpointAddress, PendingFact, StoredCheckpoint
from .framework import framework
from .pruning import Pruning
from .resident import holder
from .serialised_messages import SerialisedMessages
from .session_log import check_id
from .threads import FoundCheckpoint, NewCheckpoint, threads_of

with framework("langgraph"):
    from langgraph.checkpoint.base import (
        WRITES_IDX_MAP,
        BaseCheckpointSaver,
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        get_checkpoint_id,
        get_checkpoint_metadata,
    )
    from langgraph.checkpoint.serde.base import SerializerProtocol
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from .langchain_guard import TurnlogGuard as TurnlogGuard

LISTED_AT_ONCE = 20
"""The checkpoints that a list reads in one step."""


class UnknownStrategy(UsageError, ValueError):
    """There is no such way to prune."""

    hint = "Use keep_latest or delete."


class TurnlogSaver(BaseCheckpointSaver[str]):
    """A checkpointer of LangGraph, synchronous and asynchronous.

    `url`: the store; None means that of the settings. `store`: a Turnlog that the caller has opened, instead of a URL.
    `serde`: how values are serialised (`default_serializer`). `messages`: the channel
    whose messages are stored as entries too; None: none.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        serde: SerializerProtocol | None = None,
        messages: str | None = "messages",
        store: Turnlog | None = None,
    ) -> None:
        super().__init__(serde=serde or default_serializer())
        self._holder = holder(url, store)
        self._threads = threads_of
        self._messages = messages
        self._serialised = SerialisedMessages()

    def get_tuple(self, config: "RunnableConfig") -> CheckpointTuple | None:
        thread, address = _place(config)
        return self._tuple(self._holder.wait(lambda t: self._threads(t).get(t, thread, address, self.serde)))

    async def aget_tuple(self, config: "RunnableConfig") -> CheckpointTuple | None:
        thread, address = _place(config)
        return self._tuple(await self._holder.call(lambda t: self._threads(t).get(t, thread, address, self.serde)))

    def list(
        self,
        config: "RunnableConfig | None",
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: "RunnableConfig | None" = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        found = self._holder.wait(lambda t: self._listed(t, config))
        for thread, some in self._chosen(found, config, filter, before, limit):
            for one in self._holder.wait(lambda t, th=thread, so=some: self._threads(t).whole(t, th, so, self.serde)):
                yield self._whole(one)

    async def alist(
        self,
        config: "RunnableConfig | None",
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: "RunnableConfig | None" = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        found = await self._holder.call(lambda t: self._listed(t, config))
        for thread, some in self._chosen(found, config, filter, before, limit):
            for one in await self._holder.call(
                lambda t, th=thread, so=some: self._threads(t).whole(t, th, so, self.serde)
            ):
                yield self._whole(one)

    async def _listed(self, t: Turnlog, config: "RunnableConfig | None") -> "list[tuple[str, StoredCheckpoint]]":
        """The checkpoints of a thread, or of all, newest first."""
        given = (config.get("configurable") or {}) if config else {}
        names = [str(given["thread_id"])] if "thread_id" in given else await self._threads(t).names(t)
        found: list[tuple[str, StoredCheckpoint]] = []
        for thread in names:
            found += [(thread, one) for one in await self._threads(t).list(t, thread, given.get("checkpoint_ns"))]
        return sorted(found, key=lambda pair: pair[1].id, reverse=True) if len(names) > 1 else found

    def _chosen(
        self,
        found: "Sequence[tuple[str, StoredCheckpoint]]",
        config: "RunnableConfig | None",
        wanted: dict[str, Any] | None,
        before: "RunnableConfig | None",
        limit: int | None,
    ) -> "Iterator[tuple[str, list[StoredCheckpoint]]]":
        """Those that are asked for, in groups of one thread."""
        only = get_checkpoint_id(config) if config and "configurable" in config else None
        end = get_checkpoint_id(before) if before else None
        group: list[StoredCheckpoint] = []
        last, left = "", len(found) if limit is None else limit
        for thread, one in found:
            if left <= 0:
                break
            if (only and one.id != only) or (end and one.id >= end) or not self._fits(one, wanted):
                continue
            left -= 1
            if group and (thread != last or len(group) >= LISTED_AT_ONCE):
                yield last, group
                group = []
            last = thread
            group.append(one)
        if group:
            yield last, group

    def _fits(self, stored: StoredCheckpoint, wanted: dict[str, Any] | None) -> bool:
        if not wanted:
            return True
        metadata = self.serde.loads_typed(stored.metadata)
        return all(metadata.get(name) == value for name, value in wanted.items())

    def put(
        self,
        config: "RunnableConfig",
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> "RunnableConfig":
        thread, new = self._new(config, checkpoint, metadata, new_versions)
        self._holder.wait(lambda t: self._threads(t).put(t, thread, new))
        return _config(thread, new.stored.ns, new.stored.id)

    async def aput(
        self,
        config: "RunnableConfig",
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> "RunnableConfig":
        thread, new = self._new(config, checkpoint, metadata, new_versions)
        await self._holder.call(lambda t: self._threads(t).put(t, thread, new))
        return _config(thread, new.stored.ns, new.stored.id)

    def _new(
        self,
        config: "RunnableConfig",
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> tuple[str, NewCheckpoint]:
        """The checkpoint as facts. Values are serialised here, in the caller's thread."""
        thread, parent = _place(config)
        inner = cast("dict[str, Any]", {name: value for name, value in checkpoint.items() if name != "channel_values"})
        values = checkpoint["channel_values"]
        versions = {**checkpoint["channel_versions"], **new_versions}
        serde = self.serde
        written = checkpoints.serialised(serde, inner)
        about = checkpoints.serialised(serde, get_checkpoint_metadata(config, metadata))
        stored = StoredCheckpoint(parent.ns, checkpoint["id"], parent.id, written, about, {})
        known = [
            checkpoints.encoded_channel(serde, parent.ns, n, versions[n], v, self._serialised, is_new=n in new_versions)
            for n, v in values.items()
            if n in versions
        ]
        loose = {name: value for name, value in values.items() if name not in versions}
        stored.inline.update({name: list(checkpoints.serialised(serde, value)) for name, value in loose.items()})
        return thread, NewCheckpoint(stored, known, self._projected(parent.ns, values))

    def _projected(self, ns: str, values: dict[str, Any]) -> "list[Any]":
        found = values.get(self._messages) if self._messages is not None and not ns else None
        return [*cast("list[Any]", found)] if isinstance(found, list) else []

    def put_writes(
        self, config: "RunnableConfig", writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        thread, address = _place(config)
        pending = self._pending(writes, task_id, task_path)
        self._holder.wait(lambda t: self._threads(t).put_writes(t, thread, address, pending))

    async def aput_writes(
        self, config: "RunnableConfig", writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        thread, address = _place(config)
        pending = self._pending(writes, task_id, task_path)
        await self._holder.call(lambda t: self._threads(t).put_writes(t, thread, address, pending))

    def _pending(self, writes: Sequence[tuple[str, Any]], task: str, path: str) -> "list[PendingFact]":
        return [
            PendingFact(task, WRITES_IDX_MAP.get(channel, n), channel, path, checkpoints.serialised(self.serde, value))
            for n, (channel, value) in enumerate(writes)
        ]

    def delete_thread(self, thread_id: str) -> None:
        """Deletes the thread's session for good."""
        self._holder.wait(lambda t: self._threads(t).delete(t, str(thread_id)))

    async def adelete_thread(self, thread_id: str) -> None:
        await self._holder.call(lambda t: self._threads(t).delete(t, str(thread_id)))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Deletes the checkpoints of these runs in all threads, and frees their space."""
        self._holder.wait(lambda t: self._pruning(t).delete_runs(t, set(run_ids)))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self._holder.call(lambda t: self._pruning(t).delete_runs(t, set(run_ids)))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self._holder.wait(lambda t: self._pruning(t).copy(t, str(source_thread_id), str(target_thread_id)))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self._holder.call(lambda t: self._pruning(t).copy(t, str(source_thread_id), str(target_thread_id)))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keeps the newest checkpoint of each namespace, or with `delete` nothing, and frees the space of the rest."""
        for thread in thread_ids:
            self._holder.wait(partial(self._prune, thread=str(thread), strategy=strategy))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        for thread in thread_ids:
            await self._holder.call(partial(self._prune, thread=str(thread), strategy=strategy))

    async def _prune(self, t: Turnlog, thread: str, strategy: str) -> None:
        match strategy:
            case "keep_latest":
                await self._pruning(t).keep_latest(t, thread)
            case "delete":
                await self._threads(t).delete(t, thread)
            case _:
                raise UnknownStrategy(f"unknown strategy {strategy!r}")

    def _pruning(self, t: Turnlog) -> Pruning:
        return Pruning(self._threads(t), self.serde)

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Numbers with a random part: branches of one thread never give the same version to two values."""
        now = current if isinstance(current, int) else int(str(current).split(".")[0]) if current else 0
        return f"{now + 1:032}.{random.random():016}"  # noqa: S311 - no secret

    def close(self) -> None:
        """Gives up the store. What is stored stays."""
        self._holder.close()

    async def aclose(self) -> None:
        await self._holder.aclose()

    def _tuple(self, found: FoundCheckpoint | None) -> CheckpointTuple | None:
        return self._whole(found) if found else None

    def _whole(self, found: FoundCheckpoint) -> CheckpointTuple:
        """The checkpoint as objects, made in the caller's thread."""
        stored, serde = found.stored, self.serde
        place = checkpoints.part(stored.ns)
        values = {
            name: checkpoints.decoded(serde, place, value, found.values, self._serialised)
            for name, value in found.channels.items()
        }
        return CheckpointTuple(
            config=_config(found.thread, stored.ns, stored.id),
            checkpoint=cast("Checkpoint", {**found.checkpoint, "channel_values": values}),
            metadata=cast("CheckpointMetadata", serde.loads_typed(stored.metadata)),
            parent_config=_config(found.thread, stored.ns, stored.parent) if stored.parent else None,
            pending_writes=[(one.task, one.channel, serde.loads_typed(one.value)) for one in found.writes],
        )


def default_serializer() -> JsonPlusSerializer:
    """LangGraph's msgpack, never pickle, and strict: somebody who can write to the store must not be able to choose
    which code is called.

    A type that is neither LangChain's nor Python's own then comes back as plain data. With
    LANGGRAPH_STRICT_MSGPACK=true LangGraph adds the types of the graph's state; with =false everything is allowed, as
    LangGraph's own savers do.
    """
    if os.environ.get("LANGGRAPH_STRICT_MSGPACK", "").lower() in ("false", "0", "no"):
        return JsonPlusSerializer(allowed_msgpack_modules=True)
    return JsonPlusSerializer(allowed_msgpack_modules=None)


def _place(config: "RunnableConfig") -> tuple[str, CheckpointAddress]:
    """(thread, checkpoint) that a config names."""
    given: dict[str, Any] = config["configurable"]  # pyright: ignore[reportTypedDictNotRequiredAccess] - as LangGraph
    thread = str(given["thread_id"])
    check_id("thread id", thread)
    return thread, CheckpointAddress(given.get("checkpoint_ns") or "", get_checkpoint_id(config))


def _config(thread: str, ns: str, checkpoint_id: str) -> "RunnableConfig":
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": checkpoint_id}}


def __getattr__(name: str) -> Any:
    """TurnlogGuard needs the package `langchain`, the saver does not."""
    if name == "TurnlogGuard":
        from .langchain_guard import TurnlogGuard

        return TurnlogGuard
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
