"""Server-sent events: frames, and a response that sends them until they end, the client leaves, or the server closes.

Frames carry `id: <turn>-<n>`. `TurnStream` keeps the events of a turn for all listeners, so a slow reader needs no
buffer of its own: it gets the same events later, with text in larger pieces.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

from litestar.types import Receive, Scope, Send
from msgspec import Struct

from ...codecs.native import encode_plain
from ...core.events import TERMINAL, Event, TextDelta, ThinkingDelta, of_error
from ...errors import UsageError
from ...turns.stream import TurnStream

KEEPALIVE_S = 15.0
"""Proxies close a connection after half a minute or more without data."""
ASK_AGAIN_S = 1.0
"""How long a stream goes on after its token was revoked, while events come; otherwise until the next comment."""
BATCH_MAX = 200
"""Events in one write. A client that rejoins after 10,000 events must not block the others."""
SLOW_S = 0.5
"""After a write that took longer, consecutive deltas are joined, because the reader is slow."""
HELD_NOTHING = 0
"""The number of a snapshot: the client has the stored part of the turn, and none of its events."""
ENDED = 2_147_483_647
"""The number of a terminal event that was read from the log."""
RETRY_MS = 1_000
JOIN_S = 0.01
"""Events that come within this time of the last write are sent together. The first one and the last one never wait:
nobody sees a hundredth of a second between them, and each write costs both sides more than the event itself.
"""
ATTEND_S = 0.2
"""How long the head of an answer waits for its first event, to be sent with it. From then on somebody watches for a
client that leaves, and sends comments; a turn that ends sooner needs no second task.
"""

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class EventPosition(Struct, frozen=True):
    """The last event that a client has: its turn and its number."""

    turn: int
    n: int


def parse_place(text: str) -> EventPosition:
    turn, dash, n = text.partition("-")
    if not dash or not (turn.isascii() and turn.isdecimal() and n.isascii() and n.isdecimal()) or len(text) > 40:
        raise UsageError("that is not the id of an event", hint="Pass the id of the last event unchanged: <turn>-<n>.")
    return EventPosition(int(turn), int(n))


def frame(event: Any, *, at: str = "") -> bytes:
    return b"%bdata: %b\n\n" % (f"id: {at}\n".encode() if at else b"", encode_plain(event))


def of_turn(stream: TurnStream, index: int, event: Event) -> bytes:
    return frame(event, at=f"{stream.seq}-{stream.first + index}")


class LastChunk(bytes):
    """The frames that end an event stream: the end of the answer is sent with them."""


async def follow(
    stream: TurnStream,
    after: int = 0,
    elsewhere: Callable[[], AsyncGenerator[bytes]] | None = None,
    *,
    is_whole: bool = False,
) -> AsyncGenerator[bytes]:
    """The frames of a turn from that event on, several in one chunk if several wait.

    Without the terminal event if another process took the turn over: it continues there, and `elsewhere` has the rest.
    `is_whole`: the event stream ends with this turn.
    """
    slow, is_first = False, True
    while await stream.reach(after):
        if not is_first:
            await stream.pause(JOIN_S)
        is_first = False
        batch = stream.events[after : after + BATCH_MAX]
        sent = batch[:-1] if stream.fenced and isinstance(batch[-1], TERMINAL) else batch
        found = _joined(sent) if slow else enumerate(sent)
        frames = [of_turn(stream, after + index, event) for index, event in found]
        after += len(batch)
        if not frames:
            continue
        start = time.monotonic()
        chunk = b"".join(frames)
        is_last = is_whole and stream.over and not stream.fenced and after == len(stream.events)
        yield LastChunk(chunk) if is_last else chunk
        slow = time.monotonic() - start > SLOW_S
    if stream.fenced and elsewhere is not None:
        async with aclosing(elsewhere()) as rest:
            async for chunk in rest:
                yield chunk


def _joined(batch: Sequence[Event]) -> list[tuple[int, Event]]:
    """(index in the batch, event); joined deltas have the index of the last one, so that none is sent again."""
    joined: list[tuple[int, Event]] = []
    for index, event in enumerate(batch):
        before = joined[-1][1] if joined else None
        match before, event:
            case (TextDelta(), TextDelta()) | (ThinkingDelta(), ThinkingDelta()):
                joined[-1] = (index, type(event)(text=before.text + event.text))
            case _:
                joined.append((index, event))
    return joined


class EventStream:
    """An ASGI response. It checks its listener again with each comment, so that a revoked token ends its streams."""

    def __init__(
        self,
        frames: AsyncGenerator[bytes],
        *,
        streams: set["EventStream"],
        may_listen: Callable[[], Awaitable[bool]],
        on_error: Callable[[Exception], None],
        headers: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        self._frames = frames
        self._streams = streams
        self._may_listen = may_listen
        self._on_error = on_error
        self._headers = [*HEADERS, *headers]
        self._closing = False
        self._has_left = False
        self._pump: asyncio.Task[Any] | None = None
        """The task of the request, while it sends frames."""
        self._is_cut = False
        """Whether the pump was cancelled here, and not by the task that runs the request."""
        self._attending: asyncio.Task[None] | None = None
        self._has_head = False
        self._is_ending = False
        """Nothing may follow any more; a slow reader may still keep the last frames from being sent."""
        self._has_end = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._streams.add(self)
        pump = self._pump = asyncio.current_task()
        assert pump is not None  # a server runs each request in a task
        attending = asyncio.get_running_loop().call_later(ATTEND_S, self._begin_attending, receive, send)
        try:
            await self._send_frames(send)
        except asyncio.CancelledError:
            if not self._is_cut or pump.uncancel():
                raise
        finally:
            self._pump = None
            self._streams.discard(self)
            attending.cancel()
            if self._attending is not None:
                self._attending.cancel()
                await asyncio.wait({self._attending})
        if self._attending is not None and not self._attending.cancelled():
            self._attending.result()
        if not self._has_left and not self._has_end:
            await self._send_head(send)
            last = b"retry: %d\n: closing\n\n" % RETRY_MS if self._closing else b""
            await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _send_head(self, send: Send) -> None:
        if not self._has_head:
            self._has_head = True
            await send({"type": "http.response.start", "status": 200, "headers": self._headers})

    async def _write(self, send: Send, chunk: bytes) -> None:
        await self._send_head(send)
        is_last = isinstance(chunk, LastChunk)
        self._is_ending = self._is_ending or is_last
        await send({"type": "http.response.body", "body": chunk, "more_body": not is_last})
        self._has_end = is_last

    def _begin_attending(self, receive: Receive, send: Send) -> None:
        self._attending = asyncio.create_task(self._attend(receive, send))

    async def _attend(self, receive: Receive, send: Send) -> None:
        """Ends the stream when its client has left, or may not listen any more."""
        leaving = asyncio.create_task(disconnect(receive))
        try:
            await self._send_head(send)
            while not (await asyncio.wait({leaving}, timeout=KEEPALIVE_S))[0]:
                if not await self._may_listen():
                    return
                if not self._is_ending:
                    await self._write(send, b": still here\n\n")
            self._has_left = True
        finally:
            leaving.cancel()
            self._cut()

    def _cut(self) -> None:
        if self._pump is not None:
            self._is_cut = True
            pump, self._pump = self._pump, None
            pump.cancel()

    async def _send_frames(self, send: Send) -> None:
        asked = time.monotonic()
        try:
            async with aclosing(self._frames) as frames:
                async for chunk in frames:
                    if time.monotonic() - asked > ASK_AGAIN_S:
                        asked = time.monotonic()
                        if not await self._may_listen():
                            return
                    await self._write(send, chunk)
        except Exception as error:  # noqa: BLE001 - the outermost edge
            # The status line is sent already: the error is sent as an event.
            self._on_error(error)
            if not self._is_ending:
                await self._write(send, frame(of_error(error)))

    def close(self) -> None:
        """The server is closing: tells the client to reconnect."""
        self._closing = True
        self._cut()


async def disconnect(receive: Receive) -> None:
    """Returns when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
