"""google-adk's `api_server` with its own default store (SQLite) and a model that costs nothing, as Turnlog's has.

At 64 clients some of its turns fail, since the database is locked: only whole ones count.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from benchmarks.clients import Client, load
from benchmarks.workload import answer_pieces, make_turns

AGENT = """
import asyncio

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.genai import types


def text(said):
    return types.Content(role="model", parts=[types.Part(text=said)])


class AtOnce(BaseLlm):
    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False):
        for piece in {pieces!r}:
            yield LlmResponse(content=text(piece), partial=True)
            await asyncio.sleep(0)
        used = types.GenerateContentResponseUsageMetadata(prompt_token_count=40, candidates_token_count=25)
        yield LlmResponse(content=text("".join({pieces!r})), usage_metadata=used, turn_complete=True)


root_agent = LlmAgent(name="bench", model=AtOnce(model="at-once"), instruction="Answer.")
"""
START_S = 60


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


@contextmanager
def server(place: str):
    agents = Path(place) / "agents"
    (agents / "bench").mkdir(parents=True)
    (agents / "bench" / "__init__.py").write_text("from . import agent\n", encoding="utf-8")
    (agents / "bench" / "agent.py").write_text(AGENT.format(pieces=answer_pieces()), encoding="utf-8")
    port = free_port()
    command = [str(Path(sys.executable).parent / "adk"), "api_server", "--port", str(port), "--no-reload", str(agents)]
    with (Path(place) / "log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=place, env=os.environ | {"LOG_LEVEL": "ERROR"})
    try:
        wait_for(process, port, Path(place) / "log")
        yield port
    finally:
        process.kill()
        process.wait()


def wait_for(process: subprocess.Popen, port: int, log: Path) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError("api_server did not start: " + log.read_text(encoding="utf-8")[-300:])


async def make_sessions(port: int, clients: int) -> None:
    async def make(number: int) -> None:
        async with Client(port) as client:
            await client.ask("POST", f"/apps/bench/users/user/sessions/s{number}", b"{}")

    for number in range(clients):  # one by one: at once some are refused, since the database is locked
        await make(number)


async def turns(place: str, clients: int, turns: int) -> dict[str, float]:
    def ask(number: int, turn: int) -> tuple[str, bytes]:
        message = {"role": "user", "parts": [{"text": make_turns()[turn][0]}]}
        who = {"app_name": "bench", "user_id": "user", "session_id": f"s{number}", "streaming": True}
        return "/run_sse", json.dumps(who | {"new_message": message}).encode()

    with server(place) as port:
        await make_sessions(port, clients)
        await asyncio.sleep(1)
        return await load(port, clients, turns, ask, done=b'"turnComplete":true')
