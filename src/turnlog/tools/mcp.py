"""Tools of MCP servers, through the official SDK (extra `mcp`): programs with standard streams, or URLs.

Each server is connected once and shared by all sessions of this process. If a server dies or hangs, the running calls
get an error result, and the next call connects again. No call is repeated automatically, because it may have done its
work before the connection broke. The server's descriptions of its tools are shown to the model, up to a limit; its
hints on what may run in parallel are not trusted, and its claim that a tool only reads can be distrusted
(`trust_hints`).
"""

import asyncio
import hashlib
import json
import logging
import os
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct, field

from ..core import prompt, sections
from ..core.entries import Block, Content, text_block
from ..core.history import as_text, shorten
from ..errors import MissingExtra, TurnlogError, UsageError
from .base import NAME, TIMEOUT_S, Context, Effect, Tool

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult, ContentBlock, Tool as ServerTool

LIBRARIES = ("httpx2", "mcp", "mcp.client.stdio", "mcp.client.streamable_http")
"""Imported in a thread: it takes seconds, and other turns must not wait for it."""

CONNECT_TIMEOUT_S = 30.0
"""The time to start, initialise and list tools. Programs that install themselves on their first start need a while."""

TOOLS_MAX = 200
"""The most tools of one server. Each one is part of every prompt."""

DESCRIPTION_MAX_CHARS = 4_000
SCHEMA_MAX_CHARS = 50_000
"""Above this size the tool is offered without a schema."""

_CHANGED = re.compile(r"[^A-Za-z0-9_-]")
_SERVER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")


class McpSettings(Struct, frozen=True, kw_only=True):
    """`[mcp.NAME]`: either a command or a url."""

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict[str, str])
    """Added to the few variables that every program needs; no other variables, such as API keys, are passed on."""
    cwd: str | None = None
    url: str | None = None
    headers: dict[str, str] = field(default_factory=dict[str, str])
    timeout_s: float = TIMEOUT_S
    parallel: bool = False
    """Whether calls of its tools in one message may run at the same time."""
    trust_hints: bool = True
    """Whether its own claim that a tool only reads counts. Without it every tool of the server counts as writing."""


def parse_mcp(name: str, values: Mapping[str, Any]) -> McpSettings:
    if not _SERVER.fullmatch(name):
        raise UsageError(f"{name!r} cannot be the name of an MCP server", hint="Use up to 32 letters, digits, _ and -.")
    settings = sections.read(f"mcp.{name}", values, McpSettings, page="docs/how-to/tools.md")
    if (settings.command is None) == (settings.url is None):
        raise UsageError(f"[mcp.{name}] needs a command or a url, and not both", hint='Write command = "…".')
    if settings.timeout_s <= 0:
        raise UsageError(f"mcp.{name}.timeout_s must be above 0", hint="Give it in seconds.")
    return settings


@asynccontextmanager
async def mcp_tools(name: str, settings: McpSettings | Mapping[str, Any]) -> AsyncGenerator[list[Tool]]:
    """The server's tools, as `NAME_tool`, for as long as the block lasts."""
    known = settings if isinstance(settings, McpSettings) else parse_mcp(name, settings)
    _check_installed()
    server = _Server(name, known)
    try:
        yield [_as_tool(server, each) for each in await server.tools()]
    finally:
        await server.close()


def _check_installed() -> None:
    if find_spec("mcp") is None:
        raise MissingExtra("MCP servers need the package mcp", extra="mcp")
    # Without a handler Python prints the SDK's warnings, which quote the server's output, to the terminal.
    logging.getLogger("mcp").addHandler(logging.NullHandler())


class _Connection:
    """One connection, owned by one task: the SDK's scopes must be left by the task that entered them.

    A retired connection accepts no further calls and ends after the running ones.
    """

    def __init__(self, settings: McpSettings) -> None:
        self._settings = settings
        self._end = asyncio.Event()
        self._calls = 0
        self.is_retired = False
        self.ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._own())

    async def _own(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    client = await stack.enter_async_context(await _client(self._settings, stack))
                if not self.ready.done():
                    self.ready.set_result(client)
                await self._end.wait()
        except BaseException as error:
            # A failure after initialisation has reached the running calls; here it only happens while closing.
            if not self.ready.done():
                self.ready.set_exception(_unavailable(error))
                self.ready.exception()  # retrieved here, because the waiting caller may be gone
            if not isinstance(error, Exception):
                raise

    @asynccontextmanager
    async def use(self) -> AsyncGenerator["Client"]:
        self._calls += 1
        try:
            yield await asyncio.shield(self.ready)
        finally:
            self._calls -= 1
            self._end_if_unused()

    def retire(self) -> None:
        self.is_retired = True
        self._end_if_unused()

    def _end_if_unused(self) -> None:
        if self.is_retired and not self._calls:
            self._end.set()

    def end(self) -> None:
        self.is_retired = True
        self._end.set()
        if not self.ready.done():
            self.task.cancel()


async def _client(settings: McpSettings, stack: AsyncExitStack) -> "Client":
    for name in LIBRARIES:
        await asyncio.to_thread(import_module, name)
    import httpx2
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client

    if settings.url is not None:
        timeout = httpx2.Timeout(CONNECT_TIMEOUT_S, read=settings.timeout_s + CONNECT_TIMEOUT_S)
        http = await stack.enter_async_context(httpx2.AsyncClient(headers=settings.headers, timeout=timeout))
        return Client(
            streamable_http_client(settings.url, http_client=http), read_timeout_seconds=CONNECT_TIMEOUT_S, cache=None
        )
    # A server's standard error must not reach a terminal that shows a chat.
    silence = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, the stack closes it
    program = StdioServerParameters(
        command=settings.command or "", args=list(settings.args), env=settings.env, cwd=settings.cwd
    )
    return Client(stdio_client(program, errlog=silence), read_timeout_seconds=CONNECT_TIMEOUT_S, cache=None)


class _Server:
    """The current connection to one server, made when it is needed."""

    def __init__(self, name: str, settings: McpSettings) -> None:
        self.name = name
        self.settings = settings
        self._current: _Connection | None = None
        self._all: set[_Connection] = set()

    def _connection(self) -> _Connection:
        if self._current is None or self._current.is_retired:
            self._current = _Connection(self.settings)
            self._all.add(self._current)
            self._current.task.add_done_callback(partial(self._forget, self._current))
        return self._current

    def _forget(self, connection: _Connection, _: asyncio.Task[None]) -> None:
        connection.is_retired = True
        self._all.discard(connection)

    async def tools(self) -> list["ServerTool"]:
        connection = self._connection()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S), connection.use() as client:
                return await _list_tools(client)
        except Exception as error:
            reason = _reason(error)
            raise TurnlogError(
                f"the MCP server {self.name!r} cannot be used: {reason}",
                hint=f"Check [mcp.{self.name}] in the settings.",
            ) from error

    async def call(self, tool: str, given: dict[str, Any], _: Context) -> Content:
        from mcp import MCPError

        connection = self._connection()
        try:
            async with connection.use() as client:
                result = await client.call_tool(tool, given, read_timeout_seconds=self.settings.timeout_s)
        except MCPError as error:
            if _is_answer(error):
                raise UsageError(shorten(error.message, DESCRIPTION_MAX_CHARS)) from error
            raise self._lost(connection, error) from error
        except Exception as error:
            raise self._lost(connection, error) from error
        content = _content(result)
        if result.is_error:
            raise UsageError(as_text(content))
        return content

    def _lost(self, connection: _Connection, error: Exception) -> TurnlogError:
        connection.retire()
        return TurnlogError(
            f"the MCP server {self.name!r} failed: {_reason(error)}",
            hint="It is unknown whether the call had an effect. The next call connects again.",
        )

    async def close(self) -> None:
        ending = list(self._all)
        for connection in ending:
            connection.end()
        if ending:
            await asyncio.wait({connection.task for connection in ending})


def _is_answer(error: Any) -> bool:
    """Whether the server is healthy and refused this call. A forgotten HTTP session shows up as an invalid request."""
    from mcp.types import CONNECTION_CLOSED, INVALID_REQUEST, REQUEST_TIMEOUT

    return error.code not in (CONNECTION_CLOSED, INVALID_REQUEST, REQUEST_TIMEOUT)


def _unavailable(error: BaseException) -> TurnlogError:
    unavailable = TurnlogError(_reason(error))
    unavailable.__cause__ = error
    return unavailable


def _reason(error: BaseException) -> str:
    """The innermost exception of a group, in a few words; a program's path or a URL must not be shown to models."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if isinstance(error, TurnlogError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return shorten(str(getattr(error, "message", "")) or type(error).__name__, 500)


async def _list_tools(client: "Client") -> list["ServerTool"]:
    found: list[ServerTool] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        found.extend(page.tools)
        cursor = page.next_cursor
        if len(found) > TOOLS_MAX:
            raise UsageError(f"it has more than {TOOLS_MAX} tools")
        if not cursor:
            return found


def _as_tool(server: _Server, told: "ServerTool") -> Tool:
    text = told.description or told.title or ""
    spec = prompt.ToolDefinition(
        name=tool_name(server.name, told.name),
        description=shorten(text, DESCRIPTION_MAX_CHARS),
        input_schema=_schema(told.input_schema),
    )
    return Tool(
        spec=spec,
        run=partial(server.call, told.name),
        parallel=server.settings.parallel,
        # Longer than the limit of the call itself, which distinguishes a hanging server from a stopped turn.
        timeout_s=server.settings.timeout_s + CONNECT_TIMEOUT_S,
        effects=_effects(server.settings, told),
        place=hashlib.sha256(f"mcp {server.name}".encode()).hexdigest()[:16],
    )


def _effects(settings: McpSettings, told: "ServerTool") -> tuple[Effect, ...]:
    """What the server says of its tool. A tool of which it says nothing counts as writing."""
    hints = told.annotations
    if not settings.trust_hints or hints is None:
        return ("writes",)
    reads = getattr(hints, "read_only_hint", None) is True and getattr(hints, "destructive_hint", None) is not True
    return ("reads",) if reads else ("writes",)


def tool_name(server: str, tool: str) -> str:
    """`SERVER_tool`. A name that providers refuse is changed and made unique by a digest, the same every time."""
    name = f"{server}_{tool}"
    if NAME.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{_CHANGED.sub('_', name)[:55]}_{digest}"


def _schema(told: dict[str, Any]) -> dict[str, Any]:
    if len(json.dumps(told)) > SCHEMA_MAX_CHARS:
        told = {}
    return {"properties": {}, **told, "type": "object"}


def _content(result: "CallToolResult") -> Content:
    blocks = [_block(part) for part in result.content]
    if not blocks and result.structured_content is not None:
        return json.dumps(result.structured_content, ensure_ascii=False)
    if all(block["type"] == "text" for block in blocks):
        return "\n\n".join(block["text"] for block in blocks)
    return blocks


def _block(part: "ContentBlock") -> Block:
    """Links are shown and never followed; content that no model can read becomes a note."""
    match part.type:
        case "text":
            return text_block(part.text)
        case "image":
            return {"type": "image", "source": {"type": "base64", "media_type": part.mime_type, "data": part.data}}
        case "audio":
            return text_block(f"[sound, {part.mime_type}, {len(part.data) * 3 // 4:,} bytes]")
        case "resource_link":
            return text_block(f"[{part.title or part.name}: {part.uri}]")
        case "resource":
            return text_block(
                getattr(part.resource, "text", "") or f"[{part.resource.mime_type or 'file'}: {part.resource.uri}]"
            )
