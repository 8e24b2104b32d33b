"""/v1/messages through Anthropic's real SDK, and byte by byte where the SDK would forgive."""

import anthropic
import pytest

from tests.providers.wire import Said, Streamed, chunk, frame

from .serving import HI, TOOL, frames

CALLS = ({"id": "toolu_1", "name": "look", "input": {"at": "ü"}}, {"id": "toolu_2", "name": "look", "input": {}})
USAGE = {"input_tokens": 7, "cache_read_input_tokens": 900, "cache_creation_input_tokens": 40, "output_tokens": 3}
CLAUDE = "anthropic:claude-opus-5-5"
OLD = {"anthropic_version": "2023-06-01"}
NEW = {"anthropic_version": "2026-10-21"}


@pytest.mark.parametrize("model", ["gpt", CLAUDE])
def test_an_answer_has_every_field_and_names_its_session(relay, model):
    relay.say(Said(text="Hello", usage=USAGE))
    raw = relay.anthropic().messages.with_raw_response.create(model=model, max_tokens=50, messages=HI)
    answer = raw.parse()
    assert answer.content[0].text == "Hello"
    assert (answer.stop_reason, answer.stop_sequence, answer.model) == ("end_turn", None, model)
    assert {name: getattr(answer.usage, name) for name in USAGE} == USAGE
    assert answer._request_id == raw.headers["request-id"] == raw.headers["x-request-id"]
    assert answer.turnlog["session"] == raw.headers["turnlog-session"]
    assert answer.id.startswith(f"msg_{raw.headers['turnlog-session']}_")


@pytest.mark.parametrize("model", ["gpt", CLAUDE])
def test_a_stream_is_put_together_by_the_sdk(relay, model):
    relay.say(Said(thinking="hm", texts=("Hel", "lo"), calls=CALLS, usage=USAGE))
    with relay.anthropic().messages.stream(model=model, max_tokens=50, messages=HI, tools=[TOOL]) as stream:
        answer = stream.get_final_message()
    thinking, text, first, second = answer.content
    assert (thinking.thinking, text.text) == ("hm", "Hello")
    assert thinking.signature == ("c2lnbmVk" if model == CLAUDE else "")
    assert [(call.id, call.input) for call in (first, second)] == [("toolu_1", {"at": "ü"}), ("toolu_2", {})]
    assert answer.stop_reason == "tool_use"
    assert answer.usage.cache_read_input_tokens == 900


def follow(events):
    """A machine with the states of section 9.4; raises at the first event that is out of order. Gives the blocks."""
    state, index, kinds = "start", -1, []
    for name, data in events:
        assert name == data["type"], "every event is named"
        match name:
            case "ping":
                assert state != "start"
            case "message_start":
                assert state == "start"
                state = "between"
            case "content_block_start":
                assert state == "between"
                index, state = index + 1, "inside"
                assert data["index"] == index
                kinds.append(data["content_block"]["type"])
            case "content_block_delta":
                assert (state, data["index"]) == ("inside", index)
                assert data["delta"]["type"] in (
                    "text_delta",
                    "thinking_delta",
                    "signature_delta",
                    "input_json_delta",
                )
            case "content_block_stop":
                assert (state, data["index"]) == ("inside", index)
                state = "between"
            case "message_delta":
                assert state == "between"
                assert data["delta"]["stop_reason"]
                assert data["turnlog"]["match"]
                state = "ending"
            case "message_stop":
                assert state == "ending"
                state = "done"
            case _:
                raise AssertionError(f"no event of our own: {name}")
    assert state == "done"
    return kinds


def test_events_come_in_the_order_of_the_wire(relay):
    relay.say(Said(thinking="hm", redacted="c2VjcmV0", texts=("a", "b"), calls=CALLS))
    found = frames(relay.messages(model=CLAUDE, stream=True, tools=[TOOL]).text)
    assert follow(found) == ["thinking", "redacted_thinking", "text", "tool_use", "tool_use"]
    assert [name for name, _ in found][:2] == ["message_start", "ping"]


def test_calls_whose_pieces_come_in_turns_are_blocks_one_after_another(relay):
    pieces = [
        [{"index": 0, "id": "a", "function": {"name": "look", "arguments": '{"n"'}}],
        [{"index": 1, "id": "b", "function": {"name": "look", "arguments": '{"n"'}}],
        [{"index": 1, "function": {"arguments": ":2}"}}, {"index": 0, "function": {"arguments": ":1}"}}],
    ]
    relay.say(Streamed((*(chunk({"tool_calls": some}) for some in pieces), chunk({}, finish="stop"), frame("[DONE]"))))
    found = frames(relay.messages(stream=True, tools=[TOOL]).text)
    assert follow(found) == ["tool_use", "tool_use"]
    written = ["", ""]
    for name, data in found:
        if name == "content_block_delta":
            written[data["index"]] += data["delta"]["partial_json"]
    assert written == ['{"n":1}', '{"n":2}']


def test_parameters_reach_claude_in_its_own_names(relay):
    relay.say()
    given = {
        "stop_sequences": ["END"],
        "tool_choice": {"type": "tool", "name": "look", "disable_parallel_tool_use": True},
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "low"},
        "metadata": {"user_id": "u"},
    }
    answer = relay.messages(model=CLAUDE, tools=[TOOL], context_management={"edits": []}, x=1, **given)
    assert answer.status_code == 200, answer.text
    sent = relay.sent()
    assert {name: sent[name] for name in given} == given
    assert sent["max_tokens"] == 100
    assert set(answer.headers["turnlog-ignored"].split(",")) == {"x"}


def test_parameters_reach_another_family_in_its_names(relay):
    relay.say()
    answer = relay.messages(
        OLD,
        temperature=0.5,
        top_k=3,
        stop_sequences=["END"],
        tools=[TOOL, {"type": "web_search_20250305", "name": "web_search"}],
        tool_choice={"type": "any"},
        thinking={"type": "enabled", "budget_tokens": 2_000},
        output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}},
    )
    assert answer.status_code == 200, answer.text
    sent = relay.sent()
    assert (sent["temperature"], sent["stop"], sent["tool_choice"]) == (0.5, ["END"], "required")
    assert (sent["reasoning_effort"], sent["max_tokens"]) == ("low", 100)
    assert sent["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert len(sent["tools"]) == 1
    assert set(answer.headers["turnlog-ignored"].split(",")) == {"top_k", "tools"}


def test_what_is_anthropics_own_goes_to_anthropic_only(relay):
    system = [{"type": "text", "text": "x-anthropic-billing-header: cc=1"}, {"type": "text", "text": "Be kind."}]
    beta = {"anthropic_beta": "context-1m-2025-08-07,unknown-2020-01-01"}
    relay.say()
    relay.messages(beta, system=system)
    assert relay.sent()["messages"][0] == {"role": "system", "content": "Be kind."}
    relay.messages(beta, model=CLAUDE, system=system)
    assert "billing" in str(relay.sent()["system"])
    assert relay.wire.requests[-1].headers["anthropic-beta"] == "context-1m-2025-08-07"


def test_both_versions_are_known_and_the_newer_refuses_what_its_vendor_refuses(relay):
    relay.say()
    assert relay.messages(OLD, temperature=0.5).status_code == 200
    assert relay.messages(temperature=0.5).status_code == 200
    for name in ("temperature", "top_p", "top_k"):
        assert relay.messages(NEW, **{name: 1}).status_code == 400
    cited = [{"role": "user", "content": [{"type": "text", "text": "x", "citations": [{"type": "char_location"}]}]}]
    assert relay.messages(NEW, messages=cited).status_code == 400
    assert relay.messages({"anthropic_version": "2020-01-01"}).status_code == 400
    with_key = relay.anthropic(default_headers={"anthropic-version": "2023-06-01"})
    assert with_key.messages.create(model="m", max_tokens=5, messages=HI).content


def test_marks_of_the_clients_cache_are_replaced_by_ours(relay):
    relay.say()
    mark = {"type": "ephemeral"}
    content = [{"type": "text", "text": "Hi", "cache_control": mark}]
    answer = relay.messages(
        model=CLAUDE, messages=[{"role": "user", "content": content}], tools=[{**TOOL, "cache_control": mark}],
        system=[{"type": "text", "text": "S", "cache_control": mark}], cache_control=mark,
    )  # fmt: skip
    assert answer.status_code == 200
    assert "turnlog-ignored" not in answer.headers
    assert str(relay.sent()).count("cache_control") <= 4


def test_results_come_first_whatever_stands_beside_them(relay):
    relay.say()
    messages = [
        *HI,
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look", "input": {"a": 1}}]},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "See:"},
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "found"}]},
            ],
        },
    ]
    assert relay.messages(messages=messages, tools=[TOOL]).status_code == 200
    assert [message["role"] for message in relay.sent()["messages"]] == ["user", "assistant", "tool", "user"]


BAD = [
    {"messages": []},
    {"messages": [*HI, {"role": "assistant", "content": "pre"}]},
    {"messages": [{"role": "robot", "content": "x"}]},
    {"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "b", "input": {}}]}]},
    {"max_tokens": None},
    {"max_tokens": 0},
    {"system": 5},
    {"system": [{"type": "image"}]},
    {"tools": [5]},
    {"tools": [TOOL, TOOL]},
    {"tool_choice": {"type": "tool"}},
    {"thinking": {"type": "enabled"}},
    {"output_config": {"effort": "much"}},
    {"output_config": {"format": {"type": "xml"}}},
    {"thread": {"type": "other"}},
    {"stop_sequences": "x"},
]


@pytest.mark.parametrize("fields", BAD, ids=map(str, BAD))
def test_a_bad_field_is_refused_in_anthropics_shape_and_leaves_no_session(relay, fields):
    before = len(relay.sessions())
    answer = relay.messages(**fields)
    assert answer.status_code == 400, answer.text
    body = answer.json()
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert body["request_id"] == answer.headers["request-id"]
    assert len(relay.sessions()) == before


def test_tokens_are_counted_and_nothing_is_stored(relay):
    before = len(relay.sessions())
    client = relay.anthropic()
    short = client.messages.count_tokens(model="m", messages=HI).input_tokens
    long = client.messages.count_tokens(model="m", messages=[{"role": "user", "content": "word " * 900}]).input_tokens
    assert 0 < short < long
    assert len(relay.sessions()) == before


def test_an_error_after_the_head_is_an_event(relay):
    relay.say(Said(texts=("a", "b"), error={"type": "overloaded_error", "message": "Overloaded"}))
    with (
        relay.anthropic().messages.stream(model=CLAUDE, max_tokens=9, messages=HI) as stream,
        pytest.raises(anthropic.APIStatusError, match="Overloaded"),
    ):
        stream.until_done()


def test_the_sdk_reads_our_refusals(relay):
    with pytest.raises(anthropic.AuthenticationError):
        relay.anthropic(token="tl_no_such").messages.create(model="m", max_tokens=5, messages=HI)
    with pytest.raises(anthropic.NotFoundError, match="does not exist"):
        relay.anthropic().messages.create(model="agent:nobody", max_tokens=5, messages=HI)


def test_a_thread_carries_its_system_and_tools_and_a_lost_one_is_told_as_the_sdk_expects(relay):
    relay.say(Said(text="One"), Said(text="Two"))
    first = relay.messages(thread={"type": "create"}, system="Be kind.", tools=[TOOL]).json()
    again = {"type": "continue", "previous_message_id": first["id"]}
    second = relay.messages(thread=again, messages=[{"role": "user", "content": "More"}])
    assert second.status_code == 200, second.text
    sent = relay.sent()
    assert [message["content"] for message in sent["messages"]] == ["Be kind.", "Hi", "One", "More"]
    assert sent["tools"]
    for lost in ("msg_nowhere_3", "msg_x", f"{first['id']}9"):
        answer = relay.messages(thread={**again, "previous_message_id": lost})
        assert answer.status_code == 404, answer.text
        assert answer.json()["error"]["details"]["error_code"] == "thread_not_found"
