"""A session's log while a turn has it: what is stored, what is held back, and what others wrote meanwhile.

The seq of what is appended tells whether somebody else wrote in between; only then is anything read again. Some presets
write the user's row together with the reply, or nothing of a turn but its question and its answer: such entries are
held in memory under seqs of their own, and their words are durable as `received` all the while.
"""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec.structs import replace

from .core.entries import (
    Assistant,
    Compaction,
    Entry,
    Failed,
    Received,
    Rewind,
    Shortened,
    ToolResult,
    Transcript,
    Undo,
    User,
    text_of,
    user_content,
)
from .core.session import Session
from .core.turns import is_running
from .errors import Conflict, Corrupt
from .sessions import Loaded
from .stores import Lease, Store

HELD = 1 << 40
"""Entries held back are numbered from here, after everything a log can hold."""

Hold: TypeAlias = Literal["nothing", "until_reply", "until_done"]
_SHAPING = (Compaction, Shortened, Undo, Rewind)


class Journal:
    def __init__(self, store: Store, lease: Lease, loaded: Loaded, *, hold: Hold = "nothing") -> None:
        self._store = store
        self._lease = lease
        self._hold = hold
        self.session_id = loaded.session.id
        self.row = loaded.session
        self.damage: tuple[Corrupt, ...] = loaded.damage
        self.stored: list[Entry] = list(loaded.entries)
        self.held: list[Entry] = []
        self.waiting: list[Received] = _waiting(loaded.session, loaded.entries)
        self.end = loaded.session.last_seq
        self.reshaped = False
        """Whether what came before the tail changed: then the tail must be found anew before the next turn."""

    @property
    def transcript(self) -> Transcript:
        return [*self.stored, *self.held]

    async def append(self, *bodies: Entry) -> list[Entry]:
        """Durable on return, unless it is of the kind that this session holds back."""
        if self.held or self._hold != "nothing":
            return await self._append_or_hold(bodies)
        return await self._append(bodies)

    async def append_once(self, *bodies: Entry, dedupe_id: str | None, since: int) -> bool:
        """The same, unless an entry after `since` has this delivery id already: then nothing, and False."""
        if dedupe_id is None:
            await self.append(*bodies)
            return True
        while not any(_delivery(entry) == dedupe_id for entry in self.stored if entry.seq > since):
            try:
                await self._append(bodies, expect=self.end)
                return True
            except Conflict:
                if not await self.refresh():
                    raise
        return False

    async def refresh(self) -> bool:
        """Reads what others wrote; whether there was anything."""
        later = await self._store.read(self.session_id, after=self.end)
        self._take_in(later)
        return bool(later)

    async def _append(self, bodies: Sequence[Entry], *, expect: int | None = None) -> list[Entry]:
        stored = await self._store.append(self.session_id, bodies, expect=expect, lease=self._lease)
        if stored[0].seq > self.end + 1:
            self._take_in(await self._store.read(self.session_id, after=self.end, before=stored[0].seq))
        self._take_in(stored)
        return stored

    def _take_in(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self.stored.append(entry)
            self.end = entry.seq
            if isinstance(entry, Received):
                self.waiting.append(entry)
            elif isinstance(entry, User) and entry.from_:
                self.waiting = [item for item in self.waiting if item.seq not in entry.from_]
            elif isinstance(entry, _SHAPING):
                self.reshaped = True

    async def _append_or_hold(self, bodies: Sequence[Entry]) -> list[Entry]:
        done: list[Entry] = []
        for body in bodies:
            if self._is_held(body):
                done.append(self._hold_back(body))
            elif isinstance(body, Assistant) and self.held:
                done += await self._release(body)
            else:
                done += await self._append([self._placed(body)])
        return done

    def _is_held(self, body: Entry) -> bool:
        match body:
            case User() if body.from_:
                return True
            case Compaction():
                return body.first_kept > HELD
            case Shortened():
                return max(body.targets) >= HELD
            case Assistant() | ToolResult():
                return self._hold == "until_done"
            case _:
                return False

    def _hold_back(self, body: Entry) -> Entry:
        entry = replace(body, seq=HELD + len(self.held))
        self.held.append(entry)
        if isinstance(entry, User):
            self.waiting = [item for item in self.waiting if item.seq not in entry.from_]
        return entry

    def _placed(self, body: Entry) -> Entry:
        """A compaction that keeps everything held back keeps, in the log, everything from its own place on."""
        if isinstance(body, Compaction) and body.first_kept >= HELD:
            return replace(body, first_kept=self.end + 1, covers=(body.covers[0], self.end))
        return body

    async def _release(self, reply: Assistant) -> list[Entry]:
        bodies = [
            self._spoken(entry.from_) if isinstance(entry, User) else replace(entry, seq=0) for entry in self.held
        ]
        self.held = []
        return await self._append([*bodies, reply])

    def _spoken(self, seqs: Sequence[int]) -> User:
        """A user's row that was held back has its words in it too: those who read such tables look for them there."""
        known = {entry.seq: entry for entry in self.stored if isinstance(entry, Received)}
        senders = {known[seq].sender for seq in seqs if seq in known}
        return User(
            content=user_content(User(from_=tuple(seqs)), known),
            sender=senders.pop() if len(senders) == 1 else None,
            from_=tuple(seqs),
        )

    async def settle(self, *last: Entry) -> None:
        """Ends a turn: of what was held back, the questions and the answer's text are stored, in one append."""
        held, self.held = self.held, []
        if self._hold == "until_done":
            last = tuple(entry for entry in last if not isinstance(entry, ToolResult))  # of calls that are not stored
        seqs = tuple(seq for entry in held if isinstance(entry, User) for seq in entry.from_)
        bodies: list[Entry] = [self._spoken(seqs)] if seqs else []
        answers = [entry for entry in held if isinstance(entry, Assistant)]
        if answers and not last:
            answer = answers[-1]
            bodies.append(replace(answer, seq=0, content=text_of(answer.content) or "(no text)"))
        if bodies or last:
            await self._append([*bodies, *last])

    async def fail(self, code: str, reason: str, *before: Entry) -> None:
        await self.settle(*before, Failed(code=code, reason=reason[:FAILED_REASON_MAX_CHARS]))

    def turn(self) -> list[Entry]:
        """The entries of the newest turn, from its user entry on."""
        transcript = self.transcript
        start = 0
        for index in range(len(transcript) - 1, -1, -1):
            if isinstance(transcript[index], User):
                start = index
                if not is_running(transcript[:index]):
                    break
        return list(transcript[start:])


FAILED_REASON_MAX_CHARS = 2_000
"""A provider's error page is not worth more in a log."""


def _waiting(row: Session, entries: Sequence[Entry]) -> list[Received]:
    open_ones = set(row.received)
    return [entry for entry in entries if isinstance(entry, Received) and entry.seq in open_ones]


def _delivery(entry: Entry) -> str | None:
    return entry.dedupe_id if isinstance(entry, User | Received) else None
