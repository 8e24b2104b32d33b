"""HTTP/1.1 as uvicorn parses it with httptools, with limits on what a peer may hold without finishing a request.

The head of a request has a maximum length and a deadline. Its body has an idle time, which the gate checks; the rest of
a body that comes after the answer has a short deadline. A client without a token that does not read its answer is
closed. `Connections` keeps track of these states, and may also drop this connection to make room for another.
"""

import asyncio
from http import HTTPStatus
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from . import problems
from .connections import Connections
from .joined_head import JoinedHead
from .problems import Refusal

HEAD_MAX_BYTES = 65_536
"""For the request line and headers, or for bytes after the body. Cookies and tokens need a hundredth of it."""
REST_S = 2.0
"""For the rest of a body whose request was answered early: many clients read the answer only after sending."""
UNREAD_S = 30.0
"""For a client without a token to read its answer. Readers of streams have a token, and may be slow."""
CONNECTION = "turnlog.connection"
"""Where in a request's scope the gate finds its connection."""


class LimitedConnection(HttpToolsProtocol):
    _held_bytes = 0
    """Bytes received since the last part was passed on. A body is passed on as it comes, and the gate limits it."""

    def __init__(self, *args: Any, peer: str, connections: Connections, head_s: float, **options: Any) -> None:
        super().__init__(*args, **options)
        self.peer = peer
        self.signed_in = False
        self.is_lost = False
        self._connections = connections
        self._head_s = head_s
        self._deadline: asyncio.TimerHandle | None = None
        self._begun = False
        """Part of a request has come, and it is not answered yet."""
        self.has_whole_request = True
        """The newest request has arrived completely: no body has to be waited for."""
        self._dropped: Refusal | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast("asyncio.Transport", JoinedHead(transport, self.loop)))
        self._expect_within(self._head_s, "head")
        if self._dropped is not None:  # while it was being accepted
            self.drop(self._dropped)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self._expect_nothing()
        self._connections.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._held_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._held_bytes > HEAD_MAX_BYTES:
            self.send_400_response("The head of the request is too long.")
        elif self._is_idle and self._deadline is None:
            self._expect_within(self._head_s, "head")

    def on_message_begin(self) -> None:
        self._held_bytes = 0
        self._begun, self.has_whole_request = True, False
        super().on_message_begin()
        self.scope[CONNECTION] = self  # type: ignore[typeddict-unknown-key]

    def on_headers_complete(self) -> None:
        self._held_bytes = 0
        self._expect_nothing()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._held_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._held_bytes = 0
        self.has_whole_request = True
        super().on_message_complete()
        self.settle()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._begun = False
        if not self.has_whole_request and not self.transport.is_closing():
            self._expect_within(REST_S, "body")
        self.settle()

    def pause_writing(self) -> None:
        super().pause_writing()
        if not self.signed_in:
            self._expect_within(UNREAD_S, "unread")
        self.settle()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self._is_idle:
            self._expect_nothing()
        self.settle()

    def send_400_response(self, msg: str) -> None:
        self._close_with(Refusal(msg, status=400, code="usage", hint="Send a request of HTTP/1.1."))

    def settle(self) -> None:
        """Updates whether this connection could be closed without losing the answer to a request."""
        stalled = not self.has_whole_request or self.flow.write_paused
        self._connections.set_waiting(self, self._is_idle or (stalled and not self.signed_in))

    def sign_in(self, signed_in: bool) -> None:
        self._connections.set_signed_in(self, signed_in)
        self.settle()

    def drop(self, why: Refusal) -> None:
        self._dropped = why
        if cast("asyncio.Transport | None", self.transport) is None or self.transport.is_closing():
            return
        if self.transport.get_write_buffer_size() or (not self._is_idle and self.cycle.response_started):
            self.transport.abort()
        elif self._begun:
            self._close_with(why)
        else:  # a browser that connects in advance would read a text as the answer to its next request
            self.transport.close()

    @property
    def _is_idle(self) -> bool:
        cycle = cast("Any", self.cycle)
        return cycle is None or cycle.response_complete

    def _expect_within(self, seconds: float, what: str) -> None:
        self._expect_nothing()
        self._deadline = self.loop.call_later(seconds, self._give_up, what)

    def _expect_nothing(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self, what: str) -> None:
        self._deadline = None
        self._connections.count(what)
        self._connections.remove(self)
        self.drop(Refusal("the request took too long to arrive", status=408, code="timeout", hint="Send it faster."))

    def _close_with(self, why: Refusal) -> None:
        self.transport.write(as_bytes(why))
        self.transport.close()


def as_bytes(refusal: Refusal) -> bytes:
    """An answer before any request, or to a request that was not read."""
    problem = problems.of(refusal)
    body = problems.encode(problem)
    fields = {
        "content-type": problems.MEDIA_TYPE,
        "content-length": str(len(body)),
        "cache-control": "no-store",
        "connection": "close",
        **problems.headers_of(refusal),
    }
    lines = [
        f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}",
        *(f"{k}: {v}" for k, v in fields.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body
