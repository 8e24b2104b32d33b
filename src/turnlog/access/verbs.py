"""The methods of an `Access` that name a session at each call; `handle` has the same for one session."""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import cast, overload

from ..core import content as contents, keys, principals
from ..core.entries import Content, Entry, text_of
from ..core.events import Event, answer_of
from ..core.guard import Limits
from ..core.history import History
from ..core.keys import Inbound, SessionKey
from ..core.prompt import Prompt
from ..core.session import Session
from ..errors import Busy, NotFound, UsageError
from ..memory import Memo, as_context, owner_of
from ..sessions import EDIT_WAIT_S, creating
from ..sessions.checking import checked_methods
from ..shapes import MessageShape, ShapedMessages, writing
from ..shapes.reading import NewMessage, entries_of
from ..stores import Lease
from ..turns import oversized, stopping
from ..turns.agent import Agent
from ..turns.compactor import compact_now
from ..turns.deliveries import Deliveries, claim_of, delivery_key, scope_of
from ..turns.journal import Journal
from ..turns.queue import Incoming, QueueMode, Ticket
from ..turns.recovery import mark_cut_short
from ..turns.stream import TurnStream
from . import finding, prompting, remembering
from .approving import ApprovalVerbs, Approver
from .choosing import ModelVerbs
from .parts import CompactionReport, Where


@checked_methods
class Verbs(ApprovalVerbs, ModelVerbs):
    """Everything that `Access` does with sessions that are named at each call."""

    async def send(
        self,
        where: Where,
        content: Content | None = None,
        *,
        sender: str | None = None,
        message_id: str | None = None,
        dedupe_id: str | None = None,
        context: str = "",
        mode: QueueMode | None = None,
        recall: bool = False,
        approve: Approver | None = None,
    ) -> AsyncIterator[Event]:
        """One message and the events of its turn, the last of which is `done`, `error` or `stopped`.

        The message is durable before anything is done with it. Leaving the loop early does not stop the turn. At an
        `approval_request` the turn waits for `approve` or `deny`; the function `approve` answers in their place.
        """
        ticket = await self.accept(
            where,
            content,
            sender=sender,
            message_id=message_id,
            dedupe_id=dedupe_id,
            context=context,
            mode=mode,
            recall=recall,
        )
        told = self._queue.follow(ticket)
        async for event in self._answering(ticket.row, told, approve) if approve else told:
            yield event

    async def ask(
        self,
        where: Where,
        content: Content | None = None,
        *,
        sender: str | None = None,
        message_id: str | None = None,
        dedupe_id: str | None = None,
        context: str = "",
        mode: QueueMode | None = None,
        recall: bool = False,
        approve: Approver | None = None,
    ) -> str:
        """Sends one message and returns the text of the answer. Raises what `send` tells as its last event: the error
        of the turn, or TurnStopped.

        `approve`: answers for calls that need approval; without it there is nobody to ask, and they are denied.
        """
        ticket = await self.accept(
            where,
            content,
            sender=sender,
            message_id=message_id,
            dedupe_id=dedupe_id,
            context=context,
            mode=mode,
            recall=recall,
            asks=approve is not None,
        )
        told = self._queue.follow(ticket)
        return answer_of([event async for event in (self._answering(ticket.row, told, approve) if approve else told)])

    async def accept(
        self,
        where: Where,
        content: Content | None = None,
        *,
        sender: str | None = None,
        message_id: str | None = None,
        dedupe_id: str | None = None,
        dedupe_scope: str | None = None,
        context: str = "",
        mode: QueueMode | None = None,
        recall: bool = False,
        asks: bool = True,
    ) -> Ticket:
        """The same, but returns as soon as the message is durable, so that an edge can acknowledge it.

        `recall`: the turn is shown what the global memory has on this message. Where no sessions are kept
        (`session.enabled = false`) it always is, and its exchange is saved there and nowhere else.
        `asks`: whether somebody sees the question when a call needs approval; otherwise such calls are denied.
        `dedupe_scope`: channel and account, where the key of the session does not tell them (`dm_scope`).
        """
        if isinstance(where, Inbound):
            content = content if content is not None else _content_of(where)
            sender, message_id = sender or where.sender_id, message_id or where.message_id
            dedupe_id = dedupe_id or where.dedupe_id
        content = checked_content(content)
        row = await self._finder.receiving(where)
        if recall or not self._settings.enabled:
            context = await self._with_memory(context, row, content)
        incoming = Incoming(
            content=content,
            message_id=message_id,
            dedupe_id=dedupe_id,
            dedupe_scope=dedupe_scope or delivery_scope(where, row),
            sender=sender,
            context=context,
            mode=mode,
            asks=asks,
        )
        ticket = await self._queue.accept(row, incoming)
        if not self._settings.enabled:
            task = asyncio.create_task(self._delete_after(row, ticket))
            self._deleting.add(task)
            task.add_done_callback(self._deleting.discard)
        return ticket

    async def hear(
        self,
        where: Where,
        content: Content,
        *,
        sender: str | None = None,
        message_id: str | None = None,
        dedupe_id: str | None = None,
        dedupe_scope: str | None = None,
    ) -> bool:
        """Stores a message without asking for an answer: the newest ones join the next turn, as its context.

        False: it had been delivered before. Where no sessions are kept, it is not stored.
        """
        content = checked_content(content)
        if not self._settings.enabled:
            self._agents.check((await self._finder.found(where, write=True)).agent)
            return True
        row = await self._finder.receiving(where)
        incoming = Incoming(
            content=content,
            message_id=message_id,
            dedupe_id=dedupe_id,
            dedupe_scope=dedupe_scope or delivery_scope(where, row),
            sender=sender,
        )
        return await Deliveries(self._store).hear(row, incoming)

    async def retry(self, where: Where, *, context: str = "") -> AsyncIterator[Event]:
        """Sends the message of the last turn again, if that turn failed, and gives the events of the new one.

        Content that was left out because the model refused it is shown again; tools are not run again. UsageError
        if the last turn was answered, Busy while one runs.
        """
        ticket = await self.accept_retry(where, context=context)
        async for event in self._queue.follow(ticket):
            yield event

    async def accept_retry(self, where: Where, *, context: str = "") -> Ticket:
        """The same, but returns as soon as the turn has begun."""
        row = finding.untrashed(await self._finder.opened(where, write=True))
        return await self._queue.accept(row, Incoming(content="", context=context, retry=True))

    async def delivered_to(self, place: SessionKey, dedupe_id: str) -> Session | None:
        """The session that has already taken this delivery in. NotFound if it was deleted since."""
        place = self.sessions.own_key(place)
        key = delivery_key(scope_of(place.channel, place.account), dedupe_id)
        claim = await claim_of(self._store.ledger, key)
        return await self.sessions.writable(claim.session) if claim else None

    async def renewed(self, row: Session) -> Session:
        """The session that a message for this one's key goes to: this one, or a new one if this one has expired.

        For edges that look the session up before they send; `send` and `accept` with a key do it themselves.
        """
        return await self._finder.renewed(row)

    async def new(
        self, place: SessionKey, word: str | None = None, *, label: str | None = None, may_move: bool = True
    ) -> Session:
        """The session that `/new WORD` makes at this key, as `session.new_makes` says; `label`: a label in any case.

        `may_move`: whether the new session may get a key of its own. Messages of a channel always come for one key.
        """
        makes = self._settings.new_makes
        makes = "session" if makes == "key" and not may_move else makes
        return await creating.make(self.sessions, makes, place, self._clock, word=word, label=label)

    @overload
    async def history(self, where: Where, *, at: int | None = None, shape: None = None) -> History: ...
    @overload
    async def history(self, where: Where, *, at: int | None = None, shape: MessageShape) -> ShapedMessages: ...
    async def history(
        self, where: Where, *, at: int | None = None, shape: MessageShape | None = None
    ) -> History | ShapedMessages:
        """What the model would be shown now, or was shown when the log ended at `at`. `shape`: as a list of messages
        that the SDK of that API accepts.
        """
        row = await self._finder.opened(where)
        with_reply = self._runner.journal.answers_received
        found = await self.sessions.history(row.id, at=at, with_reply=with_reply, incarnation=row.incarnation)
        return found if shape is None else writing.shaped(found, shape)

    async def prompt(self, where: Where, *, at: int | None = None) -> Prompt:
        """Exactly what would be sent now, or was sent when the log ended at `at`."""
        row = await self._finder.now(where)
        with_reply = self._runner.journal.answers_received
        return await prompting.prompt_of(self.sessions, self._agents, row, at=at, with_reply=with_reply)

    async def limits(self, where: Where) -> Limits:
        """The limits of the next turn there, scaled to how its model was seen to count tokens."""
        return await self._scaled(await self._ready(await self._finder.opened(where)))

    async def recall(self, where: Where, words: str, *, limit: int = 20) -> list[Memo]:
        """What the global memory has on these words for the person or group of this session."""
        row = await self._finder.opened(where)
        memory = await self._memory()
        return await memory.search(words, agent=row.agent, owner=owner_of(keys.parse(row.key)), limit=limit)

    async def remembered(self, agent: str, words: str, *, limit: int = 20) -> list[Memo]:
        """What the global memory has on these words, of everybody whose sessions this principal may see."""
        principals.check_agent(self.principal, keys.check_agent(agent))
        return await remembering.find(await self._memory(), self.principal, agent, words, limit)

    async def append(self, where: Where, *messages: NewMessage, lease: Lease | None = None) -> list[Entry]:
        """Stores messages without calling a model: entries, or dicts in the shape of any API. Durable on return.

        Waits for a running turn to end; Busy if it does not. `lease`: from `lease()`, if it is held.
        """
        bodies = entries_of(messages)
        row = await self._finder.opened(where, write=True)
        if lease is not None:
            return await self._store.append(row.id, bodies, lease=lease, incarnation=row.incarnation)
        async with self._store.lease(row.id, wait_s=EDIT_WAIT_S) as own:
            return await self._store.append(row.id, bodies, lease=own, incarnation=row.incarnation)

    @asynccontextmanager
    async def lease(self, where: Where, *, wait_s: float = EDIT_WAIT_S) -> AsyncGenerator[Lease]:
        """`async with`: nobody else writes messages to this session until the end of the block; Busy if a turn runs for
        longer than `wait_s`. Give the lease to `append`.
        """
        row = await self._finder.opened(where, write=True)
        async with self._store.lease(row.id, wait_s=wait_s) as lease:
            yield lease

    async def compact(self, where: Where, *, focus: str = "", dry_run: bool = False) -> CompactionReport:
        """Replaces old messages by a summary in what the model is shown. UsageError if nothing would be gained."""
        row = await self._finder.answered(where)
        agent = await self._ready(row)
        limits = await self._scaled(agent)
        async with self._store.lease(row.id, wait_s=EDIT_WAIT_S) as lease:
            journal = Journal(self._store, lease, await self._runner.load(row.id, row.incarnation))
            if not dry_run:
                await mark_cut_short(journal)
            folded = await oversized.bodies_of(journal, self._store, limits)
            made = await compact_now(journal, agent.compactor, limits, focus=focus, dry_run=dry_run, folded=folded)
        first, last = made[0], made[-1]
        return CompactionReport(
            summary=last.summary,
            first_kept=last.first_kept,
            covers=(first.covers[0], last.covers[1]),
            tokens_before=first.tokens_before,
            tokens_after=last.tokens_after,
            applied=not dry_run,
        )

    async def stop_anywhere(self, session_id: str) -> bool:
        """Stops the turn that runs in this session, in any process; whether there was one. Keeps what was said."""
        try:
            row = await self.sessions.writable(session_id)
        except NotFound:
            return False
        return self._relays.stop(row.id) or await stopping.stop_anywhere(self._store, self._queue, row.id)

    def running(self, row: Session) -> TurnStream | None:
        """The turn of this session, if it runs in this process."""
        self.sessions.admit(row)
        stream = self._queue.running(row.id) or self._relays.running(row.id)
        return stream if stream and stream.incarnation == row.incarnation else None

    async def holder(self, row: Session) -> str | None:
        """Who runs a turn in this session: None if nobody does, "" if this process does."""
        self.sessions.admit(row)
        if self._queue.running(row.id):
            return ""
        try:
            async with self._store.lease(row.id, wait_s=0):
                return "" if self._queue.is_busy(row.id) else None
        except Busy as busy:
            ours = busy.holder.startswith(f"process {os.getpid()} ")
            return "" if ours else busy.holder or "another process"

    async def watch(self, where: Where, *, after: int = 0) -> AsyncGenerator[Entry]:
        """Every entry after that seq, also those that are yet to come; ends when the session is deleted."""
        row = await self._finder.opened(where)
        found = self._store.watch(row.id, after=after, incarnation=row.incarnation)
        async with aclosing(cast("AsyncGenerator[Entry]", found)) as entries:
            async for entry in entries:
                yield entry

    async def _with_memory(self, context: str, row: Session, content: Content) -> str:
        memory = await self._memory()
        found = await memory.recall(row.agent, owner_of(keys.parse(row.key)), text_of(content))
        return "\n\n".join(filter(None, (context, as_context(found))))

    async def _delete_after(self, row: Session, ticket: Ticket) -> None:
        """Deletes the session of one turn when the turn has ended, however it ended."""
        try:
            async for _ in self._queue.follow(ticket):
                pass
        finally:
            await self.sessions.delete(row.id, incarnation=row.incarnation)

    async def _ready(self, row: Session) -> Agent:
        """The agent of a session, with the model that is chosen now and the window that was learnt from refusals."""
        agent = await self._agents.of(await self._finder.now(row))
        return agent.narrowed(await self._runner.windows.of(agent.place))

    async def _scaled(self, agent: Agent) -> Limits:
        return agent.scaled(await self._runner.calibration.of(agent.provider.model))


def delivery_scope(where: Where, row: Session) -> str:
    place = where if isinstance(where, Inbound) else keys.parse(row.key)
    return scope_of(place.channel, place.account)


def checked_content(content: Content | None) -> Content:
    """Checked before anything is created or stored for it."""
    words = contents.accepted(content) if content is not None else ""
    if contents.is_blank(words):
        raise UsageError("there is nothing to send", hint="Give the message's text or blocks.")
    return words


def _content_of(inbound: Inbound) -> Content | None:
    if inbound.blocks:
        return [*inbound.blocks, *([{"type": "text", "text": inbound.text}] if inbound.text else [])]
    return inbound.text or None
