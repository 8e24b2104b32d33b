"""Journals of presets whose tables hold less of a turn than happens in it: they write later than `Journal` does.

    WithReply   the user's row is written together with the reply (zeroclaw)
    TextOnly    of a turn only the question and the text of the answer are written, when it is done (claw0-keyed)

The words themselves are durable all the while, as `received`. What is not written yet has seqs from HELD on, after
everything that a log can hold, so that the history of the running turn is in order. A crash leaves the messages
waiting and no mark of the turn, so starts are counted in the ledger: a message that was there at the crash of two
processes is not tried a third time.
"""

from collections.abc import Sequence
from typing import ClassVar

from msgspec.structs import replace

from ..core.entries import (
    REFUSED_CONTENT,
    Assistant,
    Compaction,
    Entry,
    Received,
    Shortened,
    ToolResult,
    Transcript,
    Undo,
    User,
    text_of,
)
from ..core.user_content import user_content
from ..sessions import Loaded
from ..stores import Lease, Store, facts
from .deliveries import DELIVERED_TTL_S
from .journal import Journal

HELD = 1 << 40
"""Entries that are not written yet are numbered from here."""
ATTEMPTS = "attempts"
"""The ledger's space for: session and first waiting message → how many starts have tried to answer it."""
ATTEMPTS_MAX = 1
"""A message that waited at a crash is tried once more, not forever: it may be the cause of the crash."""


def journal_of(*, user_row: str, stored: str) -> type[Journal]:
    """By the settings `session.user_row` and `session.stored`."""
    if stored == "text":
        return TextOnly
    return WithReply if user_row == "with_reply" else Journal


class WithReply(Journal):
    answers_received: ClassVar[bool] = True

    def __init__(self, store: Store, lease: Lease, loaded: Loaded, *, is_assumed: bool = False) -> None:
        super().__init__(store, lease, loaded, is_assumed=is_assumed)
        self._held: list[Entry] = []

    @property
    def transcript(self) -> Transcript:
        return [*self.stored, *self._held]

    def began_at(self) -> int:
        begun = next((entry for entry in self.turn() if isinstance(entry, User)), None)
        return begun.from_[0] if begun and begun.from_ else super().began_at()

    async def append(self, *bodies: Entry) -> list[Entry]:
        """Durable on return, unless it is an entry that is written later. A message is stored as `received`."""
        if bodies and isinstance(bodies[-1], User) and not bodies[-1].from_:
            done = await self._append([*bodies[:-1], _as_received(bodies[-1])])
            await self.take_waiting([self.end])
            return done
        done: list[Entry] = []
        for body in bodies:
            if self._is_held(body):
                done.append(self._hold(body))
            elif isinstance(body, Assistant) and self._held:
                done += await self._write_held(body)
            else:
                done += await self._append([self._placed(body)])
        return done

    async def append_once(self, body: Entry, *, dedupe_id: str | None, since: int) -> bool:
        assert isinstance(body, User)
        is_new = await super().append_once(_as_received(body), dedupe_id=dedupe_id, since=since)
        if is_new:
            await self.take_waiting([self.end])
        return is_new

    async def settle(self) -> None:
        if self._held:
            await self._write_held()

    async def take_waiting(self, seqs: Sequence[int], heard: Sequence[int] = ()) -> int:
        await super().take_waiting(seqs, heard)
        return seqs[0]

    async def look_for_waiting(self) -> list[Received]:
        if self._held:  # nothing of the turn is appended yet, so no seq has told what came in
            await self.refresh()
        return self.waiting

    def next_waiting(self) -> tuple[Received, ...]:
        return tuple(self.waiting)

    async def after_restart(self) -> None:
        if not self.waiting:
            return
        key = f"{self.session_id}|{self.incarnation}|{self.waiting[0].seq}"
        kept = await self._store.ledger.get(ATTEMPTS, key)
        tried = facts.read(ATTEMPTS, key, kept, int) or 0
        if tried >= ATTEMPTS_MAX:
            await self.take_waiting([entry.seq for entry in self.waiting])
            await self.fail("interrupted", "the turn was cut short at each start")
        else:
            await self._store.ledger.cas(ATTEMPTS, key, kept, tried + 1, ttl_s=DELIVERED_TTL_S)

    def _is_held(self, body: Entry) -> bool:
        match body:
            case User():
                return bool(body.from_)
            case Compaction():
                return body.first_kept > HELD
            case Shortened():
                return max(body.targets) >= HELD
            case Undo():
                return body.target >= HELD
            case _:
                return False

    def _hold(self, body: Entry) -> Entry:
        entry = replace(body, seq=HELD + len(self._held))
        self._held.append(entry)
        if isinstance(entry, User):
            self._drop_waiting(entry.from_)
        return entry

    def _placed(self, body: Entry) -> Entry:
        """A compaction that keeps everything not yet written keeps, in the log, everything from its own place on."""
        if isinstance(body, Compaction) and body.first_kept >= HELD:
            return replace(body, first_kept=self.end + 1, covers=(body.covers[0], self.end))
        return body

    async def _write_held(self, *replies: Assistant) -> list[Entry]:
        held, self._held = self._held, []
        bodies = [self._whole_user(e.from_) if isinstance(e, User) else replace(e, seq=0) for e in held]
        return await self._append([*bodies, *replies])

    def _whole_user(self, seqs: Sequence[int]) -> User:
        """A user's row that is written late also holds its content, because programs that read these tables expect it
        there.
        """
        known = {entry.seq: entry for entry in self.stored if isinstance(entry, Received)}
        senders = {known[seq].sender for seq in seqs if seq in known}
        return User(
            content=user_content(User(from_=tuple(seqs)), known),
            sender=senders.pop() if len(senders) == 1 else None,
            from_=tuple(seqs),
        )

    async def _end_turn(self, *last: Entry) -> None:
        """Questions that are not written yet come before `last`, in one append with it."""
        held, self._held = self._held, []
        seqs = tuple(seq for entry in held if isinstance(entry, User) for seq in entry.from_)
        bodies: list[Entry] = [self._whole_user(seqs)] if seqs else []
        answers = [entry for entry in held if isinstance(entry, Assistant)]
        if answers and not last:
            bodies.append(replace(answers[-1], seq=0, content=text_of(answers[-1].content) or "(no text)"))
        if bodies or last:
            await self._append([*bodies, *last])


class TextOnly(WithReply):
    def __init__(self, store: Store, lease: Lease, loaded: Loaded, *, is_assumed: bool = False) -> None:
        super().__init__(store, lease, loaded, is_assumed=is_assumed)
        self._whole = loaded.session.paused
        """Whether everything of the running turn is written: it was paused, and its calls are in the log."""

    async def settle(self) -> None:
        self._whole = True
        await super().settle()

    async def finish(self) -> None:
        await self._end_turn()

    async def fail(self, code: str, reason: str, partial: Assistant | None = None) -> None:
        if code == REFUSED_CONTENT and any(isinstance(entry, Assistant) for entry in self._held):
            code = "provider"  # only results were refused, and they are not stored; the words were accepted
        await super().fail(code, reason, partial)

    def _is_held(self, body: Entry) -> bool:
        if isinstance(body, Assistant | ToolResult):
            return not self._whole
        return super()._is_held(body)

    async def _end_turn(self, *last: Entry) -> None:
        whole, self._whole = self._whole, False
        await super()._end_turn(*(entry for entry in last if whole or not isinstance(entry, ToolResult)))


def _as_received(message: User) -> Received:
    assert message.content is not None
    return Received(
        content=message.content, message_id=message.message_id, dedupe_id=message.dedupe_id, sender=message.sender
    )
