"""`turnlog serve` and its clients on one machine: complete SSE turns a second, the first event, streams that idle."""

import asyncio
import json
import os
import re
import resource
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.clients import Client, children, load, used_s
from benchmarks.workload import make_turns

PYTHON = os.environ.get("RUN_PYTHON", sys.executable)
START_S = 60
SETTLED_S = 0.3
"""Processes that use no processor for so long have started."""
DONE = b'"type":"done"'
CHAT = "/api/agents/main/chat"


class Running:
    """The server, where it listens, and the header that lets us in."""

    def __init__(
        self,
        place: str,
        *,
        store: str = "",
        durability: str = "os",
        model: str = "offline",
        program: str = "turnlog",
        workers: int = 1,
        **options: str,
    ) -> None:
        home = Path(place) / "home"
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("TURNLOG_", "ANTHROPIC", "OPENAI"))}
        environment = clean | {"TURNLOG_STORE_DURABILITY": durability, "TURNLOG_SERVER_RATE": "100000"} | options
        command = [PYTHON, "-m", program, "serve", "--home", str(home), "--port", "0", "--model", model]
        command += ["--store", store or f"sqlite:{place}/sessions.db", "--workers", str(workers)]
        self._said = Path(place) / "said"
        with self._said.open("w", encoding="utf-8") as out, (Path(place) / "log").open("w", encoding="utf-8") as log:
            self.process = subprocess.Popen(command, stdout=out, stderr=log, env=environment)
        self.port = self._port()
        self.head = f"Authorization: Bearer {(home / 'admin.token').read_text(encoding='utf-8').strip()}\r\n"

    def _port(self) -> int:
        end = time.monotonic() + START_S
        while time.monotonic() < end and self.process.poll() is None:
            if found := re.search(r"listening on \S+:(\d+)\n", self._said.read_text(encoding="utf-8")):
                return int(found[1])
            time.sleep(0.02)
        raise RuntimeError("turnlog serve did not start")

    def settle(self, workers: int) -> None:
        """Returns when all workers have started: a worker that still imports would count as work of the turns."""
        before = -1.0
        while len(children(self.process.pid)) < workers or self.cpu_s() > before:
            before = self.cpu_s()
            time.sleep(SETTLED_S)

    def resident_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024

    def cpu_s(self) -> float:
        """Of the process and of its workers."""
        return sum(map(used_s, (self.process.pid, *children(self.process.pid))))


@contextmanager
def running(place: str, **options: Any):
    server = Running(place, **options)
    try:
        yield server
    finally:
        server.process.kill()  # its workers end with it
        server.process.wait()


def ask(number: int, turn: int) -> tuple[str, bytes]:
    said = {"message": make_turns()[turn % 512][0], "sessionId": f"client-{number}"}
    return CHAT, json.dumps(said).encode()


async def turns(
    place: str, clients: int, turns: int, durability: str = "os", workers: int = 1, program: str = "turnlog"
) -> dict[str, float]:
    """`own_per_s`: turns a second of this many cores that only the server uses, by the processor time that it took."""
    with running(place, durability=durability, workers=workers, program=program) as server:
        server.settle(workers if workers > 1 else 0)
        before = server.cpu_s()
        figures = await load(server.port, clients, turns, ask, done=DONE, head=server.head)
        each_s = (server.cpu_s() - before) / clients / (turns + 1)
        return figures | {"cpu_us": each_s * 1e6, "own_per_s": workers / each_s}


async def idle(place: str, streams: int, seconds: float) -> dict[str, float]:
    """Memory of a server with this many live tails open, each of a session of its own, and what it does meanwhile."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    # Otherwise the limits follow from the number of files that a process may open here, which may be few.
    limits = {"TURNLOG_SERVER_CONNECTIONS": str(2 * streams), "TURNLOG_SERVER_CONNECTIONS_PER_TOKEN": str(2 * streams)}
    with running(place, **limits) as server:
        async with Client(server.port, server.head) as client:
            for number in range(streams):
                await client.ask("POST", *ask(number, 0))
        held = []
        for number in range(streams):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            path = f"/api/agents/main/sessions/client-{number}/events"
            writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{server.head}\r\n".encode())
            if b" 200 " not in (line := await reader.readline()):
                raise RuntimeError(f"stream {number} of {streams} was answered with {line!r}")
            held.append((reader, writer))
        await asyncio.sleep(2)
        before = server.cpu_s()
        await asyncio.sleep(seconds)
        busy = (server.cpu_s() - before) / seconds / (os.cpu_count() or 1)
        return {"mb": server.resident_mb(), "percent": 100 * busy}
