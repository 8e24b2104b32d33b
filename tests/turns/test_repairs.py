"""What is put right before sending is told, once a session, and the log stays as it was said."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from tests.providers.wire import PROXIES, SETTINGS, Said, Wire
from turnlog.core import repairs
from turnlog.core.entries import Assistant, User
from turnlog.core.events import GuardStage
from turnlog.core.wires import NAMES_REPAIR
from turnlog.providers.anthropic import AnthropicProvider
from turnlog.providers.openai import OpenAIProvider

from .talk import KEY, ask, log, opened, say


@asynccontextmanager
async def closing(provider):
    try:
        yield
    finally:
        await provider.close()


def told(events):
    return [event.stage for event in events if isinstance(event, GuardStage)]


@pytest.mark.parametrize("kind", ["anthropic", "openai"])
def test_a_call_of_a_tool_with_a_name_that_is_refused_does_not_end_the_session(kind, tmp_path, monkeypatch):
    for name in (*SETTINGS, *PROXIES):
        monkeypatch.delenv(name, raising=False)

    async def talk(wire):
        makers = {
            "anthropic": lambda: AnthropicProvider("m", api_key="k", base_url=wire.anthropic_url),
            "openai": lambda: OpenAIProvider("m", api_key="k", base_url=wire.openai_url),
        }
        provider = makers[kind]()
        async with closing(provider), opened(f"sqlite:{tmp_path}/s.db", provider) as t:
            wire.say(Said(calls=({"id": "c1", "name": "functions.list_dir", "input": {}},)), Said(text="Sorry."))
            first, second = await say(t, "look"), await say(t, "again")
            return told(first), told(second), await log(t)

    with Wire() as wire:
        first, second, entries = asyncio.run(talk(wire))
    assert first == [f"repaired: {NAMES_REPAIR}"]
    assert second == [], "it is told once"
    calls = [block for entry in entries if isinstance(entry, Assistant) for block in entry.content if "name" in block]
    assert [call["name"] for call in calls] == ["functions.list_dir"], "the log keeps what was said"


def test_calls_that_a_crash_left_without_a_result_are_told_once_by_each_process(tmp_path):
    url = f"sqlite:{tmp_path}/s.db"
    call = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}

    async def crash():
        async with opened(url) as t:
            row = await t.session(KEY)
            async with t.store.lease(row.id) as lease:
                await t.store.append(row.id, [User(content="go"), Assistant(content=[call])], lease=lease)

    async def talk():
        async with opened(url) as t:
            return [told(await say(t, "and now?")), told(await say(t, "more"))]

    async def quiet():
        async with opened(url) as t:
            await ask(t, "hi", "agent:main:cli:direct:other")
            return told(await say(t, "hi", "agent:main:cli:direct:other"))

    asyncio.run(crash())
    for _ in range(2):
        assert asyncio.run(talk()) == [[f"repaired: {repairs.UNANSWERED}"], []]
    assert asyncio.run(quiet()) == []
