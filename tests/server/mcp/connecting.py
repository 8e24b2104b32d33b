"""The official SDK's client, connected as other programs are: by a process of its own, or over HTTP."""

import os
import sys
from contextlib import asynccontextmanager

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.waiting import GIVES_UP_S


def clean_environment(**more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TURNLOG_", "COV_"))}
    return {**kept, **more}


@asynccontextmanager
async def over_stdio(home, *args, **env):
    program = StdioServerParameters(
        command=sys.executable, args=["-m", "turnlog", "mcp", "--home", str(home), *args], env=clean_environment(**env)
    )
    async with Client(stdio_client(program), read_timeout_seconds=GIVES_UP_S, cache=None) as client:
        yield client


@asynccontextmanager
async def over_http(base, token, *, mode="auto", **headers):
    own = {"Authorization": f"Bearer {token}", **headers}
    async with httpx2.AsyncClient(headers=own, timeout=GIVES_UP_S, trust_env=False, verify=False) as http:
        transport = streamable_http_client(f"{base}/mcp", http_client=http)
        async with Client(transport, mode=mode, read_timeout_seconds=GIVES_UP_S, cache=None) as client:
            yield client


async def found(client, words):
    """The texts that a search finds."""
    answer = await client.call_tool("search", {"words": words})
    assert not answer.is_error, answer
    return [hit["text"] for hit in answer.structured_content["hits"]]
