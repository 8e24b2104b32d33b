"""langgraph `AsyncPostgresSaver`: a checkpoint is the whole message list, so an append costs the session, not the turn.

Promises: committed when `aput` returns, a transaction for each of its two rows. Called without a graph around it, which
would only add to the cost, and on sessions that begin empty. A saver for each session, on one pool of connections: a
saver lets only one call through at a time.
"""

import asyncio
import time

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from benchmarks import postgres_server
from benchmarks.peers.langgraph_sqlite import messages_of
from benchmarks.workload import turns

WARMUP_TURNS = 5


class Thread:
    def __init__(self, saver: AsyncPostgresSaver, number: int) -> None:
        self._saver = saver
        self._config = {"configurable": {"thread_id": f"bench-{number}", "checkpoint_ns": ""}}
        self._messages: list = []
        self._step = 0

    async def append(self, user: str, assistant: str) -> None:
        self._step += 1
        self._messages.extend(messages_of(user, assistant))
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {"messages": self._messages}
        checkpoint["channel_versions"] = {"messages": self._step}
        told = {"source": "loop", "step": self._step}
        self._config = await self._saver.aput(self._config, checkpoint, told, {"messages": self._step})


async def append_at_once(place: str, sessions: int, count: int) -> dict[str, float]:
    ready = asyncio.Barrier(sessions + 1)
    work = list(turns(count))
    url = postgres_server.url(postgres_server.database(place))
    options = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    async with AsyncConnectionPool(url, min_size=sessions, max_size=sessions, kwargs=options, open=False) as pool:
        await AsyncPostgresSaver(pool).setup()

        async def run(number: int) -> None:
            thread = Thread(AsyncPostgresSaver(pool), number)
            for turn in turns(WARMUP_TURNS):
                await thread.append(*turn)
            await ready.wait()
            for turn in work:
                await thread.append(*turn)

        async with asyncio.TaskGroup() as group:
            for number in range(sessions):
                group.create_task(run(number))
            await ready.wait()
            begin = time.perf_counter()
        return {"per_s": sessions * count / (time.perf_counter() - begin)}
