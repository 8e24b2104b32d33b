"""Answers chat messages without the framework, which costs more for one message than the store does.

Only requests that leave nothing to decide take this way: POST, the path of an agent's chat, and a body that arrives in
one piece and is a `ChatBody`. Every other request goes to the framework with its body, and gets the framework's answer.
Both ways call `chat.answer_message`, and answer an error alike.
"""

import re
from collections.abc import Callable
from typing import Any, TypeAlias, cast

from litestar import Litestar, Request, Response
from litestar.types import ASGIApp, Receive, Scope, Send

from ...errors import UsageError
from ..http.bodies import AGENT, ChatBody, decode_body
from ..service import AnyRequest
from .chat import answer_message

_PATH = re.compile(f"/api/agents/({AGENT})/chat")
AnswerError: TypeAlias = Callable[[AnyRequest, Exception], Response[Any]]


class _ReadRequest(Request[Any, Any, Any]):
    """A request whose body was read."""

    def __init__(self, scope: Scope, receive: Receive, body: bytes) -> None:
        super().__init__(scope, receive)
        self._read_body = body

    async def body(self) -> bytes:
        return self._read_body


class DirectChat:
    """`answer_error`: what the framework calls with an error."""

    def __init__(self, framework: Litestar, answer_error: AnswerError) -> None:
        self._framework = framework
        self._answer_error = answer_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = _PATH.fullmatch(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if found is None:
            await self._framework(cast("Any", scope), receive, send)
            return
        scope["litestar_app"] = self._framework
        cast("dict[str, Any]", scope).setdefault("state", {})
        answer: ASGIApp | None = None
        try:
            first: Any = await receive()
            if data := _message_in(first):
                answer = await answer_message(_ReadRequest(scope, receive, first["body"]), found[1], data)
        except Exception as error:  # noqa: BLE001 - the outermost edge
            await self._refuse(error, scope, receive, send)
            return
        if answer is not None:
            await answer(scope, receive, send)
        else:
            await self._framework(cast("Any", scope), _again(first, receive), send)

    async def _refuse(self, error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
        request: AnyRequest = Request(scope, receive, send)
        response: Any = self._answer_error(request, error)
        answer: ASGIApp = response.to_asgi_response(app=None, request=request, type_encoders={})
        await answer(scope, receive, send)


def _message_in(first: Any) -> ChatBody | None:
    """None if the body is not whole, or is not a message: the framework says what is wrong with it."""
    if first["type"] != "http.request" or first.get("more_body", False):
        return None
    try:
        return cast("ChatBody", decode_body(first["body"], ChatBody))
    except UsageError:
        return None


def _again(first: Any, receive: Receive) -> Receive:
    """Receives this message, and then what comes."""
    pending = [first]

    async def received() -> Any:
        return pending.pop() if pending else await receive()

    return cast("Receive", received)
