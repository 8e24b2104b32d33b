"""/v1/conversations through OpenAI's SDK and through openai-agents: any session of the principal is a conversation."""

import asyncio

import agents
import httpx2
import openai
import pytest
from agents import Agent, OpenAIConversationsSession, OpenAIResponsesModel, Runner, function_tool

from tests.providers.wire import Said
from tests.waiting import GIVES_UP_S

from .test_responses import bob_of, create, entries, get, kinds

agents.set_tracing_disabled(True)


def say(text):
    return {"type": "message", "role": "user", "content": text}


def texts(found):
    return [part.text for item in found for part in item.content]


def test_a_conversation_is_created_filled_listed_and_erased(relay):
    client = relay.openai()
    made = client.conversations.create(metadata={"a": "b"}, items=[say("one")])
    assert (made.object, made.metadata) == ("conversation", {"a": "b"})
    assert client.conversations.retrieve(made.id).created_at == made.created_at
    assert client.conversations.update(made.id, metadata={"c": "d"}).metadata == {"c": "d"}
    assert client.conversations.retrieve(made.id).metadata == {"c": "d"}
    added = client.conversations.items.create(made.id, items=[say("two"), say("three")])
    assert texts(added.data) == ["two", "three"]
    assert texts(client.conversations.items.list(made.id)) == ["three", "two", "one"]
    assert texts(client.conversations.items.list(made.id, order="asc", limit=1)) == ["one", "two", "three"]
    assert client.conversations.items.retrieve(added.data[0].id, conversation_id=made.id).content[0].text == "two"
    assert client.conversations.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(made.id)
    assert client.conversations.create().metadata == {}


def test_only_the_last_item_can_be_taken_back(relay):
    client = relay.openai()
    made = client.conversations.create(items=[say("one"), say("two")])
    second, first = list(client.conversations.items.list(made.id))
    with pytest.raises(openai.BadRequestError) as error:
        client.conversations.items.delete(first.id, conversation_id=made.id)
    assert error.value.code == "append_only"
    client.conversations.items.delete(second.id, conversation_id=made.id)
    assert texts(client.conversations.items.list(made.id)) == ["one"]
    assert kinds(relay, made.id.removeprefix("conv_")) == ["user", "user", "rewind"]  # a log is never edited


def test_the_last_item_of_an_answer_of_several_is_taken_back_alone(relay):
    relay.say(Said(text="I look.", calls=({"id": "c1", "name": "look", "input": {}},)))
    client = relay.openai()
    made = client.conversations.create()
    tool = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}, "strict": False}
    client.responses.create(model="m", input="look", conversation=made.id, tools=[tool])
    found = list(client.conversations.items.list(made.id))
    assert [item.type for item in found] == ["function_call", "message", "message"]
    client.conversations.items.delete(found[0].id, conversation_id=made.id)
    assert [item.type for item in client.conversations.items.list(made.id)] == ["message", "message"]


def test_a_response_is_appended_to_its_conversation(relay):
    relay.say(Said(text="First."), Said(text="Second."))
    client = relay.openai()
    made = client.conversations.create(items=[say("before")])
    first = client.responses.create(model="m", input="one", conversation=made.id)
    second = client.responses.create(model="m", input="two", conversation={"id": made.id})
    assert [message["content"] for message in relay.sent()["messages"]] == ["before\n\none", "First.", "two"]
    assert second.conversation.id == made.id == client.responses.retrieve(first.id).conversation.id
    told = list(client.conversations.items.list(made.id, order="asc"))
    assert texts(told) == ["before", "one", "First.", "two", "Second."]
    assert told[2].id == first.output[0].id
    answer = client.conversations.items.retrieve(told[4].id, conversation_id=made.id)
    assert answer.content[0].text == "Second."


def test_every_session_of_the_principal_is_a_conversation_and_no_other(relay):
    relay.say(Said(text="First."), Said(text="Second."))
    session = relay.chat(messages=[say("by chat")]).headers["turnlog-session"]
    client = relay.openai()
    assert texts(client.conversations.items.list(f"conv_{session}")) == ["First.", "by chat"]
    again = client.responses.create(model="m", input="and then", conversation=f"conv_{session}")
    assert again.turnlog["session"] == session
    bob = relay.openai(bob_of(relay))
    for call in (
        lambda: bob.conversations.retrieve(f"conv_{session}"),
        lambda: bob.conversations.items.list(f"conv_{session}"),
        lambda: bob.conversations.delete(f"conv_{session}"),
        lambda: bob.responses.create(model="m", input="x", conversation=f"conv_{session}"),
        lambda: client.conversations.retrieve("conv_nothing"),
        lambda: client.conversations.retrieve("nothing"),
    ):
        with pytest.raises(openai.NotFoundError):
            call()


def test_a_conversation_is_never_found_by_its_words(relay):
    relay.say(Said(text="Only here."), Said(text="Else."))
    client = relay.openai()
    made = client.conversations.create()
    client.responses.create(model="m", input="hidden words", conversation=made.id)
    talk = [say("hidden words"), {"role": "assistant", "content": "Only here."}, say("more")]
    assert create(relay, input=talk).headers["turnlog-match"] == "new"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("", {"items": [say("x")] * 21}, "items"),
        ("", {"items": [{"type": "computer_call"}]}, "items[0]"),
        ("", {"items": "x"}, "items"),
        ("", {"metadata": {"a": "b" * 513}}, "metadata"),
        ("/{id}", {}, "metadata"),
        ("/{id}/items", {"items": []}, "items"),
    ],
)
def test_what_cannot_be_kept_is_refused(relay, path, body, param):
    made = relay.openai().conversations.create()
    before = len(relay.sessions())
    answer = relay.post(f"/v1/conversations{path.format(id=made.id)}", body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert len(relay.sessions()) == before
    for query in ({"limit": "101"}, {"limit": "x"}, {"order": "up"}):
        assert get(relay, f"/v1/conversations/{made.id}/items", **query).status_code == 400
    assert get(relay, f"/v1/conversations/{made.id}/items", after="msg_x_1_0").status_code == 404


def run(relay, work):
    """`work` gets a model of openai-agents and its client."""

    async def main():
        async with httpx2.AsyncClient(trust_env=False, timeout=GIVES_UP_S) as http:
            client = openai.AsyncOpenAI(
                base_url=f"{relay.server.base}/v1", api_key=relay.server.token, http_client=http, max_retries=0
            )
            return await work(OpenAIResponsesModel("m", client), client)

    return asyncio.run(main())


@function_tool
def look(at: str) -> str:
    """Looks."""
    return f"seen {at}"


def looking(model):
    return Agent(name="a", instructions="be brief", model=model, tools=[look])


LOOKS = Said(calls=({"id": "c1", "name": "look", "input": {"at": "x"}},))


def test_openai_agents_run_a_tool_loop_and_stream(relay):
    relay.say(LOOKS, Said(text="Done."), Said(texts=("Do", "ne")))
    before = len(relay.sessions())

    async def work(model, client):
        agent = looking(model)
        first = await Runner.run(agent, "look")
        streamed = Runner.run_streamed(agent, [*first.to_input_list(), say("again")])
        kinds = [event.type async for event in streamed.stream_events()]
        return first.final_output, streamed.final_output, kinds

    first, second, told = run(relay, work)
    assert (first, second) == ("Done.", "Done")
    assert "raw_response_event" in told
    assert len(relay.sessions()) == before + 1


def test_openai_agents_continue_by_previous_response_and_by_conversation(relay):
    relay.say(LOOKS, Said(text="One."), Said(text="Two."), LOOKS, Said(text="Three."), Said(text="Four."))
    before = len(relay.sessions())

    async def work(model, client):
        agent = looking(model)
        first = await Runner.run(agent, "one")
        second = await Runner.run(agent, "two", previous_response_id=first.last_response_id)
        made = await client.conversations.create()
        third = await Runner.run(agent, "three", conversation_id=made.id)
        fourth = await Runner.run(agent, "four", conversation_id=made.id)
        listed = [item async for item in client.conversations.items.list(made.id, order="asc")]
        return [one.final_output for one in (first, second, third, fourth)], listed

    said, listed = run(relay, work)
    assert said == ["One.", "Two.", "Three.", "Four."]
    assert [item.type for item in listed] == [
        "message",
        "function_call",
        "function_call_output",
        "message",
        "message",
        "message",
    ]
    assert len(relay.sessions()) == before + 2


def test_openai_agents_keep_their_session_in_a_conversation(relay):
    relay.say(LOOKS, Said(text="One."), Said(text="Two."))

    async def work(model, client):
        session = OpenAIConversationsSession(openai_client=client)
        first = await Runner.run(looking(model), "one", session=session)
        second = await Runner.run(looking(model), "two", session=session)
        kept = await session.get_items()
        popped = await session.pop_item()
        rest = await session.get_items()
        await session.clear_session()
        return first.final_output, second.final_output, kept, popped, rest

    first, second, kept, popped, rest = run(relay, work)
    assert (first, second) == ("One.", "Two.")
    assert len(kept) == 6  # nothing is doubled
    assert kept[:-1] == rest
    assert popped == kept[-1]
    assert [message["role"] for message in relay.sent()["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]


def test_the_words_of_a_conversation_are_in_the_log(relay):
    made = relay.openai().conversations.create(items=[say("kept")])
    assert "kept" in str(entries(relay, made.id.removeprefix("conv_")))
