"""The shipped provider for tests: answers in order, checks every prompt, and fails the way real ones do."""

import asyncio

import pytest

from turnlog.core.entries import Assistant
from turnlog.core.prompt import Prompt
from turnlog.testing import InvalidMessages, ScriptedProvider, check_messages

HI = Prompt(system="", messages=[{"role": "user", "content": "hi"}])


async def answers(provider, prompt=HI):
    return [piece async for piece in provider.stream(prompt)]


def test_replies_come_in_order_and_past_the_end_it_says_ok():
    call = {"id": "c1", "name": "look", "input": {}}
    provider = ScriptedProvider([{"text": "one", "deltas": ["o", "ne"]}, {"tool_calls": [call], "delay_ms": 1}])

    async def go():
        first = await answers(provider)
        assert [piece.text for piece in first[:-1]] == ["o", "ne"]
        assert first[-1] == Assistant(content=[{"type": "text", "text": "one"}], model="scripted", stop="end_turn")
        second = await answers(provider)
        assert second[-1] == Assistant(content=[{"type": "tool_use", **call}], model="scripted", stop="tool_use")
        assert "".join(piece.call.input for piece in second[:-1]) == "{}"
        assert (await answers(provider))[-1].content == [{"type": "text", "text": "ok"}]
        assert await provider.summarise(HI) == "ok"

    asyncio.run(go())
    assert len(provider.prompts) == 3
    assert provider.summary_prompts == [HI]


def test_a_prompt_no_provider_would_accept_is_refused():
    with pytest.raises(InvalidMessages):
        asyncio.run(answers(ScriptedProvider(), Prompt(system="", messages=[])))


USE = {"type": "tool_use", "id": "x", "name": "n", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "x", "content": "r"}


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [("assistant", "a")],
        [("user", "a"), ("user", "b")],
        [("user", "a"), ("assistant", [])],
        [("user", "  ")],
        [("user", [{"type": "text", "text": ""}])],
        [("user", [{"text": "no type"}])],
        [("user", "\ud800")],
        [("user", "a"), ("assistant", [USE])],
        [("user", "a"), ("assistant", [USE]), ("user", "b")],
        [("user", "a"), ("assistant", [USE]), ("user", [RESULT, RESULT])],
        [("user", "a"), ("assistant", [USE]), ("user", [{"type": "text", "text": "b"}, RESULT])],
        [("user", [RESULT])],
        [("user", [USE])],
        [("user", "a"), ("assistant", [USE, USE]), ("user", [RESULT, RESULT])],
        [("user", "a"), ("assistant", [{**USE, "id": ""}]), ("user", [{**RESULT, "tool_use_id": ""}])],
        [("user", "a"), ("assistant", [{**USE, "input": "text"}]), ("user", [RESULT])],
        [("user", "a"), ("assistant", [USE]), ("user", [{**RESULT, "content": [{"type": "text", "text": " "}]}])],
    ],
)
def test_every_breach_is_noticed(messages):
    with pytest.raises(InvalidMessages):
        check_messages([{"role": role, "content": content} for role, content in messages])


def test_a_good_exchange_passes():
    check_messages(
        [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "t"}, USE]},
            {"role": "user", "content": [RESULT, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": "c"},
        ]
    )
