"""Clients of an HTTP server: each with a connection of its own, sending turn after turn and reading each to its end.

As light as they can be, since they run on the machine that they measure: no library, no parsing beyond what tells that
an answer is whole.
"""

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

END = b"\r\n0\r\n\r\n"
"""Of a chunked body."""
WAIT_S = 120


@dataclass(frozen=True)
class Turn:
    first_us: float
    whole_us: float


class Client:
    """One connection, kept open."""

    def __init__(self, port: int, head: str = "") -> None:
        self._port = port
        self._head = head

    async def __aenter__(self) -> "Client":
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[Turn, bytes]:
        """The answer, headers included."""
        lines = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n{self._head}"
        if body:
            lines += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        begin = time.perf_counter_ns()
        self._writer.write(lines.encode() + b"\r\n" + body)
        seen, first = b"", 0
        while not _is_whole(seen):
            piece = await asyncio.wait_for(self._reader.read(65536), WAIT_S)
            if not piece:
                raise ConnectionError(f"the server hung up after {seen[-200:]!r}")
            seen += piece
            if not first and b"data: " in seen:
                first = time.perf_counter_ns()
        now = time.perf_counter_ns()
        return Turn(((first or now) - begin) / 1e3, (now - begin) / 1e3), seen


def _is_whole(seen: bytes) -> bool:
    head, blank, body = seen.partition(b"\r\n\r\n")
    if not blank:
        return False
    lower = head.lower()
    if b"content-length: " in lower:
        return len(body) >= int(lower.partition(b"content-length: ")[2].split(b"\r\n")[0])
    return seen.endswith(END)


Ask = Callable[[int, int], tuple[str, bytes]]
"""Client and turn → path and body."""


async def load(
    port: int | Sequence[int], clients: int, turns: int, ask: Ask, *, done: bytes, head: str = ""
) -> dict[str, float]:
    """Whole turns a second of this many clients at once, and how long the slowest hundredth took.

    `done` is in the answer of a whole turn; `failed` says how many were not. Several ports are several servers, which
    share the clients.
    """
    ports = [port] if isinstance(port, int) else port
    gate = asyncio.Event()
    told: list[Turn] = []

    async def talk(number: int) -> None:
        async with Client(ports[number % len(ports)], head) as client:
            await client.ask("POST", *ask(number, 0))  # the session's first turn, and what is loaded once
            ready.append(number)
            await gate.wait()
            for turn in range(1, turns + 1):
                took, answer = await client.ask("POST", *ask(number, turn))
                if done in answer:
                    told.append(took)

    ready: list[int] = []
    tasks = [asyncio.create_task(talk(number)) for number in range(clients)]
    while len(ready) < clients and not any(task.done() for task in tasks):
        await asyncio.sleep(0.01)
    begin = time.perf_counter()
    gate.set()
    await asyncio.gather(*tasks)
    took_s = time.perf_counter() - begin
    whole = sorted(turn.whole_us for turn in told)
    return {
        "per_s": len(told) / took_s,
        "failed": clients * turns - len(told),
        "us": statistics.median(whole),
        "p99_us": whole[int(len(whole) * 0.99)],
        "first_us": statistics.median(turn.first_us for turn in told),
    }


def used_s(pid: int) -> float:
    """Processor time of a process, all its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def used_ns(pid: int) -> int:
    """The same by the scheduler's own count, which is exact enough for a single request."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text(encoding="ascii").split()[0]) for task in tasks)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
