"""Imports the SDK and what uses it when first needed, in a thread: it takes a second, and nobody else must wait."""

import asyncio
import logging
from importlib import import_module
from importlib.util import find_spec

from ...errors import MissingExtra

LIBRARIES = ("mcp", "mcp.server.stdio", "mcp.server.streamable_http_manager", "turnlog.server.mcp.serving")


def check_installed() -> None:
    if find_spec("mcp") is None:
        raise MissingExtra("the MCP server needs the package mcp", extra="mcp")


async def load() -> None:
    """MissingExtra if the SDK is not installed."""
    check_installed()
    for name in LIBRARIES:
        await asyncio.to_thread(import_module, name)
    # Without a handler Python prints the SDK's warnings, which quote what clients send, to standard error.
    logging.getLogger("mcp").addHandler(logging.NullHandler())
