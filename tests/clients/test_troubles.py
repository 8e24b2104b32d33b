"""Every client when something is wrong: no or a wrong token, no such model, an upstream that refuses, a server that is
killed in mid-call, the history of somebody else."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.providers.wire import Refused, Said
from tests.waiting import wait_until

from .running import Machine, needs
from .test_agents import claude_on, opencode_on
from .test_sdks import llm_on

LIBRARIES = (
    ("sdks", "openai"),
    ("sdks", "anthropic"),
    ("sdks", "langchain"),
    ("older", "anthropic"),
    ("older", "pydantic_ai"),
    ("ai-sdk", "chat"),
    ("ai-sdk", "messages"),
)
STATUS_401 = re.compile(r"(status\w*\W+|error:? |code: )401", re.IGNORECASE)
SDK_TRIES = 3
"""The vendors' SDKs send a request once and retry it twice."""


@pytest.fixture(params=LIBRARIES, ids="-".join)
def ask(request):
    """Asks one question by a library: ask(machine, **variables)."""
    environment, kind = request.param
    needs(environment)

    def run(machine, **env):
        start = machine.node if environment == "ai-sdk" else machine.python
        return start(environment, "one_question", env={"KIND": kind, **env})

    return run


def test_a_library_tells_our_message(relay, tmp_path, ask):
    relay.say(*[Refused(401, {"error": {"message": "bad key"}})] * 20)
    wrong = ask(Machine(tmp_path / "wrong", relay, "tl_wrong"))["error"]
    assert "the token is not valid" in wrong
    machine = Machine(tmp_path / "home", relay)
    assert "agent:nobody" in ask(machine, MODEL="agent:nobody")["error"]
    assert not relay.wire.requests
    refused = ask(machine)["error"]
    assert "the token is not valid" not in refused
    assert len(relay.wire.requests) in (1, SDK_TRIES), "AI SDK tries every 502 again, and then gives up"
    relay.say(Said(text="Well again."))
    assert ask(machine) == {"answer": "Well again."}


@pytest.mark.parametrize("status", [429, 500])
def test_a_library_gives_up_after_some_tries_of_an_upstream_that_fails(relay, tmp_path, ask, status):
    relay.say(*[Refused(status, {"error": {"message": "not now"}})] * 60)
    machine = Machine(tmp_path / "home", relay)
    assert "error" in ask(machine, RETRIES="1")
    assert 1 <= len(relay.wire.requests) <= 40
    relay.say(Said(text="Now."))
    assert ask(machine) == {"answer": "Now."}


def test_a_library_gets_its_answer_from_a_server_that_was_killed_and_started_again(relay, tmp_path, ask):
    machine = Machine(tmp_path / "home", relay)
    relay.say(Said(texts=("Hal", "f."), breaks="stall"), Said(text="Whole."))
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(ask, machine, RETRIES="9")
        wait_until(lambda: len(relay.wire.requests) == 1)
        restart(relay)
        assert asked.result() == {"answer": "Whole."}
    words = [entry for row in machine.sessions() for entry in machine.entries(row["id"]) if said_in(entry, "Say hi.")]
    assert len(words) == len(machine.sessions()), "the words once in each session"


def said_in(entry, words):
    return entry["type"] == "user" and words in json.dumps(entry.get("content"))


def restart(relay):
    port = relay.server.base.rpartition(":")[2]
    relay.server.kill()
    relay.server.args[relay.server.args.index("--port") + 1] = port
    relay.server.start()


def test_a_history_of_another_principal_finds_nothing(relay, tmp_path, ask):
    relay.say(Said(text="For ann."), Said(text="For bob."))
    ann = Machine(tmp_path / "ann", relay)
    ask(ann)
    bob = Machine(tmp_path / "bob", relay, relay.server.make_token("bob", "--scope", "chat"))
    assert ask(bob) == {"answer": "For bob."}
    assert len({row["key"] for row in ann.sessions()}) == 2


def of_claude(machine):
    run = claude_on(machine, needs("claude-code"), ok=False)
    return lambda: json.dumps(run("-p", "Say hi."))


def of_llm(machine):
    run = llm_on(machine)
    return lambda: "".join(read(run("-m", "tl", "Say hi.", ok=False)))


def of_opencode(machine):
    run = opencode_on(machine)
    return lambda: "".join(read(run("run", "--format", "json", "Say hi.", ok=False)))


def read(done):
    return done.stdout, done.stderr


COMMANDS = {"claude-code": of_claude, "llm": of_llm, "opencode": of_opencode}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_tells_what_is_wrong_and_works_again_afterwards(relay, tmp_path, command):
    make = COMMANDS[command]
    relay.say(*[Refused(401, {"error": {"message": "bad key"}})] * 20)
    wrong = make(Machine(tmp_path / "wrong", relay, "tl_wrong"))()
    assert "token" in wrong.lower() or "401" in wrong
    assert not relay.wire.requests
    run = make(Machine(tmp_path / "home", relay))
    refused = run()
    assert not STATUS_401.search(refused), "the client would throw its key away"
    assert len(relay.wire.requests) <= 8, "no endless retry"
    relay.say(*[Said(text="Well again.")] * 6)
    assert "Well again." in run()


def test_opencode_gets_its_answer_from_a_server_that_was_killed_and_started_again(relay, tmp_path):
    machine = Machine(tmp_path / "home", relay)
    run = of_opencode(machine)
    relay.say(*[Said(texts=("Hal", "f."), breaks="stall")] * 2, *[Said(text="Whole.")] * 6)
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(run)
        wait_until(lambda: len(relay.wire.requests) == 2)
        restart(relay)
        assert "Whole." in asked.result()
