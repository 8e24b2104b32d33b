"""The adapters of agent frameworks beside each framework's own SQLite store, call by call, in one process.

    python -m benchmarks.adapter_ratios [--rounds 300] [--only agents/append] [--folder FOLDER]

The two calls of a row alternate, so that both meet the same load: two processes one after the other cannot be compared
on a busy machine. Each row prints the time of the framework's own store, and how many times as much Turnlog takes: of
the wall clock at the tenth percentile and the median, and of the processor, over all threads of the process, at the
median. Both stores sync before a write returns (SQLite's `synchronous=FULL`). `first` is the first read of a session
after its store was opened. `make bench` measures the same rows.

It needs Turnlog with the extras of the frameworks, and `langgraph-checkpoint-sqlite`. Frameworks that are not installed
are left out.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import adapters_side as side
from benchmarks.workload import summarise, turns

WARMUP = 20
"""Calls that are not counted."""
KEPT = 40
"""Of the newest items."""
INVOCATIONS = 300
"""Of a graph: a thread of twice as many messages."""
ADK_EVENTS = 200
"""In the sessions of ADK."""
Call = Callable[[], Awaitable[object]]
Calls = Callable[[str, int], Awaitable[tuple[Call, Call]]]
"""A call of the framework's own store and the same call of ours, from a prepared folder and the number of rounds."""


class Sample(NamedTuple):
    wall_ns: int
    processor_ns: int


class Row(NamedTuple):
    name: str
    work: str
    goal: float | None
    built: str
    """Which of BUILT its folder is prepared by."""
    calls: Calls
    rounds: int


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


async def build_agents(folder: str, messages: int) -> None:
    for own in (True, False):
        await side.agents_build(folder, own, messages)
    await make_searchable(folder)


async def build_graph(folder: str) -> None:
    for own in (True, False):
        side.graph_build(folder, own, INVOCATIONS)
    await make_searchable(folder)


async def build_adk(folder: str) -> None:
    for kind in ("sqlite", "database", "turnlog"):
        await side.adk_build(folder, kind, ADK_EVENTS)
    await make_searchable(folder)


async def make_searchable(folder: str) -> None:
    """What Turnlog otherwise does in the pauses of the rounds."""
    import turnlog

    async with turnlog.open(f"sqlite:{folder}/turnlog.db") as t:
        await t.store.search("nothing")


BUILT: dict[str, Callable[[str], Awaitable[None]]] = {
    "agents-1000": lambda folder: build_agents(folder, 1_000),
    "agents-10000": lambda folder: build_agents(folder, 10_000),
    "langgraph": build_graph,
    "adk": build_adk,
}


async def appending(folder: str, rounds: int) -> tuple[Call, Call]:
    def call(own: bool) -> Call:
        session, texts = side.agents_session(folder, own), cycle(turns(512))
        return lambda: session.add_items(side.items(*next(texts)))

    return call(own=True), call(own=False)


async def popping(folder: str, rounds: int) -> tuple[Call, Call]:
    return side.agents_session(folder, True).pop_item, side.agents_session(folder, False).pop_item


def reading(limit: int | None) -> Calls:
    async def calls(folder: str, rounds: int) -> tuple[Call, Call]:
        own, ours = side.agents_session(folder, True), side.agents_session(folder, False)
        return lambda: own.get_items(limit), lambda: ours.get_items(limit)

    return calls


async def first_reading(folder: str, rounds: int) -> tuple[Call, Call]:
    def call(own: bool) -> Call:
        sessions = iter([side.agents_session(folder, own) for _ in range(rounds + WARMUP)])

        async def read() -> None:
            session = next(sessions)
            assert await session.get_items()
            forget_kept()

        return read

    return call(own=True), call(own=False)


def forget_kept() -> None:
    """As in a process that has just opened the store."""
    from turnlog.adapters import kept_entries, threads

    kept_entries._kept.clear()
    threads._threads.clear()


async def invoking(folder: str, rounds: int) -> tuple[Call, Call]:
    texts = cycle(turns(512))

    def call(own: bool) -> Call:
        graph = side.graph_of(side.saver_of(folder, own))

        async def invoke() -> None:
            graph.invoke({"messages": [("user", next(texts)[0])]}, side.CONFIG)

        return invoke

    return call(own=True), call(own=False)


def newest_checkpoint(*, known: bool) -> Calls:
    """Each time by a new saver of an open store. `known`: whether the process has read the thread before."""

    async def calls(folder: str, rounds: int) -> tuple[Call, Call]:
        def call(own: bool) -> Call:
            savers = [side.saver_of(folder, own) for _ in range(rounds + WARMUP)]
            if not own:
                for saver in savers:
                    saver.get_tuple({"configurable": {"thread_id": "another"}})  # opens the store

            async def read() -> None:
                assert savers.pop().get_tuple(side.CONFIG)
                if not known:
                    forget_kept()

            return read

        return call(own=True), call(own=False)

    return calls


def adk_appending(kind: str) -> Calls:
    async def calls(folder: str, rounds: int) -> tuple[Call, Call]:
        found: list[Call] = []
        for service in (side.adk_service(folder, kind), side.adk_service(folder, "turnlog")):
            session = await service.get_session(**side.WHO)
            # Made before the rounds: making two events takes 50 µs, which neither service can help.
            made = iter([event for turn in turns((rounds + WARMUP) // 2 + 1) for event in side.adk_events(*turn)])
            found.append(lambda service=service, session=session, made=made: append(service, session, next(made)))
        return found[0], found[1]

    async def append(service: Any, session: Any, event: Any) -> None:
        await service.append_event(session, event)

    return calls


async def adk_reading(folder: str, rounds: int) -> tuple[Call, Call]:
    own, ours = side.adk_service(folder, "sqlite"), side.adk_service(folder, "turnlog")
    return lambda: own.get_session(**side.WHO), lambda: ours.get_session(**side.WHO)


def agents_rows(size: int) -> list[Row]:
    built, agents = f"agents-{size}", "openai-agents"
    at = f"at {size:,} items, compared with SQLiteSession"
    return [
        Row(f"agents/append/{size}", f"{agents}: add a turn {at}", 1.0, built, appending, 300),
        Row(f"agents/pop/{size}", f"{agents}: pop an item {at}", 1.5, built, popping, 300),
        Row(f"agents/newest/{size}", f"{agents}: the newest {KEPT} items {at}", 1.5, built, reading(KEPT), 300),
        Row(f"agents/all/{size}", f"{agents}: all items {at}", 1.0, built, reading(None), 30),
        Row(f"agents/first/{size}", f"{agents}: the first read of all items {at}", None, built, first_reading, 30),
    ]


THREAD = f"in a thread of {2 * INVOCATIONS} messages, compared with SqliteSaver"
ROWS = {
    "agents": [*agents_rows(1_000), *agents_rows(10_000)],
    "langgraph": [
        Row("graph/invoke", f"LangGraph: invoke {THREAD}", 1.0, "langgraph", invoking, 60),
        *(
            Row(f"graph/{name}", f"LangGraph: {work} {THREAD}", 2.0, "langgraph", newest_checkpoint(known=known), 30)
            for name, work, known in (
                ("first", "the newest checkpoint, first read of a process,", False),
                ("again", "the newest checkpoint by a new saver", True),
            )
        ),
    ],
    "google.adk": [
        Row(f"adk/append/{kind}", f"Google ADK: append an event, compared with {name}", goal, "adk", calls, 180)
        for kind, name, goal, calls in (
            ("sqlite", "SqliteSessionService", 0.4, adk_appending("sqlite")),
            ("database", "DatabaseSessionService", 0.2, adk_appending("database")),
        )
    ]
    + [
        Row(
            "adk/get/sqlite",
            f"Google ADK: a session of {ADK_EVENTS} events, compared with SqliteSessionService",
            1.0,
            "adk",
            adk_reading,
            90,
        )
    ],
}


def all_rows() -> list[Row]:
    return [row for rows in ROWS.values() for row in rows]


async def build(place: str, built: str) -> dict[str, float]:
    await BUILT[built](place)
    return {}


async def compare(place: str, row: str, rounds: int) -> dict[str, float]:
    """The medians of a prepared folder: `us` of ours, `own_us` of the framework's own store."""
    found = next(one for one in all_rows() if one.name == row)
    own, ours = await alternate(*await found.calls(place, rounds), rounds)
    return summarise([one.wall_ns for one in ours]) | {
        f"{name}_us": statistics.median(values) / 1e3
        for name, values in (
            ("own", [one.wall_ns for one in own]),
            ("processor", [one.processor_ns for one in ours]),
            ("own_processor", [one.processor_ns for one in own]),
        )
    }


def shown(row: Row, own: list[Sample], ours: list[Sample]) -> str:
    p10, p50 = (
        quantile([one.wall_ns for one in ours], part) / quantile([one.wall_ns for one in own], part)
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


def quantile(values: list[int], part: float) -> float:
    return sorted(values)[int(len(values) * part)]


async def measure(row: Row, rounds: int, place: str | None) -> str:
    with tempfile.TemporaryDirectory(dir=place) as folder:
        await BUILT[row.built](folder)
        rounds = max(10, rounds * row.rounds // 300)
        return shown(row, *await alternate(*await row.calls(folder, rounds), rounds))


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
