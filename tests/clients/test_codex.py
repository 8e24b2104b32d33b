"""Codex, as its users start it: it speaks the Responses API, keeps nothing at the server, and resends everything."""

import json

from tests.providers.wire import Said

from .running import Machine, needs

ECHO = {"id": "call_abc", "name": "exec_command", "input": {"cmd": "echo turnlog"}}
CONFIG = """
model = "m"
model_provider = "tl"

[model_providers.tl]
name = "tl"
base_url = "{base}/v1"
env_key = "TL"
wire_api = "responses"
{more}
"""


def codex_on(machine, *, base=None, more=""):
    folder = needs("codex")
    home = machine.home / "codex"
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(CONFIG.format(base=base or machine.base, more=more))
    command = folder / "node_modules" / ".bin" / "codex"

    def run(*args):
        env = {"CODEX_HOME": str(home), "TL": machine.token}
        done = machine.run(command, "exec", "--skip-git-repo-check", "--json", *args, env=env)
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    return run


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
