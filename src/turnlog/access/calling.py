"""Calls of a model that the caller makes itself: made to fit, and stored with their answers."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from inspect import isawaitable, iscoroutinefunction
from typing import Any, TypeAlias

from msgspec.structs import replace

from ..core import wires
from ..core.entries import Assistant, Block, Entry, Failed
from ..core.events import Done, Event, Tell, code_of, of_call, of_usage
from ..core.history import History
from ..core.prompt import assemble
from ..errors import ContentRefused, ContextOverflow, TurnlogError
from ..providers.sdk import refusal_in
from ..providers.streaming import with_real_names
from ..sessions import EDIT_WAIT_S
from ..sessions.checking import checked_methods
from ..shapes import MessageDict, MessageShape, ShapedMessages
from ..shapes.reading import new_messages
from ..shapes.replies import StreamedAnswer, fields_of, reply_of
from ..shapes.writing import of_prompt
from ..turns import oversized
from ..turns.compactor import Compactor
from ..turns.guarded_call import Attempt
from ..turns.journal import Journal
from ..turns.own_call import OwnCall, Summarise, fit, on_history, summariser
from ..turns.stream import events_of
from .parts import Where
from .rewinding import RewindingVerbs

ModelCall: TypeAlias = Callable[[ShapedMessages], Any]
"""Gets the messages of a call, and returns the answer: a text, a dict, an SDK's object, a stream, or one of these to
await.
"""
CallContent: TypeAlias = str | list[Block] | MessageDict | Entry | list[MessageDict] | list[Entry]
"""A text, the blocks of one message, or messages in any shape."""
_END = object()


@checked_methods
class CallingVerbs(RewindingVerbs):
    """The calls that a caller makes itself."""

    async def guard(
        self,
        where: Where,
        call: OwnCall,
        *,
        system: str = "",
        summarise: Summarise | None = None,
        window: int | None = None,
    ) -> Assistant:
        """Makes your own call fit: sends, shortens, compacts and rescues until it goes through; stores its answer.

        `call` gets the History to send and raises ContextOverflow where the provider refuses it for its size. Without
        `summarise`, the agent's own model writes summaries. When nothing helps, ContextOverflow is raised. A call that
        raises ContentRefused has its content left out of later histories.
        """
        return await self._fitted(where, on_history(call), (), system, summarise, window)

    async def call(
        self,
        where: Where,
        function: ModelCall,
        content: CallContent | None = None,
        *,
        shape: MessageShape = "openai",
        system: str = "",
        summarise: Summarise | None = None,
        window: int | None = None,
    ) -> Assistant:
        """Calls your own model so that the call fits, and stores its answer; `content` is stored before as the message.

        `function` gets the messages in this shape, and returns a text or what the SDK gave, also a stream. It may be
        async; otherwise it runs in a thread. It is called again with less if the prompt is too large for the model.
        Without `summarise`, the agent's own model writes summaries.
        """
        bodies = new_messages(content) if content is not None else []
        return await self._fitted(where, in_shape(function, shape), bodies, system, summarise, window)

    async def stream(
        self,
        where: Where,
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
        """
        bodies = new_messages(content) if content is not None else []
        told: asyncio.Queue[Event | None] = asyncio.Queue()
        attempt = in_shape(function, shape)
        calling = asyncio.create_task(self._fitted(where, attempt, bodies, system, summarise, window, told.put_nowait))
        calling.add_done_callback(lambda task: told.put_nowait(None))
        try:
            while (event := await told.get()) is not None:
                yield event
            reply = await calling
        finally:
            calling.cancel()
            await asyncio.wait({calling})
        for block in reply.calls:
            yield of_call(block)
        yield of_usage(reply)
        row = await self._finder.now(where)
        yield Done(session_id=row.id, token_estimate=row.token_estimate, title=row.title)

    async def _fitted(
        self,
        where: Where,
        attempt: Attempt,
        bodies: Sequence[Entry],
        system: str,
        summarise: Summarise | None,
        window: int | None,
        tell: Tell | None = None,
    ) -> Assistant:
        row = await self._finder.answered(where)
        agent = await self._ready(row)
        scaled = await self._scaled(agent)
        # Which tools this call has is not known here.
        limits = replace(scaled, system=system or scaled.system, window=window or scaled.window, history_note=False)
        compactor = Compactor(summarise=summariser(summarise), window=window) if summarise else agent.compactor
        async with self._store.lease(row.id, wait_s=EDIT_WAIT_S) as lease:
            journal = Journal(self._store, lease, await self._runner.load(row.id, row.incarnation))
            if bodies:
                await journal.append(*bodies)
            await oversized.fold(journal, self._store, limits, tell)
            try:
                reply = await fit(journal, limits, attempt, compactor, tell)
            except (ContextOverflow, ContentRefused) as refused:
                await journal.append(Failed(code=code_of(refused), reason=str(refused)))
                raise
            await journal.append(reply)
            return reply


def in_shape(function: ModelCall, shape: MessageShape) -> Attempt:
    """One call of the user's function, with what the API accepts; the answer has the tools' own names."""

    async def attempt(history: History, tell: Tell) -> Assistant:
        fitted = wires.fit(assemble(history), "anthropic" if shape == "anthropic" else "openai")
        messages = of_prompt(fitted.prompt, shape, as_is=None if fitted.repairs else history)
        try:
            reply = await _answered(function, messages, tell)
        except TurnlogError:
            raise
        except Exception as error:
            if (refusal := refusal_in(error)) is not None:
                raise refusal from error
            raise
        return with_real_names(reply, fitted.names)

    return attempt


async def _answered(function: ModelCall, messages: ShapedMessages, tell: Tell) -> Assistant:
    """A function that is not async may block, so it runs in a thread."""
    made = function(messages) if iscoroutinefunction(function) else await asyncio.to_thread(function, messages)
    if isawaitable(made):
        made = await made
    if isinstance(made, str | Assistant) or fields_of(made) is not None:
        return reply_of(made)
    pieces = _pieces(made)
    if pieces is None:
        return reply_of(made)
    answer = StreamedAnswer()
    async for piece in pieces:
        for event in (event for delta in answer.take(piece) for event in events_of(delta)):
            tell(event)
    return answer.finish()


def _pieces(made: Any) -> AsyncIterator[Any] | None:
    if hasattr(made, "__aiter__"):
        return aiter(made)
    return _in_thread(iter(made)) if hasattr(made, "__iter__") else None


async def _in_thread(pieces: Iterator[Any]) -> AsyncGenerator[Any]:
    while (piece := await asyncio.to_thread(next, pieces, _END)) is not _END:
        yield piece
