"""Anthropic's real SDK against a server that speaks its wire format."""

import re
from itertools import pairwise

import pytest

from tests.prompts import of_transcript
from tests.providers.wire import (
    PROXIES,
    SETTINGS,
    Said,
    Streamed,
    Wire,
    ask,
    event,
    run,
)
from turnlog.core.prompt import INVALID_INPUT, Prompt, ToolDefinition
from turnlog.errors import ProviderRefused
from turnlog.providers.anthropic import AnthropicProvider
from turnlog.testing import check_messages, entry

MODEL = "claude-opus-5-5"
PIXEL = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
READ = ToolDefinition(
    name="read",
    description="Reads a file.",
    input_schema={"type": "object", "properties": {"path": {"type": "string"}}},
)
SIGNED = {"type": "thinking", "thinking": "It is in a.txt.", "signature": "sig=="}
CALL = {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}}
MARK = {"type": "ephemeral"}


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in (*SETTINGS, *PROXIES):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def wire():
    with Wire() as server:
        yield server


def provider(wire, name=MODEL, **options):
    return AnthropicProvider(name, api_key="key", base_url=wire.anthropic_url, **options)


def said(text="Hi", **more):
    return Prompt(system="Be kind.", messages=[{"role": "user", "content": text}], **more)


def sent(wire, prompt, **options):
    """The body of the request that a prompt makes."""
    check_messages(prompt.messages)
    run(ask(provider(wire, **options), prompt))
    return wire.requests[-1].body


def test_a_request_says_no_more_than_it_must(wire):
    body = sent(wire, said())
    assert set(body) == {"model", "max_tokens", "messages", "stream", "system"}
    assert wire.requests[0].headers["authorization"] == "Bearer key"


@pytest.mark.parametrize("written", ['{"path": ', "[1]", "null", '{"a": NaN}', '{"a":' * 300 + "1" + "}" * 300])
def test_an_input_that_is_no_json_object_is_kept_as_text(wire, written):
    wire.say(Said(calls=({"id": "t1", "name": "read", "input": written},)))
    answer = run(ask(provider(wire), said()))[-1]
    assert answer.content[0]["input"] == {INVALID_INPUT: written}


def test_a_call_without_arguments_has_an_empty_input(wire):
    wire.say(Said(calls=({"id": "t1", "name": "read", "input": ""},)))
    assert run(ask(provider(wire), said()))[-1].content[0]["input"] == {}


def test_thinking_is_told_signed_and_sent_back_unchanged(wire):
    wire.say(Said(thinking="Let me see", redacted="ZW5j", text="Done", signature="abc=="))
    *pieces, answer = run(ask(provider(wire), said()))
    assert "".join(piece.thinking for piece in pieces) == "Let me see"
    assert answer.content == [
        {"type": "thinking", "thinking": "Let me see", "signature": "abc=="},
        {"type": "redacted_thinking", "data": "ZW5j"},
        {"type": "text", "text": "Done"},
    ]
    messages = [*said().messages, {"role": "assistant", "content": answer.content}, {"role": "user", "content": "more"}]
    assert sent(wire, Prompt(system="", messages=messages))["messages"][1]["content"] == answer.content


def test_what_another_provider_thought_or_signed_is_left_out(wire):
    foreign = [
        {"type": "thinking", "thinking": "unsigned"},
        {"type": "reasoning", "encrypted_content": "x"},
        {"type": "text", "text": "Yes."},
    ]
    messages = [*said().messages, {"role": "assistant", "content": foreign}, {"role": "user", "content": "more"}]
    body = sent(wire, Prompt(system="", messages=messages))
    assert body["messages"][1]["content"] == [{"type": "text", "text": "Yes."}]


def test_a_message_of_which_nothing_is_left_is_left_out_and_its_neighbours_merge(wire):
    empty = {"role": "assistant", "content": [{"type": "thinking", "thinking": "unsigned"}]}
    messages = [{"role": "user", "content": "one"}, empty, {"role": "user", "content": "two"}]
    body = sent(wire, Prompt(system="", messages=messages, breakpoints=((0, 0), (1, 0), (2, 0))))
    marked = [{"type": "text", "text": text, "cache_control": MARK} for text in ("one", "two")]
    assert body["messages"] == [{"role": "user", "content": marked}]


def test_images_and_unknown_blocks_of_a_user_are_shown(wire):
    content = [{"type": "text", "text": "what is this?"}, PIXEL, {"type": "audio", "seconds": 3}]
    body = sent(wire, Prompt(system="", messages=[{"role": "user", "content": content}]))
    assert body["messages"][0]["content"][:2] == content[:2]
    assert body["messages"][0]["content"][2] == {"type": "text", "text": '{"type": "audio", "seconds": 3}'}


def tool_round():
    return [
        {"role": "user", "content": "look"},
        {
            "role": "assistant",
            "content": [SIGNED, {**CALL, "id": "functions.read:0", "cache_control": MARK}],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "functions.read:0",
                    "content": [{"type": "text", "text": "A", "cache_control": MARK}, PIXEL],
                    "is_error": True,
                    "cache_control": MARK,
                },
                {"type": "text", "text": "and?"},
            ],
        },
    ]


def test_ids_that_this_api_refuses_are_rewritten_on_both_sides(wire):
    body = sent(wire, Prompt(system="", messages=tool_round(), tools=(READ,)))
    call, result = body["messages"][1]["content"][1], body["messages"][2]["content"][0]
    assert call["id"] == result["tool_use_id"]
    assert re.fullmatch("[a-zA-Z0-9_-]+", call["id"])


def marks(value, place=()):
    if isinstance(value, dict):
        found = [place] if "cache_control" in value else []
        return found + [mark for name, inner in value.items() for mark in marks(inner, (*place, name))]
    if isinstance(value, list):
        return [mark for index, inner in enumerate(value) for mark in marks(inner, (*place, index))]
    return []


def test_cache_marks_are_exactly_at_the_breakpoints(wire):
    places = ((-1, 0), (0, 0), (2, 0), (2, 1))
    body = sent(wire, Prompt(system="S", messages=tool_round(), tools=(READ,), breakpoints=places))
    assert sorted(marks(body), key=str) == [
        ("messages", 0, "content", 0),
        ("messages", 2, "content", 0),
        ("messages", 2, "content", 1),
        ("system", 0),
    ]


def test_a_compaction_leaves_tools_and_constant_system_text_cached(wire):
    bodies = []
    for lead in ("Summary: one", "Summary: two"):
        made = Prompt(
            system=f"Be kind.\n\n{lead}",
            constant=8,
            messages=said().messages,
            tools=(READ,),
            breakpoints=((-1, 0), (-1, 1)),
        )
        bodies.append(sent(wire, made))
    for body, lead in zip(bodies, ("Summary: one", "Summary: two"), strict=True):
        assert body["system"] == [
            {"type": "text", "text": "Be kind.", "cache_control": MARK},
            {"type": "text", "text": lead, "cache_control": MARK},
        ]
    assert bodies[0]["tools"] == bodies[1]["tools"]


def test_without_constant_system_text_tools_and_summary_are_cached_apart(wire):
    made = Prompt(system="Summary", constant=0, messages=said().messages, tools=(READ,), breakpoints=((-1, 0), (-1, 1)))
    body = sent(wire, made)
    assert body["system"] == [{"type": "text", "text": "Summary", "cache_control": MARK}]
    assert body["tools"][-1]["cache_control"] == MARK


def test_without_a_system_prompt_the_last_tool_carries_the_mark(wire):
    other = ToolDefinition(name="list")
    body = sent(wire, Prompt(system="", messages=said().messages, tools=(READ, other), breakpoints=((-1, 0),)))
    assert marks(body) == [("tools", 1)]
    assert body["tools"][1] == {"name": "list", "input_schema": {"type": "object"}, "cache_control": MARK}


def test_no_mark_is_set_on_thinking_and_never_more_than_four(wire):
    messages = [*tool_round(), {"role": "assistant", "content": "fine"}, {"role": "user", "content": "go"}]
    places = ((-1, 0), (1, 0), (1, 1), (2, 1), (4, 0))
    body = sent(wire, Prompt(system="S", messages=messages, tools=(READ,), breakpoints=places))
    assert ("messages", 1, "content", 0) not in marks(body)
    assert len(marks(body)) <= 4


def test_tools_that_may_not_be_called_stay_named(wire):
    free = sent(wire, said(tools=(READ,)))
    bound = sent(wire, said(tools=(READ,), may_call=False))
    assert free["tools"] == bound["tools"]
    assert "tool_choice" not in free
    assert bound["tool_choice"] == {"type": "none"}


def test_the_length_of_an_answer_is_asked_for_by_prompt_constructor_or_family(wire):
    assert sent(wire, said(max_output=77), max_output=99)["max_tokens"] == 77
    assert sent(wire, said(), max_output=99)["max_tokens"] == 99
    assert sent(wire, said())["max_tokens"] == 128_000
    assert sent(wire, said(), name="claude-next")["max_tokens"] == 16_384


@pytest.mark.parametrize(
    ("name", "window"),
    [("claude-opus-5-5", 1_000_000), ("claude-haiku-4-5-20251001", 200_000), ("claude-opus-4-1", 200_000), ("x", None)],
)
def test_windows_are_known_by_family_unless_told(name, window):
    assert AnthropicProvider(name, api_key="k").window == window
    assert AnthropicProvider(name, api_key="k", window=5_000).window == 5_000


def log():
    lines = [
        {"type": "user", "content": "one"},
        {"type": "assistant", "content": [SIGNED, {"type": "text", "text": "I look."}, CALL]},
        {"type": "tool_result", "tool_use_id": "t1", "content": "A"},
        {"type": "assistant", "content": [{"type": "text", "text": "It says A."}]},
        {"type": "user", "content": [{"type": "text", "text": "two"}, PIXEL]},
        {"type": "assistant", "content": [{"type": "text", "text": "Nice."}]},
        {"type": "user", "content": "three"},
    ]
    return [entry(seq=number, **line) for number, line in enumerate(lines, 1)]


def test_each_request_of_a_session_begins_with_the_one_before_but_for_the_marks(wire):
    prompts = [of_transcript(log()[:end], system="S", tools=(READ,)) for end in (1, 3, 5, 7)]
    for prompt in prompts:
        check_messages(prompt.messages)
    run(ask(provider(wire), *prompts))
    plain = [request.raw.replace(b',"cache_control":{"type":"ephemeral"}', b"") for request in wire.requests]
    for shorter, longer in pairwise(plain):
        end = shorter.index(b'],"model"')
        assert longer.startswith(shorter[:end])
        assert longer[longer.index(b'],"model"') :] == shorter[end:]


@pytest.mark.parametrize("stop", ["max_tokens", "refusal", "pause_turn", "model_context_window_exceeded"])
def test_stop_reasons_are_passed_on_as_given(wire, stop):
    wire.say(Said(text="x", stop=stop))
    assert run(ask(provider(wire), said()))[-1].stop == stop


def test_events_of_unknown_kinds_and_shapes_do_no_harm(wire):
    call = {"type": "tool_use", "id": "t", "name": "r"}
    odd = [
        {"type": "message_start", "message": {"usage": None}},
        {"type": "weather", "sun": True},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "a"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "glow_delta", "glow": 1}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "b"}},
        {"type": "content_block_start", "index": 1, "content_block": {**call, "input": ""}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": None}},
        {"type": "message_stop"},
    ]
    wire.say(Streamed(tuple(map(event, odd))))
    answer = run(ask(provider(wire), said()))[-1]
    assert answer.content[0] == {"type": "text", "text": "ab"}
    assert answer.content[1]["input"] == {}
    assert answer.usage["output_tokens"] == 0


def test_a_missing_key_is_named(monkeypatch):
    with pytest.raises(ProviderRefused) as caught:
        AnthropicProvider(MODEL)
    assert "ANTHROPIC_API_KEY" in caught.value.hint
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    assert AnthropicProvider(MODEL).model == f"anthropic:{MODEL}"
