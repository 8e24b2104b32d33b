"""What one request costs in calls to the store and its ledger, counted in the server's own process."""

import asyncio
from contextlib import asynccontextmanager

import httpx
import pytest

from turnlog.server.main import TOKEN_FILE, Server, first_link, open_service

from ..counting import count_calls
from .running import CHAT, PATIENT

pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated inferred style")

OPENING_POST_MAX = 10
WARM_POST_MAX = 6
"""A turn's five, and one for the token."""


@pytest.fixture
def calls(monkeypatch):
    return count_calls(monkeypatch)


@asynccontextmanager
async def client_of(home):
    flags = {"model_name": "offline", "store_durability": "os", "server_port": 0}
    async with open_service(home=home, **flags) as (turnlog, service):
        await first_link(service)
        token = (home / TOKEN_FILE).read_text().strip()
        async with Server(turnlog, service).listening() as port:
            headers = {"Authorization": f"Bearer {token}"}
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers, **PATIENT) as client:
                yield client, turnlog


async def post(client, turnlog, **fields):
    """The id of the session, when its turn is over and its worker has left."""
    answer = await client.post(CHAT, json={"message": "hi", **fields})
    assert '"type":"done"' in answer.text, answer.text
    await turnlog.queue.idle()
    return answer.headers["turnlog-session"]


@pytest.mark.parametrize("key", [None, "agent:main:web:direct:{}"])
def test_a_post_that_opens_a_session_makes_at_most_ten_calls_however_many_there_are(tmp_path, calls, key):
    async def main():
        async with client_of(tmp_path) as (client, turnlog):
            await post(client, turnlog)  # the process has read what it learnt about the model
            for number in range(12):
                calls.clear()
                await post(client, turnlog, **({"key": key.format(number)} if key else {}))
                assert len(calls) <= OPENING_POST_MAX, calls

    asyncio.run(main())


def test_a_post_that_names_its_new_session_makes_no_more_calls(tmp_path, calls):
    """The name is claimed by an append of its own before the key goes to it, and not looked up before."""

    async def main():
        async with client_of(tmp_path) as (client, turnlog):
            await post(client, turnlog)
            for name in ("mine", "mine-too"):
                calls.clear()
                await post(client, turnlog, sessionId=name)
                assert len(calls) <= OPENING_POST_MAX, calls

    asyncio.run(main())


def test_a_first_post_that_names_its_new_session_makes_at_most_ten_calls(tmp_path, calls):
    async def main():
        async with client_of(tmp_path) as (client, turnlog):
            await post(client, turnlog)
            calls.clear()
            await post(client, turnlog, sessionId="mine", key="agent:main:web:direct:new")
            assert len(calls) <= OPENING_POST_MAX, calls

    asyncio.run(main())


def test_a_post_to_a_session_that_is_there_makes_one_call_more_than_its_turn(tmp_path, calls):
    async def main():
        async with client_of(tmp_path) as (client, turnlog):
            session = await post(client, turnlog)
            calls.clear()
            await post(client, turnlog, sessionId=session)
            assert len(calls) <= WARM_POST_MAX, calls

    asyncio.run(main())
