"""`/mcp`: the MCP server over streamable HTTP, for programs with a bearer token.

Each request stands alone: the server keeps nothing between two of them, so a client goes on after a restart, and on
another server of the same store. Therefore there is no stream to listen to (GET) and no session to end (DELETE). The
gate has checked host, origin, token, rate and size before.
"""

import asyncio
from typing import TYPE_CHECKING, Any, cast

from litestar import asgi
from litestar.exceptions import MethodNotAllowedException
from litestar.types import Receive, Scope, Send

from ...access import Access
from ...errors import Denied, MissingExtra
from ...runtime.engine import Held
from ..http.auth import Token
from ..http.problems import Refusal, unauthorized
from ..service import CALLER, Service
from . import importing

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from .serving import AnyContext

PATH = "/mcp"
BODY_MAX_BYTES = 1024 * 1024
"""A call of a tool: a few words. The largest is a page of them."""


class McpEndpoint:
    """The SDK's part, made at the first request: most servers never get one."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._making = asyncio.Lock()
        self._manager: StreamableHTTPSessionManager | None = None

    async def manager(self) -> "StreamableHTTPSessionManager":
        async with self._making:
            if self._manager is None:
                self._manager = await self._make()
            return self._manager

    async def _make(self) -> "StreamableHTTPSessionManager":
        await importing.load()
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from .serving import SessionServer

        manager = StreamableHTTPSessionManager(
            SessionServer(self._access_of).build(),
            json_response=True,
            stateless=True,
            max_request_body_size=BODY_MAX_BYTES,
        )
        held = await Held(manager.run()).ready()
        self._service.on_close(held.leave)
        return manager

    async def _access_of(self, ctx: "AnyContext") -> Access:
        request: Any = ctx.request
        token = cast("Token | None", request.scope.get(CALLER) if request is not None else None)
        if token is None:
            raise Denied("a token is needed")
        return self._service.acting_for(token.principal)


@asgi(PATH, copy_scope=True)
async def answer_mcp(scope: Scope, receive: Receive, send: Send) -> None:
    given = cast("dict[str, Any]", scope)
    if given["method"] != "POST":
        raise MethodNotAllowedException(headers={"Allow": "POST"})
    if not any(name == b"authorization" for name, _ in given["headers"]):
        hint = "Send Authorization: Bearer TOKEN; the page's cookie does not count here."
        raise unauthorized("a bearer token is needed", hint)
    state = scope["litestar_app"].state
    cast("Service", state.service).check_open()
    try:
        manager = await cast("McpEndpoint", state.mcp).manager()
    except MissingExtra as error:
        raise Refusal(str(error), status=404, code="not_found", hint=error.hint) from error
    await manager.handle_request(cast("Any", scope), cast("Any", receive), cast("Any", send))
