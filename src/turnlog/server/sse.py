"""Server-sent events: frames, and a response that sends them until they end, the client leaves, or the server closes.

Frames carry `id: <turn>-<n>`. The turn's events are kept by `Live` for all listeners, so a slow reader costs no
buffer of its own: it is told later, its text in larger pieces, and nothing is left out.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
from litestar.types import Receive, Scope, Send
from msgspec import Struct

from ..core.events import TERMINAL, Event, TextDelta, ThinkingDelta, of_error
from ..errors import UsageError
from ..live import Live

KEEPALIVE_S = 15.0
"""Proxies take a quiet connection for a dead one after half a minute or more."""
ASK_AGAIN_S = 1.0
"""How long a token that was revoked in mid-stream may still listen while events come; else until the next comment."""
BATCH_MAX = 200
"""Events in one write. A reader who rejoins after 10,000 of them must not make everybody else wait."""
SLOW_S = 0.5
"""A write that took longer has a slow reader: consecutive deltas are then joined."""
HELD_NOTHING = 0
"""The number of a snapshot: of this turn the client has what is stored, and none of its events."""
ENDED = 2_147_483_647
"""The number of a terminal event that was read from the log."""
RETRY_MS = 1_000

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]

_encoder = msgspec.json.Encoder()


class Place(Struct, frozen=True):
    """How far a client has come: its turn, and the number of the last event it got."""

    turn: int
    n: int


def parse_place(text: str) -> Place:
    turn, dash, n = text.partition("-")
    if not dash or not (turn.isascii() and turn.isdecimal() and n.isascii() and n.isdecimal()) or len(text) > 40:
        raise UsageError("that is not the id of an event", hint="Pass the id of the last frame, unchanged: <turn>-<n>.")
    return Place(int(turn), int(n))


def encode(value: Any) -> bytes:
    """As JSON. Half a character has no place in UTF-8; as an escape it is told as it is stored."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()


def frame(event: Any, *, at: str = "") -> bytes:
    head = f"id: {at}\n".encode() if at else b""
    return b"%bdata: %b\n\n" % (head, encode(event))


def of_turn(live: Live, index: int, event: Event) -> bytes:
    return frame(event, at=f"{live.seq}-{live.first + index}")


async def follow(live: Live, after: int = 0) -> AsyncGenerator[bytes]:
    """The frames of a turn from that event on, several at once where several wait.

    Of one that was taken over by another process, not the end: it goes on there.
    """
    slow = False
    while await live.reach(after):
        batch = live.events[after : after + BATCH_MAX]
        told = batch[:-1] if live.fenced and isinstance(batch[-1], TERMINAL) else batch
        frames = [of_turn(live, after + index, event) for index, event in _joined(told, slow)]
        after += len(batch)
        if not frames:
            continue
        start = time.monotonic()
        yield b"".join(frames)
        slow = time.monotonic() - start > SLOW_S


def _joined(batch: Sequence[Event], slow: bool) -> list[tuple[int, Event]]:
    """Each with its place in the batch; joined ones have the place of the last, so that none is told again."""
    told: list[tuple[int, Event]] = []
    for index, event in enumerate(batch):
        before = told[-1][1] if told else None
        match before, event:
            case (TextDelta(), TextDelta()) | (ThinkingDelta(), ThinkingDelta()) if slow:
                told[-1] = (index, type(event)(text=before.text + event.text))
            case _:
                told.append((index, event))
    return told


class EventStream:
    """An ASGI response. Who listens is asked for again with each comment, so that a revoked token ends its streams."""

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
        gone = asyncio.create_task(_disconnect(receive))
        try:
            await self._attend(self._pump, gone, send)
        finally:
            left = gone.done()
            self._streams.discard(self)
            for task in (self._pump, gone):
                task.cancel()
            await asyncio.wait({self._pump, gone})
        if not left:
            last = b"retry: %d\n: closing\n\n" % RETRY_MS if self._closing else b""
            await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _attend(self, pump: asyncio.Task[None], gone: asyncio.Task[None], send: Send) -> None:
        while not pump.done() and not gone.done():
            await asyncio.wait({pump, gone}, timeout=KEEPALIVE_S, return_when=asyncio.FIRST_COMPLETED)
            if pump.done() or gone.done():
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
        except Exception as error:
            # The status is sent; what is left is to say it the way a turn would.
            self._on_error(error)
            await _write(send, frame(of_error(error)))

    def close(self) -> None:
        """The server is closing: the client is told to come back."""
        self._closing = True
        if self._pump is not None:
            self._pump.cancel()


async def _write(send: Send, chunk: bytes) -> None:
    await send({"type": "http.response.body", "body": chunk, "more_body": True})


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
