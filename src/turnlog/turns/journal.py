"""The log of one session while a turn runs: what is stored, what waits, and what others wrote meanwhile.

The seq of each append tells whether somebody else wrote in between; only then is anything read again. How a turn ends
in the log (answered, stopped, failed) is written here too. `deferred` has journals that write later.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import ClassVar, TypeVar

from ..core import answers, turns
from ..core.entries import (
    NEEDS_LEASE,
    REFUSED_CONTENT,
    Assistant,
    Compaction,
    Entry,
    Erasure,
    Failed,
    Received,
    Rewind,
    Shortened,
    ToolResult,
    Transcript,
    Undo,
    Unpin,
    User,
    tool_uses,
)
from ..core.heard import is_heard
from ..core.history import TailCache
from ..core.session import marks_of, pinned
from ..errors import Conflict, Corrupt, StoreUnavailable
from ..sessions import Loaded
from ..stores import Appended, Clock, Lease, Store
from ..stores.in_memory import MemoryStore
from .outage import OutageWait

T = TypeVar("T")
FAILED_REASON_MAX_CHARS = 2_000
"""A provider's error page needs no more room in a log."""
INTERRUPTED = "interrupted"
"""The result of a call that was running when its turn ended."""
_SHAPING = (Compaction, Shortened, Undo, Rewind, Erasure)


class Journal:
    answers_received: ClassVar[bool] = False
    """Whether the model is asked while the message it answers is only stored as `received`."""

    def __init__(self, store: Store, lease: Lease, loaded: Loaded, *, is_assumed: bool = False) -> None:
        self._store = store
        self.lease = lease
        self.session_id = loaded.session.id
        self.incarnation = loaded.session.incarnation
        self.row = loaded.session
        """The row after the newest append."""
        self.damage: tuple[Corrupt, ...] = loaded.damage
        self.stored: list[Entry] = list(loaded.entries)
        self.waiting: list[Received] = _received(loaded.entries, loaded.session.received)
        self.heard: list[Received] = _received(loaded.entries, loaded.session.heard)
        """The messages since the last turn began that ask for no answer."""
        self.end = loaded.session.last_seq
        self.is_assumed = is_assumed
        """Whether the row is from before the lease. Then the first append is a Conflict if the log has gone on."""
        self.is_current = False
        """Whether the newest step was an append or a refresh: then nothing can have come in unnoticed for long."""
        self.tail_cache = TailCache()
        """What was built of this log for earlier calls, if the process has run a turn here before."""
        self.outage: OutageWait | None = None
        """If given, the journal waits while the store cannot be reached."""
        self.is_partial = loaded.is_partial
        """Whether only the newest part of the tail is here: then it has to be folded before a prompt is built."""
        self.reshaped = False
        """Whether anything before the tail changed: then the tail must be read again before the next turn."""

    @property
    def transcript(self) -> Transcript:
        return list(self.stored)

    def take_tail(self, loaded: Loaded) -> None:
        """The tail, read again: after a rewind it may begin before everything that was known."""
        self.row, self.end = loaded.session, loaded.session.last_seq
        self.stored, self.damage = list(loaded.entries), loaded.damage
        self.is_partial = loaded.is_partial
        self.heard = _received(loaded.entries, loaded.session.heard)

    def turn(self) -> list[Entry]:
        """The entries of the newest turn, from its user entry on."""
        return turns.newest(self.transcript)

    def began_at(self) -> int:
        """The seq that the newest turn is known by."""
        return next((entry.seq for entry in self.turn()), 0)

    async def append(self, *bodies: Entry) -> list[Entry]:
        """Durable on return."""
        return await self._append(bodies)

    async def append_once(self, body: Entry, *, dedupe_id: str | None, since: int) -> bool:
        """The same, unless an entry after `since` has this delivery id already: then nothing is appended, and it gives
        False.
        """
        if dedupe_id is None:
            await self._append([body])
            return True
        while answers.delivered([entry for entry in self.stored if entry.seq > since], dedupe_id) is None:
            try:
                await self._append([body], expect=self.end)
                return True
            except Conflict:
                if self.is_assumed or not await self.refresh():
                    raise
        return False

    async def take_waiting(self, seqs: Sequence[int], heard: Sequence[int] = ()) -> int:
        """Makes these waiting messages the words of a turn. Gives the seq that the turn is known by."""
        [entry] = await self.append(User(from_=(*heard, *seqs)))
        return entry.seq

    async def look_for_waiting(self) -> list[Received]:
        """The messages that wait. Each append has noticed what came in before it, so nothing is read."""
        return self.waiting

    def next_waiting(self) -> tuple[Received, ...]:
        """What the next turn answers: one message, or all that are collected."""
        first = self.waiting[0]
        if first.mode != "collect":
            return (first,)
        return tuple(entry for entry in self.waiting if entry.mode == "collect")

    async def after_restart(self) -> None:
        """Called before a new process answers what an earlier one left waiting."""

    async def settle(self) -> None:
        """Writes what was to be written later: the turn is about to be paused, and another process may take it up."""

    async def finish(self) -> None:
        """The turn has its answer."""

    async def stop(self, partial: Assistant | None) -> None:
        """A stopped turn keeps its partial text as its answer, or gets a mark; running calls get a result."""
        await self.refresh()  # a running append may have succeeded
        if turns.last_role(self.transcript) == "assistant":
            await self._end_turn()
        else:
            last = partial or Failed(code="stopped", reason="stopped before an answer")
            await self._end_turn(*_open_calls(self.turn()), last)

    async def fail(self, code: str, reason: str, partial: Assistant | None = None) -> None:
        await self.refresh()
        bodies: list[Entry] = [*_open_calls(self.turn())]
        if code == REFUSED_CONTENT:
            bodies += [Unpin(target=seq) for seq in self._pinned_in_turn()]
        bodies += [partial] if partial else []
        await self._end_turn(*bodies, Failed(code=code, reason=reason[:FAILED_REASON_MAX_CHARS]))

    async def _end_turn(self, *last: Entry) -> None:
        if last:
            await self._append(last)

    def _pinned_in_turn(self) -> list[int]:
        inside = {entry.seq for entry in self.turn()}
        return [target for _, target in pinned(marks_of(self.stored), self.end) if target in inside]

    async def through_outage(self, call: Callable[[], Awaitable[T]]) -> T:
        return await (self.outage.retry(call) if self.outage else call())

    @contextmanager
    def failing_at_once(self) -> Generator[None]:
        """Inside it an outage is an error: a message that is not stored yet must not wait, and its sender is told."""
        outage, self.outage = self.outage, None
        try:
            yield
        finally:
            self.outage = outage

    async def refresh(self) -> bool:
        """Reads what others wrote; returns whether there was anything."""
        later = await self.through_outage(lambda: self._read(after=self.end))
        self._take_in(later)
        self.is_current = True
        self.reshaped = self.reshaped or (self.is_assumed and bool(later))  # a turn may have been cut short meanwhile
        return bool(later)

    async def _append(self, bodies: Sequence[Entry], *, expect: int | None = None) -> list[Entry]:
        try:
            appended = await self._write(bodies, self.end if self.is_assumed else expect)
        except StoreUnavailable:
            if self.outage is None or not await self.outage.is_over():
                raise
            appended = await self.outage.retry(lambda: self._write_unless_written(bodies))
        if appended[0].seq > self.end + 1:
            self._take_in(await self.through_outage(lambda: self._read(after=self.end, before=appended[0].seq)))
        self._take_in(appended)
        self.row = appended.row
        self.is_assumed, self.is_current = False, True
        return appended

    async def _write_unless_written(self, bodies: Sequence[Entry]) -> Appended:
        """Repeats an append whose outcome is unknown. `expect` makes sure that a late commit of the first attempt is
        not stored a second time.
        """
        while True:
            later = await self._read(after=self.end)
            if written := _find_written(later, bodies):
                return Appended(written, await self._store.describe(self.session_id, incarnation=self.incarnation))
            end = later[-1].seq if later else self.end
            try:
                return await self._write(bodies, end)
            except Conflict:
                if not await self._read(after=end):
                    raise

    async def _write(self, bodies: Sequence[Entry], expect: int | None) -> Appended:
        return await self._store.append(
            self.session_id, bodies, expect=expect, lease=self.lease, incarnation=self.incarnation
        )

    async def _read(self, *, after: int, before: int | None = None) -> list[Entry]:
        return await self._store.read(self.session_id, after=after, before=before, incarnation=self.incarnation)

    def _take_in(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self.stored.append(entry)
            self.end = entry.seq
            if isinstance(entry, Received):
                (self.heard if is_heard(entry) else self.waiting).append(entry)
            elif isinstance(entry, User) and entry.from_:
                self._drop_waiting(entry.from_)
            elif isinstance(entry, _SHAPING):
                self.reshaped = True

    def _drop_waiting(self, seqs: Sequence[int]) -> None:
        self.waiting = [item for item in self.waiting if item.seq not in seqs]


@asynccontextmanager
async def in_memory(session_id: str, bodies: Sequence[Entry], clock: Clock) -> AsyncGenerator[Journal]:
    """The journal of a new log that begins with these bodies and is never stored."""
    store = MemoryStore(clock=clock)
    async with store.lease(session_id) as lease:
        appended = await store.append(session_id, bodies, expect=0, lease=lease)
        yield Journal(store, lease, Loaded(appended.row, list(appended)))
    await store.close()


def _received(entries: Sequence[Entry], seqs: Sequence[int]) -> list[Received]:
    if not seqs:
        return []
    wanted = set(seqs)
    return [entry for entry in entries if isinstance(entry, Received) and entry.seq in wanted]


def _open_calls(turn: Sequence[Entry]) -> list[ToolResult]:
    calls = [str(call["id"]) for entry in turn if isinstance(entry, Assistant) for call in tool_uses(entry)]
    for entry in turn:
        if isinstance(entry, ToolResult) and entry.tool_use_id in calls:
            calls.remove(entry.tool_use_id)
    return [ToolResult(tool_use_id=call_id, content=INTERRUPTED, is_error=True) for call_id in calls]


def _find_written(later: Sequence[Entry], bodies: Sequence[Entry]) -> list[Entry]:
    """The stored entries of an append, all of them or none: only the holder of a lease writes entries that need one."""
    ours = next((index for index, body in enumerate(bodies) if isinstance(body, NEEDS_LEASE)), 0)
    found = next((index for index, entry in enumerate(later) if isinstance(entry, NEEDS_LEASE)), None)
    return [] if found is None else list(later[found - ours : found - ours + len(bodies)])
