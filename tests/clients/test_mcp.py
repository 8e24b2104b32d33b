"""Coding agents that look into sessions through the MCP server, connected by the lines that the documentation gives."""

import json
import os
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.providers.wire import Said
from turnlog.core.searchable import is_answer

from .commands import claude_on
from .running import Machine, needs, search

PAGE = Path(__file__).parents[2] / "docs" / "clients" / "mcp.md"
BIN = Path(sys.executable).parent
WAITS = 4
"""Claude Code waits for a server for some seconds, which is too short on a busy machine."""


def lines_of(heading, **values):
    """The commands below a heading of the page, with what a user has to put in."""
    section = PAGE.read_text(encoding="utf-8").partition(f"## {heading}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```text\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    for name, value in values.items():
        blocks = [block.replace(name, value) for block in blocks]
    return blocks


def remember(relay, words):
    """A session of the client's own principal, from before."""
    relay.say(Said(text="I will remember it."))
    relay.post("/v1/messages", {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": words}]})


def test_claude_code_finds_what_it_forgot_and_its_finding_is_never_found(relay, tmp_path):
    folder = needs("claude-code")
    remember(relay, "The deploy password hint is pomegranate.")
    machine = Machine(tmp_path / "home", relay)
    env = {"PATH": f"{BIN}:{os.environ['PATH']}", "TURNLOG_HOME": str(relay.server.home)}
    claude = claude_on(machine, folder, **env)
    command = folder / "node_modules" / ".bin" / "claude"
    for name, block in (("local", 0), ("remote", 1)):
        line = lines_of("Claude Code", ADDRESS=machine.base, TOKEN=machine.token)[block]
        machine.run("sh", "-c", line.replace("claude ", f"{command} ", 1), env=env)
        ask = {"id": f"call_{name}", "name": "mcp__turnlog__search", "input": {"words": "pomegranate"}}
        wait = {"id": f"wait_{name}", "name": "WaitForMcpServers", "input": {"servers": ["turnlog"]}}
        waits = [Said(text="I wait for it.", calls=({**wait, "id": f"{wait['id']}_{n}"},)) for n in range(WAITS)]
        looks = Said(text="I look it up.", calls=(ask,))
        relay.say(*waits, looks, *(Said(text=f"It was found ({name}).") for _ in range(4)))
        told = claude("-p", f"What was the hint? ({name})", "--allowedTools", "mcp__turnlog__search")
        assert not told["is_error"], told
        assert "deploy password hint" in json.dumps(relay.wire.requests[WAITS + 1].body)
        machine.run(command, "mcp", "remove", "turnlog", env=env)
    assert [hit["text"] for hit in search(relay, "pomegranate")] == ["The deploy password hint is pomegranate."]


class ScriptedResponses(BaseHTTPRequestHandler):
    """A model behind the Responses API that calls the tool as soon as it is offered, and then answers."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(asked)
        told = [item for item in asked["input"] if item["type"] == "function_call_output"]
        done = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It was found."}]}
        item = done if told else self.server.call
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        events = [
            {"type": "response.created", "response": {"id": "r1"}},
            {
                "type": "response.output_item.done",
                "output_index": 0,
                "item": {"id": "i1", "status": "completed", **item},
            },
            {
                "type": "response.completed",
                "response": {"id": "r1", "status": "completed", "output": [], "usage": usage},
            },
        ]
        body = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Model(ThreadingHTTPServer):
    def __init__(self, call):
        super().__init__(("127.0.0.1", 0), ScriptedResponses)
        self.call, self.requests = call, []

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error):
        self.shutdown()
        self.server_close()


def codex_options(model):
    address = f"http://127.0.0.1:{model.server_port}/v1"
    provider = f'{{name="m", base_url="{address}", env_key="MODEL_KEY", wire_api="responses"}}'
    values = (f"model_providers.m={provider}", 'model_provider="m"', 'model="m"')
    patient = ("mcp_servers.turnlog.required=true", "mcp_servers.turnlog.startup_timeout_sec=200")
    return [part for value in (*values, *patient) for part in ("-c", value)]


@pytest.mark.parametrize("way", ["local", "remote"])
def test_codex_finds_what_it_forgot(relay, tmp_path, way):
    command = needs("codex") / "node_modules" / ".bin" / "codex"
    remember(relay, "The deploy password hint is pomegranate.")
    machine = Machine(tmp_path / "home", relay)
    env = {"PATH": f"{BIN}:{os.environ['PATH']}", "CODEX_HOME": str(machine.home / ".codex"), "MODEL_KEY": "x"}
    (machine.home / ".codex").mkdir()
    line = lines_of("Codex", ADDRESS=machine.base)[("local", "remote").index(way)]
    if way == "local":
        line = line.replace(" -- ", f" --env TURNLOG_HOME={relay.server.home} -- ")
    else:
        env["TURNLOG_TOKEN"] = machine.token
    machine.run("sh", "-c", line.replace("codex ", f"{command} ", 1), env=env)
    words = json.dumps({"words": "pomegranate"})
    call = {"type": "function_call", "call_id": "c1", "namespace": "mcp__turnlog", "name": "search", "arguments": words}
    with Model(call) as model:
        asked = ["exec", "--skip-git-repo-check", *codex_options(model), "What was the hint?"]
        machine.run(command, *asked, env=env)
        [told] = [item["output"] for item in model.requests[-1]["input"] if item["type"] == "function_call_output"]
    assert "deploy password hint" in json.dumps(told)
    assert is_answer(told), "search would find it in a session of this agent"
