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
    head = f"id: {at}\n".encode() if at else b""
    return b"%bdata: %b\n\n" % (head, encode_plain(event))


def of_turn(stream: TurnStream, index: int, event: Event) -> bytes:
    return frame(event, at=f"{stream.seq}-{stream.first + index}")


async def follow(stream: TurnStream, after: int = 0) -> AsyncGenerator[bytes]:
    """The frames of a turn from that event on, several in one chunk if several wait.

    Without the terminal event if another process took the turn over: it continues there.
    """
    slow = False
    while await stream.reach(after):
        batch = stream.events[after : after + BATCH_MAX]
        sent = batch[:-1] if stream.fenced and isinstance(batch[-1], TERMINAL) else batch
        frames = [of_turn(stream, after + index, event) for index, event in _joined(sent, slow)]
        after += len(batch)
        if not frames:
            continue
        start = time.monotonic()
        yield b"".join(frames)
        slow = time.monotonic() - start > SLOW_S


def _joined(batch: Sequence[Event], slow: bool) -> list[tuple[int, Event]]:
    """(index in the batch, event); joined deltas have the index of the last one, so that none is sent again."""
    joined: list[tuple[int, Event]] = []
    for index, event in enumerate(batch):
        before = joined[-1][1] if joined else None
        match before, event:
            case (TextDelta(), TextDelta()) | (ThinkingDelta(), ThinkingDelta()) if slow:
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
        self._pump: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        self._streams.add(self)
        self._pump = asyncio.create_task(self._send_frames(send))
        disconnect = asyncio.create_task(_disconnect(receive))
        try:
            await self._attend(self._pump, disconnect, send)
        finally:
            left = disconnect.done()
            self._streams.discard(self)
            for task in (self._pump, disconnect):
                task.cancel()
            await asyncio.wait({self._pump, disconnect})
        if not left:
            last = b"retry: %d\n: closing\n\n" % RETRY_MS if self._closing else b""
            await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _attend(self, pump: asyncio.Task[None], disconnect: asyncio.Task[None], send: Send) -> None:
        while not pump.done() and not disconnect.done():
            await asyncio.wait({pump, disconnect}, timeout=KEEPALIVE_S, return_when=asyncio.FIRST_COMPLETED)
            if pump.done() or disconnect.done():
                break
            if not await self._may_listen():
                return
            await _write(send, b": still here\n\n")
        if pump.done() and not pump.cancelled():
            pump.result()

    async def _send_frames(self, send: Send) -> None:
        asked = time.monotonic()
        try:
            async with aclosing(self._frames) as frames:
                async for chunk in frames:
                    if time.monotonic() - asked > ASK_AGAIN_S:
                        asked = time.monotonic()
                        if not await self._may_listen():
                            return
                    await _write(send, chunk)
        except Exception as error:  # noqa: BLE001 - the outermost edge
            # The status line is sent already: the error is sent as an event.
            self._on_error(error)
            await _write(send, frame(of_error(error)))

    def close(self) -> None:
        """The server is closing: tells the client to reconnect."""
        self._closing = True
        if self._pump is not None:
            self._pump.cancel()


async def _write(send: Send, chunk: bytes) -> None:
    await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
