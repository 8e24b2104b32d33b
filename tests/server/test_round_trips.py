"""How often a server waits for PostgreSQL in a turn: counted by a socket in between."""

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest
from benchmarks.round_trips import counting

from turnlog.server.main import TOKEN_FILE, Server, first_link, open_service

from ..stores import postgres
from ..waiting import GIVES_UP_S
from .running import CHAT, PATIENT

pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated inferred style")
TRIPS_MAX = 4
TURNS_MAX = int(os.environ.get("TURNS", "60"))


async def quiet(trips):
    """The count, once what follows a turn has been written."""
    before = -1
    while trips.count > before:
        before = trips.count
        await asyncio.sleep(0.1)
    return before


def test_a_turn_needs_at_most_four_round_trips(tmp_path):
    """What a server does once a second comes on top, so turns are counted until one had nothing of that beside it."""
    here = postgres.server()

    async def main(stack):
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="rt-", dir="/tmp")))
        trips = await stack.enter_async_context(counting(here.root, folder, here.port))
        store = f"postgresql://postgres@/postgres?host={folder}&port={here.port}&schema={postgres.name_of(tmp_path)}"
        flags = {"model_name": "offline", "server_port": 0, "store_url": f"{store}&lease_s={postgres.LONG_S}"}
        library, service = await stack.enter_async_context(open_service(home=tmp_path, **flags))
        await first_link(service)
        port = await stack.enter_async_context(Server(library, service).listening())
        headers = {"Authorization": f"Bearer {(tmp_path / TOKEN_FILE).read_text().strip()}"}
        base = f"http://127.0.0.1:{port}"
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=base, headers=headers, **PATIENT))
        needed = []
        async with asyncio.timeout(GIVES_UP_S):
            while len(needed) < TURNS_MAX and min(needed, default=TRIPS_MAX + 1) > TRIPS_MAX:
                before = await quiet(trips)
                answer = await client.post(CHAT, json={"message": "hello", "sessionId": "s1"})
                assert '"type":"done"' in answer.text
                needed.append(await quiet(trips) - before)
        assert min(needed) <= TRIPS_MAX, needed

    async def run():
        async with AsyncExitStack() as stack:
            await main(stack)

    asyncio.run(run())
