"""Coding agents, as their users start them."""

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor

from tests.providers.wire import Said
from tests.waiting import wait_until

from .running import Cutting, Machine, needs

ECHO = {"id": "call_abc", "name": "bash", "input": {"command": "echo turnlog", "description": "say it"}}


def claude_on(machine, folder, ok=True, **more):
    env = {
        "ANTHROPIC_BASE_URL": machine.base,
        "ANTHROPIC_AUTH_TOKEN": machine.token,
        "ANTHROPIC_MODEL": "m",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        **more,
    }
    command = folder / "node_modules" / ".bin" / "claude"

    def run(*args):
        done = machine.run(command, *args, "--output-format", "json", "--allowedTools", "Bash(echo:*)", env=env, ok=ok)
        return json.loads(done.stdout) if done.stdout.startswith("{") else {"is_error": True, "text": done.stdout}

    return run


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


def opencode_on(machine, **limit):
    folder = needs("opencode")
    subprocess.run(["git", "init", "-q", str(machine.home)], check=True)
    options = {"baseURL": f"{machine.base}/v1", "apiKey": machine.token}
    models = {"m": {"limit": {"context": 32000, "output": 4000, **limit}}}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": models}
    settings = {"provider": {"tl": provider}, "model": "tl/m", "small_model": "tl/m", "autoupdate": False}
    (machine.home / "opencode.json").write_text(json.dumps(settings))
    env = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
    command = folder / "node_modules" / ".bin" / "opencode"
    return lambda *args, **how: machine.run(command, *args, env=env, **how)


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
    folder = needs("aider")
    machine = Machine(tmp_path / "home", relay)
    (machine.home / "a.txt").write_text("hello\n")
    relay.say(*(Said(text=f"Answer {n}.") for n in range(6)))
    env = {
        "OPENAI_API_BASE": f"{machine.base}/v1",
        "OPENAI_API_KEY": machine.token,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    options = ["--no-show-model-warnings", "--no-check-update", "--no-analytics", "--yes-always", "--no-git"]
    more = ["--map-tokens", "0", "--no-pretty", "--no-fancy-input", "a.txt"]
    machine.run(
        folder / "bin" / "aider",
        "--model",
        "openai/m",
        *options,
        *more,
        env=env,
        stdin="Say hi.\nAnd again.\nThird.\n/exit\n",
    )
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
