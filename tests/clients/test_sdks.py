"""The vendors' SDKs, and libraries and commands that use them."""

from tests.providers.wire import Refused, Said
from tests.server.compatible.serving import serving

from .commands import llm_on
from .running import Machine

CALL = {"id": "call_1", "name": "hours", "input": {"day": "Sun"}}


def test_openai_python_keeps_one_session_and_its_helpers_give_what_is_stored(relay, tmp_path):
    machine = Machine(tmp_path / "home", relay)
    relay.say(Said(text="First."), Said(texts=("Sec", "ond.")), Said(texts=("Thi", "rd.")))
    found = machine.python("sdks", "openai_chat")
    assert (found["plain"], found["streamed"], found["helped"]) == ("First.", "Second.", "Third.")
    assert found["request_id"]
    [row] = machine.sessions()
    assert machine.kinds(row["id"]) == ["user", "assistant"] * 3


def test_openai_python_keeps_responses_and_conversations(tmp_path):
    with serving(tmp_path / "server", env={"TURNLOG_MODEL_SUMMARY_MODEL": "offline"}) as relay:
        machine = Machine(tmp_path / "home", relay)
        relay.say(*(Said(texts=words) for words in (("First.",), ("Sec", "ond."), ("Thi", "rd."), ("In it.",))))
        found = machine.python("sdks", "openai_responses")
        assert (found["plain"], found["streamed"], found["helped"]) == ("First.", "Second.", "Third.")
        assert (found["retrieved"], found["in_conversation"], found["items"]) == ("Third.", "In it.", 3)
        assert found["request_id"]
        assert found["resumed"]
        assert found["input"] == ["third"]
        assert found["tokens"] > 0
        assert (found["compacted"], found["gone"]) == ("compaction", "response_not_found")
        [row] = machine.sessions()
        assert [kind for kind in machine.kinds(row["id"]) if kind in ("user", "assistant")] == ["user", "assistant"] * 3


def test_a_thread_of_anthropic_goes_on_after_a_restart(relay, tmp_path):
    machine = Machine(tmp_path / "home", relay)
    relay.say(Said(text="First."), Said(text="Second."), Said(text="Third."))
    found, last = machine.python("sdks", "anthropic_thread")
    assert found == ["First.", "Second."]
    relay.server.restart()
    again = Machine(tmp_path / "home", relay)
    found, _ = again.python("sdks", "anthropic_thread", env={"PREVIOUS": last})
    assert found == ["Third."]
    assert [message["content"] for message in relay.sent()["messages"][1:]] == [
        "first", "First.", "second", "Second.", "third",
    ]  # fmt: skip
    [row] = again.sessions()
    assert again.kinds(row["id"]) == ["user", "assistant"] * 3


def anthropic_keeps_one_session(relay, tmp_path, environment, major):
    machine = Machine(tmp_path / "home", relay)
    relay.say(Said(calls=(CALL, {**CALL, "id": "call_2", "input": {"day": "Mon"}})), Said(texts=("Clo", "sed.")))
    found = machine.python(environment, "anthropic_messages")
    assert int(found["version"].split(".")[0]) in major
    assert (found["calls"], found["text"], found["final"]) == (["hours", "hours"], "Closed.", "Closed.")
    assert found["tokens"] > 0
    [row] = machine.sessions()
    assert machine.kinds(row["id"]) == ["user", "assistant", "tool_result", "tool_result", "assistant"]


def test_anthropic_keeps_one_session(relay, tmp_path):
    anthropic_keeps_one_session(relay, tmp_path, "sdks", (2, 3))


def test_anthropic_before_version_2_keeps_one_session(relay, tmp_path):
    anthropic_keeps_one_session(relay, tmp_path, "older", (0, 1))


def two_turns_with_a_tool(relay, tmp_path, run):
    machine = Machine(tmp_path / "home", relay)
    relay.say(Said(calls=(CALL,)), Said(text="Closed."), Said(text="Still closed."))
    assert run(machine)[-2:] == ["Closed.", "Still closed."]
    [row] = machine.sessions()
    assert machine.kinds(row["id"]) == ["user", "assistant", "tool_result", "assistant", "user", "assistant"]


def test_langchain_keeps_one_session(relay, tmp_path):
    two_turns_with_a_tool(relay, tmp_path, lambda machine: machine.python("sdks", "langchain_chat"))


def test_langchain_keeps_one_session_by_responses(relay, tmp_path):
    run = {"env": {"WIRE": "responses"}}
    two_turns_with_a_tool(relay, tmp_path, lambda machine: machine.python("sdks", "langchain_chat", **run))


def test_pydantic_ai_keeps_one_session(relay, tmp_path):
    two_turns_with_a_tool(relay, tmp_path, lambda machine: machine.python("older", "pydantic_ai_chat"))


def test_ai_sdk_keeps_one_session_by_chat_completions(relay, tmp_path):
    two_turns_with_a_tool(relay, tmp_path, lambda machine: machine.node("ai-sdk", "ai_sdk"))


def test_ai_sdk_keeps_one_session_by_messages(relay, tmp_path):
    run = {"env": {"WIRE": "messages"}}
    two_turns_with_a_tool(relay, tmp_path, lambda machine: machine.node("ai-sdk", "ai_sdk", **run))


def test_ai_sdk_keeps_one_session_by_responses(relay, tmp_path):
    run = {"env": {"WIRE": "responses"}}
    two_turns_with_a_tool(relay, tmp_path, lambda machine: machine.node("ai-sdk", "ai_sdk", **run))


def test_llm_goes_on_with_c_and_two_beginnings_do_not_meet(relay, tmp_path):
    machine = Machine(tmp_path / "home", relay)
    llm = llm_on(machine)
    relay.say(*(Said(text=f"Answer {n}.") for n in range(7)))
    llm("-m", "tl", "Say hi.")
    for n in range(5):
        assert f"Answer {n + 1}." in llm("-c", f"And {n}?").stdout
    llm("-m", "tl", "Say hi.")
    turns = sorted(machine.kinds(row["id"]).count("user") for row in machine.sessions())
    assert turns == [1, 6]


def test_the_words_of_another_principal_find_nothing(relay, tmp_path):
    first = Machine(tmp_path / "first", relay)
    relay.say(Said(text="Only for the first."), Said(text="B"), Said(text="C"), Said(text="D"))
    first.python("sdks", "openai_chat")
    other = Machine(tmp_path / "other", relay, relay.server.make_token("bob", "--scope", "chat"))
    relay.say(Said(text="Only for the first."), Said(text="B"), Said(text="C"))
    other.python("sdks", "openai_chat")
    keys = {row["key"] for row in first.sessions()}
    assert len(first.sessions()) == 2
    assert len(keys) == 2


def test_llm_prints_our_message_when_something_is_wrong(relay, tmp_path):
    machine = Machine(tmp_path / "home", relay)
    llm = llm_on(machine)
    relay.say(*[Refused(401, {"error": {"message": "bad key"}})] * 5)
    done = llm("-m", "tl", "Say hi.", ok=False)
    assert done.returncode != 0
    assert "502" in done.stdout + done.stderr  # not 401: the client would throw its key away
    wrong = Machine(tmp_path / "wrong", relay, "tl_wrong")
    done = llm_on(wrong)("-m", "tl", "Say hi.", ok=False)
    assert done.returncode != 0
    assert "token" in (done.stdout + done.stderr).lower()
