"""Turnlog's turns: what the engine adds to a model call, planning a compaction, many sessions at once."""

import asyncio
import time
from contextlib import aclosing

from msgspec.structs import replace

import turnlog
from benchmarks.workload import summarise
from turnlog.core import compaction, guard, history
from turnlog.core.compaction import Keep
from turnlog.core.guard import Limits
from turnlog.providers.offline import OfflineProvider
from turnlog.testing import answered, check_messages, opened, said

KEY = "agent:main:cli:direct:bench"
WARMUP = 5


class Timed(OfflineProvider):
    """The offline model, with the time it takes itself; its prompts are checked outside of that."""

    def __init__(self) -> None:
        super().__init__()
        self.spent_ns = 0
        self.checks = False

    async def stream(self, prompt):
        if self.checks:
            check_messages(prompt.messages)
        begin = time.perf_counter_ns()
        async with aclosing(super().stream(prompt)) as pieces:
            async for piece in pieces:
                self.spent_ns += time.perf_counter_ns() - begin
                yield piece
                begin = time.perf_counter_ns()
        self.spent_ns += time.perf_counter_ns() - begin

    async def summarise(self, prompt):
        begin = time.perf_counter_ns()
        try:
            return await super().summarise(prompt)
        finally:
            self.spent_ns += time.perf_counter_ns() - begin


def started(backend: str, place: str, provider: Timed):
    url = f"jsonl:{place}/files" if backend == "jsonl" else f"sqlite:{place}/sessions.db"
    return turnlog.open(url, home=place, provider=provider, store_durability="os")


async def one(t, number: int, key: str = KEY) -> None:
    text = f"note {number}: the value of item {number} is {number * 7}, and it belongs to shelf {number % 40}"
    async for _ in t.send(key, text):
        pass


async def build(place: str, backend: str, turns: int) -> dict[str, float]:
    async with started(backend, place, Timed()) as t:
        for number in range(turns):
            await one(t, number)
    return {}


async def turns(place: str, backend: str, count: int, at: int) -> dict[str, float]:
    """A turn without the model's own time; turns that compact are among them."""
    provider = Timed()
    samples = []
    async with started(backend, place, provider) as t:
        for number in range(count + WARMUP):
            begin, spent = time.perf_counter_ns(), provider.spent_ns
            await one(t, at + number)
            samples.append(time.perf_counter_ns() - begin - (provider.spent_ns - spent))
    kept = samples[WARMUP:]
    return summarise(kept) | {"mean_us": sum(kept) / len(kept) / 1e3}


async def plan(place: str, messages: int, times: int) -> dict[str, float]:
    """Where to cut a log of this many messages, and whether that is worth while."""
    talk = [said(f"question {n} " * 20) if n % 2 else answered(f"answer {n} " * 20) for n in range(1, messages + 1)]
    bodies = [opened("s"), *talk]
    log = [replace(body, seq=n) for n, body in enumerate(bodies, 1)]
    keep, limits = Keep("tokens", 20_000), Limits(window=200_000)
    cuts, whole = [], []
    for _ in range(times):
        begin = time.perf_counter_ns()
        assert compaction.plan(log, keep, size=compaction.sizer(history.survey(log)))
        cuts.append(time.perf_counter_ns() - begin)
        assert guard.worthwhile(log, limits)
        whole.append(time.perf_counter_ns() - begin - cuts[-1])
    return summarise(cuts) | {"worthwhile_us": summarise(whole)["us"]}


async def many(place: str, backend: str, sessions: int, each: int) -> dict[str, float]:
    provider = Timed()
    provider.checks = True
    async with started(backend, place, provider) as t:

        async def talk(number: int) -> None:
            for turn in range(each):
                await one(t, turn, f"agent:main:cli:direct:bench-{number}")

        begin = time.perf_counter()
        await asyncio.gather(*(talk(number) for number in range(sessions)))
        spent = time.perf_counter() - begin
        rows = [await t.session(f"agent:main:cli:direct:bench-{number}") for number in range(sessions)]
    assert all(row.turn_count == each and row.message_count == 2 * each for row in rows)
    return {"per_s": sessions * each / spent}
