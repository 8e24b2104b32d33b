"""Coding agents, as their users start them."""

import json
from concurrent.futures import ThreadPoolExecutor

from tests.providers.wire import Said
from tests.waiting import wait_until

from .commands import aider_on, claude_on, opencode_on
from .running import Cutting, Machine, needs, search

ECHO = {"id": "call_abc", "name": "bash", "input": {"command": "echo turnlog", "description": "say it"}}


def test_claude_code_keeps_one_session_through_a_tool_and_continue(relay, tmp_path):
    folder = needs("claude-code")
    machine = Machine(tmp_path / "home", relay)
    claude = claude_on(machine, folder)
    relay.say(
        Said(text="I will run it.", calls=({**ECHO, "name": "Bash"},)),
        *(Said(text=f"Answer {n}.") for n in range(8)),
    )
    first = claude("-p", "Say hi.")
    assert not first["is_error"], first
    for n in range(3):
        again = claude("-p", "--continue", f"And {n}?")
        assert not again["is_error"], again
    rows = [row for row in machine.sessions() if "tool_result" in machine.kinds(row["id"])]
    assert len(rows) == 1
    assert ":thread:" in rows[0]["key"]
    assert machine.kinds(rows[0]["id"]).count("rewind") == 0
    assert sum(entry["type"] == "assistant" for entry in machine.entries(rows[0]["id"])) == 5


def test_claude_agent_sdk_keeps_one_session(relay, tmp_path):
    machine = Machine(tmp_path / "home", relay)
    relay.say(Said(text="Hello from there."), *(Said(text=f"Answer {n}.") for n in range(4)))
    assert machine.python("agent-sdk", "agent_sdk") == "Hello from there."
    rows = [row for row in machine.sessions() if machine.kinds(row["id"])]
    assert len(rows) == 1


def test_opencode_keeps_its_title_and_its_conversation_apart(relay, tmp_path):
    machine = Machine(tmp_path / "home", relay)
    opencode = opencode_on(machine)
    relay.say(*(Said(text=f"Answer {n}.") for n in range(8)))
    opencode("run", "--format", "json", "Say hi.")
    opencode("run", "--continue", "--format", "json", "And again.")
    rows = machine.sessions()
    assert len({row["key"] for row in rows}) == 1
    assert sorted(machine.kinds(row["id"]).count("assistant") for row in rows) == [1, 2]


def test_opencode_never_compacts_by_itself_though_it_resends_many_windows(tmp_path):
    """The usage that it is told is that of the compacted prompt."""
    from tests.server.compatible.serving import serving

    env = {"TURNLOG_MODEL_WINDOW": "24000", "TURNLOG_MODEL_SUMMARY_MODEL": "offline"}
    with serving(tmp_path / "server", env=env) as relay:
        machine = Machine(tmp_path / "home", relay)
        opencode = opencode_on(machine, context=24000)
        relay.say(*(Said(text=f"Answer {n}. " + "So it is. " * 900) for n in range(40)))
        opencode("run", "--format", "json", "Begin. " + "word " * 3000)
        for n in range(4):
            opencode("run", "--continue", "--format", "json", f"Question {n}: " + "word " * 3000)
        talks = [row for row in machine.sessions() if machine.kinds(row["id"]).count("user") >= 5]
        assert len(talks) == 1
        assert "compaction" in machine.kinds(talks[0]["id"])
        assert "rewind" not in machine.kinds(talks[0]["id"]), "its own compaction would begin anew"


def test_aider_keeps_one_session_and_goes_back_twice(relay, tmp_path):
    machine = Machine(tmp_path / "home", relay)
    relay.say(*(Said(text=f"Answer {n}.") for n in range(6)))
    aider_on(machine)("Say hi.", "And again.", "Third.")
    [row] = machine.sessions()
    assert machine.kinds(row["id"]).count("rewind") == 2
    sent = [message["content"] for message in relay.sent()["messages"]]
    assert "Say hi." in sent
    assert "And again." in sent


def test_claude_code_never_notices_a_window_that_is_far_too_small(tmp_path):
    from tests.server.compatible.serving import serving

    folder = needs("claude-code")
    env = {"TURNLOG_MODEL_WINDOW": "24000", "TURNLOG_MODEL_SUMMARY_MODEL": "offline"}
    with serving(tmp_path / "server", env=env) as relay:
        machine = Machine(tmp_path / "home", relay)
        claude = claude_on(machine, folder)
        relay.say(*(Said(text=f"Answer {n}. " + "So it is. " * 900) for n in range(12)))
        claude("-p", "Begin. " + "word " * 3000)
        for n in range(5):
            again = claude("-p", "--continue", f"Question {n}: " + "word " * 3000)
            assert not again["is_error"], again
        rows = [row for row in machine.sessions() if machine.kinds(row["id"]).count("user") > 4]
        assert len(rows) == 1
        assert "compaction" in machine.kinds(rows[0]["id"])


def test_a_server_that_is_killed_in_mid_call_is_asked_again_and_keeps_the_words_once(relay, tmp_path):
    folder = needs("claude-code")
    machine = Machine(tmp_path / "home", relay)
    claude = claude_on(machine, folder)
    stalled = Said(texts=("Sec", "ond."), breaks="stall")
    relay.say(Said(text="First."), stalled, Said(text="Second."), Said(text="Third."))
    claude("-p", "Say hi.")
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(claude, "-p", "--continue", "And again?")
        wait_until(lambda: len(relay.wire.requests) == 2)
        port = relay.server.base.rpartition(":")[2]
        relay.server.kill()
        relay.server.args[relay.server.args.index("--port") + 1] = port
        relay.server.start()
        assert not running.result()["is_error"]
    rows = [row for row in machine.sessions() if machine.kinds(row["id"])]
    assert len(rows) == 1
    words = [entry for entry in machine.entries(rows[0]["id"]) if "And again?" in json.dumps(entry.get("content"))]
    assert len(words) == 1


def test_claude_code_asks_again_after_a_cut_stream_and_no_second_call_is_made(relay, tmp_path):
    folder = needs("claude-code")
    machine = Machine(tmp_path / "home", relay)
    pieces = tuple(f"piece {n} " + "of one answer " * 40 for n in range(3000))  # more than a socket holds
    relay.say(Said(texts=pieces), *(Said(text=f"Answer {n}.") for n in range(3)))
    with Cutting(machine.base) as proxy:
        answer = claude_on(machine, folder, ANTHROPIC_BASE_URL=proxy.base)("-p", "Say hi.")
        assert proxy.cuts == 1
    assert (answer["is_error"], answer["result"].strip()) == (False, "".join(pieces).strip())
    [row] = [row for row in machine.sessions() if machine.kinds(row["id"])]
    assert machine.kinds(row["id"]).count("assistant") == 1
    assert len(relay.wire.requests) == 1


def test_what_was_said_before_claude_code_compacts_by_itself_stays_searchable(relay, tmp_path):
    machine = Machine(tmp_path / "home", relay)
    claude = claude_on(machine, needs("claude-code"))
    said = [Said(text=f"Answer {n} names the pomegranate.") for n in range(3)]
    relay.say(*said, Said(text="<summary>We spoke of fruit.</summary>"), *(Said(text=f"Later {n}.") for n in range(6)))
    claude("-p", "Say hi.")
    for words in ("And 1?", "And 2?", "/compact"):
        claude("-p", "--continue", words)
    assert claude("-p", "--continue", "After it?")["result"] == "Later 0."
    assert claude("-p", "--continue", "And then?")["result"] == "Later 1."
    assert "Answer 0" not in json.dumps(relay.sent()["messages"]), "the client has replaced it by its summary"
    assert len({row["key"] for row in machine.sessions()}) == 1
    assert "Answer 0 names the pomegranate." in {hit["text"] for hit in search(relay, "pomegranate")}


def test_the_next_request_of_claude_code_after_an_undo_has_the_originals(tmp_path):
    from tests.server.compatible.serving import serving

    folder = needs("claude-code")
    env = {"TURNLOG_MODEL_SUMMARY_MODEL": "offline", "TURNLOG_COMPACTION_TRIGGERS": "manual"}
    with serving(tmp_path / "server", env=env) as relay:
        machine = Machine(tmp_path / "home", relay)
        claude = claude_on(machine, folder)
        relay.say(*(Said(text=f"Answer {n}. " + "So it is. " * 900) for n in range(12)))
        claude("-p", "Begin with the pomegranate.")
        for n in range(4):
            claude("-p", "--continue", f"Question {n}?")
        [row] = [row for row in machine.sessions() if machine.kinds(row["id"]).count("user") > 4]
        place = f"/api/agents/main/sessions/{row['id']}"
        with relay.server.client() as client:
            assert client.post(f"{place}/compact", json={}).status_code < 300
            assert not claude("-p", "--continue", "After the compaction?")["is_error"]
            assert len(json.dumps(relay.sent()["messages"])) < len(json.dumps(relay.wire.requests[4].body["messages"]))
            assert client.post(f"{place}/undo-compact", json={}).status_code < 300
        assert not claude("-p", "--continue", "And after the undo?")["is_error"]
        before, after = relay.wire.requests[4].body["messages"], relay.sent()["messages"]
        assert after[: len(before)] == before, "the originals, byte for byte"


def test_opencode_asks_again_after_cut_streams_and_no_second_call_is_made(relay, tmp_path):
    machine = Machine(tmp_path / "home", relay)
    pieces = tuple(f"piece {n} " + "of one answer " * 40 for n in range(10_000))  # more than sockets hold
    relay.say(*[Said(texts=pieces)] * 12)
    with Cutting(machine.base, times=5) as proxy:
        machine.base = proxy.base
        told = opencode_on(machine)("run", "--format", "json", "Say hi.")
        assert proxy.cuts == 5
    assert "piece 9999" in told.stdout
    rows = machine.sessions()
    assert sorted(machine.kinds(row["id"]).count("assistant") for row in rows) == [1, 1]
    assert len(relay.wire.requests) == len(rows)
