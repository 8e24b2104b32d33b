"""The second write to a session needs no task of the store's loop, and falls back to one when somebody was faster."""

import asyncio
from contextlib import asynccontextmanager

import pytest

import turnlog
from turnlog.core.entries import Title
from turnlog.stores.sqlite.store import SqliteStore

WHO = {"app_name": "weather", "user_id": "ann", "session_id": "one"}
TRANSCRIPT = {"project_key": "-home-ann", "session_id": "one"}


@asynccontextmanager
async def openai_agents(url):
    pytest.importorskip("agents")
    from turnlog.adapters.openai_agents import TurnlogSession

    session = TurnlogSession("one", url)

    async def write(text):
        await session.add_items([{"role": "user", "content": text}])

    async def read():
        return [item["content"] for item in await session.get_items()]

    yield write, read
    session.close()


@asynccontextmanager
async def google_adk(url):
    pytest.importorskip("google.adk")
    from google.adk.events import Event
    from google.genai import types

    from turnlog.adapters.google_adk import TurnlogSessionService

    service = TurnlogSessionService(url)
    session = await service.create_session(**WHO)

    async def write(text):
        await service.append_event(session, Event(author="user", content=types.UserContent(text)))

    async def read():
        return [event.content.parts[0].text for event in (await service.get_session(**WHO)).events]

    yield write, read
    await service.close()


@asynccontextmanager
async def claude_agent_sdk(url):
    pytest.importorskip("claude_agent_sdk")
    from turnlog.adapters.claude_agent_sdk import TurnlogSessionStore

    store = TurnlogSessionStore(url)

    async def write(text):
        await store.append(TRANSCRIPT, [{"type": "user", "uuid": text, "message": {"role": "user", "content": text}}])

    async def read():
        return [line["message"]["content"] for line in await store.load(TRANSCRIPT)]

    yield write, read
    await store.aclose()


@pytest.mark.parametrize("adapter", [openai_agents, google_adk, claude_agent_sdk], ids=lambda made: made.__name__)
def test_only_the_first_write_and_one_after_a_change_by_others_take_the_long_way(adapter, tmp_path, monkeypatch):
    long_ways = []
    append = SqliteStore.append

    def counted(self, session_id, bodies, **given):
        if not isinstance(bodies[0], Title):
            long_ways.append(bodies)
        return append(self, session_id, bodies, **given)

    monkeypatch.setattr(SqliteStore, "append", counted)

    async def main():
        url = f"sqlite:{tmp_path}/a.db"
        async with adapter(url) as (write, read):
            await write("one")
            long_ways.clear()
            for text in ("two", "three", "four"):
                await write(text)
            assert long_ways == []
            async with turnlog.open(url, home=tmp_path) as t:
                [row] = (await t.sessions.list()).items
                await t.store.append(row.id, [Title(title="Another has written here", by="user")])
            await write("five")
            assert bool(long_ways) == (adapter is not openai_agents), "its items may follow whatever is there"
            long_ways.clear()
            await write("six")
            assert long_ways == []
            assert await read() == ["one", "two", "three", "four", "five", "six"]

    asyncio.run(main())
