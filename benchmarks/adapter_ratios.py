"""The adapters of agent frameworks beside each framework's own SQLite store, call by call, in one process.

    python -m benchmarks.adapter_ratios [--rounds 300] [--only agents/append] [--folder FOLDER]

`make bench` times one store after the other, each in a process of its own; on a busy machine two such figures cannot be
compared. Here the two calls of a row alternate, so that both meet the same load. Each row prints the time of the
framework's own store, and how many times as much Turnlog takes: of the wall clock at the tenth percentile and the
median, and of the processor, over all threads of the process, at the median. Both stores sync before a write returns
(SQLite's `synchronous=FULL`). `first` is the first read of a session after its store was opened.

It needs Turnlog with the extras of the frameworks, and `langgraph-checkpoint-sqlite`. Frameworks that are not installed
are left out.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import adapters_side as side
from benchmarks.workload import turns

WARMUP = 20
"""Calls that are not counted."""
KEPT = 40
"""Of the newest items."""
Call = Callable[[], Awaitable[object]]


class Sample(NamedTuple):
    wall_ns: int
    processor_ns: int


class Row(NamedTuple):
    name: str
    goal: float | None
    prepare: Callable[[str, int], Awaitable[tuple[Call, Call]]]
    """(a call of the framework's own store, the same call of ours), from a folder and the number of rounds."""
    rounds: int
    """For each 100 of `--rounds`."""


async def timed(call: Call) -> Sample:
    processor, wall = time.process_time_ns(), time.perf_counter_ns()
    await call()
    return Sample(time.perf_counter_ns() - wall, time.process_time_ns() - processor)


async def alternate(own: Call, ours: Call, rounds: int) -> tuple[list[Sample], list[Sample]]:
    found: tuple[list[Sample], list[Sample]] = [], []
    for number in range(rounds + WARMUP):
        # Whoever comes second finds the processor's caches as the other left them: so they take turns.
        order = [(own, found[0]), (ours, found[1])]
        for call, samples in order if number % 2 else reversed(order):
            samples.append(await timed(call))
    return found[0][WARMUP:], found[1][WARMUP:]


def quantile(values: Iterator[int], part: float) -> float:
    ordered = sorted(values)
    return ordered[int(len(ordered) * part)]


def told(row: Row, own: list[Sample], ours: list[Sample]) -> str:
    p10, p50 = (
        quantile((one.wall_ns for one in ours), part) / quantile((one.wall_ns for one in own), part)
        for part in (0.1, 0.5)
    )
    processor = [statistics.median(one.processor_ns for one in samples) for samples in (own, ours)]
    wall = statistics.median(one.wall_ns for one in own)
    goal = "" if row.goal is None else f"{row.goal:.1f}"
    return (
        f"{row.name:<24}{goal:>5}{p10:>8.2f}{p50:>8.2f}{processor[1] / processor[0]:>11.2f}"
        f"{wall / 1e3:>12.0f}{processor[0] / 1e3:>14.0f}"
    )


HEAD = f"{'':<24}{'goal':>5}{'p10':>8}{'p50':>8}{'processor':>11}{'own p50, µs':>12}{'own proc., µs':>14}"


def appending(messages: int) -> Callable[[str, int], Awaitable[tuple[Call, Call]]]:
    async def prepare(folder: str, rounds: int) -> tuple[Call, Call]:
        def call(own: bool) -> Call:
            session, texts = side.agents_session(folder, own), cycle(turns(512))
            return lambda: session.add_items(side.items(*next(texts)))

        await built(folder, messages)
        return call(own=True), call(own=False)

    return prepare


def popping(messages: int) -> Callable[[str, int], Awaitable[tuple[Call, Call]]]:
    async def prepare(folder: str, rounds: int) -> tuple[Call, Call]:
        await built(folder, messages + rounds + WARMUP)
        return side.agents_session(folder, True).pop_item, side.agents_session(folder, False).pop_item

    return prepare


def reading(messages: int, limit: int | None) -> Callable[[str, int], Awaitable[tuple[Call, Call]]]:
    async def prepare(folder: str, rounds: int) -> tuple[Call, Call]:
        await built(folder, messages)
        own, ours = side.agents_session(folder, True), side.agents_session(folder, False)
        return lambda: own.get_items(limit), lambda: ours.get_items(limit)

    return prepare


def first_reading(messages: int) -> Callable[[str, int], Awaitable[tuple[Call, Call]]]:
    async def prepare(folder: str, rounds: int) -> tuple[Call, Call]:
        await built(folder, messages)

        def call(own: bool) -> Call:
            sessions = iter([side.agents_session(folder, own) for _ in range(rounds + WARMUP)])

            async def read() -> None:
                session = next(sessions)
                assert await session.get_items()
                forget_kept()

            return read

        return call(own=True), call(own=False)

    return prepare


def forget_kept() -> None:
    """As in a process that has just opened the store."""
    from turnlog.adapters import kept_entries

    kept_entries._kept.clear()


async def built(folder: str, messages: int) -> None:
    for own in (True, False):
        await side.agents_build(folder, own, messages)
    await indexed(folder)


async def indexed(folder: str) -> None:
    """Makes what was built searchable, which Turnlog otherwise does in the pauses of the rounds."""
    import turnlog

    async with turnlog.open(f"sqlite:{folder}/turnlog.db") as t:
        await t.store.search("nothing")


async def invoking(folder: str, rounds: int) -> tuple[Call, Call]:
    texts = cycle(turns(512))

    def call(own: bool) -> Call:
        graph = side.graph_of(side.saver_of(folder, own))

        async def invoke() -> None:
            graph.invoke({"messages": [("user", next(texts)[0])]}, side.CONFIG)

        return invoke

    for own in (True, False):
        side.graph_build(folder, own, 300 - WARMUP - rounds // 2)  # 600 messages in the middle of the rounds
    await indexed(folder)
    return call(own=True), call(own=False)


async def adk_built(folder: str, kind: str) -> tuple[Any, Any]:
    for one in (kind, "turnlog"):
        await side.adk_build(folder, one, 200)
    await indexed(folder)
    return side.adk_service(folder, kind), side.adk_service(folder, "turnlog")


def adk_appending(kind: str) -> Callable[[str, int], Awaitable[tuple[Call, Call]]]:
    async def prepare(folder: str, rounds: int) -> tuple[Call, Call]:
        calls: list[Call] = []
        for service in await adk_built(folder, kind):
            session, texts = await service.get_session(**side.WHO), cycle(turns(512))
            events = (event for turn in texts for event in side.adk_events(*turn))
            calls.append(lambda service=service, session=session, events=events: append(service, session, next(events)))
        return calls[0], calls[1]

    async def append(service: Any, session: Any, event: Any) -> None:
        await service.append_event(session, event)

    return prepare


async def adk_reading(folder: str, rounds: int) -> tuple[Call, Call]:
    own, ours = await adk_built(folder, "sqlite")
    return lambda: own.get_session(**side.WHO), lambda: ours.get_session(**side.WHO)


ROWS = {
    "agents": [
        Row("agents/append/1000", 1.0, appending(1_000), 100),
        Row("agents/append/10000", 1.0, appending(10_000), 100),
        Row("agents/pop/1000", 1.5, popping(1_000), 100),
        Row("agents/pop/10000", 1.5, popping(10_000), 100),
        Row("agents/newest/10000", 1.5, reading(10_000, KEPT), 100),
        Row("agents/all/10000", 1.0, reading(10_000, None), 10),
        Row("agents/first/1000", None, first_reading(1_000), 20),
        Row("agents/first/10000", None, first_reading(10_000), 10),
    ],
    "langgraph": [Row("langgraph/invoke/600", 1.0, invoking, 30)],
    "google.adk": [
        Row("adk/append/sqlite", 0.4, adk_appending("sqlite"), 60),
        Row("adk/append/database", 0.2, adk_appending("database"), 60),
        Row("adk/get/200", 1.0, adk_reading, 30),
    ],
}


async def measure(row: Row, rounds: int, place: str | None) -> str:
    with tempfile.TemporaryDirectory(dir=place) as folder:
        rounds = max(10, rounds * row.rounds // 100)
        own, ours = await row.prepare(folder, rounds)
        return told(row, *await alternate(own, ours, rounds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--only", default="", help="rows whose names contain this")
    parser.add_argument("--folder", help="where the stores are made; default: a temporary folder")
    chosen = parser.parse_args()
    place = None if chosen.folder is None else str(Path(chosen.folder).expanduser())
    print(HEAD, flush=True)
    for framework, rows in ROWS.items():
        for row in rows if find_spec(framework) else ():
            if chosen.only in row.name:
                print(asyncio.run(measure(row, chosen.rounds, place)), flush=True)


if __name__ == "__main__":
    main()
