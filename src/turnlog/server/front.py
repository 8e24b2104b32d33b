"""The front door, before any routing: Host, Origin, token, rate, size; then the answer's headers, log line and count.

Everything needs a token but a few exact paths, so no trick with a path can lead around it. A token is read from the
Authorization header or the page's cookie and from nowhere else. Nothing is decided by where a request comes from.
"""

import asyncio
import ipaddress
import re
import time
import uuid
from collections.abc import Sequence
from http.cookies import CookieError, SimpleCookie
from typing import Any, cast

from litestar.types import ASGIApp, HTTPSendMessage, Receive, Scope, Send

from ..errors import TurnlogError
from . import problems
from .auth import COOKIE, Token
from .limits import BODY_MAX_BYTES, FAILURES_BURST, FAILURES_PER_S, Buckets, too_large, too_many
from .problems import Refusal
from .service import WHO, Service

PUBLIC = ("/healthz", "/readyz", "/openapi.json", "/signin", "/api/signin", "/favicon.ico")
UNASKED = ("/healthz", "/readyz")
"""Answered without looking at any token: looking takes the store, and whether that is there is the question."""
PUBLIC_PREFIXES = ("/static/", "/channels/")
"""Assets of the page, and webhooks, which have signatures of their own."""
SIGN_IN = ("/signin", "/api/signin")
"""Where codes and tokens are tried."""
SAFE = ("GET", "HEAD", "OPTIONS")
HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
)


class FrontDoor:
    def __init__(self, app: ASGIApp, service: Service, *, hosts: Sequence[str] = (), rate: float = 500) -> None:
        self._app = app
        self._service = service
        self._hosts = {name.lower().rstrip(".") for name in (*hosts, "localhost")}
        self._asks = Buckets(rate, 2 * rate)
        self._failures = Buckets(FAILURES_PER_S, FAILURES_BURST)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        visit = Visit(scope, self._service)
        try:
            self._check_origin(visit)
            await self._check_token(visit)
            receive = _limited(visit, receive)
        except TurnlogError as error:  # a refusal, or the store is away
            self._service.metrics.refused.labels(problems.of(error).code).inc()
            await _refuse(visit, error, visit.sender(send))
        else:
            method, receive, send = _adapted(visit, receive, send)
            await self._app(cast("Scope", {**scope, "method": method}), receive, visit.sender(send))
        finally:
            visit.write_down()

    def _check_origin(self, visit: "Visit") -> None:
        host = visit.header(b"host")
        if not self._is_our_name(host):
            raise Refusal("this server is not known by that name", status=403, code="host", hint=_HOST_HINT)
        origin = visit.header(b"origin")
        if origin and origin.partition("://")[2].lower() != host.lower():
            raise Refusal("the request comes from another site", status=403, code="origin", hint=_ORIGIN_HINT)
        if visit.header(b"sec-fetch-site") in ("cross-site", "same-site") and visit.method not in SAFE:
            raise Refusal("the request comes from another site", status=403, code="origin", hint=_ORIGIN_HINT)

    def _is_our_name(self, host: str) -> bool:
        """An address cannot be rebound to ours by somebody's name server; a name can, unless it is listed."""
        parts = _HOST.match(host)
        if parts is None:
            return False
        name = parts[1] or parts[2]
        if name.lower().rstrip(".") in self._hosts:
            return True
        try:
            return bool(ipaddress.ip_address(name))
        except ValueError:
            return False

    async def _check_token(self, visit: "Visit") -> None:
        if visit.path in UNASKED:
            return
        token, presented = await self._find_token(visit)
        presented = presented or visit.path.rstrip("/") in SIGN_IN
        if token is None and presented and not self._failures.take(visit.client):
            raise too_many("too many wrong tokens")
        if token is not None:
            visit.token = token
            visit.scope[WHO] = token
            if not self._asks.take(token.id):
                raise too_many()
        elif not visit.is_public:
            raise Refusal(
                "a token is needed",
                status=401,
                code="unauthorized",
                hint="Send Authorization: Bearer TOKEN; turnlog token create makes one.",
                headers={"WWW-Authenticate": 'Bearer realm="turnlog"'},
            )

    async def _find_token(self, visit: "Visit") -> tuple[Token | None, bool]:
        """And whether one was presented at all. Of two credentials the header is the one that counts."""
        kind, _, text = visit.header(b"authorization").partition(" ")
        if kind:
            found = await self._service.tokens.of_bearer(text.strip()) if kind.lower() == "bearer" else None
            return found, True
        if not (cookie := visit.cookie):
            return None, False
        if visit.method not in SAFE and not visit.header(b"origin"):
            raise Refusal(
                "a request with a cookie must say where it comes from", status=403, code="origin", hint=_ORIGIN_HINT
            )
        return await self._service.tokens.of_cookie(cookie), True


_HOST = re.compile(r"(?:\[([^\[\]]+)\]|([^:\[\]]+))(?::\d{1,5})?\Z")
"""A name or address, in brackets if it is one of IPv6; perhaps a port; nothing else."""
_HOST_HINT = "Use an address or localhost; a proxy's names go into [server] hosts."
_ORIGIN_HINT = "Only the server's own page may do this; programs send no Origin and a bearer token."


class Visit:
    """One request, from the door's point of view."""

    def __init__(self, scope: Scope, service: Service) -> None:
        self.scope = cast("dict[str, Any]", scope)
        self._service = service
        self.method: str = self.scope["method"]
        self.path: str = self.scope["path"]
        self.request_id = uuid.uuid4().hex[:16]
        self.token: Token | None = None
        self.status = 0
        self._start = time.monotonic()
        self._first_byte_s = 0.0
        self._headers: dict[bytes, bytes] = dict(self.scope["headers"])

    def header(self, name: bytes) -> str:
        return self._headers.get(name, b"").decode("latin-1")

    @property
    def client(self) -> str:
        peer = self.scope.get("client")
        return str(peer[0]) if peer else ""

    @property
    def cookie(self) -> str:
        try:
            found = SimpleCookie(self.header(b"cookie")).get(COOKIE)
        except CookieError:
            return ""
        return found.value if found else ""

    @property
    def is_public(self) -> bool:
        return self.path in PUBLIC or self.path.startswith(PUBLIC_PREFIXES)

    def sender(self, send: Send) -> Send:
        async def answer(message: HTTPSendMessage) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
                self._first_byte_s = time.monotonic() - self._start
                named = {name.lower() for name, _ in message["headers"]}
                own = [header for header in HEADERS if header[0] not in named]
                if b"cache-control" not in named:
                    own.append((b"cache-control", b"no-store"))
                message["headers"] = [*message["headers"], *own, (b"x-request-id", self.request_id.encode())]
            await send(message)

        return cast("Send", answer)

    def write_down(self) -> None:
        self._service.metrics.requests.labels(_known(self.method), str(self.status)).inc()
        self._service.metrics.request_seconds.observe(self._first_byte_s)
        self._service.log.info(
            "request",
            id=self.request_id,
            method=self.method[:20],
            path=self.path[:300],
            status=self.status,
            ms=round((time.monotonic() - self._start) * 1000, 1),
            principal=self.token.name if self.token else "",
            token=self.token.id if self.token else "",
            client=self.client,
        )


def _known(method: str) -> str:
    """A label takes few values, whatever is sent."""
    return method if method in ("GET", "HEAD", "POST", "PATCH", "DELETE", "PUT", "OPTIONS") else "OTHER"


def _limited(visit: Visit, receive: Receive) -> Receive:
    length = visit.header(b"content-length")
    if length.isdecimal() and int(length) > BODY_MAX_BYTES:
        raise too_large("the body", BODY_MAX_BYTES)
    seen = 0

    async def counted() -> Any:
        nonlocal seen
        message: Any = await receive()
        seen += len(message.get("body", b""))
        if seen > BODY_MAX_BYTES:
            raise too_large("the body", BODY_MAX_BYTES)
        return message

    return cast("Receive", counted)


def _adapted(visit: Visit, receive: Receive, send: Send) -> tuple[str, Receive, Send]:
    """Two methods that the framework does not answer for a route by itself: as what they are asked of it."""
    match visit.method:
        case "OPTIONS":
            # The framework's own answer names one method of a path; its refusal of another method names all.
            return "TRACE", receive, _as_options(send)
        case "HEAD" if visit.path.rstrip("/") not in SIGN_IN:  # there, a look would use up the code
            return "GET", *_as_head(send)
        case method:
            return method, receive, send


def _as_head(send: Send) -> tuple[Receive, Send]:
    """As GET, without a body; a stream is told that its listener has gone."""
    begun = asyncio.Event()

    async def hear() -> Any:
        await begun.wait()
        return {"type": "http.disconnect"}

    async def answer(message: Any) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            begun.set()

    return cast("Receive", hear), cast("Send", answer)


def _as_options(send: Send) -> Send:
    """405 with `Allow` becomes an answer without a body. Other sites are told nothing more: there is no CORS."""
    allowed = False

    async def answer(message: Any) -> None:
        nonlocal allowed
        if message["type"] == "http.response.start":
            allowed = message["status"] == 405
        if allowed and message["type"] == "http.response.start":
            kept = [header for header in message["headers"] if not header[0].lower().startswith(b"content-")]
            message = {**message, "status": 204, "headers": kept}
        elif allowed:
            message = {**message, "body": b""}
        await send(message)

    return cast("Send", answer)


async def _refuse(visit: Visit, error: TurnlogError, send: Send) -> None:
    """As a problem; a person with a browser is led to the sign-in page instead."""
    wants_page = "text/html" in visit.header(b"accept") and not visit.path.startswith(("/api/", "/metrics"))
    headers = [(name.lower().encode(), value.encode()) for name, value in problems.headers_of(error).items()]
    problem = problems.of(error)
    if problem.status == 401 and wants_page and visit.method in SAFE:
        start: Any = {"type": "http.response.start", "status": 303, "headers": [(b"location", b"/signin")]}
        body = b""
    else:
        body = problems.encode(problem)
        kind = [(b"content-type", problems.MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode())]
        start = {"type": "http.response.start", "status": problem.status, "headers": [*kind, *headers]}
    await send(start)
    end: Any = {"type": "http.response.body", "body": b"" if visit.method == "HEAD" else body, "more_body": False}
    await send(end)
