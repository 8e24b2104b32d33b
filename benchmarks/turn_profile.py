"""`make profile`: where the processor time of one warm turn goes, by library, HTTP and PostgreSQL.

The model is a stand-in that answers in six pieces and reports its usage, so everything shown is Turnlog's. Two figures
per surface: the processor time of a turn without a profiler (all threads of the process, and the thread of the event
loop alone), and, from a second run under cProfile, how that time divides among the parts of the package. The profiler
makes every call dearer, so its shares say where to look, and the first figure says what a turn costs.
"""

import argparse
import asyncio
import cProfile
import json
import os
import pstats
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)

import turnlog  # noqa: E402 - the path has to be set first
from benchmarks import postgres_server  # noqa: E402 - the path has to be set first
from benchmarks.clients import Client  # noqa: E402 - the path has to be set first
from turnlog.convlog import open_convlog  # noqa: E402 - the path has to be set first
from turnlog.core.entries import Assistant  # noqa: E402 - the path has to be set first
from turnlog.core.tokens import of_messages  # noqa: E402 - the path has to be set first
from turnlog.providers import Delta  # noqa: E402 - the path has to be set first
from turnlog.server.daily_usage import USAGE, DailyUsage  # noqa: E402 - the path has to be set first
from turnlog.server.http.auth import TOKEN_SPACES, Tokens  # noqa: E402 - the path has to be set first
from turnlog.server.http.idempotency import ANSWERS  # noqa: E402 - the path has to be set first
from turnlog.server.logs import open_log  # noqa: E402 - the path has to be set first
from turnlog.server.main import Server  # noqa: E402 - the path has to be set first
from turnlog.server.metrics import Metrics  # noqa: E402 - the path has to be set first
from turnlog.server.service import Service  # noqa: E402 - the path has to be set first

KEY = "agent:main:cli:direct:profile"
ANSWER = "This is what is known about it: the value is kept, and it belongs to the shelf that was named."
WARMUP = 20
SURFACES = ("memory", "jsonl", "sqlite", "http", "postgres")
Turn = Callable[[int], Awaitable[None]]


class SixPieces:
    """A model that costs nothing: six pieces, and a report of what a real one would have counted."""

    model = "six-pieces"
    window = 200_000
    takes: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.seen = 0

    async def stream(self, prompt) -> AsyncGenerator[Delta | Assistant]:
        step = len(ANSWER) // 6 + 1
        for at in range(0, len(ANSWER), step):
            yield Delta(text=ANSWER[at : at + step])
            await asyncio.sleep(0)
        self.seen = 40 * len(prompt.messages)
        usage = {"input_tokens": self.seen, "output_tokens": 25}
        yield Assistant(content=[{"type": "text", "text": ANSWER}], model=self.model, usage=usage, stop="end_turn")

    async def summarise(self, prompt) -> str:
        return f"They spoke of {of_messages(prompt.messages)} tokens worth of items and their values."

    async def close(self) -> None:
        """Nothing is open."""


def said(number: int) -> str:
    return f"note {number}: the value of item {number} is {number * 7}, and it belongs to shelf {number % 40}"


async def open_turns(surface: str, place: str, stack: AsyncExitStack) -> Turn:
    urls = {"memory": "memory:", "jsonl": f"jsonl:{place}/files", "postgres": ""}
    url = urls.get(surface, f"sqlite:{place}/sessions.db")
    if surface == "postgres":
        stack.enter_context(postgres_server.serving(os.environ))
        os.environ["PGHOST"] = os.environ[postgres_server.SOCKETS]
        url = f"postgresql://postgres@/{postgres_server.database(place)}"
    if surface == "http":
        return await _open_http(url, place, stack)
    t = await stack.enter_async_context(turnlog.open(url, home=place, provider=SixPieces()))

    async def one(number: int) -> None:
        async for _ in t.send(KEY, said(number)):
            pass

    return one


async def _open_http(url: str, place: str, stack: AsyncExitStack) -> Turn:
    t = await stack.enter_async_context(
        turnlog.open(url, home=place, provider=SixPieces(), server_port=0, server_rate=100_000)
    )
    convlog = await stack.enter_async_context(open_convlog(url))
    tokens = Tokens(t.ledger(*TOKEN_SPACES))
    service = Service(
        t,
        convlog,
        Metrics(),
        open_log(),
        tokens=tokens,
        answers=t.ledger(ANSWERS),
        usage=DailyUsage(t.sessions, t.ledger(USAGE)),
    )
    port = await stack.enter_async_context(Server(t, service).listening())
    _, text = await tokens.create("profile", ["admin"])
    client = await stack.enter_async_context(Client(port, f"Authorization: Bearer {text}\r\n"))

    async def one(number: int) -> None:
        body = json.dumps({"message": said(number), "sessionId": "profile"}).encode()
        _, answer = await client.ask("POST", "/api/agents/main/chat", body)
        assert b'"type":"done"' in answer

    return one


async def measure(surface: str, turns: int, profile: cProfile.Profile | None) -> dict[str, float]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        async with AsyncExitStack() as stack:
            one = await open_turns(surface, place, stack)
            for number in range(WARMUP):
                await one(number)
            before = SimpleNamespace(cpu=time.process_time(), loop=time.thread_time(), wall=time.perf_counter())
            if profile:
                profile.enable()
            for number in range(WARMUP, WARMUP + turns):
                await one(number)
            if profile:
                profile.disable()
            return {
                "cpu": (time.process_time() - before.cpu) / turns * 1e3,
                "loop": (time.thread_time() - before.loop) / turns * 1e3,
                "wall": (time.perf_counter() - before.wall) / turns * 1e3,
            }


def part_of(file: str) -> str:
    path = file.replace(os.sep, "/")
    if "/turnlog/" in path:
        inner = path.rpartition("/turnlog/")[2].removesuffix(".py").split("/")
        return "/".join(inner[:2]) if inner[0] in ("core", "server", "turns", "stores") else inner[0]
    if "/benchmarks/" in path:
        return "(the measurement)"
    for name in ("asyncio", "msgspec", "apsw", "psycopg", "litestar", "uvicorn", "contextlib"):
        if name in path:
            return f"({name})"
    return "(Python itself)" if path.startswith(("~", "<")) else "(other libraries)"


def shares(profile: cProfile.Profile, most: int) -> list[tuple[str, float, int]]:
    """Own time by part of the package, largest first, with the number of calls a turn."""
    spent: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for (file, _, name), (_, calls, own, _, callers) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        if name == "<method 'poll' of 'select.epoll' objects>":
            continue
        parts = [(part_of(file), own, calls)]
        if file == "~" and callers:  # what C code did for a part counts as that part's
            parts = [(part_of(by[0]), values[2], values[0]) for by, values in callers.items()]
        for part, seconds, count in parts:
            spent[part][0] += seconds
            spent[part][1] += count
    whole = sum(seconds for seconds, _ in spent.values())
    rows = [(part, 100 * seconds / whole, int(calls)) for part, (seconds, calls) in spent.items()]
    return sorted(rows, key=lambda row: -row[1])[:most]


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    reader.add_argument("surfaces", nargs="*", default=[], choices=[*SURFACES, []])
    reader.add_argument("--turns", type=int, default=200)
    reader.add_argument("--most", type=int, default=12, help="parts shown per surface")
    reader.add_argument("--functions", type=int, default=0, help="functions shown per surface, by cumulative time")
    asked = reader.parse_args()
    for surface in asked.surfaces or SURFACES:
        figures = asyncio.run(measure(surface, asked.turns, None))
        profile = cProfile.Profile(time.thread_time)
        asyncio.run(measure(surface, asked.turns, profile))
        print(
            f"\n{surface}: {figures['cpu']:.2f} ms of processor a turn, {figures['loop']:.2f} of it on the event loop; "
            f"{pstats.Stats(profile).total_calls / asked.turns:,.0f} function calls a turn"
        )
        for part, share, calls in shares(profile, asked.most):
            print(f"  {share:5.1f} %  {part}  ({calls / asked.turns:,.0f} calls a turn)")
        if asked.functions:
            pstats.Stats(profile).sort_stats("cumtime").print_stats("turnlog", asked.functions)


if __name__ == "__main__":
    main()
