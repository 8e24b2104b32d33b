"""Compaction as the vendors' clients ask for it: ordinary entries, which can be looked at and undone."""

import json

import pytest
from agents import Agent, Runner, SQLiteSession
from agents.memory import OpenAIResponsesCompactionSession

from tests.providers.wire import Said

from .response_machine import follow
from .serving import frames, serving
from .test_conversations import run
from .test_responses import bob_of, create, entries, kinds

LONG = "There is much to say about it. " * 120
"""About 800 tokens."""


@pytest.fixture(scope="module")
def relay(tmp_path_factory):
    env = {"TURNLOG_MODEL_SUMMARY_MODEL": "offline", "TURNLOG_COMPACTION_KEEP": "turns:1"}
    with serving(tmp_path_factory.mktemp("fields"), env=env) as found:
        yield found


def talk_of(relay, word, turns=3, **more):
    """A conversation of several long turns, by responses."""
    relay.say(*(Said(text=f"{word} answer {n}. {LONG}") for n in range(turns)))
    previous, found = None, []
    for n in range(turns):
        given = {"previous_response_id": previous} if previous else {}
        answer = create(relay, input=f"{word} question {n}. {LONG}", **given, **more).json()
        previous = answer["id"]
        found.append(answer)
    return found


def undo(relay, session):
    with relay.server.client() as client:
        answer = client.post(f"/api/agents/main/sessions/{session}/undo-compact", json={})
        assert answer.status_code < 300, answer.text


def sent(relay):
    return json.dumps(relay.sent()["messages"])


def test_a_threshold_compacts_and_the_compaction_is_the_first_item(relay):
    last = talk_of(relay, "red")[-1]
    session = last["turnlog"]["session"]
    relay.say(Said(texts=("Af", "ter.")), Said(text="Once more."), Said(text="Original."))
    asked = {"context_management": [{"type": "compaction", "compact_threshold": 1000}]}
    told = frames(create(relay, input="go on", previous_response_id=last["id"], stream=True, **asked).text)
    final = follow(told)
    assert [item["type"] for item in final["output"]] == ["compaction", "message"]
    assert final["turnlog"]["compaction"]["seq"]
    assert len(sent(relay)) < 6 * len(LONG)
    client = relay.openai()
    stored = client.responses.retrieve(final["id"])
    assert [item.to_dict() for item in stored.output] == final["output"]
    # Sent back, the item stands for everything before it.
    again = client.responses.create(model="m", input=[*final["output"], {"role": "user", "content": "and now"}])
    assert (again.turnlog["session"], again.turnlog["match"]) == (session, "continued")
    undo(relay, session)
    client.responses.create(model="m", input="originals", previous_response_id=again.id)
    assert "red answer 1" in sent(relay)
    assert len(sent(relay)) > 5 * len(LONG)


def test_a_compaction_is_asked_for_alone(relay):
    last = talk_of(relay, "blue")[-1]
    session = last["turnlog"]["session"]
    client = relay.openai()
    made = client.responses.compact(model="m", previous_response_id=last["id"], instructions="Keep the colour.")
    assert made.object == "response.compaction"
    assert [item.type for item in made.output][-1] == "compaction"
    assert made.usage.total_tokens > 0
    [entry] = [entry for entry in entries(relay, session) if entry["type"] == "compaction"]
    assert entry["focus"] == "Keep the colour."
    relay.say(Said(text="After."))
    back = [*(item.to_dict(warnings=False) for item in made.output), {"role": "user", "content": "go on"}]
    after = client.responses.create(model="m", input=back)
    assert after.turnlog["session"] == session
    assert len(sent(relay)) < 5 * len(LONG)
    assert kinds(relay, session).count("user") == 4  # the kept messages are not stored twice


def test_a_short_conversation_gets_an_item_that_stands_for_it(relay):
    relay.say(Said(text="Short."), Said(text="After."))
    client = relay.openai()
    talk = [{"role": "user", "content": "green"}, {"role": "assistant", "content": "Yes."}]
    made = client.responses.compact(model="m", input=talk)
    assert [item.type for item in made.output] == ["message", "compaction"]
    back = [*(item.to_dict(warnings=False) for item in made.output), {"role": "user", "content": "go on"}]
    client.responses.create(model="m", input=back)
    assert [message["content"] for message in relay.sent()["messages"]] == ["green", "Yes.", "go on"]


def test_a_trigger_as_the_last_item_compacts_in_a_stream(relay):
    last = talk_of(relay, "grey")[-1]
    trigger = [{"type": "compaction_trigger"}]
    final = follow(frames(create(relay, input=trigger, previous_response_id=last["id"], stream=True).text))
    assert [item["type"] for item in final["output"]] == ["compaction"]
    assert relay.openai().responses.retrieve(final["id"]).output[0].to_dict() == final["output"][0]
    assert kinds(relay, last["turnlog"]["session"])[-1] == "compaction"


def test_a_compaction_of_another_or_of_nobody_is_refused(relay):
    last = talk_of(relay, "pink", 2)[-1]
    made = relay.openai().responses.compact(model="m", previous_response_id=last["id"])
    item = made.output[-1].to_dict()
    forged = {**item, "encrypted_content": item["encrypted_content"][:-4] + "AAAA"}
    more = {"role": "user", "content": "x"}
    for token, given in ((bob_of(relay), item), (None, forged), (None, {**item, "encrypted_content": "gAAAA"})):
        answer = create(relay, token, input=[given, more])
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_compaction")


@pytest.mark.parametrize(
    "given",
    [
        {"context_management": [{"type": "compaction", "compact_threshold": 999}]},
        {"context_management": [{"type": "other"}]},
        {"context_management": {"type": "compaction"}},
        {"input": [{"type": "compaction_trigger"}]},
    ],
)
def test_a_door_that_does_not_exist_is_refused(relay, given):
    assert create(relay, **given).status_code == 400


def anthropic_talk(relay, word, turns=3):
    client = relay.anthropic()
    relay.say(*(Said(text=f"{word} answer {n}. {LONG}") for n in range(turns)))
    talk = []
    for n in range(turns):
        talk.append({"role": "user", "content": f"{word} question {n}. {LONG}"})
        answer = client.messages.create(model="m", max_tokens=100, messages=talk)
        talk.append({"role": "assistant", "content": answer.content[0].text})
    return client, talk


def edit(kind, **more):
    return {"edits": [{"type": kind, **more}]}


def at(tokens):
    return {"type": "input_tokens", "value": tokens}


@pytest.mark.parametrize("drops", [False, True])
def test_anthropics_compaction_is_a_block_that_is_accepted_back(relay, drops):
    client, talk = anthropic_talk(relay, f"round {drops}")
    asked = edit("compact_20260112", trigger=at(1000), instructions="Keep it.")
    relay.say(Said(text="After."), Said(text="Again."))
    talk.append({"role": "user", "content": "go on"})
    with client.beta.messages.stream(
        model="m", max_tokens=100, messages=talk, context_management=asked, betas=["compact-2026-01-12"]
    ) as stream:
        answer = stream.get_final_message()
    assert [block.type for block in answer.content] == ["compaction", "text"]
    session = answer.turnlog["session"] if hasattr(answer, "turnlog") else None
    talk.append({"role": "assistant", "content": [block.to_dict() for block in answer.content]})
    rest = talk[-1:] if drops else talk
    raw = client.beta.messages.with_raw_response.create(
        model="m",
        max_tokens=100,
        messages=[*rest, {"role": "user", "content": "and now"}],
        context_management=asked,
        betas=["compact-2026-01-12"],
    )
    assert raw.headers["turnlog-match"] == "continued"
    assert session in (None, raw.headers["turnlog-session"])
    found = [entry for entry in entries(relay, raw.headers["turnlog-session"]) if entry["type"] == "compaction"]
    assert found[0]["focus"] == "Keep it."


def test_anthropics_compaction_pauses_if_asked(relay):
    client, talk = anthropic_talk(relay, "paused")
    asked = edit("compact_20260112", trigger=at(1000), pause_after_compaction=True)
    talk.append({"role": "user", "content": "go on"})
    relay.say(Said(text="After."))
    given = {"model": "m", "max_tokens": 100, "context_management": asked, "betas": ["compact-2026-01-12"]}
    paused = client.beta.messages.create(messages=talk, **given)
    assert (paused.stop_reason, [block.type for block in paused.content]) == ("compaction", ["compaction"])
    back = {"role": "assistant", "content": [paused.content[0].to_dict()]}
    after = client.beta.messages.create(messages=[back, {"role": "user", "content": "now"}], **given)
    assert after.content[-1].text == "After."


def test_old_tool_results_are_cleared_and_kept(relay):
    client = relay.anthropic()
    talk = [{"role": "user", "content": "look often"}]
    for n in range(5):
        call = {"type": "tool_use", "id": f"c{n}", "name": "look", "input": {"n": n}}
        talk.append({"role": "assistant", "content": [call]})
        result = {"type": "tool_result", "tool_use_id": f"c{n}", "content": f"result {n}: {LONG}"}
        talk.append({"role": "user", "content": [result]})
    tool = {"name": "look", "input_schema": {"type": "object"}}
    keep = {"type": "tool_uses", "value": 2}
    asked = edit("clear_tool_uses_20250919", trigger=at(1000), keep=keep)
    asked["edits"].append({"type": "clear_thinking_20251015", "keep": "all"})
    relay.say(Said(text="Seen."))
    answer = client.beta.messages.with_raw_response.create(
        model="m", max_tokens=100, messages=talk, tools=[tool], context_management=asked, betas=["x"]
    )
    applied = answer.parse().context_management.applied_edits
    assert [one.type for one in applied] == ["clear_tool_uses_20250919", "clear_thinking_20251015"]
    assert applied[0].cleared_tool_uses == 3
    assert applied[0].cleared_input_tokens > 1000
    results = [message["content"] for message in relay.sent()["messages"] if message["role"] == "tool"]
    assert [len(one) < 100 for one in results] == [True, True, True, False, False]
    stored = entries(relay, answer.headers["turnlog-session"])
    assert sum(LONG in json.dumps(entry.get("content")) for entry in stored) == 5  # the log keeps them
    assert [entry["type"] for entry in stored].count("shortened") == 1


@pytest.mark.parametrize(
    "edits",
    [
        ["x"],
        "x",
        [{"type": "compact_20260112", "trigger": at(5)}],
        [{"type": "compact_20260112", "instructions": 5}],
        [{"type": "clear_tool_uses_20250919", "keep": 5}],
        [{"type": "clear_tool_uses_20250919", "exclude_tools": "x"}],
    ],
)
def test_an_edit_of_a_wrong_shape_is_refused(relay, edits):
    answer = relay.messages(context_management={"edits": edits})
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")


def test_openai_agents_compact_their_session(relay):
    relay.say(*(Said(text=f"Answer {n}. {LONG}") for n in range(4)))

    async def work(model, client):
        session = OpenAIResponsesCompactionSession(
            session_id="s",
            underlying_session=SQLiteSession("s"),
            client=client,
            model="gpt-5.5",
            should_trigger_compaction=lambda _: True,
        )
        agent = Agent(name="a", model=model)
        said = [await Runner.run(agent, f"question {n}. {LONG}", session=session) for n in range(3)]
        return [one.final_output[:9] for one in said], await session.get_items()

    said, kept = run(relay, work)
    assert said == ["Answer 0.", "Answer 1.", "Answer 2."]
    assert kept[-1]["type"] == "compaction"
