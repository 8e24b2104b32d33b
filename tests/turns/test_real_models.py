"""Whole turns with a real model server (llama.cpp) and with the real SDKs against servers that speak their formats."""

import asyncio
from contextlib import aclosing, asynccontextmanager
from itertools import pairwise

import pytest

from tests.providers.llama import llama_server
from tests.providers.wire import PROXIES, SETTINGS, Refused, Said, Wire
from turnlog.core.entries import Assistant, Compaction, Failed, User
from turnlog.core.events import (
    CompactionEnd,
    Done,
    ErrorEvent,
    GuardStage,
    TextDelta,
    ToolCall,
    ToolDone,
    UsageReport,
)
from turnlog.core.history import as_text
from turnlog.core.tokens import input_tokens
from turnlog.providers.anthropic import AnthropicProvider
from turnlog.providers.openai import OpenAIProvider
from turnlog.testing import check_messages

from .talk import KEY, ask, log, opened, say, words

REAL_S = 600
"""A small model on a busy machine; a test that takes longer hangs."""
WINDOW = 256


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in (*SETTINGS, *PROXIES):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def llama():
    with llama_server(n_ctx=WINDOW) as base_url:
        yield base_url


@pytest.fixture
def wire():
    with Wire() as server:
        yield server


def real(base_url, window):
    return OpenAIProvider("smollm2", base_url=base_url, window=window, max_output=8)


@asynccontextmanager
async def talking(url, provider, **options):
    """A provider that is passed in belongs to the code that made it."""
    async with aclosing(Closing(provider)), opened(url, provider, **options) as t:
        yield t


class Closing:
    def __init__(self, provider):
        self.aclose = provider.close


def run_real(main):
    return asyncio.run(asyncio.wait_for(main, REAL_S))


def story(n):
    return f"Chapter {n}. " + " ".join(
        f"The keeper of lighthouse {n * 10 + k} counted {k * 7} ships." for k in range(12)
    )


def test_a_real_overflow_is_recovered_from(llama, tmp_path):
    """We believe in a larger window than the server has; it says so."""

    async def main():
        async with talking(f"sqlite:{tmp_path}/s.db", real(llama, 1_500), compaction_keep="turns:1") as t:
            for n in range(4):  # not said to the model one by one, which takes minutes on a busy machine
                await t.append(KEY, User(content=story(n)[:600]), Assistant(content="I see.", stop="end_turn"))
            events = await say(t, "Who counted ships?")
            assert isinstance(events[-1], Done), events
            assert [event for event in events if isinstance(event, GuardStage)]
            entries = await log(t)
            assert {e.trigger for e in entries if isinstance(e, Compaction)} in ({"overflow"}, {"rescue"})
            assert not [e for e in entries if isinstance(e, Failed)]
            check_messages((await t.history(KEY)).messages)
            assert 0 < input_tokens(entries[-1].usage) <= WINDOW

    run_real(main())


def test_from_the_second_turn_on_the_server_has_nine_tenths_of_the_prompt_before_in_its_cache(llama, tmp_path):
    async def main():
        async with talking(f"sqlite:{tmp_path}/s.db", real(llama, WINDOW)) as t:
            for n in range(3):
                await ask(t, f"Tell me one thing about harbour number {n}, in a few words, please.")
            replies = [e.usage for e in await log(t) if isinstance(e, Assistant)]
        for before, after in pairwise(replies):
            assert after["cache_read_input_tokens"] >= 0.9 * input_tokens(before), replies

    run_real(main())


def look(place: str) -> str:
    """Looks at a place."""
    return f"saw {place}"


PROVIDERS = {
    "anthropic": lambda wire: AnthropicProvider("claude-opus-5-5", api_key="k", base_url=wire.anthropic_url),
    "openai": lambda wire: OpenAIProvider("qwen3", base_url=wire.openai_url, window=100_000),
}
TOO_LONG = Refused(
    400,
    {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "message": "prompt is too long: 213462 tokens > 200000 maximum",
        },
    },
)


def calls(*places):
    return tuple({"id": f"call_{place}", "name": "look", "input": {"place": place}} for place in places)


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_turn_with_tools_through_the_real_sdk(name, wire, tmp_path):
    async def main():
        usage = {"input_tokens": 50, "cache_read_input_tokens": 20, "output_tokens": 9}
        wire.say(Said(text="I look.", calls=calls("a", "b")), Said(text="Both are there.", usage=usage))
        async with talking(f"jsonl:{tmp_path}/s", PROVIDERS[name](wire), tools=[look]) as t:
            events = await say(t, "look twice")
            assert await ask(t, "thanks") == "ok"
            entries = await log(t)
        told = [event for event in events if not isinstance(event, TextDelta | UsageReport)]
        assert [type(event) for event in told] == [ToolCall, ToolDone, ToolCall, ToolDone, Done]
        assert [event.text for event in told if isinstance(event, ToolDone)] == ["saw a", "saw b"]
        assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "I look.Both are there."
        report = [event for event in events if isinstance(event, UsageReport)][-1]
        assert (report.input_tokens, report.cache_read_input_tokens, report.output_tokens) == (50, 20, 9)
        assert [kind for kind, _ in words(entries)] == [
            *("user", "assistant", "tool_result", "tool_result", "assistant"),
            *("user", "assistant"),
        ]
        first, second, third = (request.body for request in wire.requests)
        # Marks for caching move on with the conversation; what is said stays as it was.
        assert plain(second["messages"])[: len(first["messages"])] == plain(first["messages"])
        assert plain(third["messages"])[: len(second["messages"])] == plain(second["messages"])

    run_real(main())


def plain(value):
    """Without marks for caching, and a lone text as a string, however it had to be written to carry a mark."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    bare = {key: plain(item) for key, item in value.items() if key != "cache_control"}
    match bare.get("content"):
        case [{"type": "text", "text": str(text)}]:
            bare["content"] = text
    return bare


@pytest.mark.parametrize("name", PROVIDERS)
def test_an_overflow_through_the_real_sdk_is_recovered_from(name, wire, tmp_path):
    async def main():
        async with talking(f"jsonl:{tmp_path}/s", PROVIDERS[name](wire), compaction_keep="turns:1") as t:
            for n in range(4):
                wire.say(Said(text="ok", usage={"input_tokens": 180 * (n + 1), "output_tokens": 2}))
                await ask(t, story(n))
            wire.say(TOO_LONG, Said(text="A story of lighthouses and ships."), Said(text="and then"))
            events = await say(t, "go on")
            assert isinstance(events[-1], Done)
            [end] = [event for event in events if isinstance(event, CompactionEnd)]
            assert end.error is None
            assert end.tokens_after < end.tokens_before
            entries = await log(t)
            assert [e.trigger for e in entries if isinstance(e, Compaction)] == ["overflow"]
        refused, summary, accepted = wire.requests[-3:]
        assert "lighthouse 31" in refused.raw.decode()
        assert "lighthouse 31" in summary.raw.decode()
        assert len(accepted.raw) < len(refused.raw)
        assert "A story of lighthouses and ships." in accepted.raw.decode()

    run_real(main())


@pytest.mark.parametrize("breaks", ["hang_up", "end"])
@pytest.mark.parametrize("name", PROVIDERS)
def test_a_stream_that_breaks_through_the_real_sdk_is_one_error_and_its_half_is_never_sent(
    name, breaks, wire, tmp_path
):
    async def main():
        wire.say(Said(texts=("half of it", " and the rest"), breaks=breaks))
        async with talking(f"jsonl:{tmp_path}/s", PROVIDERS[name](wire)) as t:
            events = await say(t, "first")
            assert [type(event) for event in events] == [TextDelta, ErrorEvent]
            assert (events[-1].code, bool(events[-1].hint)) == ("provider", True)
            entries = await log(t)
            assert (entries[-2].stop, as_text(entries[-2].content)) == ("error", "half of it")
            assert entries[-1].code == "provider"
            assert len(wire.requests) == 1
            assert await ask(t, "second") == "ok"
        assert "half of it" not in wire.requests[-1].raw.decode()
        assert "first\\n\\nsecond" in wire.requests[-1].raw.decode()

    run_real(main())
