"""One session, with everything that can be done with it.

A handle is made at once and opens nothing. Each call finds the session anew: a handle made from a name or a key leads
to the session that is selected there now. `await handle` opens the session, and reads its row: the attributes of the
row, such as `title`, are those of the last time.

Most of its methods are made of those of `Access` and `Sessions` that name a session at each call. So they pass the same
checks, and have the same parameters, types and words.
"""

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Generator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast, overload

from ..core.entries import MESSAGES, Message
from ..core.history import History
from ..core.keys import SessionById
from ..core.marks import live_entries
from ..core.query import Hit, Query
from ..core.session import Session
from ..core.user_content import with_words
from ..errors import UsageError
from ..interchange.exporting import ExportFormat, ExportShape, export
from ..sessions import Sessions
from ..sessions.checking import checked_methods
from ..shapes import MessageDict, MessageShape, ShapedMessages, writing
from .calling import CallingVerbs
from .finding import SessionFinder
from .parts import BoundSession, SessionPlace, Where

P = ParamSpec("P")
T = TypeVar("T")


def _bound(method: Callable[Concatenate[Any, Where, P], T], example: str) -> Callable[Concatenate[Any, P], T]:
    """The method of `Access` for the session of the handle, with the same parameters, types and words."""

    def run(self: "SessionHandle", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(self._access, self, *args, **kwargs)

    async def run_async(self: "SessionHandle", /, *args: P.args, **kwargs: P.kwargs) -> Any:
        return self._keep(await cast("Awaitable[Any]", run(self, *args, **kwargs)))

    made = run_async if inspect.iscoroutinefunction(method) else run
    return cast("Callable[Concatenate[Any, P], T]", _described(made, method, example))


def _by_id(
    method: Callable[Concatenate[Any, str, P], Coroutine[Any, Any, T]], example: str
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """The method of `Sessions` for the session of the handle."""

    async def run(self: "SessionHandle", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._keep(await method(self._access.sessions, await self._id(), *args, **kwargs))

    return _described(run, method, example)


def _described(made: Callable[P, T], method: Callable[..., Any], example: str) -> Callable[P, T]:
    described = wraps(method)(made)
    signature = inspect.signature(method)
    this, where, *others = signature.parameters.values()
    described.__doc__ = f"{(method.__doc__ or '').rstrip()}\n        Example: `{example}`\n        "
    described.__annotations__ = {name: kind for name, kind in method.__annotations__.items() if name != where.name}
    described.__dict__["__signature__"] = signature.replace(parameters=[this, *others])
    return described


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

    ask = _bound(CallingVerbs.ask, 'print(await chat.ask("And what is my name?"))')
    send = _bound(CallingVerbs.send, 'async for event in chat.send("hi"): print(event.type)')
    retry = _bound(CallingVerbs.retry, "async for event in chat.retry(): print(event.type)")
    approvals = _bound(CallingVerbs.approvals, "open_calls = await chat.approvals()")
    approve = _bound(CallingVerbs.approve, 'await chat.approve("call_1")')
    deny = _bound(CallingVerbs.deny, 'await chat.deny("call_1", "not today")')
    append = _bound(
        CallingVerbs.append,
        'await chat.append({"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."})',
    )
    call = _bound(CallingVerbs.call, 'reply = await chat.call(lambda messages: f"{len(messages)} messages", "hi")')
    stream = _bound(
        CallingVerbs.stream,
        'async for event in chat.stream(lambda messages: ["He", "llo."], "hi"): print(event.type)',
    )
    prompt = _bound(CallingVerbs.prompt, "print((await chat.prompt()).system)")
    compact = _bound(CallingVerbs.compact, 'report = await chat.compact(focus="names", dry_run=True)')
    choose_model = _bound(CallingVerbs.choose_model, 'await chat.choose_model("")')
    watch = _bound(CallingVerbs.watch, "entries = chat.watch(after=2)")

    lease = _bound(
        CallingVerbs.lease,
        'async with chat.lease() as lease: await chat.append({"role": "user", "content": "hi"}, lease=lease)',
    )
    undo = _by_id(Sessions.undo, "await chat.undo()")
    expand = _by_id(Sessions.expand, "for entry in await chat.expand(): print(entry.content)")
    explain = _by_id(Sessions.explain, "print([(found.seq, found.state) for found in await chat.explain()])")
    rewind = _by_id(Sessions.rewind, "await chat.rewind(4)")
    discard = _by_id(Sessions.discard, "await chat.discard()")
    pin = _by_id(Sessions.pin, "await chat.pin(3)")
    unpin = _by_id(Sessions.unpin, "await chat.unpin(3)")
    rename = _by_id(Sessions.rename, 'await chat.rename("About Ann")')

    async def stop(self) -> bool:
        """Stops the turn that runs in this session, in any process; whether there was one. Keeps what was said.
        Example: `await chat.stop()`
        """
        return await self._access.stop_anywhere((await self._finder.existing(self)).id)

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
        said = [one for one in live_entries(with_words(entries)) if isinstance(one, MESSAGES)]
        return said if shape is None else writing.all_in_shape(said, shape)

    async def fork(self, *, at: int | None = None, label: str | None = None) -> "SessionHandle":
        """A new session with a copy of the past up to `at`. This one is not changed.
        Example: `other = await chat.fork(label="another try")`
        """
        row = await self._sessions.fork(await self._id(), at=at, label=label)
        return SessionHandle(self._access, self._finder, row)

    async def search(self, words: str) -> list[Hit]:
        """The best hits in this session first, compacted parts included.
        Example: `print([hit.snippet for hit in await chat.search("name")])`
        """
        return await self._sessions.search(words, scope=Query(id=await self._id()))

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

    async def archive(self, reason: str = "") -> Session:
        """Archives the session. The next message to its name or key begins a new one.
        Example: `await chat.archive("done")`
        """
        row = await self._finder.existing(self, write=True)
        return self._keep(await self._sessions.set_status(row.id, "archived", reason, incarnation=row.incarnation))

    async def delete(self) -> None:
        """Deletes the session at once and for good. Example: `await chat.delete()`"""
        row = await self._finder.existing(self, write=True)
        await self._sessions.delete(row.id, incarnation=row.incarnation)

    async def _id(self) -> str:
        return (await self._finder.opened(self)).id

    def _keep(self, found: T) -> T:
        """The row that a change left."""
        if isinstance(found, Session):
            self._row = found
        return found
