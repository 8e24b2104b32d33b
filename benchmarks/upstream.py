"""A stub of an OpenAI-compatible API in the measuring process: knows when each request arrived and each piece left."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

PIECES = 8


def chunk(delta: dict, finish: str | None = None, usage: dict | None = None) -> bytes:
    body = {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [] if usage else [{"index": 0, "delta": delta, "finish_reason": finish}],
        "usage": usage,
    }
    data = b"data: " + json.dumps(body).encode() + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(data), data)


class Upstream:
    def __init__(self) -> None:
        self.port = 0
        self.arrived_ns = 0
        """When the head of the newest request was read."""
        self.sent_ns = 0
        """When the newest first piece was written."""
        self.requests = 0
        self.wait_s = 0.0
        """Before the first piece."""
        self.on_arrival: Callable[[], object] = lambda: None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.arrived_ns = time.perf_counter_ns()
                self.on_arrival()
                self.requests += 1
                length = next(
                    int(line.split(b":")[1])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length")
                )
                body = await reader.readexactly(length)
                asked = body.replace(b" ", b"")
                await self._answer(writer, b'"stream":true' in asked, b'"include_usage":true' in asked, len(body))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, is_stream: bool, with_usage: bool, size: int) -> None:
        """As an API does, usage is told in a stream if it is asked for; `size`: the bytes of the request."""
        if not is_stream:
            answer = {
                "id": "c",
                "object": "chat.completion",
                "created": 1,
                "model": "m",
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": "piece " * PIECES},
                        "finish_reason": "stop",
                    }
                ],
                "usage": {"prompt_tokens": 9, "completion_tokens": PIECES, "total_tokens": 9 + PIECES},
            }
            data = json.dumps(answer).encode()
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(data), data)
            )
            await writer.drain()
            return
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        await writer.drain()
        if self.wait_s:
            await asyncio.sleep(self.wait_s)
        self.sent_ns = time.perf_counter_ns()
        for _ in range(PIECES):
            writer.write(chunk({"content": "piece "}))
        done = b"data: [DONE]\n\n"
        usage = {"prompt_tokens": size // 4, "completion_tokens": PIECES, "total_tokens": size // 4 + PIECES}
        writer.write(chunk({}, "stop") + (chunk({}, usage=usage) if with_usage else b""))
        writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(done), done))
        await writer.drain()


@asynccontextmanager
async def upstream() -> AsyncGenerator[Upstream]:
    made = Upstream()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, limit=64 * 1024 * 1024)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
