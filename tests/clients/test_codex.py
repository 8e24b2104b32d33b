"""Codex, as its users start it: it speaks the Responses API, keeps nothing at the server, and resends everything."""

import json
from concurrent.futures import ThreadPoolExecutor

from tests.providers.wire import Said
from tests.waiting import wait_until

from .commands import claude_on, codex_on
from .running import Cutting, Machine, needs

ECHO = {"id": "call_abc", "name": "exec_command", "input": {"cmd": "echo turnlog"}}


def said_in(events):
    return [event["item"]["text"] for event in events if event.get("item", {}).get("type") == "agent_message"]


def test_codex_keeps_one_session_through_a_tool_and_three_resumes(relay, tmp_path):
    machine = Machine(tmp_path / "home", relay)
    codex = codex_on(machine)
    relay.say(Said(calls=(ECHO,)), *(Said(text=f"Answer {n}.") for n in range(4)))
    events = codex("Say hi.")
    assert said_in(events) == ["Answer 0."]
    assert [event["usage"] for event in events if event["type"] == "turn.completed"]
    for n in range(1, 4):
        assert said_in(codex("resume", "--last", f"And {n}?")) == [f"Answer {n}."]
    [row] = machine.sessions()
    assert ":thread:" in row["key"]
    kinds = machine.kinds(row["id"])
    assert kinds.count("rewind") == 0
    assert (kinds.count("tool_result"), kinds.count("assistant")) == (1, 5)
    calls = [call for entry in machine.entries(row["id"]) if entry["type"] == "assistant" for call in entry["content"]]
    assert any(block.get("id") == "call_abc" for block in calls)


def test_codex_runs_the_tools_of_a_model_that_it_knows(relay, tmp_path):
    """It sends such a model its tools in an item of the input, in namespaces, and one of them takes plain text."""
    machine = Machine(tmp_path / "home", relay)
    codex = codex_on(machine, model="gpt-5.6-terra")
    script = "text(JSON.stringify(await tools.exec_command({cmd: 'echo turn$((40 + 2))'})));"
    relay.say(Said(calls=({"id": "call_abc", "name": "exec", "input": {"input": script}},)), Said(text="It ran."))
    assert said_in(codex("Say hi.")) == ["It ran."]
    assert {"exec", "collaboration__spawn_agent"} <= {tool["function"]["name"] for tool in relay.sent()["tools"]}
    [result] = [message["content"] for message in relay.sent()["messages"] if message["role"] == "tool"]
    assert "turn42" in json.dumps(result)
    relay.say(Said(text="Again."))
    assert said_in(codex("resume", "--last", "And again?")) == ["Again."]
    [row] = machine.sessions()
    assert "rewind" not in machine.kinds(row["id"])


def test_codex_never_notices_a_window_that_is_far_too_small_and_an_undo_shows_the_originals(tmp_path):
    from tests.server.compatible.serving import serving

    env = {"TURNLOG_MODEL_WINDOW": "16000", "TURNLOG_MODEL_SUMMARY_MODEL": "offline"}
    with serving(tmp_path / "server", env=env) as relay:
        machine = Machine(tmp_path / "home", relay)
        codex = codex_on(machine)
        words = "So it is, and so it was. " * 400
        relay.say(*(Said(text=f"Answer {n}. {words}") for n in range(12)))
        assert said_in(codex("Begin. " + "word " * 4000))
        for n in range(8):
            assert said_in(codex("resume", "--last", f"Question {n}: " + "word " * 4000))
        [row] = machine.sessions()
        kinds = machine.kinds(row["id"])
        assert kinds.count("compaction") > 1
        assert kinds.count("rewind") == 0
        with relay.server.client() as client:
            assert client.post(f"/api/agents/main/sessions/{row['id']}/undo-compact", json={}).status_code < 300
        assert "undo" in machine.kinds(row["id"])
        assert said_in(codex("resume", "--last", "And after the undo?"))


def test_codex_asks_again_after_five_cut_streams_and_no_second_call_is_made(relay, tmp_path):
    machine = Machine(tmp_path / "home", relay)
    pieces = tuple(f"piece {n} " + "of one answer " * 40 for n in range(1000))  # more than a socket holds
    relay.say(Said(texts=pieces), *(Said(text=f"Answer {n}.") for n in range(6)))
    with Cutting(machine.base, times=5) as proxy:
        events = codex_on(machine, base=proxy.base)("Say hi.")
        assert proxy.cuts == 5
    assert said_in(events) == ["".join(pieces)]
    [row] = machine.sessions()
    assert machine.kinds(row["id"]).count("assistant") == 1
    assert len(relay.wire.requests) == 1


def test_a_session_goes_from_codex_to_claude_code_and_back(relay, tmp_path):
    machine = Machine(tmp_path / "home", relay)
    relay.say(*(Said(text=f"Answer {n}.") for n in range(8)))
    codex_on(machine)("Say hi from codex.")
    [row] = machine.sessions()
    header = f"Turnlog-Session: {row['id']}"
    claude = claude_on(machine, needs("claude-code"), ANTHROPIC_CUSTOM_HEADERS=header)
    assert not claude("-p", "Say hi from claude.")["is_error"]
    assert not claude("-p", "--continue", "And again from claude.")["is_error"]
    codex = codex_on(machine, more=f'http_headers = {{ "Turnlog-Session" = "{row["id"]}" }}')
    assert said_in(codex("resume", "--last", "Back in codex."))
    said = json.dumps(machine.entries(row["id"]))
    for words in ("Say hi from codex.", "Say hi from claude.", "And again from claude.", "Back in codex."):
        assert words in said
    assert "Say hi from claude." in json.dumps(relay.sent()["messages"])
    assert "rewind" not in machine.kinds(row["id"])


def test_a_server_that_is_killed_in_mid_call_is_asked_again_by_codex_and_keeps_the_words_once(relay, tmp_path):
    machine = Machine(tmp_path / "home", relay)
    codex = codex_on(machine)
    relay.say(Said(text="First."), Said(texts=("Sec", "ond."), breaks="stall"), Said(text="Second."), Said(text="x"))
    codex("Say hi.")
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(codex, "resume", "--last", "And again?")
        wait_until(lambda: len(relay.wire.requests) == 2)
        port = relay.server.base.rpartition(":")[2]
        relay.server.kill()
        relay.server.args[relay.server.args.index("--port") + 1] = port
        relay.server.start()
        assert said_in(running.result())
    [row] = machine.sessions()
    words = [entry for entry in machine.entries(row["id"]) if "And again?" in json.dumps(entry.get("content"))]
    assert len(words) == 1
