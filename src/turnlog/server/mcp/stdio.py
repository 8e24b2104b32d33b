"""The MCP server on standard input and output, for a program that starts it: `turnlog mcp`.

With a token it has the rights of that token, which is looked up at each call: revoking it works at once. Without one it
acts for the local user, in the channels where this user's own programs talk (`LOCAL_PROGRAM`). It ends with its input.
"""

from typing import Any

from ...access import Access
from ...core.principals import LOCAL_PROGRAM
from ...errors import Denied
from ...library import Turnlog
from ..http.auth import TOKEN_SPACES, Tokens
from . import importing


async def serve(turnlog: Turnlog, token: str | None) -> None:
    """Serves until the input ends. Denied at once if the token is not valid."""
    await importing.load()
    from mcp.server.stdio import stdio_server

    from .serving import SessionServer

    tokens = Tokens(turnlog.ledger(*TOKEN_SPACES))

    async def access_of(_: Any) -> Access:
        if token is None:
            return turnlog.acting_for(LOCAL_PROGRAM)
        found = await tokens.of_bearer(token)
        if found is None:
            raise Denied(
                "this token is unknown, revoked or expired",
                hint="Create one with turnlog token create NAME --scope chat, and put it into TURNLOG_TOKEN.",
            )
        return turnlog.acting_for(found.principal)

    await access_of(None)
    server = SessionServer(access_of).build()
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
