"""Joins channels to sessions: what comes in is stored and answered, what is answered goes out, whatever dies meanwhile.

    arrival → awaited (durable) → stored (durable) → acknowledged → its turn → a letter (durable) → sent

Everything an answer needs is in the store before the platform is told that its message arrived: so it is found by the
next process where this one ends (`settling`). The convlog is written here and never read.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any, Literal, Protocol, TypeAlias
from weakref import WeakValueDictionary

from . import chat_commands
from .channels import Address, Arrival, Hook, Reception, Unsent
from .channels.choosing import Booth
from .channels.naming import named, worded
from .chat_commands import Command, say
from .convlog import ConvLog, Record, channel_of, record_ts
from .core import keys
from .errors import Busy, NotFound, StoreError, StoreUnavailable, TurnlogError, UsageError
from .library import Turnlog
from .live import Live
from .outbox import Letter, NoTally, Outbox, Tally
from .queue import Ticket
from .settling import Settling
from .stores import Clock
from .visits import Visit, chat_of

TYPING_S = 4.0
"""How often it is shown that an answer is under way; platforms show it for five seconds and more."""
LOOK_S = 0.1
"""Between looks whether last letters have gone."""
FAREWELL_S = 3.0
"""For last letters, when the server closes."""
LISTEN_AGAIN_S = 30.0
"""After a platform could not be reached at all."""
SLOW = ("compact",)
"""Commands that call a model: the platform is not kept waiting for them."""


Taken: TypeAlias = Literal["accepted", "duplicate", "refused"]


class Log(Protocol):
    def info(self, event: str, **values: Any) -> Any: ...
    def error(self, event: str, **values: Any) -> Any: ...


class Switchboard:
    def __init__(
        self,
        t: Turnlog,
        convlog: ConvLog,
        booths: Sequence[Booth],
        *,
        clock: Clock,
        log: Log,
        tally: Tally | None = None,
    ) -> None:
        self._t = t
        self._convlog = convlog
        self._booths = {(booth.kind, booth.account): booth for booth in booths}
        self._log = log
        self._tally = tally or NoTally()
        channels = {place: booth.channel for place, booth in self._booths.items()}
        self.outbox = Outbox(t.store, channels, clock=clock, on_delivered=self._delivered, tally=tally)
        self._settling = Settling(t, self.outbox)
        self._chats: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listeners: list[asyncio.Task[None]] = []
        self._is_started = False
        self._obeying: set[str] = set()
        self._closing = False

    async def start(self) -> None:
        """After the queue has taken up what was left: looks after unanswered messages, sends, and listens."""
        for session_id in await self._settling.find_left():
            self._beside(self._settling.take_up(session_id))
        self._beside(self.outbox.run())
        self._beside(self._settling.sweep())
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
        await self._settling.settle_all(closing=True)
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
        try:
            reception = booth.channel.receive(hook)
        except TurnlogError:
            self._tally.message(booth.kind, "refused")
            raise
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
                outcome = await self._take(Visit(booth, arrival, place, channel_id))
            self._tally.message(booth.kind, outcome)
        except StoreError:
            self._tally.message(booth.kind, "failed")
            raise
        except TurnlogError as error:
            self._tally.message(booth.kind, "refused")
            self._log.error("arrival", channel=_name(booth), error=str(error))

    async def _take(self, visit: Visit) -> Taken:
        if visit.key in self._obeying or await self.outbox.knows(visit.note_id):
            return "duplicate"  # a command that was or is being carried out, or a message that was refused
        command = chat_commands.parse(visit.arrival.inbound.text)
        if command is None:
            return await self._take_message(visit)
        if command.name in SLOW:
            self._beside(self._obey(visit, command))
        else:
            await self._obey(visit, command)
        return "accepted"

    async def _obey(self, visit: Visit, command: Command) -> None:
        self._obeying.add(visit.key)
        try:
            await self._note_arrival(visit)
            told = await chat_commands.carry_out(self._t, visit.place, command, visit.language)
            await self.outbox.put(visit.note_id, visit.letter(told))
        finally:
            self._obeying.discard(visit.key)

    async def _take_message(self, visit: Visit) -> Taken:
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
            return "refused"
        except UsageError:
            await self.outbox.dismiss(visit.key)
            raise
        if ticket.stored.result():
            await self._note_arrival(visit)
            self._settling.followed.add(visit.key)
            self._beside(self._see_through(visit, ticket))
            return "accepted"
        if visit.key not in self._settling.followed:
            await self._settling.settle(visit.key, visit.awaited)
        return "duplicate"

    async def _see_through(self, visit: Visit, ticket: Ticket) -> None:
        """From a stored message to its letter."""
        live: Live | None = None
        try:
            with suppress(TurnlogError):
                live, _ = await asyncio.shield(ticket.turn)
                await self._show_typing(visit.booth, visit.arrival.address, live)
            await self._settling.settle(visit.key, visit.awaited, live, stopped_by_us=self._closing)
        finally:
            self._settling.followed.discard(visit.key)

    async def _show_typing(self, booth: Booth, address: Address, live: Live) -> None:
        async def show() -> None:
            while True:
                with suppress(Unsent):  # it is only a courtesy
                    await booth.channel.show_typing(address)
                await asyncio.sleep(TYPING_S)

        showing = asyncio.create_task(show())
        try:
            await live.ended.wait()
        finally:
            showing.cancel()
            await asyncio.gather(showing, return_exceptions=True)

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

    async def _note_arrival(self, visit: Visit) -> None:
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


def _name(booth: Booth) -> str:
    return f"{booth.kind}.{booth.account}" if booth.account else booth.kind
