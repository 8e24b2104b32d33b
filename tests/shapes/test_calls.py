"""Own calls: what the function gets, what it may return, and what is stored, with the official SDKs and without."""

import asyncio

import pytest

import turnlog
from tests.providers.wire import Refused, Said, Wire
from turnlog import ContextOverflow, TextDelta, UsageError
from turnlog.testing import ScriptedProvider, check_messages

CALLS = ({"id": "c1", "name": "look", "input": {"at": "sky"}},)
CHAT = {
    "id": "x",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hello."}}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9},
}
MESSAGE = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "claude",
    "content": [{"type": "text", "text": "Hello."}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 7, "output_tokens": 2},
}
RESPONSE = {
    "id": "r",
    "object": "response",
    "status": "completed",
    "model": "gpt",
    "output": [
        {"type": "reasoning", "id": "rs", "summary": []},
        {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
    ],
    "usage": {"input_tokens": 7, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 3}},
}
TOO_LONG = Refused(
    400, {"error": {"code": "context_length_exceeded", "message": "maximum context length is 10 tokens"}}
)


def connected(**settings):
    return turnlog.connect("memory:", home="/nonexistent", provider=ScriptedProvider(), **settings)


@pytest.fixture(scope="module")
def wire():
    with Wire() as wire:
        yield wire


@pytest.fixture(scope="module")
def openai(wire):
    with pytest.importorskip("openai").OpenAI(base_url=wire.openai_url, api_key="k", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def anthropic(wire):
    with pytest.importorskip("anthropic").Anthropic(base_url=wire.anthropic_url, api_key="k", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("made", ["Hello.", CHAT, MESSAGE, RESPONSE, turnlog.Assistant(content="Hello.")])
def test_whatever_form_an_answer_has_its_text_is_stored(made):
    with connected() as t:
        chat = t.session("ann")
        reply = chat.call(lambda messages: made, "Hi!")
        assert reply.text == "Hello."
        assert [message["role"] for message in chat.history().messages][:2] == ["user", "assistant"]
        assert chat.messages()[-1].content == reply.content


def test_usage_stop_and_calls_of_a_response_are_stored_and_its_items_are_kept():
    with connected() as t:
        reply = t.session("ann").call(lambda messages: RESPONSE, "Hi!", shape="responses")
        assert (reply.stop, reply.usage["input_tokens"], reply.usage["cache_read_input_tokens"]) == ("tool_use", 4, 3)
        assert reply.calls[0]["name"] == "look"
        assert reply.raw["output"] == RESPONSE["output"]


def test_a_function_may_be_async_and_its_stream_too():
    async def main():
        async with turnlog.open("memory:", home="/nonexistent", provider=ScriptedProvider()) as t:
            chat = t.session("ann")

            async def whole(messages):
                return "whole"

            async def pieces(messages):
                yield "in "
                yield "pieces"

            assert (await chat.call(whole, "a")).text == "whole"
            assert (await chat.call(pieces, "b")).text == "in pieces"
            told = [event async for event in chat.stream(pieces, "c")]
            assert [event.type for event in told] == ["text_delta", "text_delta", "usage", "done"]

            async def endless(messages):
                yield "one"
                await asyncio.Event().wait()

            leaving = chat.stream(endless, "left early")
            assert (await anext(leaving)).text == "one"
            await leaving.aclose()
            assert (await chat.messages(shape="openai"))[-1] == {"role": "user", "content": "left early"}

    asyncio.run(main())


@pytest.mark.parametrize("wrong", [None, 5, object(), {"role": "user", "content": "x"}, [5], []])
def test_what_is_no_answer_is_an_error_with_a_hint(wrong):
    with connected() as t:
        with pytest.raises(turnlog.TurnlogError) as raised:
            t.session("ann").call(lambda messages: wrong, "Hi!")
        assert raised.value.hint


def test_an_exception_of_the_function_comes_out_as_it_is_and_the_message_stays():
    with connected() as t:
        chat = t.session("ann")
        with pytest.raises(ZeroDivisionError):
            chat.call(lambda messages: 1 / 0, "Hi!")
        assert chat.call(lambda messages: "Hello.").text == "Hello."
        assert chat.messages(shape="openai") == [
            {"role": "user", "content": "Hi!"},
            {"role": "assistant", "content": "Hello."},
        ]


def test_openai_whole_streamed_and_with_calls(wire, openai):
    def create(messages, **options):
        return openai.chat.completions.create(model="gpt", messages=messages, **options)

    with connected() as t:
        chat = t.session("ann")
        wire.say(Refused(200, CHAT), Said(text="It is up.", calls=CALLS), Said(text="Clouds."))
        assert chat.call(create, "Hi!").text == "Hello."
        told = list(chat.stream(lambda messages: create(messages, stream=True), "What is up?"))
        assert "".join(event.text for event in told if isinstance(event, TextDelta)) == "It is up."
        assert [event.tool_call.name for event in told if event.type == "tool_call"] == ["look"]
        chat.append({"role": "tool", "tool_call_id": "c1", "content": "clouds"})
        assert chat.call(lambda messages: create(messages, stream=True)).text == "Clouds."
        assert wire.requests[-1].body["messages"][-1] == {"role": "tool", "tool_call_id": "c1", "content": "clouds"}
        check_messages(chat.history(shape="anthropic"))


def test_anthropic_whole_streamed_and_with_calls(wire, anthropic):
    def create(messages, **options):
        return anthropic.messages.create(model="claude", max_tokens=9, messages=messages, **options)

    with connected() as t:
        chat = t.session("ann")
        wire.say(Refused(200, MESSAGE), Said(text="It is up.", calls=CALLS), Said(text="Clouds."))
        assert chat.call(create, "Hi!", shape="anthropic").text == "Hello."
        told = list(chat.stream(lambda messages: create(messages, stream=True), "What is up?", shape="anthropic"))
        assert "".join(event.text for event in told if isinstance(event, TextDelta)) == "It is up."
        chat.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "clouds"}]})
        assert chat.call(lambda messages: create(messages, stream=True), shape="anthropic").text == "Clouds."


def test_a_refusal_for_size_is_met_with_less(wire, openai):
    def create(messages):
        return openai.chat.completions.create(model="gpt", messages=messages)

    with connected(compaction_keep="turns:1") as t:
        chat = t.session("ann")
        for number in range(4):
            chat.append({"role": "user", "content": f"{number} " * 300}, {"role": "assistant", "content": "ok " * 300})
        wire.say(TOO_LONG, Refused(200, CHAT))
        assert chat.call(create, "Hi!").text == "Hello."
        assert chat.compactions == 1
        wire.say(*[TOO_LONG] * 9)
        with pytest.raises(ContextOverflow):
            chat.call(create, "Again!")
        wire._script.clear()


def test_a_call_that_may_not_be_made_is_refused_before_anything_is_stored():
    with connected() as t:
        with pytest.raises(UsageError):
            t.session("ann").call(lambda messages: "x", {"content": "no role"})
        with pytest.raises(UsageError):
            t.session("ann").call("not a function", "hi")
        assert t.sessions.list().total == 0
