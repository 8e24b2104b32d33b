"""The MCP server on standard input and output, for a program that starts it: `turnlog mcp`.

With a token it has the rights of that token, which is looked up at each call: revoking it works at once. Without one it
acts for the local user, in the channels where this user's own programs talk (`LOCAL_PROGRAM`). It ends with its input.
"""

from ...access import Access
from ...core.principals import LOCAL_PROGRAM
from ...errors import Denied
from ...library import Turnlog
from ..http.auth import TOKEN_SPACES, Tokens
from . import importing
from .serving import AnyContext, SessionServer


class StdioCaller:
    """The person who started the process."""

    def __init__(self, turnlog: Turnlog, token: str | None) -> None:
        self._turnlog = turnlog
        self._tokens = Tokens(turnlog.ledger(*TOKEN_SPACES))
        self._token = token

    async def access(self) -> Access:
        if self._token is None:
            return self._turnlog.acting_for(LOCAL_PROGRAM)
        token = await self._tokens.of_bearer(self._token)
        if token is None:
            raise Denied(
                "this token is unknown, revoked or expired",
                hint="Create one with turnlog token create NAME --scope chat, and put it into TURNLOG_TOKEN.",
            )
        return self._turnlog.acting_for(token.principal)


async def serve(turnlog: Turnlog, token: str | None) -> None:
    """Serves until the input ends. Denied at once if the token is not valid."""
    await importing.load()
    from mcp.server.stdio import stdio_server

    caller = StdioCaller(turnlog, token)
    await caller.access()

    async def access_of(_: AnyContext) -> Access:
        return await caller.access()

    server = SessionServer(access_of).build()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
