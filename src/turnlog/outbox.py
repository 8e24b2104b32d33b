"""What is to be sent to people, durably: once, in order for each chat, again later where a platform does not take it.

Two kinds of facts in the store's ledger. A message that came in is *awaited* before it is stored, so that its answer
is found after any crash. An answer is a *letter*: put once under an id that every process derives alike, tried until
it is taken, refused or too old, and kept for a while after its end, so that nothing is answered twice. Where a
platform knows tokens for it, sending twice is taken once; where not, a crash between sending and writing that down
sends a piece again rather than never.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Literal, Protocol, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .channels import Address, Channel, Outgoing, Rejected, Unsent
from .core.entries import clean
from .core.masking import mask
from .core.splitting import split
from .errors import StoreError, TurnlogError
from .stores import Clock, Lease, Ledger, Store

AWAITED = "awaited"
WAITING = "outbox"
ENDED = "sent"
"""The ledger's spaces for: messages without an answer, letters to be sent, letters that were dealt with."""
UNSENT = "unsent"
"""Those of the last that nobody got, once more: they are few, and found without looking through all."""
LEASE = "outbox-of-channels"
"""Held by the process that sends, so that no two do."""
KEPT_S = 8 * 24 * 3600.0
"""How long an ended letter is remembered: longer than delivery ids, or a late redelivery would be answered again."""
EXPIRES_S = 24 * 3600.0
"""An answer that comes a day late answers nothing any more."""
BACKOFF_S = 1.0
BACKOFF_MAX_S = 300.0
DOUBLINGS_MAX = 30
"""Of a pause; long before that it has its greatest length."""
LOOK_S = 2.0
"""How often letters are looked for that another process put here."""
REST_S = 30.0
"""For a chat, when the store cannot be written: what was sent is not to be sent again and again meanwhile."""
LETTERS_MAX = 10_000
"""Looked at in one go; what is beyond them comes later."""

Place: TypeAlias = tuple[str, str | None]
"""Kind and account of a channel."""
Ended: TypeAlias = Literal["delivered", "refused", "expired"]
State: TypeAlias = Literal["waiting"] | Ended


class Awaited(Struct, frozen=True, kw_only=True):
    """A message whose answer is to be sent; its key is its delivery id with channel and account."""

    kind: str
    account: str | None
    agent: str
    channel_id: str
    """Of the convlog."""
    address: Address
    dedupe_id: str
    language: str = "en"


class Letter(Struct, frozen=True, kw_only=True):
    kind: str
    account: str | None
    agent: str
    channel_id: str
    address: Address
    text: str
    order: int = 0
    until: int = 0
    """Unix ms at which it is too old."""
    ids: tuple[str, ...] = ()
    """Of the pieces that the platform has taken."""
    attempts: int = 0
    not_before: int = 0
    state: State = "waiting"
    why: str = ""

    @property
    def place(self) -> Place:
        return self.kind, self.account

    @property
    def lane(self) -> tuple[str, str | None, str]:
        return self.kind, self.account, self.channel_id


class Tally(Protocol):
    """Told what happens, by whoever counts. `kind` is the channel's; no word of a person is ever told."""

    def message(self, kind: str, outcome: Literal["accepted", "duplicate", "refused", "failed"]) -> None:
        """`failed`: the store did not take it, and the platform brings it again."""
        ...

    def reply(self, kind: str, outcome: Literal["delivered", "refused", "expired", "postponed"]) -> None:
        """`postponed`: the platform did not take it this time."""
        ...

    def waiting(self, letters: int) -> None:
        """How many letters there are to be sent; 0 where another process sends them."""
        ...


class NoTally:
    """Counts nothing."""

    def message(self, kind: str, outcome: str) -> None:
        return

    def reply(self, kind: str, outcome: str) -> None:
        return

    def waiting(self, letters: int) -> None:
        return


# Outbox has a method `list`, which hides the builtin in its annotations.
Letters: TypeAlias = list[tuple[str, Letter]]
Expected: TypeAlias = list[tuple[str, Awaited]]
Told: TypeAlias = Callable[[Letter], Awaitable[None]]


class Outbox:
    def __init__(
        self,
        store: Store,
        channels: Mapping[Place, Channel],
        *,
        clock: Clock,
        on_delivered: Told,
        tally: Tally | None = None,
    ) -> None:
        self._store = store
        self._ledger = store.ledger
        self._channels = channels
        self._clock = clock
        self._on_delivered = on_delivered
        self._tally = tally or NoTally()
        self._news = asyncio.Event()
        self._lanes: dict[Any, asyncio.Task[None]] = {}
        self._resting: dict[Any, int] = {}
        self._taken: dict[str, tuple[str, ...]] = {}
        """Pieces that were taken, as far as this process knows: the store may not have heard of it."""
        self._last_order = 0
        self._lease: Lease | None = None

    async def expect(self, key: str, awaited: Awaited) -> None:
        """Before its message is stored. A message that comes again is the same message."""
        await self._ledger.put_if_absent(AWAITED, key, _fact(awaited), ttl_s=KEPT_S)

    async def expected(self) -> Expected:
        facts = await self._ledger.list(AWAITED, limit=LETTERS_MAX)
        return [(fact.key, msgspec.convert(fact.value, Awaited)) for fact in facts]

    async def is_expected(self, key: str) -> bool:
        return await self._ledger.get(AWAITED, key) is not None

    async def dismiss(self, key: str) -> None:
        """Its letter is put, or there will be none."""
        await self._ledger.delete(AWAITED, key)

    async def put(self, letter_id: str, letter: Letter) -> bool:
        """False: it was put before, by whomever."""
        if await self._ledger.get(ENDED, letter_id) is not None:
            return False
        now = self._clock()
        self._last_order = max(now, self._last_order + 1)
        until = now + int(EXPIRES_S * 1000)
        dated = replace(letter, text=clean(letter.text), order=self._last_order, until=until)
        fresh = await self._ledger.put_if_absent(WAITING, letter_id, _fact(dated)) is None
        self._news.set()
        return fresh

    async def knows(self, letter_id: str) -> bool:
        waiting = await self._ledger.get(WAITING, letter_id)
        return waiting is not None or await self._ledger.get(ENDED, letter_id) is not None

    async def list(self, *, channel_id: str | None = None, ended: bool = True) -> Letters:
        """Oldest first: what waits, and what was dealt with in the last days."""
        facts = await self._ledger.list(WAITING, limit=LETTERS_MAX)
        if ended:
            facts = [*await self._ledger.list(ENDED, limit=LETTERS_MAX), *facts]
        letters = {fact.key: msgspec.convert(fact.value, Letter) for fact in reversed(facts)}
        chosen = [(key, x) for key, x in letters.items() if channel_id is None or x.channel_id == channel_id]
        return sorted(chosen, key=lambda item: item[1].order)

    async def run(self) -> None:
        """Sends until cancelled. Of several processes at one store, one sends and the others wait to take over."""
        try:
            while True:
                with suppress(TurnlogError):  # the store may come back; nothing is lost meanwhile
                    async with self._store.lease(LEASE) as self._lease:
                        while self._lease.live:
                            await self._send_and_wait()
                self._tally.waiting(0)  # whoever sends now says how many
                await asyncio.sleep(LOOK_S)
        finally:
            await self._stop_lanes()

    async def _send_and_wait(self) -> None:
        self._news.clear()
        wait_s = await self._send_due()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), wait_s)

    async def deliver_due(self) -> None:
        """Everything that is due now; returns when it was tried."""
        await self._send_due()
        while tasks := list(self._lanes.values()):
            await asyncio.gather(*tasks)

    async def _stop_lanes(self) -> None:
        tasks = list(self._lanes.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _send_due(self) -> float:
        """Sets every chat to work whose first letter is due; seconds until there is something to do again."""
        now = self._clock()
        lanes: dict[Any, Letters] = {}
        letters = await self.list(ended=False)
        self._tally.waiting(len(letters))
        for letter_id, letter in letters:
            lanes.setdefault(letter.lane, []).append((letter_id, letter))
        wait_ms = LOOK_S * 1000
        for lane, letters in lanes.items():
            first = letters[0][1]
            due = max(min(first.not_before, first.until), self._resting.get(lane, 0))
            if due > now:
                wait_ms = min(wait_ms, due - now)
            elif lane not in self._lanes:
                task = asyncio.create_task(self._send_lane(lane, letters), name=f"letters to {lane}")
                self._lanes[lane] = task
                task.add_done_callback(lambda _, lane=lane: self._lane_ended(lane))
        return max(0.01, wait_ms / 1000)

    def _lane_ended(self, lane: Any) -> None:
        self._lanes.pop(lane, None)
        self._news.set()

    async def _send_lane(self, lane: Any, letters: Letters) -> None:
        """One after another: a later letter never overtakes an earlier one."""
        try:
            for letter_id, letter in letters:
                if not await self._send(letter_id, letter):
                    return
            self._resting.pop(lane, None)
        except StoreError:
            self._resting[lane] = self._clock() + int(REST_S * 1000)

    async def _send(self, letter_id: str, letter: Letter) -> bool:
        """Whether this letter is dealt with, and the next may go."""
        if await self._ledger.get(ENDED, letter_id) is not None:
            await self._ledger.delete(WAITING, letter_id)  # dealt with by one who died before saying so here
            return True
        if self._clock() >= letter.until:
            await self._end(letter_id, letter, "expired", letter.why)
            return True
        channel = self._channels.get(letter.place)
        if channel is None:
            await self._postpone(letter_id, letter, Unsent(f"no channel {letter.kind} is configured"))
            return False
        return await self._send_pieces(channel, letter_id, letter)

    async def _send_pieces(self, channel: Channel, letter_id: str, letter: Letter) -> bool:
        ids = max(letter.ids, self._taken.get(letter_id, ()), key=len)
        pieces = split(letter.text, channel.limit, channel.unit)
        for part in range(len(ids), len(pieces)):
            if self._lease is not None and not self._lease.live:
                return False  # another process sends now
            token = token_of(letter_id, part)
            try:
                outgoing = Outgoing(address=letter.address, text=pieces[part], token=token, part=part)
                ids = (*ids, await channel.send(outgoing))
            except Rejected as error:
                await self._end(letter_id, letter, "refused", mask(str(error)))
                return True
            except Unsent as error:
                await self._postpone(letter_id, letter, error)
                return False
            self._taken[letter_id] = ids
            if len(ids) < len(pieces):
                newer = replace(letter, ids=ids, attempts=0)
                if not await self._save(letter_id, letter, newer):
                    return False  # another process goes on with it
                letter = newer
        await self._end(letter_id, replace(letter, ids=ids), "delivered")
        await self._on_delivered(letter)
        return True

    async def _postpone(self, letter_id: str, letter: Letter, error: Unsent) -> None:
        wait_s = min(BACKOFF_S * 2.0 ** min(letter.attempts, DOUBLINGS_MAX), BACKOFF_MAX_S)
        wait_s = max(wait_s, error.retry_after_s or 0.0)
        later = self._clock() + int(wait_s * 1000)
        tried = replace(letter, attempts=letter.attempts + 1, not_before=later, why=mask(str(error)))
        await self._save(letter_id, letter, tried)
        self._tally.reply(letter.kind, "postponed")

    async def _save(self, letter_id: str, letter: Letter, newer: Letter) -> bool:
        """False: it is not as it was any more."""
        return await self._ledger.cas(WAITING, letter_id, _fact(letter), _fact(newer))

    async def _end(self, letter_id: str, letter: Letter, state: Ended, why: str = "") -> None:
        # The words are in the transcript and in the convlog; here only what became of them is kept.
        ended = _fact(replace(letter, state=state, why=why, text=""))
        if state != "delivered":
            await self._ledger.put_if_absent(UNSENT, letter_id, ended, ttl_s=KEPT_S)
        await self._ledger.put_if_absent(ENDED, letter_id, ended, ttl_s=KEPT_S)
        await self._ledger.delete(WAITING, letter_id)
        self._taken.pop(letter_id, None)
        self._tally.reply(letter.kind, state)


async def undelivered(ledger: Ledger) -> Letters:
    """What waits, and what nobody got in the last days; oldest first. Costs these letters, not all that were sent."""
    facts = [fact for space in (UNSENT, WAITING) for fact in await ledger.list(space, limit=LETTERS_MAX)]
    letters = {fact.key: msgspec.convert(fact.value, Letter) for fact in reversed(facts)}
    return sorted(letters.items(), key=lambda item: item[1].order)


def _fact(value: Awaited | Letter) -> Any:
    """Exactly as the ledger gives it back, so that it can be compared."""
    return msgspec.json.decode(msgspec.json.encode(value))


def token_of(letter_id: str, part: int) -> str:
    """The same for every attempt, and short enough for every platform (Discord takes 25 signs)."""
    return hashlib.sha256(f"{letter_id}#{part}".encode("utf-8", "replace")).hexdigest()[:24]
