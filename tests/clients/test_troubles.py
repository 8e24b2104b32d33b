"""Every client when something is wrong: no or a wrong token, no such model, an upstream that refuses, a server that is
killed in mid-call, the history of somebody else."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.providers.wire import Refused, Said
from tests.waiting import wait_until

from .commands import aider_on, claude_on, codex_on, llm_on, opencode_on
from .running import Cutting, Machine, needs

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

MOST_TRIES = 30
"""Those of Codex, which sends a request five times and then begins anew, five times. aider and opencode wait longer
between theirs, and the others send one.
"""


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


def of_claude(machine, model="m"):
    run = claude_on(machine, needs("claude-code"), ok=False, ANTHROPIC_MODEL=model)
    return lambda words, goes_on=False: json.dumps(run("-p", *["--continue"] * goes_on, words))


def of_agent_sdk(machine, model="m"):
    def ask(words, goes_on=False):
        env = {"MODEL": model, "QUESTION": words, **({"GOES_ON": "1"} if goes_on else {})}
        return machine.python("agent-sdk", "agent_sdk", env=env)

    return ask


def of_llm(machine, model="m"):
    run = llm_on(machine, model)

    def ask(words, goes_on=False):
        return read(run(*["-c"] if goes_on else ["-m", "tl"], "--no-stream", words, ok=False))

    return ask


def of_opencode(machine, model="m"):
    run = opencode_on(machine, model=model)
    return lambda words, goes_on=False: read(run("run", *["--continue"] * goes_on, "--format", "json", words, ok=False))


def of_aider(machine, model="m"):
    run = aider_on(machine, model)
    return lambda words, goes_on=False: read(run(words, more=["--restore-chat-history"] * goes_on))


def of_codex(machine, model="m"):
    run = codex_on(machine, model=model, ok=False)
    return lambda words, goes_on=False: json.dumps(run(*["resume", "--last"] * goes_on, words))


def read(done):
    """What the user sees, without the breaks of lines."""
    return " ".join((done.stdout + done.stderr).split())


COMMANDS = {
    "claude-code": of_claude,
    "agent-sdk": of_agent_sdk,
    "llm": of_llm,
    "opencode": of_opencode,
    "aider": of_aider,
    "codex": of_codex,
}


@pytest.fixture(params=COMMANDS)
def start(request):
    """Starts a command: start(machine, model)(words, goes_on)."""
    needs({"llm": "sdks"}.get(request.param, request.param))
    return COMMANDS[request.param]


def test_a_command_tells_what_is_wrong_at_once(relay, tmp_path, start):
    wrong = start(Machine(tmp_path / "wrong", relay, "tl_wrong"))("Say hi.")
    assert "the token is not valid" in wrong
    unknown = start(Machine(tmp_path / "unknown", relay), "agent:nobody")("Say hi.")
    assert "agent:nobody" in unknown
    assert not relay.wire.requests


def test_a_command_gives_up_an_upstream_that_refuses_our_key_and_works_again_afterwards(relay, tmp_path, start):
    relay.say(*[Refused(401, {"error": {"message": "bad key"}})] * 60)
    ask = start(Machine(tmp_path / "home", relay))
    refused = ask("Say hi.")
    assert "bad key" in refused
    assert not STATUS_401.search(refused), "the client would throw its key away"
    assert len(relay.wire.requests) <= MOST_TRIES, "no endless retry"
    relay.say(*[Said(text="Well again.")] * 6)
    assert "Well again." in ask("Say hi.")


def test_a_command_gets_its_answer_from_a_server_that_was_killed_and_started_again(relay, tmp_path, start):
    with Cutting(relay.server.base, times=0) as proxy:
        machine = Machine(tmp_path / "home", relay, base=proxy.base)
        ask = start(machine)
        calls = 2 if start is of_opencode else 1  # it asks for a title too
        relay.say(*[Said(texts=("Hal", "f."), breaks="stall")] * calls, *[Said(text="Whole.")] * 8)
        with ThreadPoolExecutor(1) as threads:
            asked = threads.submit(ask, "Say hi.")
            wait_until(lambda: len(relay.wire.requests) == calls)
            restart(relay)
            assert "Whole." in asked.result()
    for row in machine.sessions():
        assert sum(said_in(entry, "Say hi.") for entry in machine.entries(row["id"])) == 1


def test_a_history_of_another_principal_finds_nothing_by_a_command(relay, tmp_path, start):
    """The client goes on with its own history, but with the token of somebody else."""
    relay.say(*[Said(text="For ann.")] * 6)
    ann = Machine(tmp_path / "home", relay)
    assert "For ann." in start(ann)("Say hi.")
    before = {row["id"]: ann.entries(row["id"]) for row in ann.sessions()}
    relay.say(*[Said(text="For bob.")] * 6)
    bob = Machine(tmp_path / "home", relay, relay.server.make_token("bob", "--scope", "chat"))
    assert "For bob." in start(bob)("And again?", goes_on=True)
    assert "Say hi." in json.dumps(relay.sent()["messages"])
    after = {row["id"]: row["key"] for row in ann.sessions()}
    assert {session: ann.entries(session) for session in before} == before
    added = [key for session, key in after.items() if session not in before]
    assert added
    assert all(":direct:bob" in key for key in added)
