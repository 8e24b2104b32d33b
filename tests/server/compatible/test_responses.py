"""/v1/responses through OpenAI's real SDK, and byte by byte where the SDK would forgive."""

import json
import threading
from functools import cache
from itertools import count

import httpx
import openai
import pytest

from tests.providers.wire import Refused, Said, Streamed, chunk, frame
from tests.server.running import PATIENT
from tests.waiting import wait_until

from .response_machine import follow
from .serving import LOOK, frames, serving

TOOL = {"type": "function", "strict": False, **LOOK}
CALLS = ({"id": "c1", "name": "look", "input": {"at": "ü"}}, {"id": "c2", "name": "look", "input": {}})
USAGE = {"input_tokens": 7, "cache_read_input_tokens": 900, "output_tokens": 3}
PIXEL = "data:image/png;base64,iVBORw0KGgo="


NUMBERS = count()


def create(relay, token=None, **fields):
    """Its words are new, unless they are given: the answer to a request that another test cut would be told again."""
    return relay.post("/v1/responses", {"model": "m", "input": f"Hi {next(NUMBERS)}", **fields}, token=token)


def say(text):
    return {"role": "user", "content": text}


@cache
def bob_of(relay):
    """The token of another principal."""
    return relay.server.make_token("bob", "--scope", "chat")


def entries(relay, session):
    with relay.server.client() as client:
        return client.get(f"/api/agents/main/sessions/{session}").json()["entries"]


def kinds(relay, session):
    return [entry["type"] for entry in entries(relay, session) if entry["type"] not in ("session", "foreign")]


def get(relay, path, token=None, **params):
    headers = {"Authorization": f"Bearer {token or relay.server.token}"}
    with httpx.Client(base_url=relay.server.base, headers=headers, **PATIENT) as client:
        return client.get(path, params=params)


def plain(response):
    """A response without what only its first answer says, and without what the SDK adds."""
    found = response.to_dict()
    found.pop("turnlog", None)
    for item in found["output"]:
        for part in item.get("content") or ():
            part.pop("parsed", None)
        item.pop("parsed_arguments", None)
    return found


def test_an_answer_has_every_field_and_is_found_again(relay):
    relay.say(Said(text="Hello", usage=USAGE))
    client = relay.openai()
    answer = client.responses.create(
        model="some-name", input="Hi", instructions="be brief", metadata={"a": "b"}, temperature=0.5, tools=[TOOL]
    )
    assert answer.output_text == "Hello"
    assert (answer.status, answer.model, answer.instructions) == ("completed", "some-name", "be brief")
    assert (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.total_tokens) == (907, 3, 910)
    assert answer.usage.input_tokens_details.cached_tokens == 900
    assert answer.metadata == {"a": "b"}
    assert answer.tools[0].name == "look"
    assert answer.id == f"resp_{answer.turnlog['session']}_{answer.turnlog['turn']}"
    assert plain(client.responses.retrieve(answer.id)) == plain(answer)
    assert [message["role"] for message in relay.sent()["messages"]] == ["system", "user"]
    needed = openai.types.responses.Response.model_fields
    assert not [name for name, field in needed.items() if field.is_required() and name not in answer.to_dict()]


def test_the_sdks_stream_helper_accepts_every_event_and_its_final_object_is_what_is_stored(relay):
    relay.say(Said(thinking="hm, so", texts=("Hel", "lo"), calls=CALLS, usage=USAGE))
    client = relay.openai()
    with client.responses.stream(model="m", input="Hi", tools=[TOOL]) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert "response.output_text.done" in kinds
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call", "function_call"]
    assert plain(client.responses.retrieve(final.id)) == plain(final)
    answer = next(entry for entry in entries(relay, final.turnlog["session"]) if entry["type"] == "assistant")
    assert final.output_text == next(block["text"] for block in answer["content"] if block["type"] == "text")
    calls = [block for block in answer["content"] if block["type"] == "tool_use"]
    told = [item for item in final.output if item.type == "function_call"]
    assert [(one.call_id, json.loads(one.arguments)) for one in told] == [(one["id"], one["input"]) for one in calls]


@pytest.mark.parametrize(
    "said",
    [
        Said(text="Hello"),
        Said(texts=tuple("abcdef")),
        Said(thinking="so", texts=("a", "b")),
        Said(calls=CALLS),
        Said(text="x", calls=CALLS, thinking="y"),
        Said(text="long", stop="max_tokens"),
    ],
)
def test_events_come_in_order_and_again_from_the_log(relay, said):
    relay.say(said)
    answer = create(relay, stream=True, tools=[TOOL])
    assert answer.headers["content-type"].startswith("text/event-stream")
    told = frames(answer.text)
    final = follow(told)
    again = frames(get(relay, f"/v1/responses/{final['id']}", stream="true").text)
    follow(again)
    first, second = told[-1][1]["response"], again[-1][1]["response"]
    first.pop("turnlog")
    second.pop("turnlog")
    assert again == told


def test_pieces_of_two_calls_that_come_in_turns_are_put_together(relay):
    def piece(index, **function):
        return chunk({"tool_calls": [{"index": index, "id": f"c{index}", "function": function}]})

    pieces = [piece(0, name="look", arguments='{"at"'), piece(1, name="look", arguments="{")]
    pieces += [piece(0, arguments=': "x"}'), piece(1, arguments="}"), chunk({}, finish="tool_calls"), frame("[DONE]")]
    relay.say(Streamed(tuple(pieces)))
    final = follow(frames(create(relay, stream=True, tools=[TOOL]).text))
    assert [item["arguments"] for item in final["output"]] == ['{"at": "x"}', "{}"]
    assert get(relay, f"/v1/responses/{final['id']}").json()["output"] == final["output"]


def test_a_stream_of_10_000_pieces_is_resumed_at_any_number_also_after_a_restart(tmp_path):
    with serving(tmp_path) as relay:
        relay.say(Said(texts=tuple(f"{n} " for n in range(10_000))))
        told = frames(create(relay, stream=True).text)
        final = follow(told)
        assert len(told) > 10_000
        path = f"/v1/responses/{final['id']}"
        told[-1][1]["response"].pop("turnlog")
        for restarts in (False, True):
            if restarts:
                relay.server.stop()
                relay.server.start()
            for after in (0, 1, 2, 3, 4, 5_000, len(told) - 2):
                rest = frames(get(relay, path, stream="true", starting_after=str(after)).text)
                rest[-1][1]["response"].pop("turnlog")
                assert rest == told[after + 1 :]
            assert frames(get(relay, path, stream="true", starting_after=str(len(told) - 1)).text) == []


def test_a_running_stream_is_joined_at_any_number(relay):
    relay.say(Said(texts=("one ", "two"), breaks="stall"))
    heard, lines = threading.Event(), []

    def listen():
        body = {"model": "m", "input": "Hi", "stream": True, "background": True}
        headers = {"Authorization": f"Bearer {relay.server.token}"}
        with (
            httpx.Client(base_url=relay.server.base, headers=headers, **PATIENT) as client,
            client.stream("POST", "/v1/responses", json=body) as stream,
        ):
            for line in stream.iter_lines():
                lines.append(line)
                if "output_text.delta" in line:
                    heard.set()

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    assert heard.wait(60)
    first = json.loads(next(line for line in lines if line.startswith("data:"))[5:])
    response = first["response"]["id"]
    assert get(relay, f"/v1/responses/{response}").json()["status"] == "in_progress"
    cancelled = relay.post(f"/v1/responses/{response}/cancel", {}).json()
    assert cancelled["status"] == "cancelled"
    thread.join(60)
    assert not thread.is_alive()
    told = frames("\n".join(lines) + "\n\n")
    assert follow(told)["status"] == "cancelled"
    rest = frames(get(relay, f"/v1/responses/{response}", stream="true", starting_after="2").text)
    assert [data["type"] for _, data in rest] == [data["type"] for _, data in told[3:]]


def test_a_background_response_is_answered_at_once_and_goes_on(relay):
    relay.say(Said(text="Later"))
    client = relay.openai()
    begun = client.responses.create(model="m", input="Hi", background=True)
    assert (begun.status, begun.background) == ("in_progress", True)
    wait_until(lambda: client.responses.retrieve(begun.id).status == "completed")
    assert client.responses.retrieve(begun.id).output_text == "Later"
    assert client.responses.cancel(begun.id).status == "completed"
    with pytest.raises(openai.BadRequestError):
        client.responses.cancel(create(relay).json()["id"])


def test_a_response_is_continued_and_branched(relay):
    relay.say(*(Said(text=f"Answer {n}.") for n in range(4)))
    client = relay.openai()
    first = client.responses.create(model="m", input="one", instructions="be brief")
    second = client.responses.create(model="m", input="two", previous_response_id=first.id)
    assert second.turnlog["session"] == first.turnlog["session"]
    assert [message["content"] for message in relay.sent()["messages"]] == ["one", "Answer 0.", "two"]
    branch = client.responses.create(model="m", input="other", previous_response_id=first.id)
    assert branch.turnlog["match"] == "forked"
    assert [message["content"] for message in relay.sent()["messages"]] == ["one", "Answer 0.", "other"]
    assert second.previous_response_id == client.responses.retrieve(second.id).previous_response_id == first.id
    third = client.responses.create(model="m", input="three", previous_response_id=second.id)
    assert third.turnlog["session"] == first.turnlog["session"]


def test_what_is_deleted_unstored_or_anothers_is_not_found(relay):
    relay.say()
    client, other = relay.openai(), relay.openai(bob_of(relay))
    kept = client.responses.create(model="m", input="one")
    hidden = client.responses.create(model="m", input="one", store=False)
    gone = client.responses.create(model="m", input="one")
    assert client.responses.delete(gone.id) is None
    asked = [(client, hidden.id), (client, gone.id), (other, kept.id), (client, "resp_x_1"), (client, "nonsense")]
    for who, response in asked:
        with pytest.raises(openai.NotFoundError):
            who.responses.retrieve(response)
        with pytest.raises(openai.NotFoundError):
            who.responses.input_items.list(response)
        with pytest.raises(openai.NotFoundError) as error:
            who.responses.create(model="m", input="two", previous_response_id=response)
        assert error.value.code == "previous_response_not_found"
    assert kinds(relay, gone.turnlog["session"]) == ["user", "assistant", "facts"]  # its entries stay
    assert client.responses.retrieve(kept.id).id == kept.id


def test_input_items_are_those_of_the_request(relay):
    relay.say(Said(text="First."), Said(text="Second."))
    client = relay.openai()
    first = client.responses.create(model="m", input=[{"role": "user", "content": "one"}])
    told = [{"role": "user", "content": "one"}, *(item.to_dict() for item in first.output)]
    second = client.responses.create(model="m", input=[*told, {"role": "user", "content": "two"}])
    assert second.turnlog["match"] == "continued"
    found = client.responses.input_items.list(second.id, order="asc").data
    assert [(item.role, item.content[0].text) for item in found] == [
        ("user", "one"),
        ("assistant", "First."),
        ("user", "two"),
    ]
    assert found[1].id == first.output[0].id
    assert [item.id for item in client.responses.input_items.list(second.id, limit=1)] == [
        item.id for item in reversed(found)
    ]
    part = client.responses.create(model="m", input="three", previous_response_id=second.id)
    assert [item.content[0].text for item in client.responses.input_items.list(part.id)] == ["three"]


def test_items_can_be_named_instead_of_sent(relay):
    relay.say(Said(text="First."), Said(text="Second."))
    client = relay.openai()
    first = client.responses.create(model="m", input="one")
    named = {"type": "item_reference", "id": first.output[0].id}
    talk = [{"role": "user", "content": "one"}, named, {"role": "user", "content": "two"}]
    second = client.responses.create(model="m", input=talk)
    assert (second.turnlog["match"], second.turnlog["session"]) == ("continued", first.turnlog["session"])
    with pytest.raises(openai.NotFoundError):
        relay.openai(bob_of(relay)).responses.create(model="m", input=talk)


def test_a_tool_is_called_and_its_output_is_taken(relay):
    relay.say(Said(text="I look.", calls=CALLS), Said(text="Seen."))
    client = relay.openai()
    first = client.responses.create(model="m", input="look", tools=[TOOL])
    outputs = [{"type": "function_call_output", "call_id": call, "output": "yes"} for call in ("c1", "c2")]
    told = [{"role": "user", "content": "look"}, *(item.to_dict() for item in first.output), *outputs]
    second = client.responses.create(model="m", input=told, tools=[TOOL])
    assert (second.output_text, second.turnlog["match"]) == ("Seen.", "continued")
    roles = [message["role"] for message in relay.sent()["messages"]]
    assert roles == ["user", "assistant", "tool", "tool"]


def test_reasoning_goes_back_only_to_the_upstream_that_made_it(relay):
    relay.say(Said(thinking="I think.", text="First."), Said(text="Second."), Said(text="Third."))
    client = relay.openai()
    asked = {"model": "anthropic:claude-x", "include": ["reasoning.encrypted_content"]}
    first = client.responses.create(input="one", **asked)
    assert first.output[0].summary[0].text == "I think."
    assert first.output[0].encrypted_content.startswith("tlr1.")
    talk = [{"role": "user", "content": "one"}, *(item.to_dict() for item in first.output)]
    talk.append({"role": "user", "content": "two"})
    other = relay.openai(bob_of(relay))  # whose store has never seen it
    other.responses.create(input=talk, **asked)
    [thinking] = [
        block
        for message in relay.sent()["messages"]
        for block in message["content"]
        if isinstance(block, dict) and block["type"] == "thinking"
    ]
    assert thinking["thinking"] == "I think."
    assert thinking["signature"]
    other.responses.create(input=talk, model="m")
    assert "I think." not in json.dumps(relay.sent())


def test_a_reasoning_item_of_another_vendor_is_kept_and_never_sent(relay):
    relay.say()
    foreign = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}
    talk = [{"role": "user", "content": "elsewhere"}, foreign, {"role": "assistant", "content": "Said elsewhere."}]
    answer = create(relay, input=[*talk, {"role": "user", "content": "two"}])
    assert answer.status_code == 200
    assert "gAAAA" not in json.dumps(relay.sent())
    stored = entries(relay, answer.json()["turnlog"]["session"])
    assert "gAAAA" in json.dumps(stored)


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"prompt": {"id": "p"}}, "prompt", "unsupported_parameter"),
        ({"input": ""}, "input", None),
        ({"input": []}, "input", None),
        ({"input": 5}, "input", None),
        ({"input": [{"role": "developer", "content": "x"}]}, "input", None),
        ({"input": [{"role": "assistant", "content": "x"}]}, "input[0]", None),
        ({"input": [{"type": "computer_call", "id": "x"}]}, "input[0]", "unsupported_item"),
        ({"input": [{"role": "nobody", "content": "x"}]}, "input[0]", None),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0]", None),
        ({"input": [{"type": "compaction", "encrypted_content": "theirs"}]}, "input[0]", "invalid_compaction"),
        ({"input": [5]}, None, None),
        ({"input": [{}]}, "input[0]", None),
        ({"previous_response_id": "resp_a_1", "conversation": "conv_a"}, "previous_response_id", None),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice", "unsupported_parameter"),
        ({"text": {"format": {"type": "xml"}}}, "text.format", None),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort", None),
        ({"reasoning": {"summary": "huge"}}, "reasoning.summary", None),
        ({"truncation": "middle"}, "truncation", None),
        ({"background": True, "store": False}, "background", None),
        ({"metadata": {"a": 5}}, "metadata", None),
        ({"metadata": {str(n): "x" for n in range(17)}}, "metadata", None),
        ({"metadata": {"": "x"}}, "metadata", None),
        ({"max_output_tokens": 0}, "max_output_tokens", None),
        ({"tools": [{"type": "function"}]}, "tools[0]", None),
        ({"model": "agent:main", "tools": [TOOL]}, "tools", None),
    ],
)
def test_a_field_that_cannot_be_served_is_refused_and_nothing_is_stored(relay, fields, param, code):
    before = len(relay.sessions())
    answer = create(relay, **fields)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    if param is not None:
        assert (error["param"], error["code"]) == (param, code)
    assert len(relay.sessions()) == before


def test_what_is_not_served_is_ignored_and_named(relay):
    relay.say()
    answer = create(
        relay,
        service_tier="auto",
        safety_identifier="x",
        user="y",
        stream_options={},
        client_metadata={"a": "b"},
        include=["message.output_text.logprobs"],
        tools=[{"type": "web_search"}, {"type": "namespace", "name": "n"}, TOOL],
        unheard_of=1,
        truncation="auto",
    )
    named = set(answer.headers["turnlog-ignored"].split(","))
    expected = {"service_tier", "safety_identifier", "user", "stream_options", "client_metadata", "include"}
    assert expected | {"tools.web_search", "tools.namespace", "unheard_of"} == named
    assert [tool["function"]["name"] for tool in relay.sent()["tools"]] == ["look"]


RUN = {"type": "custom", "name": "run", "description": "Runs.", "format": {"type": "grammar", "definition": "s: /./"}}
SPAWN = {"type": "function", "name": "spawn", "parameters": {"type": "object", "properties": {}}}
GROUPED = [
    {"type": "namespace", "name": "functions", "description": "", "tools": [RUN]},
    {"type": "namespace", "name": "team", "tools": [SPAWN, {"type": "web_search"}]},
]


@pytest.mark.parametrize("way", ["field", "item"])
def test_tools_in_namespaces_and_tools_that_take_text_are_functions_upstream(relay, way):
    """Their calls come back as the client expects them, whole, streamed, and when they are retrieved."""
    calls = (
        {"id": "c1", "name": "run", "input": {"input": "print(1)"}},
        {"id": "c2", "name": "team__spawn", "input": {}},
    )
    relay.say(Said(calls=calls), Said(text="Done."))
    asked = [{"role": "user", "content": "Run it."}]
    given = {"tools": GROUPED} if way == "field" else {}
    brought = [] if way == "field" else [{"type": "additional_tools", "role": "developer", "tools": GROUPED}]
    answer = create(relay, input=[*brought, *asked], stream=True, **given)
    events = [data for _, data in frames(answer.text)]
    told = [event["input"] for event in events if event["type"] == "response.custom_tool_call_input.done"]
    assert told == ["print(1)"]
    output = events[-1]["response"]["output"]
    named = [(item["type"], item["name"], item.get("namespace")) for item in output]
    assert named == [("custom_tool_call", "run", "functions"), ("function_call", "spawn", "team")]
    assert (output[0]["input"], output[1]["arguments"]) == ("print(1)", "{}")
    assert "tools.web_search" in answer.headers["turnlog-ignored"]
    [run, spawn] = [tool["function"] for tool in relay.sent()["tools"]]
    assert (run["name"], spawn["name"]) == ("run", "team__spawn")
    assert "s: /./" in run["description"]
    assert (
        relay.openai().responses.retrieve(events[-1]["response"]["id"]).model_dump()["output"][0]["input"] == "print(1)"
    )

    results = [
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "1"},
        {"type": "function_call_output", "call_id": "c2", "output": "spawned"},
    ]
    again = create(relay, input=[*brought, *asked, *output, *results], **given)
    assert again.headers["turnlog-match"] == "continued"
    sent = relay.sent()["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool"]
    assert json.loads(sent[1]["tool_calls"][0]["function"]["arguments"]) == {"input": "print(1)"}


def test_whole_and_streamed_calls_of_text_are_told_alike(relay):
    relay.say(*[Said(calls=({"id": "c1", "name": "run", "input": "{not json"},))] * 2)
    whole = create(relay, input="Run it.", tools=[RUN]).json()["output"][0]
    streamed = frames(create(relay, input="Run it!", tools=[RUN], stream=True).text)[-1][1]["response"]["output"][0]
    for item in (whole, streamed):
        assert (item["type"], item["name"]) == ("custom_tool_call", "run")
        assert "namespace" not in item
    assert whole["input"] == streamed["input"]


def test_parameters_reach_the_upstream(relay):
    relay.say()
    schema = {"type": "object", "properties": {}}
    create(
        relay,
        temperature=0.1,
        top_p=0.2,
        max_output_tokens=50,
        tools=[TOOL],
        tool_choice={"type": "function", "name": "look"},
        parallel_tool_calls=False,
        reasoning={"effort": "low"},
        text={"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}},
    )
    sent = relay.sent()
    assert (sent["temperature"], sent["top_p"], sent["max_tokens"]) == (0.1, 0.2, 50)
    assert sent["tool_choice"] == {"type": "function", "function": {"name": "look"}}
    assert (sent["parallel_tool_calls"], sent["reasoning_effort"]) == (False, "low")
    assert sent["response_format"]["json_schema"] == {"name": "n", "schema": schema, "strict": True}


def test_pictures_and_files_pass_through(relay):
    relay.say()
    client = relay.openai()
    parts = [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": PIXEL, "detail": "auto"}]
    answer = client.responses.create(model="m", input=[{"role": "user", "content": parts}])
    assert relay.sent()["messages"][0]["content"][1] == {"type": "image_url", "image_url": {"url": PIXEL}}
    [item] = client.responses.input_items.list(answer.id)
    assert item.content[1].image_url == PIXEL


def test_an_error_before_the_first_piece_has_its_status_and_one_after_it_is_an_event(relay):
    relay.say(Refused(400, {"error": {"message": "no such thing", "type": "invalid_request_error"}}))
    assert create(relay, stream=True).status_code == 502
    relay.say(Said(texts=("Hel", "lo"), breaks="hang_up"))
    answer = create(relay, stream=True)
    assert answer.status_code == 200
    told = frames(answer.text)
    final = follow(told)
    assert (final["status"], final["error"]["code"]) == ("failed", "server_error")
    assert final["output"][0]["status"] == "incomplete"
    again = frames(get(relay, f"/v1/responses/{final['id']}", stream="true").text)
    assert [data["type"] for _, data in again] == [data["type"] for _, data in told]
    assert get(relay, f"/v1/responses/{final['id']}").json()["status"] == "failed"


def test_a_session_begun_by_chat_and_messages_goes_on_by_responses(relay):
    relay.say(*(Said(text=f"Answer {n}.") for n in range(3)))
    first = relay.chat(messages=[{"role": "user", "content": "one"}])
    talk = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "Answer 0."}]
    talk.append({"role": "user", "content": "two"})
    second = relay.messages(messages=talk)
    talk += [{"role": "assistant", "content": "Answer 1."}, {"role": "user", "content": "three"}]
    third = create(relay, input=talk)
    assert len({answer.headers["turnlog-session"] for answer in (first, second, third)}) == 1
    assert third.headers["turnlog-match"] == "continued"


def test_a_socket_is_refused_in_the_shape_of_the_family(relay):
    headers = {"Authorization": f"Bearer {relay.server.token}", "Upgrade": "websocket", "Connection": "Upgrade"}
    headers |= {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version": "13"}
    answer = httpx.get(f"{relay.server.base}/v1/responses", headers=headers, **PATIENT)
    assert (answer.status_code, answer.json()["error"]["code"]) == (426, "upgrade_required")
    assert get(relay, "/v1/responses").status_code == 405


def test_tokens_are_counted_and_nothing_is_stored(relay):
    before = len(relay.sessions())
    counted = relay.openai().responses.input_tokens.count(model="m", input="one two three")
    assert counted.input_tokens > 2
    assert len(relay.sessions()) == before


def test_an_agents_turn_is_a_response(relay):
    relay.say(Said(texts=("I am ", "an agent.")))
    told = frames(create(relay, model="agent:main", stream=True, instructions="x").text)
    final = follow(told)
    assert final["output"][0]["content"][0]["text"] == "I am an agent."
    again = frames(get(relay, f"/v1/responses/{final['id']}", stream="true").text)
    assert [data["type"] for _, data in again] == [data["type"] for _, data in told]


def test_what_a_client_asks_again_in_the_same_turn_is_told_again_though_it_was_written_to_its_end(relay):
    relay.say(Said(text="Once."), Said(text="Twice."))
    body = {"model": "m", "input": "say it in one turn", "stream": True, "store": False}

    def ask(turn):
        metadata = json.dumps({"turn_id": turn})
        return relay.post("/v1/responses", body, session_id="codex-turns", x_codex_turn_metadata=metadata)

    first, again, other = ask("one"), ask("one"), ask("two")
    assert again.headers["turnlog-match"] == "replayed"
    assert follow(frames(again.text))["output"] == follow(frames(first.text))["output"]
    assert follow(frames(other.text))["output"][0]["content"][0]["text"] == "Twice."
    assert len(relay.wire.requests) == 2


@pytest.mark.parametrize("where", ["tip", "previous", "named"])
def test_a_killed_server_answers_the_repeat_and_keeps_the_words_once(tmp_path, where):
    with serving(tmp_path) as relay:
        relay.say(Said(text="First."), Said(texts=("Sec", "ond."), breaks="stall"), Said(text="Second."))
        first = create(relay, input="one").json()
        more = {
            "tip": {"conversation": f"conv_{first['turnlog']['session']}"},
            "previous": {"previous_response_id": first["id"]},
            "named": {
                "input": [{"role": "user", "content": "one"}, *first["output"], {"role": "user", "content": "two"}]
            },
        }[where]
        body = {"model": "m", "input": "two", "stream": True, **more}
        with relay.server.client() as client, client.stream("POST", "/v1/responses", json=body) as stream:
            next(stream.iter_bytes())
            relay.server.kill()
        relay.server.start()
        final = follow(frames(relay.post("/v1/responses", body).text))
        assert final["output"][0]["content"][0]["text"] == "Second."
        session = final["turnlog"]["session"]
        assert session == first["turnlog"]["session"]
        said = [entry for entry in entries(relay, session) if entry["type"] == "user"]
        assert len(said) == 2


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"model": "m"',
        b'{"model": "m", "input": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"model": "m", "input": [{"role": "user", "content": ' + b'{"a":' * 300 + b"1" + b"}" * 300 + b"}]}",
        b'{"model": "\\ud800", "input": "x", "metadata": {"\\ud800": "y"}}',
        b'{"model": "m", "input": [{"type": "reasoning", "encrypted_content": "tlr1.W10"}, {"role": "user"}]}',
        b'{"model": "m", "input": [{"type": "function_call", "call_id": "c", "name": "n", "arguments": 5}]}',
        b'{"model": "m", "input": [{"type": "item_reference", "id": "msg_x_1_0"}]}',
        b'{"model": "m", "input": "\xff"}',
    ],
)
def test_a_hostile_body_is_refused_and_leaves_no_session(relay, body):
    before = len(relay.sessions())
    for path in ("/v1/responses", "/v1/responses/compact", "/v1/responses/input_tokens"):
        answer = relay.post(path, body)
        assert 400 <= answer.status_code < 500, answer.text
        assert answer.json()["error"]["message"]
    assert len(relay.sessions()) == before
