"""openai-agents `SQLAlchemySession` on PostgreSQL, with asyncpg as its documentation has it.

Promises: a turn is committed when `add_items` returns. Rows of the session and of its items in one transaction; nothing
keeps two turns of one session apart.
"""

import asyncio
import time

from agents.extensions.memory import SQLAlchemySession
from sqlalchemy.ext.asyncio import create_async_engine

from benchmarks import postgres_server
from benchmarks.peers.openai_agents import items
from benchmarks.workload import turns

WARMUP_TURNS = 5


async def append_at_once(place: str, sessions: int, count: int) -> dict[str, float]:
    """A connection for each session, all open before the clock starts."""
    ready = asyncio.Barrier(sessions + 1)
    work = list(turns(count))
    url = postgres_server.url(postgres_server.database(place), "postgresql+asyncpg")
    engine = create_async_engine(url, pool_size=sessions, max_overflow=0)
    await SQLAlchemySession("tables", engine=engine, create_tables=True).get_items()

    async def run(number: int) -> None:
        session = SQLAlchemySession(f"bench-{number}", engine=engine)
        for turn in turns(WARMUP_TURNS):
            await session.add_items(items(*turn))
        await ready.wait()
        for turn in work:
            await session.add_items(items(*turn))

    async with asyncio.TaskGroup() as group:
        for number in range(sessions):
            group.create_task(run(number))
        await ready.wait()
        begin = time.perf_counter()
    took = time.perf_counter() - begin
    await engine.dispose()
    return {"per_s": sessions * count / took}
