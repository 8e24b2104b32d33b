"""Stores the replies to people and sends them: each once, in order within a chat, and again after a failure.

    message arrives → PENDING ─ turn over ─→ WAITING ─ sent, refused or expired ─→ ENDED (and UNSENT, if not sent)

Each of these is a space of the store's ledger. A message is pending before it is stored, so that any process finds
after a crash which messages still need a reply. Every process derives the same id for a reply, so a reply is put once.
It is tried until the platform takes it, refuses it or a day has passed, and its id is kept for a while afterwards, so
that a late redelivery of the message is not answered again. A crash between sending a piece and writing that down
sends this piece twice, unless the platform compares tokens.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ..core.entries import clean
from ..core.masking import mask
from ..core.splitting import split
from ..runtime import background
from ..stores import Clock, Lease, Ledger, Store, facts
from ..texts import Language
from . import Address, Button, Channel, Outgoing, Rejected, Unsent

PENDING, WAITING, ENDED = "pending", "outbox", "sent"
UNSENT = "unsent"
"""Has a copy of each ended reply that was not sent, so that these are found without reading all ended replies."""
LEASE = "outbox-of-channels"
"""Held by the process that sends, so that no two do."""
KEPT_S = 8 * 24 * 3600.0
"""How long an ended reply is remembered. Longer than delivery ids, or a late redelivery would be answered again."""
EXPIRES_S = 24 * 3600.0
"""A reply that comes a day late is of no use."""
BACKOFF_S = 1.0
BACKOFF_MAX_S = 300.0
DOUBLINGS_MAX = 30
"""Bounds the exponent; the pause reaches BACKOFF_MAX_S long before."""
LOOK_S = 2.0
"""How often the ledger is read for replies that another process put there."""
REST_S = 30.0
"""How long a chat waits after an unexpected error or while the store cannot be written: otherwise a piece that was
sent would be sent again and again."""
UNEXPECTED_MAX = 5
"""Attempts of one reply that may end in an unexpected error: the platform may have taken it each time."""
LOOP = "outbox"
REPLIES_MAX = 10_000
"""Read at once; the rest is read in a later round."""

ChatPlace: TypeAlias = tuple[str, str | None]
"""Kind and account of a channel."""
Ended: TypeAlias = Literal["delivered", "refused", "expired"]
State: TypeAlias = Literal["waiting"] | Ended


class ReplyPlace(Struct, frozen=True, kw_only=True):
    """Where a reply goes."""

    kind: str
    account: str | None
    agent: str
    channel_id: str
    """The chat's id in the convlog."""
    address: Address


class PendingReply(ReplyPlace, frozen=True, kw_only=True):
    """A message that needs a reply. Its key is channel, account and delivery id."""

    dedupe_id: str
    language: Language = "en"


class OutgoingReply(ReplyPlace, frozen=True, kw_only=True):
    text: str
    buttons: tuple[Button, ...] = ()
    """Below the last piece."""
    order: int = 0
    until: int = 0
    """Unix ms at which it expires."""
    ids: tuple[str, ...] = ()
    """The platform's ids of the pieces that it has taken."""
    attempts: int = 0
    not_before: int = 0
    state: State = "waiting"
    why: str = ""

    @property
    def place(self) -> ChatPlace:
        return self.kind, self.account

    @property
    def lane(self) -> tuple[str, str | None, str]:
        return self.kind, self.account, self.channel_id


class DeliveryCounter(Protocol):
    """Counts messages and replies by kind of channel; `/metrics` shows the counts."""

    def message(self, kind: str, outcome: Literal["accepted", "heard", "duplicate", "refused", "failed"]) -> None:
        """`failed`: the store did not take it, and the platform will deliver it again."""
        ...

    def reply(self, kind: str, outcome: Literal["delivered", "refused", "expired", "postponed"]) -> None:
        """`postponed`: the platform did not take it this time."""
        ...

    def waiting(self, replies: int) -> None:
        """The number of replies to be sent; 0 while another process sends them."""
        ...


class NoCounter:
    """Counts nothing."""

    def message(self, kind: str, outcome: str) -> None:
        return

    def reply(self, kind: str, outcome: str) -> None:
        return

    def waiting(self, replies: int) -> None:
        return


# Outbox has a method `list`, which hides the builtin in its annotations.
OutgoingReplies: TypeAlias = list[tuple[str, OutgoingReply]]
PendingReplies: TypeAlias = list[tuple[str, PendingReply]]
OnSent: TypeAlias = Callable[[OutgoingReply], Awaitable[None]]


class Outbox:
    def __init__(
        self,
        store: Store,
        channels: Mapping[ChatPlace, Channel],
        *,
        clock: Clock,
        on_delivered: OnSent,
        counter: DeliveryCounter | None = None,
    ) -> None:
        self._store = store
        self._ledger = store.ledger
        self._channels = channels
        self._clock = clock
        self._on_delivered = on_delivered
        self._counter = counter or NoCounter()
        self._news = asyncio.Event()
        self._lanes: dict[Any, asyncio.Task[None]] = {}
        self._resting: dict[Any, int] = {}
        self._unexpected: Counter[str] = Counter()
        """Attempts that ended in an unexpected error, by reply."""
        self._taken: dict[str, tuple[str, ...]] = {}
        """Ids of pieces that this process has sent, also where the store could not be written since."""
        self._last_order = 0
        self._lease: Lease | None = None

    async def add_pending(self, key: str, pending: PendingReply) -> None:
        """Called before the message is stored. Adding a key again changes nothing."""
        await self._ledger.put_if_absent(PENDING, key, facts.write(pending), ttl_s=KEPT_S)

    async def pending(self) -> PendingReplies:
        found = await self._ledger.list(PENDING, limit=REPLIES_MAX)
        read = ((fact.key, facts.read(PENDING, fact.key, fact.value, PendingReply)) for fact in found)
        return [(key, pending) for key, pending in read if pending is not None]

    async def remove_pending(self, key: str) -> None:
        """Called when the reply is put, or when there will be none."""
        await self._ledger.delete(PENDING, key)

    async def put(self, reply_id: str, reply: OutgoingReply) -> bool:
        """False: this or another process has put it before."""
        if await self._ledger.get(ENDED, reply_id) is not None:
            return False
        now = self._clock()
        self._last_order = max(now, self._last_order + 1)
        until = now + int(EXPIRES_S * 1000)
        dated = replace(reply, text=clean(reply.text), order=self._last_order, until=until)
        fresh = await self._ledger.put_if_absent(WAITING, reply_id, facts.write(dated)) is None
        self._news.set()
        return fresh

    async def sent_as(self, reply_id: str) -> str:
        """The platform's id of the last piece of a reply; "" if it was not sent, or too long ago."""
        found = facts.read(ENDED, reply_id, await self._ledger.get(ENDED, reply_id), OutgoingReply)
        return found.ids[-1] if found and found.ids else ""

    async def knows(self, reply_id: str) -> bool:
        waiting = await self._ledger.get(WAITING, reply_id)
        return waiting is not None or await self._ledger.get(ENDED, reply_id) is not None

    async def list(self, *, ended: bool = True) -> OutgoingReplies:
        """Oldest first: replies to be sent, and with `ended` those that ended in the last days."""
        return await replies_in(self._ledger, WAITING, *((ENDED,) if ended else ()))

    async def run(self) -> None:
        """Sends until cancelled. Of several processes at one store, one sends and the others wait to take over."""
        try:
            await background.run_forever(LOOP, self._send_while_ours, every_s=LOOK_S)
        finally:
            await self._stop_lanes()

    async def _send_while_ours(self) -> None:
        try:
            async with self._store.lease(LEASE) as self._lease:
                while self._lease.live:
                    await self._send_and_wait()
        finally:
            self._counter.waiting(0)  # the process that sends now counts them

    async def _send_and_wait(self) -> None:
        self._news.clear()
        wait_s = await self._send_due()
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):  # not wait_for, which loses a cancellation that comes with the news
                await self._news.wait()

    async def deliver_due(self) -> None:
        """Tries every reply that is due now, and returns when all were tried."""
        await self._send_due()
        while tasks := list(self._lanes.values()):
            await asyncio.gather(*tasks)

    async def _stop_lanes(self) -> None:
        tasks = list(self._lanes.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _send_due(self) -> float:
        """Starts a task for each chat whose first reply is due. Returns the seconds until the next one is."""
        now = self._clock()
        lanes: dict[Any, OutgoingReplies] = {}
        replies = await self.list(ended=False)
        self._counter.waiting(len(replies))
        for reply_id, reply in replies:
            lanes.setdefault(reply.lane, []).append((reply_id, reply))
        wait_ms = LOOK_S * 1000
        for lane, replies in lanes.items():
            first = replies[0][1]
            due = max(min(first.not_before, first.until), self._resting.get(lane, 0))
            if due > now:
                wait_ms = min(wait_ms, due - now)
            elif lane not in self._lanes:
                task = asyncio.create_task(self._send_lane(lane, replies), name=f"replies to {lane}")
                self._lanes[lane] = task
                task.add_done_callback(lambda _, lane=lane: self._lane_ended(lane))
        return max(0.01, wait_ms / 1000)

    def _lane_ended(self, lane: Any) -> None:
        self._lanes.pop(lane, None)
        self._news.set()

    async def _send_lane(self, lane: Any, replies: OutgoingReplies) -> None:
        """Sends one after another, so that no reply overtakes an earlier one."""
        try:
            for reply_id, reply in replies:
                if not await self._send(reply_id, reply):
                    return
            self._resting.pop(lane, None)
        except Exception as error:  # noqa: BLE001 - it is reported, and the lane is tried again
            self._resting[lane] = self._clock() + int(REST_S * 1000)
            background.report(LOOP, error)

    async def _send(self, reply_id: str, reply: OutgoingReply) -> bool:
        """True: this reply has ended, and the next one may be sent."""
        if await self._ledger.get(ENDED, reply_id) is not None:
            await self._ledger.delete(WAITING, reply_id)  # the process that ended it died before this line
            return True
        if self._clock() >= reply.until:
            await self._end(reply_id, reply, "expired", reply.why)
            return True
        channel = self._channels.get(reply.place)
        if channel is None:
            await self._postpone(reply_id, reply, Unsent(f"no channel {reply.kind} is configured"))
            return False
        return await self._send_pieces(channel, reply_id, reply)

    async def _send_pieces(self, channel: Channel, reply_id: str, reply: OutgoingReply) -> bool:
        ids = max(reply.ids, self._taken.get(reply_id, ()), key=len)
        pieces = split(reply.text, channel.limit, channel.unit)
        for part in range(len(ids), len(pieces)):
            if self._lease is not None and not self._lease.live:
                return False  # another process sends now
            token = token_of(reply_id, part)
            try:
                buttons = reply.buttons if part == len(pieces) - 1 else ()
                outgoing = Outgoing(address=reply.address, text=pieces[part], token=token, part=part, buttons=buttons)
                ids = (*ids, await channel.send(outgoing))
            except Rejected as error:
                await self._end(reply_id, reply, "refused", mask(str(error)))
                return True
            except Unsent as error:
                await self._postpone(reply_id, reply, error)
                return False
            except Exception as error:  # noqa: BLE001 - a platform may fail in any way
                return await self._after_unexpected(reply_id, reply, error)
            self._taken[reply_id] = ids
            if len(ids) < len(pieces):
                newer = replace(reply, ids=ids, attempts=0)
                if not await self._save(reply_id, reply, newer):
                    return False  # another process continues it
                reply = newer
        await self._end(reply_id, replace(reply, ids=ids), "delivered")
        await self._on_delivered(reply)
        return True

    async def _after_unexpected(self, reply_id: str, reply: OutgoingReply, error: Exception) -> bool:
        """After an error that no channel should raise. Whether the platform took the piece is not known."""
        background.report(f"channel {reply.kind}", error)
        self._unexpected[reply_id] += 1
        why = f"the channel failed: {type(error).__name__}: {error}"[:300]
        if self._unexpected[reply_id] < UNEXPECTED_MAX:
            await self._postpone(reply_id, reply, Unsent(why))
            return False
        await self._end(reply_id, reply, "refused", mask(why))
        return True

    async def _postpone(self, reply_id: str, reply: OutgoingReply, error: Unsent) -> None:
        wait_s = min(BACKOFF_S * 2.0 ** min(reply.attempts, DOUBLINGS_MAX), BACKOFF_MAX_S)
        wait_s = max(wait_s, error.retry_after_s or 0.0)
        later = self._clock() + int(wait_s * 1000)
        tried = replace(reply, attempts=reply.attempts + 1, not_before=later, why=mask(str(error)))
        await self._save(reply_id, reply, tried)
        self._counter.reply(reply.kind, "postponed")

    async def _save(self, reply_id: str, reply: OutgoingReply, newer: OutgoingReply) -> bool:
        """False: another process has changed it. Compares values, for another version may have written more fields."""
        kept = await self._ledger.get(WAITING, reply_id)
        if facts.read(WAITING, reply_id, kept, OutgoingReply) != reply:
            return False
        return await self._ledger.cas(WAITING, reply_id, kept, facts.write(newer))

    async def _end(self, reply_id: str, reply: OutgoingReply, state: Ended, why: str = "") -> None:
        # The text is in the transcript and in the convlog; here only the state is kept.
        ended = facts.write(replace(reply, state=state, why=why, text="", buttons=()))
        if state != "delivered":
            await self._ledger.put_if_absent(UNSENT, reply_id, ended, ttl_s=KEPT_S)
        await self._ledger.put_if_absent(ENDED, reply_id, ended, ttl_s=KEPT_S)
        await self._ledger.delete(WAITING, reply_id)
        self._taken.pop(reply_id, None)
        self._unexpected.pop(reply_id, None)
        self._counter.reply(reply.kind, state)


async def replies_in(ledger: Ledger, *spaces: str) -> OutgoingReplies:
    """The replies of these spaces, oldest first: WAITING (to be sent), ENDED and UNSENT (of the last days)."""
    replies: dict[str, OutgoingReply] = {}
    for space in spaces:
        for fact in await ledger.list(space, limit=REPLIES_MAX):
            if reply := facts.read(space, fact.key, fact.value, OutgoingReply):
                replies[fact.key] = reply
    return sorted(replies.items(), key=lambda item: item[1].order)


def token_of(reply_id: str, part: int) -> str:
    """The same for every attempt, and short enough for every platform (Discord takes 25 characters)."""
    return hashlib.sha256(f"{reply_id}#{part}".encode("utf-8", "replace")).hexdigest()[:24]
