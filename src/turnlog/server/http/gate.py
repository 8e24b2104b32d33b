"""Checks every request before routing: Host, Origin, token, rate, size. Adds headers to the answer, logs and counts it.

Every path needs a token except a few exact ones, so no trick with a path leads around the check. A token is read only
from the Authorization header or the page's cookie. The address of a client gives it no rights.
"""

import asyncio
import ipaddress
import os
import re
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import lru_cache
from http.cookies import CookieError, SimpleCookie
from typing import Any, cast

from litestar.types import ASGIApp, HTTPSendMessage, Receive, Scope, Send

from ...errors import TurnlogError
from ...runtime import tracing
from ...texts import Texts, of_header
from ..compatible import addresses, errors, reading
from ..compatible.answering import REQUEST_ID
from ..service import CALLER, HELD, Service
from . import methods, problems
from .auth import COOKIE, LANGUAGE, Token
from .head_limit import CONNECTION, LimitedConnection
from .limits import BODY_MAX_BYTES, FAILURES_BURST, FAILURES_PER_S, Buckets, too_large, too_many
from .methods import SIGN_IN
from .problems import Refusal, unauthorized

PUBLIC = ("/healthz", "/readyz", "/openapi.json", "/signin", "/api/signin", "/favicon.ico")
WITHOUT_STORE = ("/healthz", "/readyz")
"""Answered without looking up a token, because that needs the store, and these paths tell whether it can be used."""
PUBLIC_PREFIXES = ("/static/", "/channels/")
"""Assets of the page, and webhooks, which are checked by their signatures."""
SAFE = ("GET", "HEAD", "OPTIONS")
SINGLE = frozenset(
    (
        b"host",
        b"origin",
        b"authorization",
        b"x-api-key",
        b"sec-fetch-site",
        b"content-type",
        b"idempotency-key",
        b"last-event-id",
    )
)
"""Headers that may occur once only: of two, a proxy in front of this server may have used the other one."""
ADDRESS_MAX_CHARS = 64
"""Of an IPv6 address with its zone. A longer name is none, and is not remembered."""
TRACE = (b"traceparent", b"tracestate", b"baggage")
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


class Gate:
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
        request = GatedRequest(scope, self._service)
        try:
            _check_single(request)
            self._check_origin(request)
            await self._check_token(request)
            self._check_room(request)
            _check_socket(request)
            receive = _limited(request, receive, self._service.settings.server.body_idle_s)
        except TurnlogError as error:  # a refusal, or the store is unavailable
            self._service.metrics.refused.labels(problems.of(error).code).inc()
            await _refuse(request, error, request.sender(send))
        else:
            method, receive, send = methods.adapted(request.method, request.path, receive, send)
            with tracing.continuing(request.trace):
                await self._app(cast("Scope", {**scope, "method": method}), receive, request.sender(send))
        finally:
            request.held.close()
            request.log()

    def _check_origin(self, request: "GatedRequest") -> None:
        host = request.header(b"host")
        if not self._is_our_name(host):
            raise Refusal("this server does not have that name", status=403, code="host", hint=_HOST_HINT)
        origin = request.header(b"origin")
        is_other = bool(origin) and origin.partition("://")[2].lower() != host.lower()
        crosses = request.header(b"sec-fetch-site") in ("cross-site", "same-site") and request.method not in SAFE
        if is_other or crosses:
            raise Refusal("the request comes from another site", status=403, code="origin", hint=_ORIGIN_HINT)

    def _is_our_name(self, host: str) -> bool:
        """Names must be listed: a name server could point others at our address (DNS rebinding). Addresses are safe."""
        parts = _HOST.match(host)
        if parts is None:
            return False
        name = parts[1] or parts[2]
        if name.lower().rstrip(".") in self._hosts:
            return True
        return len(name) <= ADDRESS_MAX_CHARS and _is_address(name)

    async def _check_token(self, request: "GatedRequest") -> None:
        if request.path in WITHOUT_STORE:
            return
        token, presented = await self._find_token(request)
        presented = presented or request.path.rstrip("/") in SIGN_IN
        if token is None and presented and not self._failures.take(request.client):
            raise too_many("too many wrong tokens")
        if token is not None:
            request.token = token
            request.scope[CALLER] = token
            self._service.note_use(token)
            if not self._asks.take(token.id):
                raise too_many()
        elif not request.is_public and presented:
            raise unauthorized("the token is not valid", _WRONG_HINT)
        elif not request.is_public:
            raise unauthorized("a token is needed", _NEEDED_HINT)

    def _check_room(self, request: "GatedRequest") -> None:
        token_id = request.token.id if request.token else None
        if request.connection is not None:
            request.connection.sign_in(token_id is not None)
        peer = request.connection.peer if request.connection else request.client
        self._service.connections.hold_request(token_id, request.client, peer, request.held)

    async def _find_token(self, request: "GatedRequest") -> tuple[Token | None, bool]:
        """(the token, whether the request has a credential at all). The header wins over the cookie."""
        kind, _, text = request.header(b"authorization").partition(" ")
        if request.is_compatible:
            return await self._of_key(kind, text.strip(), request.header(b"x-api-key").strip())
        if kind:
            found = await self._service.tokens.of_bearer(text.strip()) if kind.lower() == "bearer" else None
            return found, True
        if not (cookie := request.cookie):
            return None, False
        if request.method not in SAFE and not request.header(b"origin"):
            raise Refusal(
                "a request with a cookie must say where it comes from", status=403, code="origin", hint=_ORIGIN_HINT
            )
        return await self._service.tokens.of_cookie(cookie), True

    async def _of_key(self, kind: str, bearer: str, key: str) -> tuple[Token | None, bool]:
        """The token of a client of OpenAI's or Anthropic's protocol: cookies do not count, x-api-key does."""
        if bearer and key and bearer != key:
            raise unauthorized("Authorization and x-api-key hold different keys", _TWO_KEYS_HINT)
        if kind and kind.lower() != "bearer":
            return None, True
        text = bearer or key
        return (await self._service.tokens.of_bearer(text), True) if text else (None, False)


@lru_cache(256)
def _is_address(name: str) -> bool:
    """Remembered, because most clients use one name."""
    try:
        return bool(ipaddress.ip_address(name))
    except ValueError:
        return False


_HOST = re.compile(r"(?:\[([^\[\]]+)\]|([^:\[\]]+))(?::\d{1,5})?\Z")
"""A name or an address (IPv6 in brackets), with or without a port."""
_HOST_HINT = "Use an IP address or localhost, or add the name to [server] hosts."
_NEEDED_HINT = "Send Authorization: Bearer TOKEN; create one with turnlog token create."
_WRONG_HINT = "It may be expired or revoked. Create one with turnlog token create."
_TWO_KEYS_HINT = "Send one of them: unset the variable with the other key, such as ANTHROPIC_API_KEY."
_ORIGIN_HINT = "Only the server's own page may do this. Programs send a bearer token and no Origin."


class GatedRequest:
    """One request as the gate sees it."""

    def __init__(self, scope: Scope, service: Service) -> None:
        self.scope = cast("dict[str, Any]", scope)
        self._service = service
        self.method: str = self.scope["method"]
        self.path: str = addresses.meant(self.scope["path"])
        self.scope["path"] = self.path
        self.request_id = os.urandom(8).hex()
        self.token: Token | None = None
        self.status = 0
        self._start = time.monotonic()
        self._first_byte_s = 0.0
        self._headers: dict[bytes, bytes] = dict(self.scope["headers"])
        self.connection: LimitedConnection | None = self.scope.get(CONNECTION)
        self.held = self.scope[HELD] = ExitStack()
        self.scope[REQUEST_ID] = self.request_id

    def header(self, name: bytes) -> str:
        return self._headers.get(name, b"").decode("latin-1")

    @property
    def trace(self) -> dict[str, str]:
        """The headers that name the trace this request is a part of."""
        return {name.decode(): self.header(name) for name in TRACE if name in self._headers}

    @property
    def client(self) -> str:
        peer = self.scope.get("client")
        return str(peer[0]) if peer else ""

    @property
    def cookie(self) -> str:
        return self._cookie(COOKIE)

    def _cookie(self, name: str) -> str:
        try:
            found = SimpleCookie(self.header(b"cookie")).get(name)
        except CookieError:
            return ""
        return found.value if found else ""

    @property
    def texts(self) -> Texts:
        """Of the page, in the language of its reader; in English for programs."""
        accepted = self.header(b"accept-language") if self.cookie else ""
        return Texts("page", of_header(self._cookie(LANGUAGE) if self.cookie else None, accepted))

    @property
    def is_compatible(self) -> bool:
        """Whether it is for a route of OpenAI's or Anthropic's protocol."""
        return self.path.startswith(addresses.PREFIX)

    @property
    def family(self) -> errors.Family:
        return errors.family_of(self.path, bool(self.header(b"anthropic-version")))

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
                own.append((b"x-request-id", self.request_id.encode()))
                if self.is_compatible and self.family == "anthropic":
                    own.append((b"request-id", self.request_id.encode()))
                message["headers"] = [*message["headers"], *own]
            elif not message.get("more_body"):
                self.held.close()  # before the last byte: who has the answer may ask again at once
            await send(message)

        return cast("Send", answer)

    def log(self) -> None:
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


def _check_socket(request: GatedRequest) -> None:
    """No route speaks WebSockets; clients of compatible APIs try one and then use POST."""
    if request.is_compatible and request.method == "GET" and request.header(b"upgrade").lower() == "websocket":
        raise Refusal("this server has no WebSockets", status=426, code="upgrade_required", hint="Use POST.")


def _check_single(request: GatedRequest) -> None:
    names = [name for name, _ in request.scope["headers"] if name in SINGLE]
    if len(names) > len(set(names)):
        twice = next(name for name in names if names.count(name) > 1).decode("latin-1")
        raise Refusal(f"the header {twice} came twice", hint="Send it once.")


def _known(method: str) -> str:
    """Keeps the number of label values small, whatever clients send."""
    return method if method in ("GET", "HEAD", "POST", "PATCH", "DELETE", "PUT", "OPTIONS") else "OTHER"


def _limited(request: GatedRequest, receive: Receive, idle_s: float) -> Receive:
    """Receives the body; an error if it stops arriving or is too large."""
    length = request.header(b"content-length")
    most = reading.BODY_MAX_BYTES if request.is_compatible else BODY_MAX_BYTES
    if length.isdecimal() and int(length) > most:
        raise too_large("the body", most)
    seen = 0
    more = bool(length.strip("0") or request.header(b"transfer-encoding"))

    async def counted() -> Any:
        nonlocal seen, more
        message: Any = await (_rest_of(request, receive, idle_s) if more else receive())
        more = message.get("more_body", False)
        seen += len(message.get("body", b""))
        if seen > most:
            raise too_large("the body", most)
        return message

    return cast("Receive", counted)


async def _rest_of(request: GatedRequest, receive: Receive, idle_s: float) -> Any:
    is_here = request.connection is not None and request.connection.has_whole_request
    try:
        async with asyncio.timeout(None if is_here else idle_s):
            message: Any = await receive()
    except TimeoutError as error:
        close = {"Connection": "close"}
        what, hint = "the body stopped arriving", "Send it again."
        raise Refusal(what, status=408, code="timeout", hint=hint, headers=close) from error
    if message["type"] == "http.disconnect":
        raise Refusal("the client left before the end of the body", code="incomplete", hint="Send it again.")
    return message


async def _refuse(request: GatedRequest, error: TurnlogError, send: Send) -> None:
    """Answers with a problem document, or in the shape that the client's SDK reads; a browser without a token is
    redirected to the sign-in page.
    """
    problem = problems.for_people(problems.of(error), request.texts)
    wants_page = "text/html" in request.header(b"accept") and not request.path.startswith(("/api/", "/metrics"))
    status, body, fields = problem.status, problems.encode(problem), problems.headers_of(error)
    kind = problems.MEDIA_TYPE
    if request.is_compatible:
        status, fields, body = errors.answer_of(error, request.family, request.request_id)
        kind = "application/json"
    fields = {"content-type": kind, "content-length": str(len(body)), **fields}
    if status == 401 and wants_page and request.method in SAFE and not request.is_compatible:
        status, body, fields = 303, b"", {"location": "/signin"}
    headers = [(name.lower().encode(), value.encode()) for name, value in fields.items()]
    start: Any = {"type": "http.response.start", "status": status, "headers": headers}
    await send(start)
    end: Any = {"type": "http.response.body", "body": b"" if request.method == "HEAD" else body, "more_body": False}
    await send(end)
