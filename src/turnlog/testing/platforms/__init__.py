"""Platforms played on this machine, for tests and trials: each answers the calls that its channel makes, strictly.

A platform is a plain ASGI application: it can be called in the same process (`httpx.ASGITransport`) or served on
127.0.0.1 for the platform's own SDK. It refuses what the real one refuses, keeps what was sent, and can be told to
fail.
"""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from msgspec import Struct

Fields: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Any]]
Send: TypeAlias = Callable[[Any], Awaitable[None]]


class Call(Struct, frozen=True, kw_only=True):
    """One request that a platform got."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    query: Mapping[str, str]

    def fields(self) -> Fields:
        """Of a JSON object or a form."""
        if self.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            return dict(parse_qsl(self.body.decode()))
        return json.loads(self.body or b"{}")


class Failure(Struct, frozen=True):
    """What a platform answers instead."""

    status: int = 503
    headers: Mapping[str, str] = {}
    body: Mapping[str, Any] = {}
    taken: bool = False
    """Whether it takes the message all the same: an answer that was lost on its way."""


class Platform:
    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.sent: list[Fields] = []
        """Messages it took, in order."""
        self.failure: Failure | None = None

    def answer(self, call: Call) -> "tuple[int, Any]":
        raise NotImplementedError

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", scope["type"]
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        call = Call(
            method=scope["method"],
            path=scope["path"],
            headers={name.decode().lower(): value.decode() for name, value in scope["headers"]},
            body=body,
            query=dict(parse_qsl(scope.get("query_string", b"").decode())),
        )
        self.calls.append(call)
        status, headers, told = await self._respond(call)
        head = [(b"content-type", b"application/json"), *((k.encode(), v.encode()) for k, v in headers.items())]
        await send({"type": "http.response.start", "status": status, "headers": head})
        await send({"type": "http.response.body", "body": json.dumps(told).encode()})

    async def _respond(self, call: Call) -> tuple[int, Mapping[str, str], Any]:
        failure = self.failure
        if failure is not None and not failure.taken:
            return failure.status, failure.headers, failure.body
        status, told = await self.answer_later(call)
        return (failure.status, failure.headers, failure.body) if failure else (status, {}, told)

    async def answer_later(self, call: Call) -> "tuple[int, Any]":
        """For platforms that hold a request open."""
        return self.answer(call)

    def texts(self) -> list[str]:
        return [str(message.get("text") or message.get("content")) for message in self.sent]


@contextmanager
def served(app: Any) -> Generator[str]:
    """The address of an application on 127.0.0.1, served by a thread."""
    import uvicorn

    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, lifespan="off", ws="none")
    server = uvicorn.Server(config)
    ready = threading.Event()

    async def serve() -> None:
        task = asyncio.ensure_future(server.serve())
        while not server.started and not task.done():
            await asyncio.sleep(0.01)
        ready.set()
        await task

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    try:
        assert ready.wait(20), "the platform did not start"
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)
