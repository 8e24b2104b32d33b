"""OpenAI's real SDK against a server that speaks Chat Completions, as OpenAI does and as others do."""

import json
from itertools import pairwise

import pytest

from tests.prompts import of_transcript
from tests.providers.wire import (
    PROXIES,
    SETTINGS,
    Refused,
    Said,
    Streamed,
    Wire,
    ask,
    chunk,
    failure,
    frame,
    run,
)
from turnlog.core.prompt import INVALID_INPUT, Prompt, ToolDefinition
from turnlog.core.wires import fit
from turnlog.errors import ContentRefused, ContextOverflow, ProviderBusy, ProviderRefused
from turnlog.providers import Delta
from turnlog.providers.openai import OpenAIProvider
from turnlog.testing import check_messages, entry

PIXEL = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
PIXEL_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
PATH = {"type": "object", "properties": {"path": {"type": "string"}}}
READ = ToolDefinition(name="read", description="Reads a file.", input_schema=PATH)
THOUGHT = {"type": "thinking", "thinking": "It is in a.txt.", "signature": "sig=="}


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in (*SETTINGS, *PROXIES):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def wire():
    with Wire() as server:
        yield server


def provider(wire, name="qwen3", **options):
    return OpenAIProvider(name, base_url=wire.openai_url, **options)


def said(text="Hi", **more):
    return Prompt(system="Be kind.", messages=[{"role": "user", "content": text}], **more)


def sent(wire, prompt, **options):
    """The body of the request that a prompt makes."""
    check_messages(prompt.messages)
    run(ask(provider(wire, **options), prompt))
    return wire.requests[-1].body


def test_a_request_says_no_more_than_it_must(wire):
    body = sent(wire, said())
    assert body == {
        "model": "qwen3",
        "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def piece(arguments, **fields):
    name = {"name": fields.pop("name")} if "name" in fields else {}
    return {**fields, "function": {**name, "arguments": arguments}}


AS_OTHERS_SEND_CALLS = {
    "whole calls at once": [[piece('{"n":1}', index=0, id="a", name="x"), piece('{"n":2}', index=1, id="b", name="y")]],
    "no index": [[piece('{"n":1}', id="a", name="x")], [piece('{"n":2}', id="b", name="y")]],
    "no index, in pieces": [
        [piece("", id="a", name="x")],
        [piece('{"n"')],
        [piece(":1}")],
        [piece("", id="b", name="y")],
        [piece('{"n":2}')],
    ],
    "no index, ids repeated": [
        [piece('{"n"', id="a", name="x")],
        [piece(":1}", id="a")],
        [piece('{"n"', id="b", name="y")],
        [piece(":2}", id="b")],
    ],
    "index 0 for all": [[piece('{"n":1}', index=0, id="a", name="x")], [piece('{"n":2}', index=0, id="b", name="y")]],
    "neither ids nor indexes": [[piece('{"n":1}', name="x")], [piece('{"n":2}', name="y")]],
    "index 0 for all and no ids": [[piece('{"n":1}', index=0, name="x")], [piece('{"n":2}', index=0, name="y")]],
    "one id for both": [[piece('{"n":1}', index=0, id="a", name="x")], [piece('{"n":2}', index=1, id="a", name="y")]],
    "id and name in every piece": [
        [piece('{"n"', index=0, id="a", name="x")],
        [piece(":1}", index=0, id="a", name="x")],
        [piece('{"n":2}', index=1, id="b", name="y")],
    ],
    "interleaved": [
        [piece('{"n"', index=0, id="a", name="x"), piece('{"n"', index=1, id="b", name="y")],
        [piece(":2}", index=1), piece(":1}", index=0)],
    ],
    "arguments as an object": [
        [piece({"n": 1}, index=0, id="a", name="x")],
        [piece({"n": 2}, index=1, id="b", name="y")],
    ],
}


@pytest.mark.parametrize("pieces", AS_OTHERS_SEND_CALLS.values(), ids=AS_OTHERS_SEND_CALLS)
def test_calls_are_put_together_however_a_server_sends_them(wire, pieces):
    frames = [chunk({"tool_calls": some}) for some in pieces]
    wire.say(Streamed((*frames, chunk({}, finish="stop"), frame("[DONE]"))))
    answer = run(ask(provider(wire), said()))[-1]
    assert [(block["name"], block["input"]) for block in answer.content] == [("x", {"n": 1}), ("y", {"n": 2})]
    assert len({block["id"] for block in answer.content} - {""}) == 2
    assert answer.stop == "tool_use"


@pytest.mark.parametrize("written", ['{"path": ', "[1]", "null", '{"a": NaN}'])
def test_an_input_that_is_no_json_object_is_kept_as_text(wire, written):
    wire.say(Said(calls=({"id": "t1", "name": "read", "input": written},)))
    answer = run(ask(provider(wire), said()))[-1]
    assert answer.content[0]["input"] == {INVALID_INPUT: written}


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_told_kept_unsigned_and_never_sent_back(wire, field):
    wire.say(
        Streamed((chunk({field: "hm "}), chunk({field: "so"}), chunk({"content": "Yes"}), chunk({}, finish="stop")))
    )
    *pieces, answer = run(ask(provider(wire), said()))
    assert pieces == [Delta(thinking="hm "), Delta(thinking="so"), Delta(text="Yes")]
    assert answer.content == [{"type": "thinking", "thinking": "hm so"}, {"type": "text", "text": "Yes"}]
    messages = [*said().messages, {"role": "assistant", "content": answer.content}, {"role": "user", "content": "more"}]
    assert sent(wire, Prompt(system="", messages=messages))["messages"][1] == {"role": "assistant", "content": "Yes"}


def tool_round():
    calls = [
        {"type": "tool_use", "id": "c1", "name": "read", "input": {"path": "ü", "a": 1}},
        {"type": "tool_use", "id": "x" * 64, "name": "read", "input": {}},
    ]
    results = [
        {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "A"}, PIXEL]},
        {"type": "tool_result", "tool_use_id": "x" * 64, "content": "no such file", "is_error": True},
    ]
    return [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": [THOUGHT, {"type": "text", "text": "I look."}, *calls]},
        {"role": "user", "content": [*results, {"type": "text", "text": "and?"}]},
    ]


def test_calls_and_results_become_tool_messages_in_order(wire):
    _, assistant, first, second, user = sent(wire, Prompt(system="", messages=tool_round(), tools=(READ,)))["messages"]
    assert assistant["content"] == "I look."
    assert json.loads(assistant["tool_calls"][0]["function"]["arguments"]) == {"path": "ü", "a": 1}
    assert first == {"role": "tool", "tool_call_id": "c1", "content": "A\n\n[image]"}
    assert second["content"] == "[error] no such file"
    assert second["tool_call_id"] == assistant["tool_calls"][1]["id"]
    assert len(second["tool_call_id"]) <= 40
    assert PIXEL_PART in user["content"]
    assert user["content"][-1] == {"type": "text", "text": "and?"}


def test_calls_without_text_have_null_as_content(wire):
    messages = tool_round()
    messages[1] = {"role": "assistant", "content": messages[1]["content"][2:]}
    assert sent(wire, Prompt(system="", messages=messages))["messages"][1]["content"] is None


def test_images_are_data_uris_and_documents_are_text(wire):
    content = [
        {"type": "text", "text": "see"},
        PIXEL,
        {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/x.png"}},
        {
            "type": "document",
            "title": "Plan",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "x"},
        },
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "plain"}},
    ]
    parts = sent(wire, Prompt(system="", messages=[{"role": "user", "content": content}]))["messages"][0]["content"]
    assert parts[1] == PIXEL_PART
    assert parts[2]["image_url"]["url"] == "http://127.0.0.1/x.png"
    assert "Plan" in parts[3]["text"]
    assert parts[4]["text"] == "plain"


def test_an_empty_assistant_message_is_left_out_and_its_neighbours_merge(wire):
    messages = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": [THOUGHT]},
        {"role": "user", "content": [{"type": "text", "text": "two"}, PIXEL]},
    ]
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}, PIXEL_PART]
    assert sent(wire, Prompt(system="", messages=messages))["messages"] == [{"role": "user", "content": parts}]


def test_texts_of_one_message_are_one_string(wire):
    content = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    body = sent(wire, Prompt(system="", messages=[{"role": "user", "content": content}]))
    assert body["messages"] == [{"role": "user", "content": "one\n\ntwo"}]


def test_tools_that_may_not_be_called_stay_named(wire):
    free = sent(wire, said(tools=(READ,)))
    bound = sent(wire, said(tools=(READ,), may_call=False))
    function = {"name": "read", "description": "Reads a file.", "parameters": PATH}
    assert free["tools"] == bound["tools"] == [{"type": "function", "function": function}]
    assert "tool_choice" not in free
    assert bound["tool_choice"] == "none"


def test_other_servers_are_told_max_tokens_and_openai_max_completion_tokens(wire):
    body = sent(wire, said(max_output=77))
    assert body["max_tokens"] == 77
    assert "max_completion_tokens" not in body
    official = OpenAIProvider("gpt-6", api_key="k", max_output=5)._request(fit(said(), "openai").prompt)
    assert official["max_completion_tokens"] == 5
    assert "max_tokens" not in official


@pytest.mark.parametrize(
    ("name", "window"),
    [("gpt-5", 272_000), ("gpt-5.4-mini", 272_000), ("gpt-6.1-sol", 922_000), ("o3", 200_000), ("x", None)],
)
def test_windows_are_known_at_openai_only_unless_told(wire, name, window):
    assert OpenAIProvider(name, api_key="k").window == window
    assert OpenAIProvider(name, api_key="k", base_url="https://eu.api.openai.com/v1").window == window
    assert provider(wire, name).window is None
    assert provider(wire, name, window=4_096).window == 4_096


def test_each_request_of_a_session_begins_with_the_one_before(wire):
    call = {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}}
    lines = [
        {"type": "user", "content": "one"},
        {"type": "assistant", "content": [THOUGHT, {"type": "text", "text": "I look."}, call]},
        {"type": "tool_result", "tool_use_id": "t1", "content": "A"},
        {"type": "assistant", "content": [{"type": "text", "text": "It says A."}]},
        {"type": "user", "content": [{"type": "text", "text": "two"}, PIXEL]},
        {"type": "assistant", "content": [{"type": "text", "text": "Nice."}]},
        {"type": "user", "content": "three"},
    ]
    log = [entry(seq=number, **line) for number, line in enumerate(lines, 1)]
    prompts = [of_transcript(log[:end], system="S", tools=(READ,)) for end in (1, 3, 5, 7)]
    for prompt in prompts:
        check_messages(prompt.messages)
    run(ask(provider(wire), *prompts))
    after = b'],"stream_options"'
    for shorter, longer in pairwise(request.raw for request in wire.requests):
        end = shorter.index(after)
        assert longer.startswith(shorter[:end])
        assert longer[longer.index(after) :] == shorter[end:]


@pytest.mark.parametrize(
    ("more", "usage"),
    [
        ({"timings": {"prompt_n": 5, "cache_n": 20, "predicted_n": 3}}, (5, 20, 3)),
        ({"usage": {"prompt_tokens": 25, "completion_tokens": 3}, "timings": {"cache_n": 20}}, (5, 20, 3)),
        ({"usage": {"prompt_tokens": 25, "completion_tokens": 3, "prompt_cache_hit_tokens": 20}}, (5, 20, 3)),
        ({"usage": {"prompt_tokens": 25, "completion_tokens": 3, "prompt_tokens_details": None}}, (25, 0, 3)),
        ({}, None),
    ],
)
def test_usage_is_found_where_other_servers_put_it(wire, more, usage):
    wire.say(Streamed((chunk({"content": "x"}), chunk({}, finish="stop", **more))))
    counted = run(ask(provider(wire), said()))[-1].usage
    names = ("input_tokens", "cache_read_input_tokens", "output_tokens")
    assert (counted and tuple(counted[name] for name in names)) == usage


@pytest.mark.parametrize(
    ("finish", "stop"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("content_filter", "refusal"),
        ("tool_calls", "end_turn"),
        ("model_length", "model_context_window_exceeded"),
        ("abort", "abort"),
    ],
)
def test_finish_reasons_are_put_into_our_words(wire, finish, stop):
    wire.say(Streamed((chunk({"content": "x"}), chunk({}, finish=finish))))
    assert run(ask(provider(wire), said()))[-1].stop == stop


@pytest.mark.parametrize(
    "body",
    [
        "This model's maximum context length is 8192 tokens, however you requested 9001 tokens",
        {"error": "the request exceeds the available context size. try increasing it"},
        {"object": "error", "message": "This model's maximum context length is 8192 tokens.", "code": 400},
        {"detail": "prompt is too long"},
    ],
)
def test_other_servers_bodies_are_read_too(wire, body):
    wire.say(Refused(400, body))
    assert type(run(failure(provider(wire), said()))) is ContextOverflow


def test_azure_says_within_its_error_which_policy_it_was(wire):
    inner = {"code": "ResponsibleAIPolicyViolation", "content_filter_result": {}}
    wire.say(Refused(400, {"error": {"message": "no", "type": None, "code": "400", "innererror": inner}}))
    assert type(run(failure(provider(wire), said()))) is ContentRefused


def test_a_status_within_a_stream_counts_as_one(wire):
    wire.say(Said(text="x", error={"code": 503, "message": "loading model"}))
    assert type(run(failure(provider(wire), said()))) is ProviderBusy


def test_chunks_of_unknown_shapes_do_no_harm(wire):
    odd = [
        {"choices": None},
        {"choices": [{"delta": None}], "usage": "many", "timings": 3},
        {"choices": [{"delta": {"content": [{"type": "text", "text": "a"}], "tool_calls": "none"}}]},
        {"choices": [{"delta": {"tool_calls": [None, {"index": 0, "function": None}]}}]},
        {"choices": [{"message": {"content": "b"}, "finish_reason": "stop"}]},
    ]
    wire.say(Streamed(tuple(map(frame, odd))))
    answer = run(ask(provider(wire), said()))[-1]
    assert answer.content[0] == {"type": "text", "text": "ab"}
    check_messages(
        [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": answer.content},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": block["id"], "content": "?"} for block in answer.content[1:]
                ],
            },
        ]
    )


def test_a_key_is_needed_unless_an_address_is_given(monkeypatch, wire):
    with pytest.raises(ProviderRefused) as caught:
        OpenAIProvider("gpt-6")
    assert "OPENAI_API_KEY" in caught.value.hint
    monkeypatch.setenv("OPENAI_BASE_URL", wire.openai_url)
    run(ask(OpenAIProvider("m"), said()))
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    run(ask(OpenAIProvider("m"), said()))
    assert [request.headers["authorization"] for request in wire.requests] == ["Bearer none", "Bearer secret"]
