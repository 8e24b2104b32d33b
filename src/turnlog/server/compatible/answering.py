"""Answers a request on one of the wires: finds the model, starts the call, and writes it as it comes.

The head of a stream is sent with the first piece of the answer, so that a refusal can have its own status, but after
HEAD_MAX_S at the latest. A client that goes away does not end its call: see `turns/relay_call`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, cast

import msgspec
from litestar.types import Receive, Scope, Send

from ...access.relaying import Relaying
from ...core.entries import Assistant
from ...core.principals import Principal
from ...errors import NotFound
from ...providers import Delta
from ...settings import ApiSettings
from ...turns.asked import Asked
from ...turns.context_edits import NO_EDITS
from ...turns.relay_call import RelayCall
from ..http import idempotency, sse
from ..http.head_limit import CONNECTION, LimitedConnection
from ..http.problems import Refusal
from ..http.sse import ASK_AGAIN_S, BATCH_MAX, KEEPALIVE_S, disconnect
from ..service import AnyRequest, principal_of, service_of, token_of
from . import errors, models, reading
from .compaction_fields import FIELD
from .errors import Family, InvalidField
from .messages import thread_not_found
from .models import Target
from .reading import WireRequest
from .response_events import ResponseWriter

HEAD_MAX_S = 10.0
"""A stream whose answer has not begun by then gets its head, so that no proxy gives up."""
REQUEST_ID = "turnlog.request_id"
"""Where in a request's scope the gate puts its id."""


class Writer(Protocol):
    """Writes an answer for one wire."""

    keepalive: bytes

    def whole(self, reply: Assistant, note: dict[str, Any] | None) -> bytes: ...
    def begin(self) -> bytes: ...
    def piece(self, piece: Delta) -> bytes: ...
    def end(self, reply: Assistant, note: dict[str, Any] | None) -> bytes: ...
    def failed(self, error: Exception, request_id: str) -> bytes: ...


MakeWriter = Callable[[RelayCall, WireRequest, ApiSettings, int], Writer]


def asked_of(request: AnyRequest, wire: str, read: WireRequest, target: Target, who: Principal) -> Asked:
    """The part of a request that is stored and compared with earlier requests."""
    headers = request.headers
    handle = headers.get(reading.HANDLE_HEADER)
    return Asked(
        principal=who,
        agent=target.agent or "main",
        name=read.name,
        handle=reading.checked_name(handle) if handle else None,
        wire=wire,
        client=headers.get("user-agent", "")[: reading.NAME_MAX_CHARS],
        model=read.model,
        system=read.system,
        tools=read.tools,
        parameters=read.kept_parameters(),
        messages=read.messages,
        read=read.read,
        after=read.after,
        is_stream=read.is_stream,
        is_retry=headers.get(reading.RETRY_HEADER, "0") not in ("", "0"),
        turn_id=reading.turn_id(headers),
        tip=read.tip,
        point=read.point,
        asks=not read.is_compaction,
        echo=read.echo if wire == "responses" else None,
        kind="agent" if target.agent else "relay",
        store=read.is_stored,
    )


async def answer(request: AnyRequest, wire: str, family: Family, read: WireRequest, make: MakeWriter) -> "Answering":
    service, relaying = service_of(request), relaying_of(request)
    service.check_open()
    if read.is_stream:
        service.hold_stream(request, of_client=True)
    target = models.target_of(service.settings, read.model, relaying.principal)
    if target.agent and read.tools:
        raise InvalidField("an agent has its own tools", hint="Leave out tools.", param="tools")
    if target.agent and read.is_compaction:
        raise InvalidField("a compaction is made by a model", hint="Name a model instead of an agent.", param="model")
    asked = asked_of(request, wire, read, target, relaying.principal)
    if read.after is not None and wire == "messages":
        asked = await _with_head(relaying, asked)
    if not target.agent:
        reading.check_choice(read.parameters, asked.tools)
    call, left_out = await _started(request, relaying, asked, read, target)
    dropped = [read.param_names.get(name, name) for name in left_out]
    if not read.is_stored and idempotency.key_of(request):
        dropped.append("idempotency-key")
    if target.agent and read.system:
        dropped.append(read.param_names.get("system", "system"))
    if target.agent and read.edits != NO_EDITS:
        dropped.append(FIELD)
    return Answering(
        request,
        call,
        make(call, read, service.settings.api, call.began_ms // 1000 or int(time.time())),
        family,
        is_stream=read.is_stream,
        is_awaited=not read.echo.get("background"),
        ignored=reading.ignored_header([*read.ignored, *dropped]),
    )


async def count_tokens(request: AnyRequest, wire: str, read: WireRequest) -> int:
    """About how many tokens the request would send; at least one."""
    relaying = relaying_of(request)
    target = models.target_of(service_of(request).settings, read.model, relaying.principal)
    asked = asked_of(request, wire, read, target, relaying.principal)
    return max(1, await relaying.count_tokens(asked, target.model, vendor_system=read.vendor_system))


async def _started(
    request: AnyRequest, relaying: Relaying, asked: Asked, read: WireRequest, target: Target
) -> tuple[RelayCall, tuple[str, ...]]:
    """With an Idempotency-Key, the answer is that of the first request; where nothing is stored, none is."""
    claim = await idempotency.claim_call(request) if read.is_stored else None
    try:
        call, left_out = await relaying.start(
            msgspec.structs.replace(asked, again=claim.made) if claim else asked,
            target.model,
            parameters=read.parameters,
            max_output=read.max_output,
            vendor_system=read.vendor_system,
            goes_on=bool(read.echo.get("background")),
            edits=read.edits,
            keeps_pieces=asked.echo is not None and read.is_stream and asked.echo.get("store") is not False,
        )
    except BaseException:
        if claim is not None:
            await claim.drop()
        raise
    if claim is not None and (call.session_id, call.turn) != claim.made:
        await claim.keep(session=call.session_id, turn=call.turn)
    return call, left_out


async def _with_head(relaying: Relaying, asked: Asked) -> Asked:
    """A thread carries the system text and the tools that came when it was created."""
    assert asked.after is not None
    try:
        system, tools = await relaying.head(await relaying.stored(*asked.after))
    except NotFound as error:
        raise thread_not_found() from error
    return msgspec.structs.replace(asked, system=asked.system or system, tools=asked.tools or tools)


def api_of(request: AnyRequest) -> ApiSettings:
    """404 if these routes are switched off."""
    api = service_of(request).settings.api
    if not api.enabled:
        raise Refusal("the routes under /v1 are switched off", status=404, code="not_found", hint="Set [api] enabled.")
    return api


def relaying_of(request: AnyRequest) -> Relaying:
    """403 unless the token has the scope."""
    return service_of(request).relaying_for(principal_of(request, "chat"))


def request_id(request: AnyRequest) -> str:
    return str(cast("dict[str, Any]", request.scope).get(REQUEST_ID, ""))


class Answering:
    """An ASGI response."""

    def __init__(
        self,
        request: AnyRequest,
        call: RelayCall,
        writer: Writer,
        family: Family,
        *,
        is_stream: bool,
        is_awaited: bool = True,
        ignored: str = "",
        refuses: bool = True,
    ) -> None:
        """`is_awaited`: without a stream, the client waits for the answer; otherwise it is told that there will be one.
        `refuses`: a stream that fails before its first piece is answered with a status.
        """
        self._call = call
        self._writer = writer
        self._service = service_of(request)
        self._is_stream = is_stream
        self._is_awaited = is_awaited
        self._may_listen = self._service.may_listen(token_of(request), call.session_id)
        self._family: Family = family
        self._request_id = request_id(request)
        self._ignored = ignored
        self._refuses = refuses
        self.tell_whole: Callable[[RelayCall], Awaitable[bytes]] | None = None
        """Tells the answer instead of the writer."""
        self._connection: LimitedConnection | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        whole = False
        self._connection = cast("dict[str, Any]", scope).get(CONNECTION)
        pump = asyncio.create_task(self._streamed(send) if self._is_stream else self._whole(send))
        leaving = asyncio.create_task(disconnect(receive))
        try:
            await asyncio.wait({pump, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if pump.done():
                whole = pump.result()
        finally:
            self._call.detach(whole=whole)
            for task in (pump, leaving):
                task.cancel()
            await asyncio.wait({pump, leaving})

    async def _whole(self, send: Send) -> bool:
        if not self._is_awaited:
            await self._send(send, 200, cast("ResponseWriter", self._writer).pending())
            return True
        while not await self._call.until_over(KEEPALIVE_S):
            if not await self._may_listen():
                return False
        if self._call.reply is None:
            await self._refuse(send)
            return True
        if self.tell_whole is not None:
            body = await self.tell_whole(self._call)
        else:
            body = self._writer.whole(self._call.reply, self._note())
        await self._send(send, 200, body)
        return not self._is_lost()

    async def _streamed(self, send: Send) -> bool:
        call = self._call
        await call.until_news(0, HEAD_MAX_S)
        if call.error is not None and not call.pieces and self._refuses:
            await self._refuse(send)
            return True
        await send({"type": "http.response.start", "status": 200, "headers": [*sse.HEADERS, *self._headers()]})
        await _write(send, self._writer.begin())
        if not await self._pieces(send):
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return False
        if call.reply is not None:
            last = self._writer.end(call.reply, self._note())
        else:
            last = self._writer.failed(self._told_error(), self._request_id)
        await send({"type": "http.response.body", "body": last, "more_body": False})
        return not self._is_lost()

    def _is_lost(self) -> bool:
        """Whether the client left before the last bytes were handed on: writing to it raises nothing."""
        return self._connection is not None and self._connection.is_lost

    async def _pieces(self, send: Send) -> bool:
        """Writes the pieces as they come. False: the client may not listen any more."""
        call, after, looked = self._call, 0, time.monotonic()
        while True:
            came = await call.until_news(after, KEEPALIVE_S)
            if time.monotonic() - looked > ASK_AGAIN_S:
                looked = time.monotonic()
                if not await self._may_listen():
                    return False
            if not came:
                await _write(send, self._writer.keepalive)
                continue
            batch = call.pieces[after : after + BATCH_MAX]
            after += len(batch)
            if frames := b"".join(map(self._writer.piece, batch)):
                await _write(send, frames)
            if call.over and after >= len(call.pieces):
                return True

    async def _refuse(self, send: Send) -> None:
        status, headers, body = errors.answer_of(self._told_error(), self._family, self._request_id)
        own = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self._send(send, status, body, own)

    def _told_error(self) -> Exception:
        error = self._call.error
        assert error is not None
        if errors.told(error).status == 500:
            self._service.log.error("relay", error=str(error), exc_info=error)
        return error

    async def _send(self, send: Send, status: int, body: bytes, more: Sequence[tuple[bytes, bytes]] = ()) -> None:
        own = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *more]
        await send({"type": "http.response.start", "status": status, "headers": [*own, *self._headers()]})
        await _write(send, body)
        await send({"type": "http.response.body", "body": b"", "more_body": False})  # waits until a long body is taken

    def _headers(self) -> list[tuple[bytes, bytes]]:
        call = self._call
        found = {"turnlog-match": call.match}
        if call.stored or call.match == "restless":
            found["turnlog-session"] = call.session_id
        if self._ignored:
            found["turnlog-ignored"] = self._ignored
        if call.pieces or call.over:
            found["turnlog-guard"] = call.guard
        return [(name.encode(), value.encode()) for name, value in found.items()]

    def _note(self) -> dict[str, Any] | None:
        call = self._call
        if not self._service.settings.api.announce:
            return None
        made = call.compaction
        return {
            "session": call.session_id if call.stored else None,
            "turn": call.turn,
            "match": call.match,
            "guard": call.guard,
            "compaction": msgspec.to_builtins(made) if made else None,
        }


async def _write(send: Send, chunk: bytes) -> None:
    await send({"type": "http.response.body", "body": chunk, "more_body": True})
