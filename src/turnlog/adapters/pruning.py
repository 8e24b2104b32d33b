"""Frees space in threads of LangGraph: drops checkpoints, and what only they refer to.

Values and elements are shared between checkpoints, so what goes is found from what stays. A checkpoint of a graph with
delta channels needs its ancestors up to the one that holds a snapshot: those stay with it.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar

from msgspec.structs import replace

from ..core.entries import MESSAGES, Entry, Facts
from ..core.facts import Fact
from ..core.session import Session
from ..errors import Conflict
from ..library import Turnlog
from . import checkpoints
from .checkpoints import APP, Serializer, StoredCheckpoint
from .session_log import LiveEntries, SessionLog
from .threads import LangGraphThreads

DROPPED_AT_ONCE = 5_000
"""The names in one entry."""
COPIED_AT_ONCE = 500
"""The entries in one append."""
RACES_MAX = 20
_OF_CHECKPOINTS = ("c|", "b|", "e|", "w|")
_DELTAS = "counters_since_delta_snapshot"
"""The metadata of a checkpoint that names the delta channels."""


Choice: TypeAlias = Callable[[Sequence[StoredCheckpoint]], list[StoredCheckpoint]]
"""Of a thread's checkpoints, newest first: those that stay."""


class Pruning:
    def __init__(self, threads: LangGraphThreads, serde: Serializer) -> None:
        self._threads = threads
        self._serde = serde

    async def keep_latest(self, t: Turnlog, thread: str) -> None:
        """Keeps the newest checkpoint of each namespace, and what its delta channels need."""

        def kept(found: Sequence[StoredCheckpoint]) -> list[StoredCheckpoint]:
            newest: dict[str, StoredCheckpoint] = {}
            for one in found:  # newest first
                newest.setdefault(one.ns, one)
            return list(newest.values())

        await self._keep(t, thread, kept)

    async def delete_runs(self, t: Turnlog, runs: Collection[str]) -> None:
        """Drops the checkpoints of these runs, in all threads."""

        def kept(found: Sequence[StoredCheckpoint]) -> list[StoredCheckpoint]:
            return [one for one in found if self._metadata(one).get("run_id") not in runs]

        for thread in await self._threads.names(t):
            await self._keep(t, thread, kept)

    async def copy(self, t: Turnlog, source: str, target: str) -> None:
        """Copies all checkpoints and messages. Checkpoints come last: a copy that is cut short refers to nothing that
        is missing.
        """
        row = await self._threads.log_of(source).find(t)
        if row is None or source == target:
            return
        found = await t.store.facts(row.id, APP, incarnation=row.incarnation)
        messages = [entry async for entry in LiveEntries(t, row) if isinstance(entry, MESSAGES)]
        ordered = sorted(found, key=lambda fact: fact.key.startswith("c|"))
        ordered = [fact for fact in ordered if fact.key != checkpoints.DROPPED]
        log = self._threads.log_of(target)
        bodies: list[Entry] = [replace(entry, seq=0, ts="", after=None) for entry in reversed(messages)]
        for entry in _put_again(ordered):
            bodies.append(entry)
            if len(bodies) >= COPIED_AT_ONCE:
                await log.append(t, bodies)
                bodies = []
        if bodies:
            await log.append(t, bodies)

    async def _keep(self, t: Turnlog, thread: str, choose: Choice) -> None:
        for _ in range(RACES_MAX):
            with suppress(Conflict):  # a checkpoint was put meanwhile
                await self._keep_once(t, thread, choose)
                return
        raise Conflict("too many changes of this thread at once")

    async def _keep_once(self, t: Turnlog, thread: str, choose: Choice) -> None:
        log = self._threads.log_of(thread)
        row = await log.find(t)
        if row is None:
            return
        facts = await t.store.facts(row.id, APP, incarnation=row.incarnation)
        values = {fact.key: fact.value for fact in facts}
        found = [checkpoints.read_checkpoint(fact.value) for fact in facts if fact.key.startswith("c|")]
        found.sort(key=lambda one: one.id, reverse=True)
        kept = choose(found)
        if len(kept) == len(found):
            return
        if not kept:
            await log.delete(t)
            return
        needed = self._needed(found, kept, values)
        gone = [fact for fact in facts if fact.key[:2] in _OF_CHECKPOINTS and fact.key not in needed]
        await self._drop(t, log, row, facts, gone)

    def _needed(
        self, found: Sequence[StoredCheckpoint], kept: Sequence[StoredCheckpoint], values: dict[str, Any]
    ) -> set[str]:
        """The keys of everything that these checkpoints refer to."""
        by_id = {(one.ns, one.id): one for one in found}
        names: set[str] = set()
        for one in [*kept, *(old for new in kept for old in self._ancestors(new, by_id, values))]:
            place = checkpoints.part(one.ns)
            keys = list(checkpoints.channel_keys(one.ns, self._versions(one), one.inline).values())
            held = [values[key] for key in keys if key in values] + list(one.inline.values())
            names.add(one.address.key)
            names.update(keys)
            names.update(key for value in held for key in checkpoints.elements_of(value, place))
            names.update(key for key in values if key.startswith(one.address.writes))
        return names

    def _ancestors(
        self, one: StoredCheckpoint, by_id: dict[tuple[str, str], StoredCheckpoint], values: dict[str, Any]
    ) -> list[StoredCheckpoint]:
        """Those up to the snapshots of all its delta channels."""
        missing = set(self._metadata(one).get(_DELTAS) or ()) - self._held(one, values)
        chain: list[StoredCheckpoint] = []
        while missing and one.parent is not None and (one.ns, one.parent) in by_id:
            one = by_id[one.ns, one.parent]
            chain.append(one)
            missing -= self._held(one, values)
        return chain

    def _held(self, one: StoredCheckpoint, values: dict[str, Any]) -> set[str]:
        keys = checkpoints.channel_keys(one.ns, self._versions(one), one.inline)
        return {name for name, key in keys.items() if key in values} | set(one.inline)

    def _versions(self, one: StoredCheckpoint) -> dict[str, Any]:
        return self._serde.loads_typed(one.checkpoint).get("channel_versions") or {}

    def _metadata(self, one: StoredCheckpoint) -> dict[str, Any]:
        return self._serde.loads_typed(one.metadata)

    async def _drop(
        self, t: Turnlog, log: SessionLog, row: Session, facts: Sequence[Fact], gone: Sequence[Fact]
    ) -> None:
        """Drops the facts in one append, then erases the entries that held them.

        An entry can be erased if nothing in it counts any more: other facts in the same entries are put again. The
        fact `checkpoints.DROPPED` changes, so that no process relies on having stored something that is gone.
        """
        seqs, names = {fact.seq for fact in gone}, {fact.key for fact in gone}
        moved = [fact for fact in facts if fact.seq in seqs and fact.key not in names]
        bodies: list[Entry] = [*_put_again(moved)]
        bodies += [Facts(app=APP, drop=tuple(fact.key for fact in some)) for some in _pieces(gone, DROPPED_AT_ONCE)]
        await log.append(t, [*bodies, Facts(app=APP, put={checkpoints.DROPPED: len(gone)})], row=row)
        self._threads.forget(row)
        await t.store.erase(row.id, sorted(seqs), by="langgraph", incarnation=row.incarnation)


def _put_again(facts: Sequence[Fact]) -> Iterator[Facts]:
    """Entries that put these facts, in their order: one for each, as they may be large, and can be erased alone."""
    for fact in facts:
        yield Facts(app=APP, put={fact.key: fact.value})


F = TypeVar("F")


def _pieces(items: Sequence[F], size: int) -> list[Sequence[F]]:
    return [items[first : first + size] for first in range(0, len(items), size)]
