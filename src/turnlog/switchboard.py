"""Joins channels to sessions: what comes in is stored and answered, what is answered goes out, whatever dies meanwhile.

    arrival → awaited (durable) → stored (durable) → acknowledged → its turn → a letter (durable) → sent

Everything an answer needs is in the store before the platform is told that its message arrived, and the answer itself
is read from the log: so it is found by the next process where this one ends. The convlog is written here and never
read.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakValueDictionary

from msgspec.structs import replace

from . import chat_commands
from .channels import Address, Arrival, Hook, Reception, Unsent
from .channels.choosing import Booth
from .channels.naming import named, worded
from .chat_commands import Command, Language, language_of, say
from .convlog import ConvLog, Record, channel_of, record_ts
from .core import answers, keys
from .core.answers import Outcome
from .core.events import Done, ErrorEvent, Event, TextDelta, ToolCall
from .core.keys import SessionKey
from .errors import Busy, NotFound, StoreError, StoreUnavailable, TurnlogError, UsageError
from .library import Turnlog
from .live import Live
from .outbox import Awaited, Letter, Outbox
from .queue import DELIVERED, Ticket
from .stores import Clock

TYPING_S = 4.0
"""How often it is shown that an answer is under way; platforms show it for five seconds and more."""
TURN_ENTRIES_MAX = 2_000
"""Read back to find all that a turn said."""
LOOK_S = 0.1
"""Between looks whether turns that a crash cut short are over, and whether last letters have gone."""
FAREWELL_S = 3.0
"""For last letters, when the server closes."""
SWEEP_S = 10.0
"""Between looks for messages that nobody sees through any more."""
LISTEN_AGAIN_S = 30.0
"""After a platform could not be reached at all."""
SLOW = ("compact",)
"""Commands that call a model: the platform is not kept waiting for them."""


class Log(Protocol):
    def info(self, event: str, **values: Any) -> Any: ...
    def error(self, event: str, **values: Any) -> Any: ...


class Switchboard:
    def __init__(self, t: Turnlog, convlog: ConvLog, booths: Sequence[Booth], *, clock: Clock, log: Log) -> None:
        self._t = t
        self._convlog = convlog
        self._booths = {(booth.kind, booth.account): booth for booth in booths}
        self._log = log
        channels = {place: booth.channel for place, booth in self._booths.items()}
        self.outbox = Outbox(t.store, channels, clock=clock, on_delivered=self._delivered)
        self._chats: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listeners: list[asyncio.Task[None]] = []
        self._is_started = False
        self._obeying: set[str] = set()
        self._followed: set[str] = set()
        """Messages that somebody here sees through to their letters."""
        self._closing = False

    async def start(self) -> None:
        """After the queue has taken up what was left: looks after unanswered messages, sends, and listens."""
        for key, awaited in await self.outbox.expected():
            self._beside(self._take_up(key, awaited))
        self._beside(self.outbox.run())
        self._beside(self._sweep())
        self._listeners = [self._beside(self._listen(booth)) for booth in self._booths.values()]
        self._is_started = True
        self._log.info("channels", booths=[_name(booth) for booth in self._booths.values()])

    def begin_closing(self) -> None:
        """Nothing new is taken in from now on; what runs is answered if it ends in time."""
        self._closing = True
        for task in self._listeners:
            task.cancel()

    async def close(self) -> None:
        """After the queue is closed: turns that were stopped have left their mark, and their senders are told."""
        self.begin_closing()
        with suppress(TurnlogError, TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                await self._say_farewell()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for booth in self._booths.values():
            await booth.channel.close()

    async def _say_farewell(self) -> None:
        """What cannot be sent in time is sent by the next process."""
        for key, awaited in await self.outbox.expected():
            await self._settle(key, awaited, stopped_by_us=True)
        while self._is_started:
            if all(letter.attempts for _, letter in await self.outbox.list(ended=False)):
                return
            await asyncio.sleep(LOOK_S)

    def find(self, kind: str, account: str | None) -> Booth:
        booth = self._booths.get((kind, account))
        if booth is None:
            raise NotFound("there is no such channel", hint="Write it into [channels] of config.toml.")
        return booth

    async def receive(self, booth: Booth, hook: Hook) -> Reception:
        """A request of a platform. Returns when everything in it is durable, and the platform may be told so."""
        reception = booth.channel.receive(hook)
        for arrival in reception.arrivals:
            await self.take(booth, arrival)
        return reception

    async def take(self, booth: Booth, arrival: Arrival) -> None:
        """Durable when it returns. Only a store that fails is an error: the platform brings the message again."""
        try:
            place = keys.resolve(arrival.inbound, agent=booth.agent, dm_scope=booth.dm_scope)
            if place.kind == "group" and not arrival.sender_name:
                arrival = await named(booth, arrival)
            channel_id = channel_of(chat_of(booth, arrival))
            async with self._chats.setdefault(channel_id, asyncio.Lock()):
                await self._take(Visit(booth, arrival, place, channel_id))
        except StoreError:
            raise
        except TurnlogError as error:
            self._log.error("arrival", channel=_name(booth), error=str(error))

    async def _take(self, visit: "Visit") -> None:
        if visit.key in self._obeying or await self.outbox.knows(visit.note_id):
            return  # a command that was or is being carried out, or a message that was refused
        command = chat_commands.parse(visit.arrival.inbound.text)
        if command is None:
            await self._take_message(visit)
        elif command.name in SLOW:
            self._beside(self._obey(visit, command))
        else:
            await self._obey(visit, command)

    async def _obey(self, visit: "Visit", command: Command) -> None:
        self._obeying.add(visit.key)
        try:
            await self._note_arrival(visit)
            told = await chat_commands.carry_out(self._t, visit.place, command, visit.language)
            await self.outbox.put(visit.note_id, visit.letter(told))
        finally:
            self._obeying.discard(visit.key)

    async def _take_message(self, visit: "Visit") -> None:
        inbound = visit.arrival.inbound
        await self.outbox.expect(visit.key, visit.awaited)
        try:
            ticket = await self._t.accept(
                visit.place,
                worded(visit.arrival, visit.place),
                sender=inbound.sender_id,
                message_id=inbound.message_id,
                dedupe_id=visit.dedupe_id,
                dedupe_scope=visit.scope,
                mode=visit.booth.queue,
            )
        except Busy as error:
            if self._closing:
                raise StoreUnavailable("the server is closing") from error  # the platform brings it again
            await self.outbox.put(visit.note_id, visit.letter(say("busy", visit.language)))
            await self.outbox.dismiss(visit.key)
            return
        except UsageError:
            await self.outbox.dismiss(visit.key)
            raise
        if ticket.stored.result():
            await self._note_arrival(visit)
            self._followed.add(visit.key)
            self._beside(self._see_through(visit, ticket))
        elif visit.key not in self._followed:
            await self._settle(visit.key, visit.awaited)

    async def _see_through(self, visit: "Visit", ticket: Ticket) -> None:
        """From a stored message to its letter."""
        live: Live | None = None
        try:
            with suppress(TurnlogError):
                live, _ = await asyncio.shield(ticket.turn)
                await self._show_typing(visit.booth, visit.arrival.address, live)
            await self._settle(visit.key, visit.awaited, live, stopped_by_us=self._closing)
        finally:
            self._followed.discard(visit.key)

    async def _show_typing(self, booth: Booth, address: Address, live: Live) -> None:
        async def show() -> None:
            while True:
                with suppress(Unsent):  # it is only a courtesy
                    await booth.channel.show_typing(address)
                await asyncio.sleep(TYPING_S)

        showing = asyncio.create_task(show())
        try:
            while await live.reach(len(live.events)):
                pass
        finally:
            showing.cancel()
            await asyncio.gather(showing, return_exceptions=True)

    async def _take_up(self, key: str, awaited: Awaited) -> None:
        """A message of an earlier process: its turn is over, or runs again now, or was never stored."""
        fact = await self._t.store.ledger.get(DELIVERED, key)
        while fact is not None and self._t.queue.is_busy(fact["session"]):  # noqa: ASYNC110 - the queue has no bell
            await asyncio.sleep(LOOK_S)
        await self._settle(key, awaited)

    async def _sweep(self) -> None:
        """Messages of a server that died, whose turns others have finished: with several servers at one store."""
        while True:
            await asyncio.sleep(SWEEP_S)
            expected: list[tuple[str, Awaited]] = []
            with suppress(TurnlogError):
                expected = await self.outbox.expected()
            for key, awaited in expected:
                if key not in self._followed:
                    with suppress(TurnlogError):  # a turn runs somewhere, or the store is away: next time
                        await self._settle_at_rest(key, awaited)

    async def _settle_at_rest(self, key: str, awaited: Awaited) -> None:
        fact = await self._t.store.ledger.get(DELIVERED, key)
        if fact is not None:
            async with self._t.store.lease(fact["session"], wait_s=0):
                await self._settle(key, awaited)

    async def _settle(
        self, key: str, awaited: Awaited, live: Live | None = None, *, stopped_by_us: bool = False
    ) -> None:
        """Puts the answer of a message whose turn is over into the outbox; otherwise leaves everything as it is."""
        fact = await self._t.store.ledger.get(DELIVERED, key)
        if fact is None:
            return  # not stored: the platform brings it again
        session_id = fact["session"]
        try:
            later = await self._t.store.read(session_id, after=fact["since"])
            outcome = answers.outcome_of(later, awaited.dedupe_id)
            if outcome is None or (outcome.end == "cut" and self._t.queue.is_busy(session_id)):
                return
            before = await self._t.store.read(session_id, before=outcome.end_seq + 1, limit=TURN_ENTRIES_MAX)
            said = answers.said_in_turn(before)
        except NotFound:
            # Deleted: by somebody, and then there is nothing to answer; or because no sessions are kept.
            outcome, said = of_live(live)
        text = answer_text(outcome, said, awaited.language, stopped_by_us=stopped_by_us)
        if text:
            # One letter a turn and chat, however many messages the turn took.
            letter = _letter(awaited, text)
            await self.outbox.put(f"{session_id}/{outcome.end_seq}/{awaited.channel_id}", letter)
        await self.outbox.dismiss(key)

    async def _listen(self, booth: Booth) -> None:
        async def take(arrival: Arrival) -> None:
            await self.take(booth, arrival)

        while True:
            try:
                return await booth.channel.listen(take)
            except Unsent as error:
                self._log.error("channel", channel=_name(booth), error=str(error), hint=error.hint)
                await asyncio.sleep(LISTEN_AGAIN_S)
            except TurnlogError as error:  # settings that must be mended; the other channels go on
                self._log.error("channel", channel=_name(booth), error=str(error), hint=error.hint)
                return None

    def _beside(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._watched(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # it may have been cancelled before it began
        return task

    async def _watched(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except TurnlogError as error:
            self._log.error("channels", error=str(error))  # what it was about is found again at the next start

    async def _note_arrival(self, visit: "Visit") -> None:
        arrival = visit.arrival
        sender = arrival.sender_name or arrival.inbound.sender_id or ""
        await self._note(visit.booth.agent, visit.channel_id, visit.booth.kind, "user", arrival.inbound.text, sender)

    async def _delivered(self, letter: Letter) -> None:
        await self._note(letter.agent, letter.channel_id, letter.kind, "assistant", letter.text, letter.agent)

    async def _note(self, agent: str, channel_id: str, kind: str, role: str, content: str, sender: str) -> None:
        """That the convlog cannot be written stops no conversation."""
        record = Record(
            ts=record_ts(), role=role, content=content, channel_id=channel_id, channel_type=kind, sender=sender
        )
        try:
            await self._convlog.write(agent, channel_id, record)
        except TurnlogError as error:
            self._log.error("convlog", channel=channel_id, error=str(error))


class Visit:
    """One arrival at one booth, and everything that is derived from it."""

    def __init__(self, booth: Booth, arrival: Arrival, place: SessionKey, channel_id: str) -> None:
        self.booth = booth
        self.arrival = arrival
        self.place = place
        self.channel_id = channel_id
        self.scope = f"{booth.kind}|{booth.account or ''}"
        self.delivery = arrival.inbound.dedupe_id or ""
        self.dedupe_id = self.delivery or f"{channel_id}/{arrival.inbound.message_id}"
        """A platform that names no delivery is told apart by its message."""
        self.key = f"{self.scope}|{self.dedupe_id}"
        self.note_id = f"note|{self.key}"
        self.language: Language = language_of(arrival.inbound.text, arrival.language)

    @property
    def awaited(self) -> Awaited:
        return Awaited(
            kind=self.booth.kind,
            account=self.booth.account,
            agent=self.booth.agent,
            channel_id=self.channel_id,
            address=self.arrival.address,
            dedupe_id=self.dedupe_id,
            language=self.language,
        )

    def letter(self, text: str) -> Letter:
        return _letter(self.awaited, text)


def _letter(awaited: Awaited, text: str) -> Letter:
    return Letter(
        kind=awaited.kind,
        account=awaited.account,
        agent=awaited.agent,
        channel_id=awaited.channel_id,
        address=awaited.address,
        text=text,
    )


def chat_of(booth: Booth, arrival: Arrival) -> SessionKey:
    """The chat itself, whatever sessions its messages go to: what the convlog keeps apart, and answers go to."""
    own = keys.resolve(arrival.inbound, agent=booth.agent)
    return replace(own, peer=arrival.inbound.chat_id or own.peer)


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


def spoken(told: Sequence[Event]) -> str:
    """The texts of a turn, message by message."""
    texts: list[str] = [""]
    for event in told:
        match event:
            case TextDelta():
                texts[-1] += event.text
            case ToolCall():
                texts.append("")
            case _:
                pass
    return "\n\n".join(filter(None, map(str.strip, texts)))


def _name(booth: Booth) -> str:
    return f"{booth.kind}.{booth.account}" if booth.account else booth.kind
