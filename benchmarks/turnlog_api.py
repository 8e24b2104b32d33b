"""/v1/chat/completions in front of a stub: what is added before the upstream is called, the first piece, many clients.

The same three measurements work for any proxy that speaks this protocol (`peers.litellm_proxy`).
"""

import json
import statistics
import time

from benchmarks.clients import Client, load, used_ns
from benchmarks.turnlog_server import CHAT, Running, running
from benchmarks.upstream import Upstream, upstream

PATH = "/v1/chat/completions"
DONE = b"[DONE]"
WAIT_S = 0.05
TIMES = 15


def request(messages: list[dict]) -> bytes:
    return json.dumps({"model": "m", "stream": True, "messages": messages}, separators=(",", ":")).encode()


def history(messages: int, size_bytes: int) -> list[dict]:
    each = max(1, size_bytes // messages - 40)
    texts = [f"{number} " + "word " * (each // 5) for number in range(messages - 1)]
    said = [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(texts)]
    return said if messages % 2 == 0 else said[:-1]


async def added_by(
    port: int, head: str, behind: Upstream, messages: int, size_bytes: int, pid: int
) -> dict[str, float]:
    """From sending a request to its arrival at the upstream, for a client that resends everything.

    `before_us`: the server's processor time until then. `cpu_us`: that for a whole request.
    """
    past = history(messages, size_bytes)
    if past[-1]["role"] == "user":
        past = past[:-1]
    waits: list[float] = []
    used: list[float] = []
    arrived: list[int] = []
    behind.on_arrival = lambda: arrived.append(used_ns(pid))
    begun = 0
    async with Client(port, head) as client:
        for turn in range(TIMES):
            past.append({"role": "user", "content": f"Question {turn}"})
            body = request(past)
            at_rest = used_ns(pid)
            begun = at_rest if turn == 1 else begun  # the first request loads and stores what the others have
            begin = time.perf_counter_ns()
            await client.ask("POST", PATH, body)
            waits.append((behind.arrived_ns - begin) / 1e3)
            used.append((arrived[-1] - at_rest) / 1e3)
            past.append({"role": "assistant", "content": ("piece " * 8).strip()})
    return {
        "us": statistics.median(waits[1:]),
        "before_us": statistics.median(used[1:]),
        "cpu_us": (used_ns(pid) - begun) / (TIMES - 1) / 1e3,
    }


async def first_by(port: int, head: str, behind: Upstream) -> dict[str, float]:
    """How long the first piece of an answer needs through the proxy."""
    behind.wait_s, took = WAIT_S, []
    async with Client(port, head) as client:
        for turn in range(TIMES * 3):
            begin = time.perf_counter_ns()
            seen, _ = await client.ask("POST", PATH, request([{"role": "user", "content": f"Turn {turn}"}]))
            took.append((begin + seen.first_us * 1e3 - behind.sent_ns) / 1e3)
    return {"us": statistics.median(took)}


async def many_by(port: int, head: str, clients: int, turns: int) -> dict[str, float]:
    def ask(number: int, turn: int) -> tuple[str, bytes]:
        return PATH, request([{"role": "user", "content": f"Client {number}, turn {turn}"}])

    return await load(port, clients, turns, ask, done=DONE, head=head)


def relay(place: str, behind: Upstream):
    address = f"http://127.0.0.1:{behind.port}/v1"
    return running(place, OPENAI_BASE_URL=address, OPENAI_API_KEY="none", model="openai:m")


async def added(place: str, messages: int, size_bytes: int) -> dict[str, float]:
    async with upstream() as behind:
        with relay(place, behind) as server:
            return await added_by(server.port, server.head, behind, messages, size_bytes, server.process.pid)


async def first(place: str) -> dict[str, float]:
    async with upstream() as behind:
        with relay(place, behind) as server:
            return await first_by(server.port, server.head, behind)


async def many(place: str, clients: int, turns: int) -> dict[str, float]:
    async with upstream() as behind:
        with relay(place, behind) as server:
            before = _cpu(server)
            figures = await many_by(server.port, server.head, clients, turns)
            return figures | {"cpu_us": (_cpu(server) - before) / clients / (turns + 1) * 1e6}


async def native(place: str, clients: int, turns: int) -> dict[str, float]:
    """The same upstream behind the native route."""

    def ask(number: int, turn: int) -> tuple[str, bytes]:
        said = {"message": f"Client {number}, turn {turn}", "sessionId": f"client-{number}"}
        return CHAT, json.dumps(said).encode()

    async with upstream() as behind:
        with relay(place, behind) as server:
            before = _cpu(server)
            figures = await load(server.port, clients, turns, ask, done=b'"type":"done"', head=server.head)
            return figures | {"cpu_us": (_cpu(server) - before) / clients / (turns + 1) * 1e6}


def _cpu(server: Running) -> float:
    return server.cpu_s()
