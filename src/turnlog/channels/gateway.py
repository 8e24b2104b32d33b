"""Connects channels to sessions: stores each message that arrives, and sends the reply of its turn, despite crashes.

    arrival → pending (durable) → stored (durable) → acknowledged → its turn → a reply (durable) → sent

The store has everything that the reply needs before the platform is told that its message arrived. So the next process
continues where this one ends (`replies`). The gateway writes the convlog and never reads it.
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Literal, Protocol, TypeAlias
from weakref import WeakValueDictionary

from msgspec.structs import replace

from ..convlog import ConvLog, Record, channel_of, record_ts
from ..core import keys
from ..core.events import ApprovalAnswered, ApprovalRequest
from ..errors import Busy, NotFound, StoreError, StoreUnavailable, TurnlogError, UsageError
from ..library import Turnlog
from ..runtime import background
from ..stores import Clock
from ..turns.deliveries import claim_of
from ..turns.queue import Ticket
from ..turns.stream import TurnStream
from . import Address, Answer, Arrival, ButtonChannel, Hook, Press, Reception, Unsent, commands
from .accounts import Account
from .commands import ChatCommand, Sender, say
from .delivery import Delivery, chat_of, text_for_model, with_name
from .outbox import DeliveryCounter, NoCounter, Outbox, OutgoingReply
from .questions import ChatQuestions, PressOutcome, who
from .replies import ReplyWriter

TYPING_S = 4.0
"""How often "is typing" is sent; platforms show it for at least five seconds."""
LOOK_S = 0.1
"""Pause between checks whether the last replies were sent."""
LAST_REPLIES_S = 3.0
"""How long the last replies may take when the server closes."""
LISTEN_MAX_S = 120.0
"""Longest pause between attempts to listen: platforms block a bot that tries a wrong token a thousand times a day."""
SLOW = ("compact",)
"""Commands that call a model: the platform is answered before they are done."""


Taken: TypeAlias = Literal["accepted", "heard", "duplicate", "refused"]


class Log(Protocol):
    def info(self, event: str, **values: Any) -> Any: ...
    def error(self, event: str, **values: Any) -> Any: ...


class Gateway:
    def __init__(
        self,
        t: Turnlog,
        convlog: ConvLog,
        accounts: Sequence[Account],
        *,
        clock: Clock,
        log: Log,
        counter: DeliveryCounter | None = None,
    ) -> None:
        self._t = t
        self._convlog = convlog
        self._accounts = {(account.kind, account.name): account for account in accounts}
        self._log = log
        self._counter = counter or NoCounter()
        channels = {place: account.channel for place, account in self._accounts.items()}
        self.outbox = Outbox(t.store, channels, clock=clock, on_delivered=self._delivered, counter=counter)
        self._questions = ChatQuestions(t, self.outbox, self._accounts, clock)
        self._replies = ReplyWriter(t, self.outbox, self._questions.ask)
        self._chats: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[None]] = set()
        self._listeners: list[asyncio.Task[None]] = []
        self._is_started = False
        self._running_commands: set[str] = set()
        self._closing = False

    async def start(self) -> None:
        """Called after the queue has resumed interrupted turns. Finds messages without a reply, sends, listens."""
        self._t.on_turn(self._turn_began)
        for session_id in await self._replies.find_left():
            self._spawn(self._replies.follow(session_id))
        self._spawn(self.outbox.run())
        self._spawn(self._replies.sweep())
        self._listeners = [self._spawn(self._listen(account)) for account in self._accounts.values()]
        self._is_started = True
        self._log.info("channels", accounts=[account.full_name for account in self._accounts.values()])

    def _turn_began(self, turn: TurnStream) -> None:
        if follow := self._replies.follow_again(turn.session_id):
            self._spawn(follow)

    def begin_closing(self) -> None:
        """Accepts no further messages. Turns that run are answered if they end in time."""
        self._closing = True
        for task in self._listeners:
            task.cancel()

    async def close(self) -> None:
        """Called after the queue is closed: the logs say which turns were stopped, and their senders are told."""
        self.begin_closing()
        with suppress(TurnlogError, TimeoutError):
            async with asyncio.timeout(LAST_REPLIES_S):
                await self._send_last_replies()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for account in self._accounts.values():
            await account.channel.close()

    async def _send_last_replies(self) -> None:
        """The next process sends what this one cannot send in time."""
        await self._replies.answer_all(closing=True)
        while self._is_started:
            if all(reply.attempts for _, reply in await self.outbox.list(ended=False)):
                return
            await asyncio.sleep(LOOK_S)

    def find(self, kind: str, name: str | None) -> Account:
        account = self._accounts.get((kind, name))
        if account is None:
            raise NotFound("there is no such channel", hint="Write it into [channels] of config.toml.")
        return account

    async def receive(self, account: Account, hook: Hook) -> Reception:
        """A request of a platform. When it returns, every message in it is durable and may be acknowledged."""
        try:
            reception = account.channel.receive(hook)
        except TurnlogError:
            self._counter.message(account.kind, "refused")
            raise
        for arrival in reception.arrivals:
            await self.take(account, arrival)
        if reception.press is not None and (answer := await self._press(account, reception.press)):
            return replace(reception, answer=answer)
        return reception

    async def _press(self, account: Account, press: Press) -> Answer | None:
        """When it returns, the answer that the press gives is durable."""
        channel = account.channel
        outcome = await self._questions.press(account, press)
        self._counter.message(account.kind, "accepted" if outcome.question else "refused")
        if not isinstance(channel, ButtonChannel):
            return None
        await self._record_press(account, press, outcome)
        if answer := channel.respond(press, outcome.note, outcome.text):
            return answer
        self._spawn(self._settle(channel, press, outcome))
        return None

    async def _settle(self, channel: ButtonChannel, press: Press, outcome: PressOutcome) -> None:
        with suppress(Unsent):  # the answer counts; a further press tells it again
            await channel.settle(press, outcome.note, outcome.text)

    async def take(self, account: Account, arrival: Arrival) -> None:
        """Durable when it returns. Raises only failures of the store: the platform then delivers it again."""
        try:
            place = keys.resolve(arrival.inbound, agent=account.settings.agent, dm_scope=account.settings.dm_scope)
            if place.kind == "group" and not arrival.sender_name:
                arrival = await with_name(account, arrival)
            channel_id = channel_of(chat_of(account, arrival))
            async with self._chats.setdefault(channel_id, asyncio.Lock()):
                outcome = await self._take(Delivery(account, arrival, place, channel_id))
            self._counter.message(account.kind, outcome)
        except StoreError:
            self._counter.message(account.kind, "failed")
            raise
        except TurnlogError as error:
            self._counter.message(account.kind, "refused")
            self._log.error("arrival", channel=account.full_name, error=str(error))

    async def _take(self, delivery: Delivery) -> Taken:
        if delivery.key in self._running_commands or await self.outbox.knows(delivery.notice_id):
            return "duplicate"  # a command that runs or has run, or a message that was refused
        command = commands.parse(delivery.arrival.inbound.text)
        if command is None and not delivery.is_asked:
            return await self._hear(delivery)
        if command is None:
            return await self._take_message(delivery)
        if command.name in SLOW:
            self._spawn(self._run_command(delivery, command))
        else:
            await self._run_command(delivery, command)
        return "accepted"

    async def _hear(self, delivery: Delivery) -> Taken:
        """Stores a group message that was not addressed to the bot, as context for the next question."""
        inbound = delivery.arrival.inbound
        new = await self._t.hear(
            delivery.place,
            text_for_model(delivery.arrival, delivery.place),
            sender=inbound.sender_id,
            message_id=inbound.message_id,
            dedupe_id=delivery.dedupe_id,
            dedupe_scope=delivery.scope,
        )
        if new:
            await self._record_arrival(delivery)
        return "heard" if new else "duplicate"

    async def _run_command(self, delivery: Delivery, command: ChatCommand) -> None:
        self._running_commands.add(delivery.key)
        try:
            await self._record_arrival(delivery)
            sender = delivery.arrival.inbound.sender_id or ""
            known = Sender(
                who(delivery.account, sender, delivery.arrival.sender_name),
                sender in delivery.account.settings.approvers,
            )
            told = await commands.run(self._t, delivery.place, command, delivery.language, known)
            await self.outbox.put(delivery.notice_id, delivery.reply(told))
        finally:
            self._running_commands.discard(delivery.key)

    async def _take_message(self, delivery: Delivery) -> Taken:
        inbound = delivery.arrival.inbound
        await self.outbox.add_pending(delivery.key, delivery.pending)
        try:
            ticket = await self._t.accept(
                delivery.place,
                text_for_model(delivery.arrival, delivery.place),
                sender=inbound.sender_id,
                message_id=inbound.message_id,
                dedupe_id=delivery.dedupe_id,
                dedupe_scope=delivery.scope,
                mode=delivery.account.settings.queue,
            )
        except Busy as error:
            if self._closing:
                raise StoreUnavailable("the server is closing", hint="Deliver it again.") from error
            await self.outbox.put(delivery.notice_id, delivery.reply(say("busy", delivery.language)))
            await self.outbox.remove_pending(delivery.key)
            return "refused"
        except UsageError:
            await self.outbox.remove_pending(delivery.key)
            raise
        if ticket.stored.result():
            await self._record_arrival(delivery)
            self._replies.followed.add(delivery.key)
            self._spawn(self._follow_turn(delivery, ticket))
            return "accepted"
        if delivery.key not in self._replies.followed:
            await self._replies.answer(delivery.key, delivery.pending)
        return "duplicate"

    async def _follow_turn(self, delivery: Delivery, ticket: Ticket) -> None:
        """Waits for the turn of a stored message and puts its reply."""
        live: TurnStream | None = None
        try:
            with suppress(TurnlogError):
                live, after = await asyncio.shield(ticket.turn)
                self._spawn(self._ask(delivery, live, after))
                await self._show_typing(delivery.account, delivery.arrival.address, live)
            await self._replies.answer(delivery.key, delivery.pending, live, stopped_by_us=self._closing)
        finally:
            self._replies.followed.discard(delivery.key)

    async def _ask(self, delivery: Delivery, live: TurnStream, after: int) -> None:
        """Puts each question of the turn to the chat of the message, and shows there when it is answered."""
        asked: dict[str, int] = {}
        """The newest question of each call id."""
        claim = await claim_of(self._t.store.ledger, delivery.key)
        async for event in live.follow(after):
            if claim is None:
                return  # the message was stored, so there is one
            if isinstance(event, ApprovalRequest):
                asked[event.call_id] = event.seq
                await self._questions.ask(delivery.pending, claim.session, claim.incarnation)
            if isinstance(event, ApprovalAnswered) and (seq := asked.pop(event.call_id, 0)):
                with suppress(Unsent):
                    await self._questions.close(delivery.pending, claim.session, claim.incarnation, seq)

    async def _show_typing(self, account: Account, address: Address, live: TurnStream) -> None:
        async def show() -> None:
            while True:
                with suppress(Unsent):  # not worth a retry
                    waits = live.events and isinstance(live.events[-1], ApprovalRequest)
                    if not waits:  # for a person's approval: then nobody is typing
                        await account.channel.show_typing(address)
                await asyncio.sleep(TYPING_S)

        showing = asyncio.create_task(show())
        try:
            await live.ended.wait()
        finally:
            showing.cancel()
            await asyncio.gather(showing, return_exceptions=True)

    async def _listen(self, account: Account) -> None:
        async def take(what: Arrival | Press) -> None:
            if isinstance(what, Press):
                await self._press(account, what)
            else:
                await self.take(account, what)

        def listen() -> Awaitable[None]:
            return account.channel.listen(take)

        await background.run_until_done(f"channel {account.kind}", listen, max_s=LISTEN_MAX_S)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._watched(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: work.close())  # a task that is cancelled before it begins never awaits it
        return task

    async def _watched(self, work: Coroutine[Any, Any, None]) -> None:
        with background.going_on("channels"):  # the sweep or the next start finds its message again
            await work

    async def _record_arrival(self, delivery: Delivery) -> None:
        arrival = delivery.arrival
        sender = arrival.sender_name or arrival.inbound.sender_id or ""
        place = (delivery.account.settings.agent, delivery.channel_id, delivery.account.kind)
        await self._record(*place, "user", arrival.inbound.text, sender)

    async def _record_press(self, account: Account, press: Press, outcome: PressOutcome) -> None:
        if (asked := outcome.question) is not None:
            sender = press.sender_name or press.sender_id
            await self._record(asked.agent, asked.channel_id, account.kind, "user", f"[{outcome.word}]", sender)

    async def _delivered(self, reply: OutgoingReply) -> None:
        await self._record(reply.agent, reply.channel_id, reply.kind, "assistant", reply.text, reply.agent)

    async def _record(self, agent: str, channel_id: str, kind: str, role: str, content: str, sender: str) -> None:
        """An error of the convlog is reported and stops nothing."""
        record = Record(
            ts=record_ts(), role=role, content=content, channel_id=channel_id, channel_type=kind, sender=sender
        )
        try:
            await self._convlog.write(agent, channel_id, record)
        except Exception as error:  # noqa: BLE001 - a failing log stops no turn
            self._log.error("convlog", channel=channel_id, error=str(error))
            background.report("convlog", error)
