"""Turnlog on PostgreSQL where it differs from the embedded stores: several servers on one database, a resume.

Its appends come from turnlog_side, which takes the backend `postgres` like any other.
"""

import asyncio
import os
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks import postgres_server
from benchmarks.clients import Client, load
from benchmarks.round_trips import counting
from benchmarks.turnlog_server import DONE, Running, ask, running
from benchmarks.turnlog_side import SESSION
from benchmarks.workload import summarise, time_turns
from turnlog import Query, Sessions, open_store
from turnlog.core import history


def start(stack: ExitStack, place: str, servers: int) -> list[Running]:
    """All on one database, all with the first one's token."""
    store = postgres_server.url(postgres_server.database(place))
    started: list[Running] = []
    for number in range(servers):
        home = Path(place) / str(number) / "home"
        home.mkdir(parents=True)
        if started:
            (home / "admin.token").write_bytes((Path(place) / "0" / "home" / "admin.token").read_bytes())
        started.append(stack.enter_context(running(str(home.parent), store=store, durability="full")))
    return started


def idle_s() -> float:
    """Of all cores together: what nobody on this machine used, or only waited for the disk with."""
    fields = Path("/proc/stat").read_text(encoding="ascii").split(maxsplit=8)
    return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")


async def serve(place: str, servers: int, clients: int, turns: int) -> dict[str, float]:
    """Complete SSE turns a second, and the processor time a turn takes in the servers, the database and the clients."""
    with ExitStack() as stack:
        started = start(stack, place, servers)

        def used() -> tuple[float, float, float]:
            return sum(server.cpu_s() for server in started), postgres_server.cpu_s(), time.process_time()

        begin, before, idle = time.perf_counter(), used(), idle_s()
        ports = [server.port for server in started]
        figures = await load(ports, clients, turns, ask, done=DONE, head=started[0].head)
        spent = [after - earlier for after, earlier in zip(used(), before, strict=True)]
        cores = (time.perf_counter() - begin) * (os.cpu_count() or 1)
        left = idle_s() - idle
    each = [seconds / clients / (turns + 1) * 1e6 for seconds in spent]
    busy = {"percent": sum(spent) / cores * 100, "idle_percent": left / cores * 100}
    return figures | dict(zip(("servers_us", "postgres_us", "clients_us"), each, strict=True)) | busy


async def round_trips(place: str, turns: int) -> dict[str, float]:
    """How often a server waits for PostgreSQL in a turn of one client, including what it does outside of the turn."""
    name, sockets = postgres_server.database(place), Path(place).absolute()
    store = f"postgresql://postgres@/{name}?host={sockets}"
    async with counting(os.environ[postgres_server.SOCKETS], sockets) as trips:
        with ExitStack() as stack:
            started = running(place, store=store, durability="full")
            server = await asyncio.to_thread(stack.enter_context, started)  # the socket is served here meanwhile
            async with Client(server.port, server.head) as client:
                await client.ask("POST", *ask(0, 0))
                await asyncio.to_thread(server.settle, 0)  # a first start counts the days before it
                before, used = trips.count, server.cpu_s()
                for turn in range(1, turns + 1):
                    _, answer = await client.ask("POST", *ask(0, turn))
                    assert DONE in answer
                spent_s = server.cpu_s() - used
                return {"trips": (trips.count - before) / turns, "servers_us": spent_s / turns * 1e6}


def statement(place: str, count: int) -> dict[str, float]:
    """One connection that stores a turn by one statement, which commits: two rows, and nothing else."""
    import psycopg

    with psycopg.connect(postgres_server.url(postgres_server.database(place)), autocommit=True) as connection:
        connection.execute("CREATE TABLE messages (id bigint GENERATED ALWAYS AS IDENTITY, role text, content text)")

        def store(user: str, assistant: str) -> None:
            connection.execute(
                "INSERT INTO messages (role, content) VALUES ('user', %s), ('assistant', %s)", (user, assistant)
            )

        figures = time_turns(store, count)
    return figures | {"per_s": 1e6 / figures["mean_us"]}


async def resume(place: str, times: int) -> dict[str, float]:
    """Load and build, by somebody who knows nothing of the session yet; the connection is open, as in every row."""
    samples = []
    async with open_store(postgres_server.url(postgres_server.database(place))) as store:
        await store.find(Query(limit=1))
        for _ in range(times):
            begin = time.perf_counter_ns()
            loaded = await Sessions(store).load(SESSION)
            built = history.build(loaded.entries)
            samples.append(time.perf_counter_ns() - begin)
            assert built.messages
    return summarise(samples[1:])
