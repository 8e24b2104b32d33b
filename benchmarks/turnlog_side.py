"""Turnlog at the same work: everything through its public interface, on each store."""

import asyncio
import statistics
import time
from pathlib import Path

from benchmarks import postgres_server
from benchmarks.workload import (
    COMMON_WORD,
    ENGLISH_WORD,
    QUESTIONS,
    WARMUP_TURNS,
    searchable_turns,
    summarise,
    time_turns_async,
    turns,
)
from turnlog import Query, Sessions, Store, open_store
from turnlog.core import history
from turnlog.core.entries import Assistant, Compaction, Entry, Opened, User

SESSION = "bench"
BUILD_BATCH_TURNS = 500
BUILD_AT_ONCE = 256
LIST_LIMIT = 50
USAGE = {"input_tokens": 1200, "output_tokens": 210}


def url(backend: str, place: str) -> str:
    if backend == "postgres":
        return postgres_server.url(postgres_server.database(place))
    return f"jsonl:{place}" if backend == "jsonl" else f"sqlite:{Path(place) / 'sessions.db'}"


def opening(session_id: str) -> Entry:
    return Opened(id=session_id, key=f"agent:main:cli:direct:{session_id}", agent="main", channel="cli")


def entries_of(user: str, assistant: str) -> list[Entry]:
    block = {"type": "text", "text": assistant}
    return [User(content=user), Assistant(content=[block], model="m", usage=USAGE, stop="end_turn")]


def compaction(last: int, keep: int) -> Entry:
    return Compaction(
        summary="What was said before. " * 40,
        first_kept=last - keep + 1,
        covers=(2, last - keep),
        tokens_before=100_000,
        tokens_after=10_000,
        model="m",
    )


async def build(
    place: str, backend: str, messages: int, keep: int | None = None, searchable: bool = False
) -> dict[str, float]:
    work = list((searchable_turns if searchable else turns)(messages // 2))
    async with open_store(url(backend, place), durability="os") as store:
        await store.append(SESSION, [opening(SESSION)])
        async with store.lease(SESSION) as lease:
            for first in range(0, len(work), BUILD_BATCH_TURNS):
                batch = [body for turn in work[first : first + BUILD_BATCH_TURNS] for body in entries_of(*turn)]
                await store.append(SESSION, batch, lease=lease)
            if keep is not None:
                await store.append(SESSION, [compaction(messages + 1, keep)], lease=lease)
    return {}


async def append(place: str, backend: str, durability: str, count: int) -> dict[str, float]:
    opened = open_store(url(backend, place), durability=durability)
    async with opened as store, store.lease(SESSION) as lease:
        return await time_turns_async(
            lambda user, assistant: store.append(SESSION, entries_of(user, assistant), lease=lease), count
        )


async def append_at_once(place: str, backend: str, sessions: int, count: int) -> dict[str, float]:
    """Turns a second of `sessions` sessions that append durably at the same time, in one process."""
    ready = asyncio.Barrier(sessions + 1)
    work = list(turns(count))

    async with open_store(url(backend, place), durability="full") as store:

        async def run(session_id: str) -> None:
            await store.append(session_id, [opening(session_id)])
            async with store.lease(session_id) as lease:
                await ready.wait()
                for turn in work:
                    await store.append(session_id, entries_of(*turn), lease=lease)

        async with asyncio.TaskGroup() as group:
            for number in range(sessions):
                group.create_task(run(f"bench-{number}"))
            await ready.wait()
            begin = time.perf_counter()
        appended_s = time.perf_counter() - begin
        figures = {"per_s": sessions * count / appended_s}
        if backend == "postgres":
            # What is appended in a burst is indexed after it; a search finds it at once.
            assert await store.search(COMMON_WORD)
            figures["searchable_per_s"] = sessions * count / (time.perf_counter() - begin)
            figures["indexed_per_s"] = sessions * count / (appended_s + await index_s(store))
        return figures


async def index_s(store: Store) -> float:
    """How long the store takes to index what was appended; otherwise it does so in a pause."""
    from turnlog.stores.postgres import search_index
    from turnlog.stores.postgres.store import PostgresStore

    assert isinstance(store, PostgresStore)
    begin = time.perf_counter()
    await search_index.catch_up(store._db)
    return time.perf_counter() - begin


def memory_mb(name: str) -> float:
    """`VmRSS`, what the process has now; `VmHWM`, the most it ever had."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(name)) / 1024


async def resume(place: str, backend: str, times: int) -> dict[str, float]:
    """Load and build on a store just opened; the memory is what the first of them adds at its peak."""
    samples = []
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew from here
    before = memory_mb("VmRSS")
    grown = 0.0
    for number in range(times):
        async with open_store(url(backend, place)) as store:
            sessions = Sessions(store)
            begin = time.perf_counter_ns()
            loaded = await sessions.load(SESSION)
            built = history.build(loaded.entries)
            samples.append(time.perf_counter_ns() - begin)
            assert built.messages
            if number == 0:
                grown = memory_mb("VmHWM") - before
    return summarise(samples[1:]) | {"mb": grown}


async def read_all(place: str, backend: str, times: int) -> dict[str, float]:
    reads, builds = [], []
    for _ in range(times):
        async with open_store(url(backend, place)) as store:
            begin = time.perf_counter_ns()
            entries = await store.read(SESSION)
            read = time.perf_counter_ns()
            built = history.build(entries)
            builds.append(time.perf_counter_ns() - begin)
            reads.append(read - begin)
            assert built.messages
            del entries, built
    return summarise(reads) | {"built_us": summarise(builds)["us"]}


async def build_many(place: str, backend: str, sessions: int) -> dict[str, float]:
    ids = [SESSION] + [f"other-{number:06d}" for number in range(sessions - 1)]
    async with open_store(url(backend, place), durability="os") as store:
        for first in range(0, sessions, BUILD_AT_ONCE):
            some = ids[first : first + BUILD_AT_ONCE]
            await asyncio.gather(*(store.append(session_id, [opening(session_id)]) for session_id in some))
    return {}


async def among(place: str, backend: str, count: int) -> dict[str, float]:
    """Open the store, list the newest, append to one session, among the sessions that are already there."""
    begin = time.perf_counter_ns()
    store = open_store(url(backend, place), durability="os")
    async with store as store:
        opened = time.perf_counter_ns() - begin
        lists = []
        for _ in range(10):
            begin = time.perf_counter_ns()
            page = await store.find(Query(limit=LIST_LIMIT))
            lists.append(time.perf_counter_ns() - begin)
            assert len(page.items) == LIST_LIMIT
        async with store.lease(SESSION) as lease:
            figures = await time_turns_async(
                lambda user, assistant: store.append(SESSION, entries_of(user, assistant), lease=lease),
                count,
                warmup=WARMUP_TURNS,
            )
    return figures | {"open_us": opened / 1e3, "list_us": summarise(lists)["us"], "first_list_us": lists[0] / 1e3}


async def search(place: str, backend: str, times: int) -> dict[str, float]:
    """The median of each question, the median of those, and the slowest."""
    figures = {}
    async with open_store(url(backend, place)) as store:
        # The first search also brings the index up to date with what was appended; that is not what is measured.
        assert await store.search(ENGLISH_WORD)
        for name, words in QUESTIONS.items():
            samples = []
            for _ in range(times):
                begin = time.perf_counter_ns()
                found = await store.search(words)
                samples.append(time.perf_counter_ns() - begin)
                assert bool(found) == (name != "nowhere")
            figures[f"{name}_us"] = summarise(samples)["us"]
    return figures | {"us": statistics.median(figures.values()), "slowest_us": max(figures.values())}
