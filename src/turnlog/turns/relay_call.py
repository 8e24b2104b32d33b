"""One call of a relay, for any number of clients: its pieces, its end, and when it is given up.

    attach ──▶ pieces as they come ──▶ the answer, or an error      until_news(after): from any piece on
    detach ──▶ nobody listens: the call goes on for `linger_s`, then it is stopped and its text so far is kept

The task that makes the call is not that of any client, so a client that comes back finds it.
"""

import asyncio
import json
from collections.abc import Callable
from math import inf
from typing import Any

from msgspec import Struct

from ..core.entries import Assistant, Block, Compaction, tool_uses
from ..core.events import CompactionEnd, ErrorEvent, Event, GuardStage, Snapshot, TextDelta, ThinkingDelta, ToolCall
from ..core.prompt import INVALID_INPUT
from ..errors import Busy, NotFound, ProviderRefused, StoreUnavailable
from ..providers import CallPiece, Delta
from .stream import TurnStream, events_of

GUARD_STAGES = ("as_is", "shortened", "compacted", "rescued")


def stopped() -> Busy:
    return Busy("the call was stopped", hint="Send the request again.")


class CompactionNote(Struct, frozen=True):
    """A compaction that this call caused."""

    seq: int
    tokens_before: int
    tokens_after: int


class RelayCall:
    def __init__(self, *, linger_s: float | None) -> None:
        self.session_id = ""
        self.turn = 0
        self.match = "new"
        self.stored = True
        self.is_turn = False
        """Whether one of our agents answers, with tools of its own."""
        self.began_ms = 0
        """When its own entry was stored."""
        self.guard = "as_is"
        self.estimate = 0
        """About how many tokens the prompt has."""
        self.compaction: CompactionNote | None = None
        self.summary = ""
        """Of that compaction."""
        self.cleared: tuple[int, int] | None = None
        """The number of tool results that were cleared, and the tokens that this saved."""
        self.pieces: list[Delta] = []
        self.reply: Assistant | None = None
        self.error: Exception | None = None
        self.stream: TurnStream | None = None
        """The same call as a turn, for listeners of the session."""
        self.task: asyncio.Task[None] | None = None
        self.started: asyncio.Future[RelayCall] = asyncio.get_running_loop().create_future()
        """The call whose answer the client gets: this one, or one that was made for the same request before."""
        self.stopping = False
        self._linger_s = linger_s
        """None: it goes on to its end without listeners."""
        self._on_left: Callable[..., object] | None = None
        self._listeners = 0
        self._timer: asyncio.TimerHandle | None = None
        self._news = asyncio.Event()

    @property
    def over(self) -> bool:
        return self.reply is not None or self.error is not None

    @property
    def is_shown(self) -> bool:
        """Whether anything of the answer has been passed on, which cannot be taken back."""
        return bool(self.pieces)

    def add(self, piece: Delta) -> None:
        self.pieces.append(piece)
        if self.stream is not None:
            for event in events_of(piece):
                self.stream.add(event)
        self._tell()

    def tell(self, event: Event) -> None:
        """What the guard does is told to listeners of the session, and noted for the client."""
        match event:
            case GuardStage(stage=stage) if stage in GUARD_STAGES:
                self.guard = stage
            case CompactionEnd(error=None):
                self.guard = "compacted"
            case _:
                pass
        if self.stream is not None:
            self.stream.add(event)

    def note_compaction(self, made: Compaction) -> None:
        self.compaction = CompactionNote(made.seq, made.tokens_before, made.tokens_after)
        self.summary = made.summary

    def end(self, reply: Assistant | None, error: Exception | None = None) -> None:
        if self.over:
            return
        self.reply, self.error = reply, error
        self._tell()

    def stop(self) -> bool:
        """Whether there was a call to stop. Its text so far is kept."""
        if self.over or self.stopping or self.task is None or self.task.done():
            return False
        self.stopping = True  # once: a second cancel would hit the call while it stores what was said
        return self.task.cancel()

    def on_left(self, call: Callable[..., object]) -> None:
        """Calls it with `whole` each time a client leaves."""
        self._on_left = call

    def attach(self) -> None:
        self._listeners += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def detach(self, *, whole: bool) -> None:
        """A client has left; `whole`: with the end of its answer."""
        self._listeners -= 1
        if self._on_left is not None:
            self._on_left(whole=whole)
        if not self._listeners and not self.over and self._linger_s is not None:
            self._timer = asyncio.get_running_loop().call_later(self._linger_s, self._give_up)

    async def until_news(self, after: float, timeout_s: float) -> bool:
        """Waits until there are more pieces than that, or the end; False if neither comes in time."""
        try:
            async with asyncio.timeout(timeout_s):
                while len(self.pieces) <= after and not self.over:
                    await self._news.wait()
        except TimeoutError:
            return False
        return True

    async def until_over(self, timeout_s: float) -> bool:
        """Waits for the end; False if it does not come in time."""
        return await self.until_news(inf, timeout_s)

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def _give_up(self) -> None:
        self._timer = None
        if not self._listeners:
            self.stop()


def pieces_of(reply: Assistant) -> list[Delta]:
    """A stored answer as the pieces that it might have come in."""
    if isinstance(reply.content, str):
        return [Delta(text=reply.content)] if reply.content else []
    calls = {id(call): number for number, call in enumerate(tool_uses(reply))}
    return [piece for block in reply.content for piece in _of_block(block, calls.get(id(block), 0))]


def _of_block(block: Block, number: int) -> list[Delta]:
    match block:
        case {"type": "text", "text": str(text)}:
            return [Delta(text=text, begins=True)]
        case {"type": "thinking", "thinking": str(words)}:
            signature = block.get("signature")
            signed = [Delta(signature=signature)] if isinstance(signature, str) and signature else []
            return [Delta(thinking=words, begins=True), *signed]
        case {"type": "tool_use", "id": str(call_id), "name": str(name), "input": dict()}:
            return [Delta(call=CallPiece(number, call_id, name, written_input(block)))]
        case _:
            return [Delta(block=block)]


def written_input(call: Block) -> str:
    """The input of a call as JSON text; what the model wrote, if that was not JSON."""
    given: dict[str, Any] = call["input"]
    if len(given) == 1 and isinstance(given.get(INVALID_INPUT), str):
        return str(given[INVALID_INPUT])
    return json.dumps(given, ensure_ascii=False, separators=(",", ":"))


class RelayedTurn:
    """Tells the clients of a call what a turn of one of our agents says: its events as pieces."""

    def __init__(self, call: RelayCall) -> None:
        self._call = call
        self._begins = False
        self.error: Exception | None = None

    def __call__(self, event: Event) -> None:
        match event:
            case TextDelta(text=text):
                self._call.add(Delta(text=text, begins=self._begins))
                self._begins = False
            case ThinkingDelta(text=text):
                self._call.add(Delta(thinking=text))
            case ErrorEvent():
                self.error = _error_of(event)
                self._call.tell(event)
            case Snapshot() | ToolCall():
                self._begins = True
                self._call.tell(event)
            case _:
                self._call.tell(event)


def _error_of(event: ErrorEvent) -> Exception:
    kinds = {"provider": ProviderRefused, "store": StoreUnavailable, "deleted": NotFound}
    return kinds.get(event.code, ProviderRefused)(event.error, hint=event.hint)
