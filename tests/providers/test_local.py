"""llama.cpp in this process with a real model: it streams, keeps its cache, overflows with numbers, can be stopped."""

import asyncio
import shutil
import struct
import sys
import time
from contextlib import aclosing

import pytest

from turnlog import ContextOverflow, ProviderRefused, UsageError
from turnlog.core.entries import Assistant
from turnlog.core.parameters import Parameters
from turnlog.core.prompt import Prompt, ToolDefinition
from turnlog.providers import local
from turnlog.providers.gguf import context_length
from turnlog.providers.local import LocalProvider, _plain, _request
from turnlog.testing import check_messages

from .llama import llama_server, model_file, use_one_thread

SYSTEM = "You are a kind and patient helper who answers in one short sentence. " * 5
TOOL = ToolDefinition(
    name="look", description="Looks.", input_schema={"type": "object", "properties": {"at": {"type": "string"}}}
)
LONG = "Write down all numbers from one to ten thousand as words, one on each line: one, two, three, four, five, six,"
GIVEN_UP_CPU_S = 20
"""Of processor time, which other work does not change; the whole of such an answer takes minutes."""


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    make = local._parameters

    def limited(*args):
        parameters = make(*args)
        use_one_thread(parameters)
        return parameters

    monkeypatch.setattr(local, "_parameters", limited)


def said(*texts, **fields):
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]
    check_messages(messages)
    return Prompt(system=SYSTEM, messages=messages, **fields)


async def pieces_of(provider, prompt):
    return [piece async for piece in provider.stream(prompt)]


def test_it_streams_keeps_the_prompt_and_overflows_with_numbers():
    async def go():
        provider = LocalProvider(model_file(), window=1024)
        assert provider.model == f"local:{model_file().name}"
        assert provider.window == 1024
        *deltas, first = await pieces_of(provider, said("Hello.", max_output=12, tools=(TOOL,)))
        assert "".join(delta.text for delta in deltas) == first.content[0]["text"]
        assert len(deltas) > 1
        assert first.usage["cache_read_input_tokens"] == 0
        whole = first.usage["input_tokens"]
        assert whole > 60
        assert 0 < first.usage["output_tokens"] <= 12

        second = (await pieces_of(provider, said("Hello.", first.content[0]["text"], "And?", max_output=12)))[-1]
        assert second.usage["cache_read_input_tokens"] >= 0.9 * whole
        assert second.usage["input_tokens"] < 0.1 * whole + 40

        with pytest.raises(ContextOverflow) as caught:
            await pieces_of(provider, said("word " * 3000))
        assert caught.value.window == 1024
        assert caught.value.tokens > 3000
        assert (await provider.summarise(said("Say yes.", max_output=5))).strip()
        await provider.close()
        with pytest.raises(UsageError, match="closed"):
            await pieces_of(provider, said("Hello."))
        await provider.close()

    asyncio.run(go())


def test_closing_the_stream_ends_the_call_and_the_loop_is_never_held_up():
    async def go():
        provider = LocalProvider(model_file())
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.005)
                ticks += 1

        ticking = asyncio.create_task(tick())
        async with aclosing(provider.stream(said(LONG, max_output=7_000))) as pieces:
            async for _ in pieces:
                break
        begun = time.process_time()
        # The worker has one thread: an answer now means that the long one was given up.
        last = (await pieces_of(provider, said("Say yes.", max_output=3)))[-1]
        assert isinstance(last, Assistant)
        assert time.process_time() - begun < GIVEN_UP_CPU_S
        assert ticks > 5
        ticking.cancel()
        waiting = [asyncio.create_task(pieces_of(provider, said(LONG, max_output=7_000))) for _ in range(4)]
        await asyncio.sleep(0.1)
        begun = time.process_time()
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance((await pieces_of(provider, said("Say yes.", max_output=3)))[-1], Assistant)
        assert time.process_time() - begun < GIVEN_UP_CPU_S
        await provider.close()

    asyncio.run(go())


def test_a_full_window_is_told_from_a_long_enough_answer():
    async def go():
        provider = LocalProvider(model_file(), window=256)
        # Without chance: an answer that happens to end at the last token would be a whole one.
        words = "Count from one to one thousand, and do not stop: one, two, three, " + "and so on, " * 15
        prompt = said(words, parameters=Parameters(temperature=0.0))
        assert (await pieces_of(provider, prompt))[-1].stop == "model_context_window_exceeded"
        assert (await pieces_of(provider, said("Hello, how are you today?", max_output=2)))[-1].stop == "max_tokens"
        await provider.close()

    asyncio.run(go())


def test_the_window_is_the_models_own_at_most_and_the_bundled_file_is_found():
    assert context_length(model_file()) == 8192
    provider = LocalProvider(window=1_000_000)
    assert provider.window == 8192
    assert provider.model == f"local:{model_file().name}"
    asyncio.run(provider.close())


@pytest.mark.parametrize("damage", ["absent", "text", "cut", "huge"])
def test_what_is_no_model_is_refused_before_anything_is_loaded(tmp_path, damage):
    path = tmp_path / "m.gguf"
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1)
    wrong = {"text": b"hello", "cut": head, "huge": head + struct.pack("<Q", 1 << 62)}
    if damage != "absent":
        path.write_bytes(wrong[damage])
    model_file()
    with pytest.raises(UsageError, match=r"m\.gguf") as caught:
        LocalProvider(path)
    assert "local:PATH" in caught.value.hint


def test_a_file_cut_after_its_head_is_refused_when_it_is_loaded(tmp_path):
    path = tmp_path / "m.gguf"
    shutil.copyfile(model_file(), path)
    with path.open("r+b") as file:
        file.truncate(5_000_000)
    provider = LocalProvider(path)
    with pytest.raises(ProviderRefused, match="cannot load"):
        asyncio.run(pieces_of(provider, said("Hello.")))
    asyncio.run(provider.close())


def test_without_the_package_the_hint_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(UsageError) as caught:
        LocalProvider()
    assert "turnlog[local]" in caught.value.hint


CALL = {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "x"}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "found"}]}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}


def test_tools_are_offered_only_where_the_template_knows_them():
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "look"}, IMAGE]},
        {"role": "assistant", "content": [CALL]},
        {"role": "user", "content": [RESULT]},
    ]
    check_messages(messages)
    prompt = Prompt(system="", messages=messages, tools=(TOOL,))
    with_tools = _request(prompt, True, 10)
    assert [message["role"] for message in with_tools["messages"]] == ["user", "assistant", "tool"]
    assert with_tools["tools"][0]["function"]["name"] == "look"
    assert "[image]" in with_tools["messages"][0]["content"]
    without = _request(prompt, False, 10)
    assert "tools" not in without
    assert [message["role"] for message in without["messages"]] == ["user", "assistant", "user"]
    assert "[called look" in without["messages"][1]["content"]
    assert without["messages"][2]["content"] == "found"
    torn = {"role": "user", "content": [{"type": "text", "text": "a\ud800"}]}
    assert _plain(torn, False)["content"] == [{"type": "text", "text": "a?"}]


def test_the_server_for_the_other_suites_counts_what_it_kept_and_refuses_what_is_too_large():
    openai = pytest.importorskip("openai")
    with llama_server(n_ctx=1024) as base_url:
        client = openai.OpenAI(base_url=base_url, api_key="none", max_retries=0)
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Hello."}]

        def ask(messages):
            return client.chat.completions.create(model="any", messages=messages, max_tokens=4)

        first = ask(messages)
        more = [{"role": "assistant", "content": first.choices[0].message.content}, {"role": "user", "content": "And?"}]
        second = ask([*messages, *more])
        assert second.usage.prompt_tokens_details.cached_tokens >= 0.9 * first.usage.prompt_tokens
        with pytest.raises(openai.BadRequestError, match="exceeds the available context size"):
            ask([{"role": "user", "content": "word " * 3000}])
        client.close()
