"""Puts the reply to each stored message into the outbox when its turn is over. Reads the reply from the session's log.

One process may receive a message, another run its turn and a third put the reply: all of them find the same text and
the same id, so it is put once. Replies of one session are put in the order in which its turns ended.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from msgspec import Struct

from ..core import answers
from ..core.events import Done, ErrorEvent, spoken
from ..core.turns import Outcome
from ..errors import Busy, NotFound
from ..library import Turnlog
from ..runtime import background
from ..texts import Language
from ..turns.deliveries import DeliveryClaim, claim_of
from ..turns.stream import TurnStream
from .commands import say
from .delivery import outgoing_of
from .outbox import Outbox, PendingReplies, PendingReply

TURN_ENTRIES_MAX = 2_000
"""Entries that are read to collect the text of one turn."""
LOOK_S = 0.1
"""Pause between checks whether a turn that a crash interrupted is over."""
LOOP = "replies"
SWEEP_S = 10.0
"""Pause between searches for messages whose process died."""


AskChat: TypeAlias = Callable[[PendingReply, str, str | None], Awaitable[None]]
"""(message, session, its incarnation): puts the questions that wait there to the chat of the message."""


class MessageResult(Struct, frozen=True):
    """How the turn of a message ended."""

    log: str
    """The session, and its incarnation where that is known."""
    outcome: Outcome
    said: str = ""


class ReplyWriter:
    def __init__(self, t: Turnlog, outbox: Outbox, ask: AskChat) -> None:
        self._t = t
        self._outbox = outbox
        self._ask = ask
        self.followed: set[str] = set()
        """Keys of messages for which a task of this process will put the reply."""
        self._left: dict[str, PendingReplies] = {}
        """By session: messages that an earlier process left, while a task here follows their turns."""
        self._paused: dict[str, PendingReplies] = {}
        """The same, while no turn of theirs runs here: it may wait for a person's approval."""
        self._chats: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def answer(
        self, key: str, pending: PendingReply, live: TurnStream | None = None, *, stopped_by_us: bool = False
    ) -> None:
        """Puts the reply to a message if its turn is over; otherwise changes nothing."""
        # One at a time in a chat: of two turns that end at nearly the same time, the second must not be put first.
        async with self._chats.setdefault(pending.channel_id, asyncio.Lock()):
            claim = await self._claim(key)
            if claim is None:
                return  # it was not stored; the platform delivers it again
            await self._answer_left(claim.session)
            if result := await self._result_of(claim, pending, live):
                await self._put(key, pending, result, stopped_by_us)

    async def answer_all(self, *, closing: bool = False) -> None:
        """Messages that no task here follows; when the server closes, all: it has stopped their turns."""
        followed: Collection[str] = () if closing else self.followed
        for waiting in (await self._by_session(followed)).values():
            with background.going_on(LOOP):  # a session that cannot be read does not stop the others
                await self._answer_in_order(waiting, stopped_by_us=closing)

    async def find_left(self) -> Sequence[str]:
        """The sessions in which an earlier process left messages without a reply."""
        self._left = await self._by_session(self.followed)
        return list(self._left)

    async def follow(self, session_id: str) -> None:
        """Puts the reply to each message that was left in this session when its turn ends."""
        queue, seen = self._t.queue, None
        while queue.is_busy(session_id):
            if (live := queue.running(session_id)) is not seen:
                seen = live
                await self._answer_left(session_id)
            await asyncio.sleep(LOOK_S)
        await self._answer_left(session_id)
        if left := self._left.pop(session_id, None):  # another process may run it: then the sweep finds it
            self._paused[session_id] = left

    def follow_again(self, session_id: str) -> Coroutine[Any, Any, None] | None:
        """A turn begins here: follows the messages that were left in its session, if there are any."""
        if left := self._paused.pop(session_id, None):
            self._left[session_id] = left
            return self.follow(session_id)
        return None

    async def sweep(self) -> None:
        """With several servers at one store: messages of a server that died, whose turns another one has run."""
        await asyncio.sleep(SWEEP_S)
        await background.run_forever(LOOP, self.answer_all, every_s=SWEEP_S)

    async def _by_session(self, but: Collection[str]) -> dict[str, PendingReplies]:
        found: dict[str, PendingReplies] = {}
        for key, pending in await self._outbox.pending():
            if key not in but and (claim := await self._claim(key)):
                found.setdefault(claim.session, []).append((key, pending))
        return found

    async def _claim(self, key: str) -> DeliveryClaim | None:
        return await claim_of(self._t.store.ledger, key)

    async def _answer_left(self, session_id: str) -> None:
        """Called before any other reply of this session is put, so that none overtakes an earlier one."""
        if left := self._left.get(session_id):
            self._left[session_id] = await self._answer_in_order(left)

    async def _answer_in_order(self, waiting: PendingReplies, *, stopped_by_us: bool = False) -> PendingReplies:
        """Puts the replies of turns that are over, and returns the other messages."""
        over: list[tuple[MessageResult, str, PendingReply]] = []
        others: PendingReplies = []
        for key, pending in waiting:
            claim = await self._claim(key)
            result = await self._result_of(claim, pending) if claim else None
            if result:
                over.append((result, key, pending))
                continue
            others.append((key, pending))
            if claim:  # the process that asked may have died before it put the question
                await self._ask(pending, claim.session, claim.incarnation)
        for result, key, pending in sorted(over, key=lambda one: one[0].outcome.end_seq):
            await self._put(key, pending, result, stopped_by_us)
        return others

    async def _result_of(
        self, claim: DeliveryClaim, pending: PendingReply, live: TurnStream | None = None
    ) -> MessageResult | None:
        """None: its turn is not over."""
        session_id, log = claim.session, "/".join(filter(None, (claim.session, claim.incarnation)))
        read = partial(self._t.store.read, session_id, incarnation=claim.incarnation)
        try:
            outcome = answers.outcome_of(await read(after=claim.since), pending.dedupe_id)
            if outcome is not None and outcome.end == "cut":
                if not await self._is_at_rest(session_id):
                    return None
                # Between the two reads it may have been run again from beginning to end.
                outcome = answers.outcome_of(await read(after=claim.since), pending.dedupe_id)
            if outcome is None:
                return None
            before = await read(before=outcome.end_seq + 1, limit=TURN_ENTRIES_MAX)
        except NotFound:
            # Somebody deleted the session, then there is no reply; or no sessions are kept, then the events have it.
            return MessageResult(log, *of_live(live))
        return MessageResult(log, outcome, answers.said_in_turn(before))

    async def _put(self, key: str, pending: PendingReply, result: MessageResult, stopped_by_us: bool) -> None:
        outcome = result.outcome
        if text := answer_text(outcome, result.said, pending.language, stopped_by_us=stopped_by_us):
            # One reply for each turn and chat, however many messages the turn answered.
            reply_id = f"{result.log}/{outcome.end_seq}/{pending.channel_id}"
            await self._outbox.put(reply_id, outgoing_of(pending, text))
        await self._outbox.remove_pending(key)

    async def _is_at_rest(self, session_id: str) -> bool:
        """Whether an interrupted turn stays so: no process runs it again or is about to."""
        if self._t.queue.is_busy(session_id) or session_id in await self._t.store.abandoned():
            return False
        try:
            async with self._t.store.lease(session_id, wait_s=0):
                return True
        except Busy:
            return False


def answer_text(outcome: Outcome, said: str, language: Language, *, stopped_by_us: bool = False) -> str:
    """The reply to the sender; "" if there is none."""
    match outcome.end:
        case "done" | "stopped" if said:
            return said
        case "stopped" if stopped_by_us:
            return say("interrupted", language)
        case "cut":
            return say("interrupted", language)
        case "failed":
            return say("overflow" if outcome.code == "overflow" else "failed", language)
        case _:
            return ""


def of_live(live: TurnStream | None) -> tuple[Outcome, str]:
    """How a turn ended and what it said, from its events: for sessions whose log is gone."""
    match live.events[-1] if live and live.events else None:
        case Done():
            return Outcome(0, "done"), spoken(live.events) if live else ""
        case ErrorEvent(code=code) if code != "deleted":
            return Outcome(0, "failed", code), ""
        case _:
            return Outcome(0, "stopped"), ""
