"""/v1/chat/completions through OpenAI's real SDK, and byte by byte where the SDK would forgive."""

import json

import openai
import pytest

from tests.providers.wire import Said, Streamed, chunk, frame

from .serving import CHAT_TOOL, HI, frames

CALLS = ({"id": "c1", "name": "look", "input": {"at": "ü"}}, {"id": "c2", "name": "look", "input": {}})
USAGE = {"input_tokens": 7, "cache_read_input_tokens": 900, "output_tokens": 3}
PIXEL = "data:image/png;base64,iVBORw0KGgo="
PICTURE = {"type": "image_url", "image_url": {"url": PIXEL}}


def test_an_answer_has_every_field_and_names_its_session(relay):
    relay.say(Said(text="Hello", usage=USAGE))
    raw = relay.openai().chat.completions.with_raw_response.create(model="some-name", messages=HI)
    answer = raw.parse()
    assert answer.choices[0].message.content == "Hello"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == "some-name"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (907, 3, 910)
    assert answer.usage.prompt_tokens_details.cached_tokens == 900
    assert answer._request_id == raw.headers["x-request-id"]
    assert answer.turnlog["session"] == raw.headers["turnlog-session"]
    assert raw.headers["turnlog-guard"] == answer.turnlog["guard"] == "as_is"
    assert relay.sent()["model"] == "some-name"


def test_a_stream_is_put_together_by_the_sdk(relay):
    relay.say(Said(thinking="hm", texts=("Hel", "lo"), calls=CALLS, usage=USAGE))
    with relay.openai().chat.completions.stream(
        model="m", messages=HI, tools=[CHAT_TOOL], stream_options={"include_usage": True}
    ) as stream:
        kinds = [event.type for event in stream]
        answer = stream.get_final_completion()
    message = answer.choices[0].message
    assert message.content == "Hello"
    assert [(call.id, json.loads(call.function.arguments)) for call in message.tool_calls] == [
        ("c1", {"at": "ü"}),
        ("c2", {}),
    ]
    assert answer.choices[0].finish_reason == "tool_calls"
    assert answer.usage.prompt_tokens == 907
    assert "tool_calls.function.arguments.done" in kinds


def follow(events):
    """A machine with the states of section 8.4; raises at the first event that is out of order."""
    state, ids, calls = "start", set(), set()
    for name, data in events:
        assert name is None, "no event names on this wire"
        if data == "[DONE]":
            assert state == "finished"
            state = "done"
            continue
        ids.add((data["id"], data["created"], data["object"]))
        if not data["choices"]:
            assert state == "finished"
            assert data["usage"]["total_tokens"] >= 0
            continue
        [choice] = data["choices"]
        delta = choice["delta"]
        assert state not in ("finished", "done"), "nothing follows the end"
        if "role" in delta:
            assert state == "start"
            state = "role"
        elif choice["finish_reason"]:
            assert delta == {}
            assert data["turnlog"]["match"]
            state = "finished"
        elif "tool_calls" in delta:
            [piece] = delta["tool_calls"]
            if piece["index"] not in calls:
                assert piece["type"] == "function"
                assert piece["function"]["arguments"] == ""
                assert piece["id"]
                calls.add(piece["index"])
            state = "calls"
        else:
            assert state != "calls"
            assert set(delta) <= {"content", "reasoning_content"}
            state = "text"
    assert state == "done"
    assert len(ids) == 1
    return calls


@pytest.mark.parametrize("usage", [True, False])
def test_events_come_in_the_order_of_the_wire(relay, usage):
    relay.say(Said(thinking="hm", texts=("a", "b"), calls=CALLS))
    options = {"stream_options": {"include_usage": True}} if usage else {}
    answer = relay.chat(stream=True, tools=[CHAT_TOOL], **options)
    assert answer.headers["content-type"].startswith("text/event-stream")
    found = frames(answer.text)
    assert follow(found) == {0, 1}
    assert any(data != "[DONE]" and not data["choices"] for _, data in found) == usage


def test_two_calls_in_turns_keep_their_numbers(relay):
    pieces = [
        [{"index": 0, "id": "a", "function": {"name": "look", "arguments": '{"n"'}}],
        [{"index": 1, "id": "b", "function": {"name": "look", "arguments": '{"n"'}}],
        [{"index": 0, "function": {"arguments": ":1}"}}, {"index": 1, "function": {"arguments": ":2}"}}],
    ]
    relay.say(Streamed((*(chunk({"tool_calls": some}) for some in pieces), chunk({}, finish="stop"), frame("[DONE]"))))
    follow(frames(relay.chat(stream=True, tools=[CHAT_TOOL]).text))


def test_parameters_reach_the_model_and_what_it_cannot_do_is_named(relay):
    relay.say()
    given = {
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": "END",
        "seed": 7,
        "presence_penalty": 1,
        "frequency_penalty": -1,
        "max_tokens": 77,
        "tool_choice": {"type": "function", "function": {"name": "look"}},
        "parallel_tool_calls": False,
        "reasoning_effort": "low",
        "response_format": {"type": "json_object"},
    }
    ignored = {"service_tier": "auto", "verbosity": "low", "logit_bias": {}, "prompt_cache_retention": "24h", "x": 1}
    answer = relay.chat(tools=[CHAT_TOOL], **given, **ignored, user="u", metadata={"a": "b"}, store=True)
    assert answer.status_code == 200, answer.text
    sent = relay.sent()
    assert {**given, "stop": ["END"]} == {name: sent[name] for name in given}
    assert set(answer.headers["turnlog-ignored"].split(",")) == set(ignored)
    assert "user" not in sent


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 2},
        {"audio": {"voice": "x"}},
        {"modalities": ["text", "audio"]},
        {"logprobs": True},
        {"functions": [{"name": "f"}]},
        {"function_call": "auto"},
        {"web_search_options": {"a": 1}},
        {"tools": [{"type": "custom", "custom": {"name": "x"}}]},
    ],
)
def test_what_would_change_the_answer_is_refused(relay, fields):
    error = relay.chat(**fields).json()["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "unsupported_parameter")
    assert error["param"]


BAD = [
    ({"messages": []}, "messages"),
    ({"messages": None}, "messages"),
    ({"messages": "Hi"}, "messages"),
    ({"messages": [1]}, "messages[0]"),
    ({"messages": [{"role": "system", "content": "only"}]}, "messages"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0]"),
    ({"messages": [*HI, {"role": "assistant", "content": "pre"}]}, "messages[1]"),
    ({"messages": [*HI, {"role": "tool", "content": "x"}]}, "messages[1]"),
    ({"messages": [{"role": "user", "content": {"type": "text"}}]}, "messages[0]"),
    ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages[0]"),
    ({"messages": [{"role": "assistant", "tool_calls": "x"}, *HI]}, "messages[0]"),
    ({"messages": [{"role": "assistant", "tool_calls": [{"id": "a"}]}, *HI]}, "messages[0]"),
    ({"model": None}, "model"),
    ({"model": 5}, "model"),
    ({"temperature": 3}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"stream": "yes"}, "stream"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"tool_choice": "maybe"}, "tool_choice"),
    ({"response_format": {"type": "xml"}}, "response_format"),
    ({"reasoning_effort": "much"}, "reasoning_effort"),
    ({"tools": [CHAT_TOOL, CHAT_TOOL]}, "tools"),
    ({"tools": [{"type": "function"}]}, "tools[0]"),
    ({"stop": ["x"] * 17}, "stop"),
]


@pytest.mark.parametrize(("fields", "param"), BAD, ids=[f"{param}-{number}" for number, (_, param) in enumerate(BAD)])
def test_a_bad_field_is_named_and_leaves_no_session(relay, fields, param):
    before = len(relay.sessions())
    answer = relay.chat(**fields)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert len(relay.sessions()) == before


def test_every_role_and_part_is_sent_on(relay):
    relay.say()
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "developer", "content": [{"type": "text", "text": "Be short."}]},
        {"role": "user", "content": [{"type": "text", "text": "See"}, PICTURE]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "found"},
        {"role": "system", "content": "Mind the gap."},
        {"role": "user", "content": "And?"},
    ]  # fmt: skip
    assert relay.chat(messages=messages, tools=[CHAT_TOOL]).status_code == 200
    system, user, assistant, tool, last = relay.sent()["messages"]
    assert system == {"role": "system", "content": "Be kind.\n\nBe short."}
    assert user["content"][1]["image_url"]["url"] == PIXEL
    assert json.loads(assistant["tool_calls"][0]["function"]["arguments"]) == {"at": 1}
    assert tool["content"] == "found"
    assert last["role"] == "user"
    assert "Mind the gap." in last["content"]
    assert last["content"].endswith("And?")


@pytest.mark.parametrize(
    ("stop", "finish"), [("max_tokens", "length"), ("refusal", "content_filter"), ("end_turn", "stop")]
)
def test_why_an_answer_ended_is_told_in_openais_words(relay, stop, finish):
    relay.say(Said(text="x", stop=stop))
    assert relay.chat().json()["choices"][0]["finish_reason"] == finish


def test_an_error_after_the_head_ends_the_stream_without_done(relay):
    relay.say(Said(texts=("a", "b"), error={"type": "server_error", "message": "Overloaded", "code": "overloaded"}))
    answer = relay.chat(stream=True)
    assert answer.status_code == 200
    *_, (_, last) = frames(answer.text)
    assert last["error"]["type"] == "server_error"
    assert "[DONE]" not in answer.text


def test_an_agents_turn_runs_the_servers_tools(relay):
    relay.say(Said(calls=({"id": "t1", "name": "list_dir", "input": {}},)), Said(text="Nothing there."))
    answer = relay.openai().chat.completions.create(model="agent:main", messages=HI)
    assert answer.choices[0].message.content == "Nothing there."
    assert len(relay.wire.requests) == 2
    refused = relay.chat(model="agent:main", tools=[CHAT_TOOL])
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tools")


def text_in(answer, stream):
    if not stream:
        return answer.json()["choices"][0]["message"]["content"]
    chunks = [data for _, data in frames(answer.text) if data != "[DONE]" and data["choices"]]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)


@pytest.mark.parametrize("stream", [False, True])
def test_a_conversation_with_an_agent_goes_on_behind_its_whole_turn(relay, stream):
    """The client has one message of a turn with calls, and sends only that."""
    call = {"id": "t1", "name": "list_dir", "input": {}}
    said = [{"role": "user", "content": f"What is there? {stream}"}]
    relay.say(
        Said(text="I will look.", calls=(call,)),
        Said(text="And again.", calls=({**call, "id": "t2"},)),
        Said(text="Nothing."),
        Said(text="Still nothing.", calls=({**call, "id": "t3"},)),
        Said(text="Really."),
        Said(text="Bye."),
    )
    matches, sessions = [], set()
    for question in ("Sure?", "Really?", ""):
        answer = relay.chat(model="agent:main", messages=said, stream=stream)
        matches.append(answer.headers["turnlog-match"])
        sessions.add(answer.headers["turnlog-session"])
        said += [{"role": "assistant", "content": text_in(answer, stream)}, {"role": "user", "content": question}]
    assert matches == ["new", "continued", "continued"]
    assert len(sessions) == 1
    assert said[1]["content"] == "I will look.\n\nAnd again.\n\nNothing."
    results = [message for message in relay.sent()["messages"] if message["role"] == "tool"]
    assert len(results) == 3, "what the agent did stays in its prompt"


def test_the_sdk_reads_our_refusals(relay):
    with pytest.raises(openai.AuthenticationError) as caught:
        relay.openai(token="tl_no_such").models.list()
    assert caught.value.code == "invalid_api_key"
    with pytest.raises(openai.NotFoundError) as unknown:
        relay.openai().chat.completions.create(model="agent:nobody", messages=HI)
    assert unknown.value.code == "model_not_found"
    assert "[api.models]" in str(unknown.value)


def test_a_number_without_a_fraction_is_a_whole_number(relay):
    body = {"model": "m", "max_tokens": 5.0, "seed": 7.0, "messages": [{"role": "user", "content": "count to five"}]}
    assert relay.post("/v1/chat/completions", body).status_code == 200
    sent = relay.wire.requests[-1].body
    assert [sent.get(name) for name in ("max_tokens", "max_completion_tokens")].count(5) == 1
    assert relay.post("/v1/chat/completions", {**body, "max_tokens": 5.5}).status_code == 400
    thinking = {"type": "enabled", "budget_tokens": 1024.0}
    said = {"model": "m", "max_tokens": 9.0, "thinking": thinking, "messages": body["messages"]}
    assert relay.post("/v1/messages", said).status_code == 200
