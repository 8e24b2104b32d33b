"""Imitations of the platforms, for tests and trials: each strictly answers the calls that its channel makes.

A platform is a plain ASGI application: it can be called in the same process (`httpx.ASGITransport`) or served on
127.0.0.1 for the platform's own SDK. It refuses what the real one refuses, keeps what was sent, and can be told to
fail.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from msgspec import Struct

JsonFields: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Any]]
SendMessage: TypeAlias = Callable[[Any], Awaitable[None]]


class PlatformRequest(Struct, frozen=True, kw_only=True):
    """One request that a platform received."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    query: Mapping[str, str]

    def fields(self) -> JsonFields:
        """The fields of a JSON object or a form."""
        if self.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            return dict(parse_qsl(self.body.decode()))
        return json.loads(self.body or b"{}")


class PlatformFailure(Struct, frozen=True):
    """The platform's answer instead of success."""

    status: int = 503
    headers: Mapping[str, str] = {}
    body: Mapping[str, Any] = {}
    taken: bool = False
    """Whether it accepts the message anyway: the answer was lost in transit."""


class Platform:
    def __init__(self) -> None:
        self.calls: list[PlatformRequest] = []
        self.sent: list[JsonFields] = []
        """The messages it accepted, in order."""
        self.failure: PlatformFailure | None = None

    def answer(self, call: PlatformRequest) -> "tuple[int, Any]":
        raise NotImplementedError

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: SendMessage) -> None:
        assert scope["type"] == "http", scope["type"]
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        call = PlatformRequest(
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

    async def _respond(self, call: PlatformRequest) -> tuple[int, Mapping[str, str], Any]:
        failure = self.failure
        if failure is not None and not failure.taken:
            return failure.status, failure.headers, failure.body
        status, told = await self.answer_later(call)
        return (failure.status, failure.headers, failure.body) if failure else (status, {}, told)

    async def answer_later(self, call: PlatformRequest) -> "tuple[int, Any]":
        """Answers later, for platforms that hold a request open."""
        return self.answer(call)

    def texts(self) -> list[str]:
        return [str(message.get("text") or message.get("content")) for message in self.sent]
