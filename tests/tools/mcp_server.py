"""A real MCP server for the tests: `python mcp_server.py [http PORT]`."""

import base64
import os
import sys
import time
from pathlib import Path

import anyio
from mcp import MCPError
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import AudioContent, EmbeddedResource, ResourceLink, TextContent, TextResourceContents

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
server = MCPServer("probe")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def pid() -> str:
    return str(os.getpid())


@server.tool()
def fail() -> str:
    raise ToolError("the machine is out of paper")


@server.tool()
def refuse() -> str:
    raise MCPError(code=-32050, message="not on a Sunday")


@server.tool()
async def hang(begun: str = "", until: str = "") -> str:
    """Says that it has begun by making a file, and ends when there is another."""
    if begun:
        Path(begun).touch()
    while not (until and Path(until).exists()):  # noqa: ASYNC110 - another process makes it
        await anyio.sleep(0.02)
    return "awake"


@server.tool()
def stuck() -> str:
    time.sleep(600)
    return "never"


@server.tool()
def die() -> str:
    os._exit(9)


@server.tool()
def picture() -> Image:
    return Image(data=PNG, format="png")


@server.tool(structured_output=False)
def parts() -> list:
    return [
        TextContent(type="text", text="words"),
        AudioContent(type="audio", data="AAAA", mime_type="audio/wav"),
        ResourceLink(type="resource_link", name="manual", uri="https://example.org/manual"),
        EmbeddedResource(type="resource", resource=TextResourceContents(uri="file:///x", text="inside")),
    ]


@server.tool()
def table() -> dict[str, int]:
    return {"灯": 1}


@server.tool()
def environment() -> str:
    return " ".join(sorted(os.environ))


@server.tool()
def noise() -> str:
    print("\x1b[31mnoise on stderr", file=sys.stderr, flush=True)
    print("noise on stdout", flush=True)
    return "done"


@server.tool()
async def header(ctx: Context) -> str:
    return ctx.headers.get("x-probe", "") if ctx.headers else ""


@server.tool(name="do.it/now")
def awkward() -> str:
    return "did it"


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        server.run("stdio")
