"""From a message that is stored to the letter that answers it: what its turn said, read from the log.

So it makes no difference which process took the message in, which ran its turn and which comes here: the answer is the
same, has the same id, and is put once. Answers of one session are put in the order in which its turns ended.
"""

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from weakref import WeakValueDictionary

from msgspec import Struct

from .chat_commands import say
from .core import answers
from .core.answers import Outcome
from .core.events import Done, ErrorEvent, spoken
from .errors import Busy, NotFound, TurnlogError
from .library import Turnlog
from .live import Live
from .outbox import Awaited, Expected, Outbox
from .queue import DELIVERED
from .visits import letter_of

TURN_ENTRIES_MAX = 2_000
"""Read back to find all that a turn said."""
LOOK_S = 0.1
"""Between looks whether turns that a crash cut short are over."""
SWEEP_S = 10.0
"""Between looks for messages that nobody sees through any more."""


class Claim(Struct, frozen=True):
    """Where a message went, and where that log ended then: what the queue writes down before it stores it."""

    session: str
    since: int


class Verdict(Struct, frozen=True):
    """What became of a message."""

    session_id: str
    outcome: Outcome
    said: str = ""


class Settling:
    def __init__(self, t: Turnlog, outbox: Outbox) -> None:
        self._t = t
        self._outbox = outbox
        self.followed: set[str] = set()
        """Messages that somebody here sees through to their letters."""
        self._left: dict[str, Expected] = {}
        """By session: messages of an earlier process."""
        self._chats: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def settle(
        self, key: str, awaited: Awaited, live: Live | None = None, *, stopped_by_us: bool = False
    ) -> None:
        """Puts the answer of a message whose turn is over into the outbox; otherwise leaves everything as it is."""
        # One after another in a chat: of two turns that end close together, the second must not be put first.
        async with self._chats.setdefault(awaited.channel_id, asyncio.Lock()):
            claim = await self._claim(key)
            if claim is None:
                return  # not stored: the platform brings it again
            await self._settle_left(claim.session)
            if verdict := await self._judge(claim, awaited, live):
                await self._put(key, awaited, verdict, stopped_by_us)

    async def settle_all(self, *, closing: bool = False) -> None:
        """What nobody follows here; when the server closes, everything: turns that it stopped end with it."""
        followed: Collection[str] = () if closing else self.followed
        for expected in (await self._by_session(followed)).values():
            with suppress(TurnlogError):  # one that cannot be read does not hold up the others
                await self._settle_in_order(expected, stopped_by_us=closing)

    async def find_left(self) -> Sequence[str]:
        """The sessions in which an earlier process left messages to be answered."""
        self._left = await self._by_session(self.followed)
        return list(self._left)

    async def take_up(self, session_id: str) -> None:
        """Their turns are over, or run now; whenever one ends, its answer is put."""
        queue, seen = self._t.queue, None
        while queue.is_busy(session_id):
            if (live := queue.running(session_id)) is not seen:
                seen = live
                await self._settle_left(session_id)
            await asyncio.sleep(LOOK_S)
        await self._settle_left(session_id)
        self._left.pop(session_id, None)  # what is left now is another process's, and found by the sweep

    async def sweep(self) -> None:
        """Messages of a server that died, whose turns others have finished: with several servers at one store."""
        while True:
            await asyncio.sleep(SWEEP_S)
            with suppress(TurnlogError):  # the store is away: next time
                await self.settle_all()

    async def _by_session(self, but: Collection[str]) -> dict[str, Expected]:
        found: dict[str, Expected] = {}
        for key, awaited in await self._outbox.expected():
            if key not in but and (claim := await self._claim(key)):
                found.setdefault(claim.session, []).append((key, awaited))
        return found

    async def _claim(self, key: str) -> Claim | None:
        fact = await self._t.store.ledger.get(DELIVERED, key)
        return None if fact is None else Claim(fact["session"], fact["since"])

    async def _settle_left(self, session_id: str) -> None:
        """First what was said before: an answer must not overtake another."""
        if left := self._left.get(session_id):
            self._left[session_id] = await self._settle_in_order(left)

    async def _settle_in_order(self, expected: Expected, *, stopped_by_us: bool = False) -> Expected:
        """Those whose turns are over; gives the others."""
        over: list[tuple[Verdict, str, Awaited]] = []
        others: Expected = []
        for key, awaited in expected:
            claim = await self._claim(key)
            verdict = await self._judge(claim, awaited) if claim else None
            if verdict:
                over.append((verdict, key, awaited))
            else:
                others.append((key, awaited))
        for verdict, key, awaited in sorted(over, key=lambda one: one[0].outcome.end_seq):
            await self._put(key, awaited, verdict, stopped_by_us)
        return others

    async def _judge(self, claim: Claim, awaited: Awaited, live: Live | None = None) -> Verdict | None:
        """None: its turn is not over."""
        store, session_id = self._t.store, claim.session
        try:
            later = await store.read(session_id, after=claim.since)
            outcome = answers.outcome_of(later, awaited.dedupe_id)
            if outcome is not None and outcome.end == "cut":
                if not await self._is_at_rest(session_id):
                    return None
                # It may have been run again, from beginning to end, between that look and this one.
                later = await store.read(session_id, after=claim.since)
                outcome = answers.outcome_of(later, awaited.dedupe_id)
            if outcome is None:
                return None
            before = await store.read(session_id, before=outcome.end_seq + 1, limit=TURN_ENTRIES_MAX)
        except NotFound:
            # Deleted: by somebody, and then there is nothing to answer; or because no sessions are kept.
            return Verdict(session_id, *of_live(live))
        return Verdict(session_id, outcome, answers.said_in_turn(before))

    async def _put(self, key: str, awaited: Awaited, verdict: Verdict, stopped_by_us: bool) -> None:
        outcome = verdict.outcome
        if text := answer_text(outcome, verdict.said, awaited.language, stopped_by_us=stopped_by_us):
            # One letter a turn and chat, however many messages the turn took.
            letter_id = f"{verdict.session_id}/{outcome.end_seq}/{awaited.channel_id}"
            await self._outbox.put(letter_id, letter_of(awaited, text))
        await self._outbox.dismiss(key)

    async def _is_at_rest(self, session_id: str) -> bool:
        """Whether a turn that was cut stays so: nobody, here or in another process, begins it again or is about to."""
        if self._t.queue.is_busy(session_id) or session_id in await self._t.store.abandoned():
            return False
        try:
            async with self._t.store.lease(session_id, wait_s=0):
                return True
        except Busy:
            return False


def answer_text(outcome: Outcome, said: str, language: str, *, stopped_by_us: bool = False) -> str:
    """What the sender is told; "" if nothing."""
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


def of_live(live: Live | None) -> tuple[Outcome, str]:
    """From a turn's events, where there is no log to read."""
    match live.events[-1] if live and live.events else None:
        case Done():
            return Outcome(0, "done"), spoken(live.events) if live else ""
        case ErrorEvent(code=code) if code != "deleted":
            return Outcome(0, "failed", code), ""
        case _:
            return Outcome(0, "stopped"), ""
