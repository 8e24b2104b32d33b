"""One session, with everything that can be done with it.

A handle is made at once and opens nothing. Each call finds the session anew: a handle made from a name or a key leads
to the session that is selected there now. `await handle` opens the session, and reads its row: the attributes of the
row, such as `title`, are those of the last time.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any, Literal, cast, overload

from ..core.approvals import ApprovalRecord
from ..core.compaction import Coverage
from ..core.entries import MESSAGES, ApprovalAnswer, Assistant, Content, Entry, Message
from ..core.events import Event
from ..core.history import History
from ..core.keys import SessionById
from ..core.prompt import Prompt
from ..core.query import Hit, Query
from ..core.session import Session, live_path, marks_of, on_path
from ..core.user_content import with_words
from ..errors import UsageError
from ..interchange.exporting import ExportFormat, ExportShape, export
from ..sessions import EDIT_WAIT_S, Sessions
from ..sessions.checking import checked_methods
from ..shapes import MessageDict, MessageShape, ShapedMessages, writing
from ..shapes.reading import NewMessage
from ..stores import Lease
from ..turns.own_call import Summarise
from ..turns.queue import QueueMode
from .approving import Approver
from .calling import CallContent, CallingVerbs, ModelCall
from .finding import SessionFinder
from .parts import BoundSession, CompactionReport, SessionPlace


@checked_methods
class SessionHandle(BoundSession):
    """One session, with everything that can be done with it. `await` it to open the session and read its row."""

    def __init__(self, access: CallingVerbs, finder: SessionFinder, place: SessionPlace) -> None:
        super().__init__(place)
        self._access = access
        self._finder = finder
        self._row = place if isinstance(place, Session) else None

    def __await__(self) -> "Generator[Any, Any, SessionHandle]":
        return self._open().__await__()

    async def _open(self) -> "SessionHandle":
        self._row = await self._finder.now(self)
        if isinstance(self.place, SessionById):
            self.place = self._row  # this session, and never another one that is later made under its id
        return self

    def __repr__(self) -> str:
        return f"<session {self._row.id}>" if self._row else f"<session at {self.place}>"

    @property
    def row(self) -> Session:
        """The row as it was when the handle was last awaited, or as the last change left it."""
        if self._row is None:
            raise UsageError(
                "the session was not opened yet", hint="Await the handle first: chat = await t.session(…)."
            )
        return self._row

    @property
    def _sessions(self) -> Sessions:
        return self._access.sessions

    async def ask(
        self,
        content: Content,
        *,
        sender: str | None = None,
        message_id: str | None = None,
        dedupe_id: str | None = None,
        context: str = "",
        mode: QueueMode | None = None,
        recall: bool = False,
        approve: Approver | None = None,
    ) -> str:
        """Sends one message and returns the text of the answer. Raises the error of the turn if it failed.

        `approve`: answers for calls that need approval; without it there is nobody to ask, and they are denied.
        Example: `print(await chat.ask("And what is my name?"))`
        """
        return await self._access.ask(
            self,
            content,
            sender=sender,
            message_id=message_id,
            dedupe_id=dedupe_id,
            context=context,
            mode=mode,
            recall=recall,
            approve=approve,
        )

    async def send(
        self,
        content: Content,
        *,
        sender: str | None = None,
        message_id: str | None = None,
        dedupe_id: str | None = None,
        context: str = "",
        mode: QueueMode | None = None,
        recall: bool = False,
        approve: Approver | None = None,
    ) -> AsyncIterator[Event]:
        """Sends one message and gives the events of its turn; the last one is `done`, `error` or `stopped`.

        The message is durable before anything is done with it. Leaving the loop early does not stop the turn.
        Example: `async for event in chat.send("hi"): print(event.type)`
        """
        events = self._access.send(
            self,
            content,
            sender=sender,
            message_id=message_id,
            dedupe_id=dedupe_id,
            context=context,
            mode=mode,
            recall=recall,
            approve=approve,
        )
        async for event in events:
            yield event

    async def retry(self, *, context: str = "") -> AsyncIterator[Event]:
        """Sends the message of the last turn again, if that turn failed, and gives the events of the new turn.
        Example: `async for event in chat.retry(): print(event.type)`
        """
        async for event in self._access.retry(self, context=context):
            yield event

    async def approvals(self) -> list[ApprovalRecord]:
        """Every call of this session that needed approval, with its answer and what came of it; the newest last.
        Example: `open_calls = await chat.approvals()`
        """
        return await self._access.approvals(self)

    async def approve(
        self,
        call_id: str,
        *,
        input: dict[str, Any] | None = None,  # noqa: A002 - the name of the field
        always: bool | Literal["everywhere"] = False,
        by: str | None = None,
        request: int = 0,
    ) -> ApprovalAnswer:
        """Approves a call that waits. `input`: with these arguments instead. `always`: calls like it too. `request`:
        only this question (its `seq`). Example: `await chat.approve("call_1")`
        """
        return await self._access.approve(self, call_id, input=input, always=always, by=by, request=request)

    async def deny(self, call_id: str, words: str = "", *, by: str | None = None, request: int = 0) -> ApprovalAnswer:
        """Denies a call that waits; the model reads the words. Example: `await chat.deny("call_1", "not today")`"""
        return await self._access.deny(self, call_id, words, by=by, request=request)

    async def stop(self) -> bool:
        """Stops the turn that runs in this session, in any process; whether there was one. Keeps what was said.
        Example: `await chat.stop()`
        """
        return await self._access.stop_anywhere((await self._finder.existing(self)).id)

    async def append(self, *messages: NewMessage, lease: Lease | None = None) -> list[Entry]:
        """Stores messages without calling a model: entries, or dicts in the shape of any API. Durable on return.

        `lease`: from `lease()`, if it is held.
        Example: `await chat.append({"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."})`
        """
        return await self._access.append(self, *messages, lease=lease)

    @overload
    async def history(self, *, at: int | None = None, shape: None = None) -> History: ...
    @overload
    async def history(self, *, at: int | None = None, shape: MessageShape) -> ShapedMessages: ...
    async def history(self, *, at: int | None = None, shape: MessageShape | None = None) -> History | ShapedMessages:
        """What the model would be shown now, or was shown when the log ended at `at`. `shape`: as a list of messages
        that the SDK of that API accepts.
        Example: `messages = await chat.history(shape="openai")`
        """
        if shape is None:
            return await self._access.history(self, at=at)
        return await self._access.history(self, at=at, shape=shape)

    @overload
    async def messages(self, *, shape: None = None) -> list[Message]: ...
    @overload
    async def messages(self, *, shape: MessageShape) -> list[MessageDict]: ...
    async def messages(self, *, shape: MessageShape | None = None) -> list[Message] | list[MessageDict]:
        """Everything that was said, in order, whatever was compacted since; not what was rewound. `shape`: as dicts of
        that API; dicts that were appended in that shape come back as they were given.
        Example: `print((await chat.messages(shape="openai"))[0]["content"])`
        """
        row = await self._finder.opened(self)
        entries = (await self._sessions.transcript(row.id, incarnation=row.incarnation)).entries
        path = live_path(marks_of(entries), entries[-1].seq) if entries else []
        said = [one for one in with_words(entries) if isinstance(one, MESSAGES) and on_path(one.seq, path)]
        return said if shape is None else writing.all_in_shape(said, shape)

    async def call(
        self,
        function: ModelCall,
        content: CallContent | None = None,
        *,
        shape: MessageShape = "openai",
        system: str = "",
        summarise: Summarise | None = None,
        window: int | None = None,
    ) -> Assistant:
        """Calls your own model so that the call fits, and stores its answer; `content` is stored before as the message.

        `function` gets the messages in this shape, and returns a text or what the SDK gave, also a stream.
        Example: `reply = await chat.call(lambda messages: f"{len(messages)} messages", "hi")`
        """
        return await self._access.call(
            self, function, content, shape=shape, system=system, summarise=summarise, window=window
        )

    async def stream(
        self,
        function: ModelCall,
        content: CallContent | None = None,
        *,
        shape: MessageShape = "openai",
        system: str = "",
        summarise: Summarise | None = None,
        window: int | None = None,
    ) -> AsyncIterator[Event]:
        """Like `call`, and gives the events while the answer comes; the last one is `done`. Leaving the loop early ends
        the call, and its answer is not stored.
        Example: `async for event in chat.stream(lambda messages: ["He", "llo."], "hi"): print(event.type)`
        """
        events = self._access.stream(
            self, function, content, shape=shape, system=system, summarise=summarise, window=window
        )
        async with aclosing(cast("AsyncGenerator[Event]", events)):
            async for event in events:
                yield event

    async def prompt(self, *, at: int | None = None) -> Prompt:
        """Exactly what would be sent now, or was sent when the log ended at `at`.
        Example: `print((await chat.prompt()).system)`
        """
        return await self._access.prompt(self, at=at)

    async def compact(self, *, focus: str = "", dry_run: bool = False) -> CompactionReport:
        """Replaces old messages by a summary in what the model is shown. UsageError if nothing would be gained.
        Example: `report = await chat.compact(focus="names", dry_run=True)`
        """
        return await self._access.compact(self, focus=focus, dry_run=dry_run)

    async def undo(self, target: int | None = None) -> Session:
        """Undoes the newest active compaction, or the shortening at `target`; later turns stay.
        Example: `await chat.undo()`
        """
        return self._changed(await self._sessions.undo(await self._id(), target))

    async def expand(self, seq: int | None = None) -> list[Entry]:
        """The messages that a compaction replaces: the newest active one, or the one at `seq`.
        Example: `for entry in await chat.expand(): print(entry.content)`
        """
        return await self._sessions.expand(await self._id(), seq)

    async def fork(self, *, at: int | None = None, label: str | None = None) -> "SessionHandle":
        """A new session with a copy of the past up to `at`. This one is not changed.
        Example: `other = await chat.fork(label="another try")`
        """
        row = await self._sessions.fork(await self._id(), at=at, label=label)
        return SessionHandle(self._access, self._finder, row)

    async def rewind(self, to: int) -> Session:
        """Continues the history from entry `to`, which must end a turn. Rewind forward to come back.
        Example: `await chat.rewind(4)`
        """
        return self._changed(await self._sessions.rewind(await self._id(), to))

    async def discard(self) -> Session:
        """Hides the last turn, which must have failed. Example: `await chat.discard()`"""
        return self._changed(await self._sessions.discard(await self._id()))

    async def pin(self, target: int) -> Session:
        """Keeps this message in the prompt word for word, even after a compaction. Example: `await chat.pin(3)`"""
        return self._changed(await self._sessions.pin(await self._id(), target))

    async def unpin(self, target: int) -> Session:
        """Ends a pin. Example: `await chat.unpin(3)`"""
        return self._changed(await self._sessions.unpin(await self._id(), target))

    async def search(self, words: str) -> list[Hit]:
        """The best hits in this session first, compacted parts included.
        Example: `print([hit.snippet for hit in await chat.search("name")])`
        """
        return await self._sessions.search(words, scope=Query(id=await self._id()))

    async def explain(self) -> list[Coverage]:
        """How each entry is shown to the model: in the tail, pinned, compacted, rewound.
        Example: `print([(found.seq, found.state) for found in await chat.explain()])`
        """
        return await self._sessions.explain(await self._id())

    async def export(
        self,
        format: ExportFormat = "md",  # noqa: A002 - export(format="md") reads as intended
        *,
        shape: ExportShape = "anthropic",
        mask: bool | None = None,
    ) -> str:
        """The session as text. `shape`: of the messages in `json`. `mask`: hide secrets; default in all but the exact
        formats (`native`, `v3`, `flat`).
        Example: `text = await chat.export("md")`
        """
        row = await self._finder.now(self)
        loaded = await self._sessions.transcript(row.id, incarnation=row.incarnation)
        return "".join(export(loaded.entries, loaded.session, format, shape=shape, mask=mask))

    async def rename(self, title: str) -> Session:
        """Sets a title; an automatic title never replaces it. Example: `await chat.rename("About Ann")`"""
        return self._changed(await self._sessions.rename(await self._id(), title))

    async def choose_model(self, model: str) -> Session:
        """From the next turn on, this model answers: one of `t.models(agent)`. Empty: the agent's own.
        Example: `await chat.choose_model("")`
        """
        return self._changed(await self._access.choose_model(self, model))

    async def archive(self, reason: str = "") -> Session:
        """Archives the session. The next message to its name or key begins a new one.
        Example: `await chat.archive("done")`
        """
        row = await self._finder.existing(self, write=True)
        return self._changed(await self._sessions.set_status(row.id, "archived", reason, incarnation=row.incarnation))

    async def delete(self) -> None:
        """Deletes the session at once and for good. Example: `await chat.delete()`"""
        row = await self._finder.existing(self, write=True)
        await self._sessions.delete(row.id, incarnation=row.incarnation)

    async def watch(self, *, after: int = 0) -> AsyncGenerator[Entry]:
        """Every entry after that seq, also those that are yet to come; ends when the session is deleted.
        Example: `entries = chat.watch(after=2)`
        """
        async for entry in self._access.watch(self, after=after):
            yield entry

    def lease(self, *, wait_s: float = EDIT_WAIT_S) -> AbstractAsyncContextManager[Lease]:
        """`async with session.lease() as lease:` nobody else writes messages until its end; Busy if a turn runs for
        longer than `wait_s`. Give it to `append`.
        Example: `async with chat.lease() as lease: await chat.append({"role": "user", "content": "hi"}, lease=lease)`
        """
        return self._access.lease(self, wait_s=wait_s)

    def _changed(self, row: Session) -> Session:
        self._row = row
        return row

    async def _id(self) -> str:
        return (await self._finder.opened(self)).id
