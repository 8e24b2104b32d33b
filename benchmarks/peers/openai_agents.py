"""openai-agents `SQLiteSession`: one row an item, WAL, SQLite's default `synchronous=FULL`.

Promises: a turn is on the disk when `add_items` returns. One lock a file within the process, SQLite's lock between
processes; nothing keeps two turns of one session apart. No weaker mode to choose, so both durability rows use it.
"""

import asyncio
import time
from pathlib import Path

from agents import SQLiteSession

from benchmarks.workload import summarise, time_turns_async, turns

SESSION = "bench"
AT_ONCE_WARMUP_TURNS = 10


def items(user: str, assistant: str) -> list[dict]:
    return [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]


def database(place: str) -> Path:
    return Path(place) / "sessions.db"


async def build(place: str, messages: int) -> dict[str, float]:
    session = SQLiteSession(SESSION, database(place))
    await session.add_items([item for turn in turns(messages // 2) for item in items(*turn)])
    session.close()
    return {}


async def append(place: str, count: int) -> dict[str, float]:
    session = SQLiteSession(SESSION, database(place))
    return await time_turns_async(lambda user, assistant: session.add_items(items(user, assistant)), count)


async def append_at_once(place: str, sessions: int, count: int) -> dict[str, float]:
    """It opens a connection for each session and thread; a few turns before the clock starts bring most of them up."""
    ready = asyncio.Barrier(sessions + 1)
    work = list(turns(count))

    async def run(number: int) -> None:
        session = SQLiteSession(f"bench-{number}", database(place))
        for turn in turns(AT_ONCE_WARMUP_TURNS):
            await session.add_items(items(*turn))
        await ready.wait()
        for turn in work:
            await session.add_items(items(*turn))

    async with asyncio.TaskGroup() as group:
        for number in range(sessions):
            group.create_task(run(number))
        await ready.wait()
        begin = time.perf_counter()
    return {"per_s": sessions * count / (time.perf_counter() - begin)}


async def resume(place: str, keep: int | None, times: int) -> dict[str, float]:
    """The newest `keep` items (it has no summary to add), or all of them."""
    samples = []
    for _ in range(times):
        session = SQLiteSession(SESSION, database(place))
        begin = time.perf_counter_ns()
        assert await session.get_items(limit=keep)
        samples.append(time.perf_counter_ns() - begin)
        session.close()
    return summarise(samples)
