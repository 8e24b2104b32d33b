"""The threads of LangGraph in a store: reads and writes the facts of checkpoints (`checkpoints`), one session a thread.

Everything here runs in the store's loop. Values stay serialised; the saver turns them into objects, in its caller's
thread. What was read or written once is known (`known_threads`).
"""

from asyncio import Lock
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext, suppress
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from msgspec import Struct
from msgspec.structs import replace

from ..core import keys as session_keys
from ..core.entries import Entry, Erasure, Facts
from ..core.facts import Fact
from ..core.query import Query
from ..core.session import Session
from ..errors import Conflict, NotFound
from ..library import Turnlog
from ..stores import Appended
from ..stores.finding import every_row
from . import checkpoints, langchain_messages
from .checkpoints import APP, ChannelFacts, CheckpointAddress, PendingFact, StoredCheckpoint
from .known_threads import KnownThreads
from .session_log import AGENT, SessionLog, key_of

CHANNEL = "langgraph"
LOGS_MAX = 4096
RACES_MAX = 20
WRITES_FEW = 20
NEW_MAX = 64
"""If more entries were written since the last look for erasures, everything is read anew."""


class FoundCheckpoint(Struct, frozen=True):
    """A checkpoint with everything that belongs to it, serialised."""

    thread: str
    stored: StoredCheckpoint
    checkpoint: dict[str, Any]
    """Without its channel values."""
    channels: dict[str, Any]
    values: dict[str, Any]
    """Elements by key."""
    writes: list[PendingFact]
    lacks_elements: bool
    """They were erased, or dropped by another process while this one was reading."""


class NewCheckpoint(Struct, frozen=True):
    stored: StoredCheckpoint
    channels: list[ChannelFacts]
    messages: list[Any]
    """What the channel of messages holds. Most of it is in the log already."""


def _log_of(thread: str) -> SessionLog:
    return SessionLog(key_of(CHANNEL, thread))


class LangGraphThreads:
    def __init__(self) -> None:
        self.log_of: Callable[[str], SessionLog] = lru_cache(LOGS_MAX)(_log_of)
        self._known = KnownThreads()
        self._turns: WeakValueDictionary[str, Lock] = WeakValueDictionary()
        """By the incarnation of their sessions: two checkpoints at once must not both store a message."""

    async def put(self, t: Turnlog, thread: str, new: NewCheckpoint) -> None:
        log = self.log_of(thread)
        for _ in range(RACES_MAX):
            row = await log.open(t)
            try:
                await self._put(t, log, row, new)
                return
            except NotFound:  # deleted meanwhile
                log.forget()
            except Conflict:  # something was dropped that this process may rely on
                await self._learn(t, row)
        raise Conflict("too many changes of this thread at once")

    async def _put(self, t: Turnlog, log: SessionLog, row: Session, new: NewCheckpoint) -> None:
        inline, values, elements = dict(new.stored.inline), dict[str, Any](), dict[str, Any]()
        thread = self._known.of(row)
        if thread.looked is None:
            thread.looked = row.last_seq  # before anything is read: an erasure after it is seen
        expected = (APP, checkpoints.DROPPED, thread.dropped)  # before what is known is used
        taken = await self._values(t, row, [one.key for one in new.channels if not (one.is_unique and one.is_new)])
        known = self._known.of(row).values
        for channel in new.channels:
            if channel.key not in taken:
                values[channel.key] = channel.value
            elif not channel.is_unique and taken[channel.key] != channel.value:
                inline[channel.name] = channel.value
            else:
                continue
            prefix = channel.prefix
            elements |= {key: fact for name, fact in channel.elements if (key := prefix + name) not in known}
        stored = replace(new.stored, inline=inline)
        values = {key: value for key, value in values.items() if key not in known}
        if elements:  # others may have stored them, or this process, which forgot it
            there = await self._values(t, row, elements)
            elements = {key: fact for key, fact in elements.items() if key not in there}
        async with self._turns.setdefault(row.incarnation, Lock()) if new.messages else nullcontext():
            messages = await self._unprojected(t, row, new.messages)
            bodies: list[Entry] = [entry for _, entry in messages]
            names = {f"m|{checkpoints.part(name)}": True for name, _ in messages}
            # An entry for each element: it is read, and can be erased, without the others and the lists that it is in.
            bodies += [Facts(app=APP, put={key: value}) for key, value in elements.items()]
            bodies.append(Facts(app=APP, put={**values, **names, stored.address.key: stored.fact}))
            appended = await log.append_to(t, row, bodies, expect_fact=expected)
            if self._known.of(row) is thread:  # otherwise something was dropped meanwhile, perhaps what was written
                self._wrote(row, appended)
                self._known.put(row, values | elements)
                self._known.project(row, [name for name, _ in messages])

    def _wrote(self, row: Session, appended: Appended) -> None:
        """What this process has written follows what it has looked at, unless somebody else wrote in between."""
        thread, before = self._known.of(row), appended[0].seq - 1
        if thread.looked is None or thread.looked == before:
            thread.looked = appended[-1].seq

    async def _learn(self, t: Turnlog, row: Session) -> None:
        found = await t.store.facts(row.id, APP, keys=[checkpoints.DROPPED], incarnation=row.incarnation)
        self.forget(row)  # not before: what is read meanwhile may be what was dropped
        self._known.of(row).dropped = found[0].seq if found else None

    def forget(self, row: Session) -> None:
        """Something of this thread was dropped."""
        self._known.forget(row)

    async def _forget_erased(self, t: Turnlog, row: Session) -> None:
        """Forgets what is remembered if words of the session were erased since, by whomever. NotFound if it is gone."""
        now = await t.store.describe(row.id, incarnation=row.incarnation)
        if now.status != "active":
            raise NotFound(f"the session {row.id} was put away")
        last, looked = now.last_seq, self._known.of(row).looked
        if looked is not None and looked < last:
            new = await t.store.read(row.id, after=looked, limit=NEW_MAX + 1, incarnation=row.incarnation)
            if len(new) > NEW_MAX or any(isinstance(entry, Erasure) for entry in new):
                self._known.forget_values(row)
        self._known.of(row).looked = last

    async def _was_dropped(self, t: Turnlog, row: Session) -> bool:
        """Whether something was dropped since this process has looked last."""
        before = self._known.of(row).dropped
        await self._learn(t, row)
        return self._known.of(row).dropped != before

    async def _unprojected(self, t: Turnlog, row: Session, held: Sequence[Any]) -> list[tuple[str, Entry]]:
        """The messages that are not in the log yet, each once."""
        known = self._known.of(row).projected
        messages = langchain_messages.messages_in(held, known)
        new = {name: entry for name, one in messages.items() if (entry := langchain_messages.entry_of(one)) is not None}
        if new:
            wanted = {f"m|{checkpoints.part(name)}": name for name in new}
            found = await t.store.facts(row.id, APP, keys=list(wanted), incarnation=row.incarnation)
            there = [wanted[fact.key] for fact in found]
            self._known.project(row, there)
            known = known.union(there)
        return [(name, entry) for name, entry in new.items() if name not in known]

    async def put_writes(
        self, t: Turnlog, thread: str, address: CheckpointAddress, writes: Sequence[PendingFact]
    ) -> None:
        """Special channels overwrite; any other write is kept as it came first."""
        log = self.log_of(thread)
        facts = {write.key(address): write for write in writes}
        once = [key for key, write in facts.items() if write.n >= 0]
        if not facts:
            return
        for attempt in range(RACES_MAX):
            row = await log.open(t)
            try:
                # The append itself finds the first one; others may be there without it, after one of a special channel.
                look = once if len(once) > 1 or attempt else []
                there = {fact.key for fact in await self._facts(t, row, look)}
                put = {key: write.fact for key, write in facts.items() if key not in there}
                if not put:
                    return
                expected = next(((APP, key, None) for key in once if key not in there), None)
                self._wrote(row, await log.append_to(t, row, [Facts(app=APP, put=put)], expect_fact=expected))
                return
            except NotFound:
                log.forget()
            except Conflict:
                continue
        raise Conflict("too many changes of this thread at once")

    async def get(
        self, t: Turnlog, thread: str, address: CheckpointAddress, serde: checkpoints.Serializer
    ) -> FoundCheckpoint | None:
        """The checkpoint at this address."""
        log = self.log_of(thread)
        for _ in range(RACES_MAX):
            row = await log.known(t)
            if row is None:
                return None
            with suppress(NotFound):
                await self._forget_erased(t, row)
                stored = await self._one(t, row, address)
                if stored is None:
                    return None
                [found] = await self._whole(t, row, thread, [stored], serde)
                if found.lacks_elements and await self._was_dropped(t, row):
                    continue
                return found
            log.forget()
        return None

    async def _one(self, t: Turnlog, row: Session, address: CheckpointAddress) -> StoredCheckpoint | None:
        if address.id is not None:
            found = await t.store.facts(row.id, APP, keys=[address.key], incarnation=row.incarnation)
        else:
            found = await t.store.facts(
                row.id, APP, prefix=address.prefix, last=True, limit=1, incarnation=row.incarnation
            )
        return checkpoints.read_checkpoint(found[0].value) if found else None

    async def list(self, t: Turnlog, thread: str, ns: str | None) -> list[StoredCheckpoint]:
        """All checkpoints of a thread, or of one of its namespaces, newest first."""
        row = await self.log_of(thread).find(t)
        return [one for one, _ in await self._checkpoints(t, row, ns)] if row else []

    async def _checkpoints(
        self, t: Turnlog, row: Session, ns: str | None = None
    ) -> "list[tuple[StoredCheckpoint, Fact]]":
        prefix = "c|" if ns is None else CheckpointAddress(ns).prefix
        found = await t.store.facts(row.id, APP, prefix=prefix, incarnation=row.incarnation)
        both = [(checkpoints.read_checkpoint(fact.value), fact) for fact in found]
        return sorted(both, key=lambda pair: pair[0].id, reverse=True)

    async def whole(
        self, t: Turnlog, thread: str, stored: Sequence[StoredCheckpoint], serde: checkpoints.Serializer
    ) -> "list[FoundCheckpoint]":
        """Nothing if the thread was deleted since they were listed."""
        log = self.log_of(thread)
        row = await log.known(t)
        if row is None:
            return []
        with suppress(NotFound):
            await self._forget_erased(t, row)
            return await self._whole(t, row, thread, stored, serde)
        log.forget()
        return []

    async def _whole(
        self,
        t: Turnlog,
        row: Session,
        thread: str,
        stored: Sequence[StoredCheckpoint],
        serde: checkpoints.Serializer,
    ) -> "list[FoundCheckpoint]":
        """These checkpoints with their values and pending writes."""
        read = [serde.loads_typed(one.checkpoint) for one in stored]
        named = [
            checkpoints.channel_keys(one.ns, inner.get("channel_versions") or {}, one.inline)
            for one, inner in zip(stored, read, strict=True)
        ]
        values = await self._values(t, row, {key for names in named for key in names.values()})
        parts = {
            key
            for one, names in zip(stored, named, strict=True)
            for value in (*(values.get(key) for key in names.values()), *one.inline.values())
            for key in checkpoints.elements_of(value, checkpoints.part(one.ns))
        }
        elements = await self._values(t, row, parts)
        found: list[FoundCheckpoint] = []
        for one, inner, names in zip(stored, read, named, strict=True):
            pending = await self._writes(t, row, one.address.writes)
            channels = {name: values[key] for name, key in names.items() if key in values} | one.inline
            lacks = len(elements) < len(parts)
            found.append(FoundCheckpoint(thread, one, inner, channels, elements, pending, lacks))
        return found

    async def _writes(self, t: Turnlog, row: Session, prefix: str) -> "list[PendingFact]":
        """A few are read without a change of threads; there are seldom more."""
        found = await t.store.facts(row.id, APP, prefix=prefix, limit=WRITES_FEW, incarnation=row.incarnation)
        if len(found) == WRITES_FEW:
            found = await t.store.facts(row.id, APP, prefix=prefix, incarnation=row.incarnation)
        return sorted((checkpoints.read_write(fact.value) for fact in found), key=lambda write: write.order)

    async def _values(self, t: Turnlog, row: Session, keys: Collection[str]) -> dict[str, Any]:
        """The values under these keys; those that do not exist are left out."""
        thread = self._known.of(row)
        known, looked = thread.values, thread.looked
        with suppress(KeyError):
            return {key: known[key] for key in keys}
        found = {key: known[key] for key in keys if key in known}
        if missing := [key for key in keys if key not in found]:
            facts = await t.store.facts(row.id, APP, keys=missing, incarnation=row.incarnation)
            found |= (read := {fact.key: fact.value for fact in facts})
            # Otherwise they may have been dropped, or erased before that look.
            if looked is not None and looked == thread.looked and self._known.of(row) is thread:
                self._known.put(row, read)
        return found

    async def _facts(self, t: Turnlog, row: Session, keys: Sequence[str]) -> "list[Fact]":
        return await t.store.facts(row.id, APP, keys=keys, incarnation=row.incarnation) if keys else []

    async def names(self, t: Turnlog) -> "list[str]":
        """All threads, in the order of their ids."""
        prefix = f"agent:{AGENT}:{CHANNEL}:direct:"
        rows = every_row(t.store.find, Query(key_prefix=prefix, channel=CHANNEL, status="active"))
        return sorted({session_keys.parse(row.key).peer async for row in rows})

    async def delete(self, t: Turnlog, thread: str) -> None:
        await self.log_of(thread).delete(t)


_threads: WeakKeyDictionary[Turnlog, LangGraphThreads] = WeakKeyDictionary()


def threads_of(t: Turnlog) -> LangGraphThreads:
    """Those of the store that this Turnlog has open. All savers share them: programs make one for each request."""
    found = _threads.get(t)
    if found is None:
        found = _threads[t] = LangGraphThreads()
    return found
