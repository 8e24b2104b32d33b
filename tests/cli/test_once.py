"""Commands for scripts: what goes to stdout, what to stderr, and the exit code."""

import asyncio
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import turnlog
from turnlog.cli import app
from turnlog.cli.chat.slash_sessions import around_match
from turnlog.testing import check_messages
from turnlog.turns import retry

from ..waiting import wait_until
from .running import requests, run, script, workspace


@pytest.fixture
def here(tmp_path, monkeypatch, capsys):
    """`turnlog ARGS` in this process: (exit code, stdout as JSON where asked for, stderr)."""
    monkeypatch.setenv("TURNLOG_HOME", str(tmp_path))
    monkeypatch.setenv("LANG", "C.UTF-8")
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "LC_ALL", "LC_MESSAGES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)

    def call(*args):
        code = app.run([str(arg) for arg in args])
        out, err = capsys.readouterr()
        as_json = "--json" in args
        if as_json and args[0] != "chat":
            out = json.loads(out) if out else None
        return code, out, json.loads(err) if as_json and err else err

    return call


def test_one_turn_prints_the_reply_and_the_next_one_knows_it(tmp_path):
    log = tmp_path / "requests.jsonl"
    model = script(tmp_path, {"text": "noted", "deltas": ["no", "ted"]}, {"text": "blue"})
    first = run("chat", "-p", "my colour is blue", "--model", model, home=tmp_path, TURNLOG_REQUEST_LOG=str(log))
    second = run("chat", "-p", "which?", "--model", model, home=tmp_path, TURNLOG_REQUEST_LOG=str(log))
    assert (first.returncode, first.stdout, first.stderr) == (0, "noted\n", "")
    assert (second.returncode, second.stdout) == (0, "blue\n")
    messages = requests(log)[-1]["messages"]
    check_messages(messages)
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]


@pytest.mark.parametrize("args", [("-p", "-"), ()])
def test_standard_input_is_the_message(tmp_path, args):
    log = tmp_path / "requests.jsonl"
    done = run("chat", *args, home=tmp_path, stdin="two\nlines\n", TURNLOG_REQUEST_LOG=str(log))
    assert done.returncode == 0
    assert requests(log)[0]["messages"][-1]["content"] == "two\nlines\n"


def test_a_dialogue_through_a_pipe_is_answered_line_by_line(tmp_path):
    log = tmp_path / "requests.jsonl"
    lines = "/new my-project\nhello\n/context\n/nonsense\n/delete my-project\nquit\n"
    done = run("chat", home=tmp_path, stdin=lines, TURNLOG_REQUEST_LOG=str(log))
    assert done.returncode == 0
    assert "Created session: ses-" in done.stdout
    assert "(my-project)" in done.stdout
    assert "Context usage: ~" in done.stdout
    assert "Unknown command: /nonsense" in done.stdout
    assert "Cannot delete the current session" in done.stdout
    assert "\x1b" not in done.stdout
    assert len(requests(log)) == 1
    plain = run("chat", home=tmp_path, stdin="first\nsecond\n/quit\n", TURNLOG_REQUEST_LOG=str(log))
    assert plain.returncode == 0
    assert len(requests(log)) == 3


def test_a_question_that_nobody_answers_deletes_nothing(tmp_path):
    run("chat", "-p", "one", "--new", "--label", "old", home=tmp_path)
    done = run("chat", "--new", home=tmp_path, stdin="/delete old\n")
    assert "Nothing was deleted." in done.stdout
    assert run("sessions", "show", "old", home=tmp_path).returncode == 0


def test_json_events_are_those_of_the_stream_with_the_session_in_the_first(tmp_path):
    work = workspace(tmp_path, notes="hi")
    call = {"id": "c1", "name": "read_file", "input": {"path": "notes.txt"}}
    model = script(tmp_path, {"tool_calls": [call], "usage": {"input_tokens": 7}}, {"text": "read"})
    done = run("chat", "-p", "read", "--json", "--model", model, home=tmp_path, cwd=work)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["type"] for event in events] == ["usage", "tool_call", "tool_result", "text_delta", "done"]
    assert events[0]["sessionId"].startswith("ses-")
    assert events[1]["tool_call"] == call
    assert events[2] == {"type": "tool_result", "tool_call_id": "c1", "text": "hi", "is_error": False}
    assert set(events[-1]) == {"type", "sessionId", "tokenEstimate", "title"}


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ({"error": {"status": 401, "message": "invalid x-api-key"}}, 4),
        ({"error": {"status": 400, "message": "prompt is too long: 9 tokens > 5 maximum"}}, 1),
    ],
)
def test_a_failed_turn_says_why_on_stderr_and_in_the_exit_code(tmp_path, here, reply, code):
    model = script(tmp_path, *[reply] * 6)
    got, out, err = here("chat", "-p", "hello", "--model", model)
    assert got == code
    assert out == ""
    assert err.startswith("Error: ")


def test_errors_are_json_where_json_was_asked_for(here):
    assert here("sessions", "show", "nowhere", "--json") == (
        2,
        None,
        {
            "error": "no session fits 'nowhere'",
            "code": "not_found",
            "hint": "List the sessions to see which exist; a deleted session cannot be restored.",
        },
    )
    code, _, error = here("frobnicate", "--json")
    assert (code, error["code"]) == (2, "usage")
    code, _, error = here("sessions", "list", "--limit", "many", "--json")
    assert (code, error["code"]) == (2, "usage")
    code, _, error = here("sessions", "list", "--store", "nonsense:x", "--json")
    assert (code, error["code"]) == (2, "usage")
    code, _, error = here("sessions", "list", "--preset", "zeroclow", "--json")
    assert "zeroclaw" in error["hint"]
    code, _, error = here("chat", "-p", "x", "--session", "a", "--new", "--json")
    assert (code, error["code"]) == (2, "usage")
    code, _, error = here("chat", "-p", " ", "--json")
    assert (code, error["code"]) == (2, "usage")


def test_a_store_that_cannot_be_had_is_exit_code_3(tmp_path, here):
    code, _, error = here("sessions", "list", "--store", "sqlite:/proc/no/sessions.db", "--json")
    assert (code, error["code"]) == (3, "store")
    assert error["hint"]
    (tmp_path / "garbage.db").write_bytes(b"this is not a database, whatever its name says" * 100)
    code, _, error = here("sessions", "list", "--store", f"sqlite:{tmp_path}/garbage.db", "--json")
    assert code in (2, 3)
    assert error["hint"]


def test_options_count_before_and_after_the_command_and_the_last_one_wins(tmp_path, here):
    here("--store", f"jsonl:{tmp_path}/one", "chat", "-p", "hello")
    code, page, _ = here("sessions", "list", "--json", "--store", f"jsonl:{tmp_path}/one")
    assert (code, page["total"]) == (0, 1)
    here("--store", f"jsonl:{tmp_path}/two", "chat", "-p", "hello", "--new")
    here("--store", f"jsonl:{tmp_path}/two", "chat", "-p", "hello", "--new")
    code, page, _ = here("--json", "--store", f"jsonl:{tmp_path}/two", "sessions", "list")
    assert page["total"] == 2
    both = ("--store", f"jsonl:{tmp_path}/two", "--json", "sessions", "list", "--store", f"jsonl:{tmp_path}/one")
    assert here(*both)[1]["total"] == 1


def test_every_command_about_sessions_has_the_shape_it_promises(tmp_path, here):
    store = ("--store", f"jsonl:{tmp_path}/data")
    for text in ("the code is 4711", "what is the code?", "and again?"):
        here("chat", "-p", text, "--key", "main:cli:user", *store)
    _, page, _ = here("sessions", "list", "--json", *store)
    [row] = page["sessions"]
    assert (page["next"], page["total"]) == (None, 1)
    assert row["filePath"].endswith(f"agents/main/sessions/{row['id']}.jsonl")
    assert (row["key"], row["messageCount"], row["turnCount"]) == ("agent:main:cli:direct:user", 6, 3)

    _, shown, _ = here("sessions", "show", "main:cli:user", "--json", *store)
    entries = msgspec.convert(shown["entries"], list[turnlog.Entry])
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert shown["session"] == row

    _, hits, _ = here("sessions", "search", "4711", "--json", *store)
    assert set(hits["hits"][0]) == {"sessionId", "seq", "snippet", "role", "state", "time", "matches"}
    assert here("sessions", "rename", row["id"], "Codes", "--json", *store)[1]["title"] == "Codes"
    _, fork, _ = here("sessions", "fork", row["id"][:10], "--at", "4", "--label", "copy", "--json", *store)
    assert set(fork) == {"id"}
    assert here("sessions", "pin", "copy", "3", "--json", *store)[0] == 0
    assert here("sessions", "unpin", "copy", "3", "--json", *store)[0] == 0
    assert here("sessions", "rewind", row["id"], "4", "--json", *store)[0] == 0
    assert here("sessions", "rewind", row["id"], "5", "--json", *store)[0] == 2
    assert here("sessions", "delete", "copy", "--yes", "--json", *store)[1] == {"id": fork["id"]}
    assert here("sessions", "reindex", "--json", *store)[1] == {"sessions": 1}
    assert here("copy", f"jsonl:{tmp_path}/data", f"sqlite:{tmp_path}/copy.db", "--json")[1]["sessions"] == 1
    assert here("sessions", "list", "--json", "--store", f"sqlite:{tmp_path}/copy.db")[1]["total"] == 1


def test_what_the_model_sees_is_printed_explained_compacted_and_undone(here):
    for n in range(4):
        here("chat", "-p", f"tell me about invoice {n}: " + "it has many lines " * 60)
    name = "agent:main:cli:direct:user"
    _, prompt, _ = here("prompt", name, "--json")
    assert set(prompt) == {"system", "messages", "tools"}
    check_messages(prompt["messages"])
    assert {tool["name"] for tool in prompt["tools"]} >= {"read_file", "search_history"}
    assert len(here("prompt", name, "--at", "4", "--json")[1]["messages"]) == 2

    assert here("fidelity", name)[1] == "No compaction yet.\n"
    _, would, _ = here("compact", name, "--dry-run", "--json")
    assert set(would) == {"summary", "first_kept", "covers", "tokens_before", "tokens_after", "applied"}
    assert would["applied"] is False
    assert {entry["state"] for entry in here("explain", name, "--json")[1]} == {"tail", "none"}
    _, did, _ = here("compact", name, "--focus", "invoices", "--json")
    assert did["applied"] is True
    states = here("explain", name, "--json")[1]
    assert {"seq": 3, "type": "user", "state": "compacted", "by": states[-1]["seq"]} in states
    assert here("explain", name, "3", "--json")[1][0]["state"] == "compacted"
    assert here("explain", name, "999", "--json")[0] == 2
    assert here("expand", name, "--json")[1][0]["type"] == "user"
    [kept] = here("fidelity", name, "--json")[1]
    assert kept["seq"] == states[-1]["seq"]
    assert kept["identifiers"] == kept["kept"] + kept["searchable"]
    assert (kept["lost"], kept["cost"], kept["active"]) == (0, 0.0, True)
    assert here("undo-compact", name, "--json")[1]["compactions"] == 0
    assert f"{kept['seq']} (undone)" in here("fidelity", name)[1]
    assert here("undo-compact", name, "--json")[0] == 2
    for command in ("prompt", "explain", "sessions"):
        code, out, _ = here(command, *(("show",) if command == "sessions" else ()), name)
        assert code == 0
        assert "invoice" in out or command == "explain"


def test_config_says_each_value_and_where_it_came_from(here, monkeypatch):
    monkeypatch.setenv("TURNLOG_SERVER_PORT", "9000")
    _, rows, _ = here("config", "--preset", "claw0", "--model", "offline", "--json")
    found = {row["key"]: (row["value"], row["origin"]) for row in rows}
    assert found["server.port"] == (9000, "environment TURNLOG_SERVER_PORT")
    assert found["model.name"] == ("offline", "flag")
    assert found["model.window"] == (180_000, "preset claw0")
    assert "server.port" in here("config")[1]


def test_pin_without_a_number_pins_the_users_last_message(tmp_path, here, monkeypatch):
    here("chat", "-p", "keep exactly this")
    monkeypatch.setattr(sys, "stdin", io.StringIO("/pin\n"))
    _, out, _ = here("chat")
    _, shown, _ = here("sessions", "show", "main:cli:user", "--json")
    [pin] = [entry["target"] for entry in shown["entries"] if entry["type"] == "pin"]
    assert shown["entries"][pin - 1]["content"] == "keep exactly this"
    assert f"Pinned entry {pin}" in out


@pytest.mark.parametrize("at", ["0", "-1", "999"])
def test_a_prompt_at_an_entry_that_is_not_there_is_an_error(here, at):
    here("chat", "-p", "hello")
    code, out, err = here("prompt", "main:cli:user", "--at", at)
    assert (code, out) == (2, "")
    assert f"has no entry {at}" in err
    assert "entries 1 to" in err


@pytest.mark.parametrize("args", [(), ("sessions",), ("token",), ("memory",), ("channels",)])
def test_a_group_of_commands_alone_prints_its_help(here, args):
    code, out, err = here(*args)
    assert (code, err) == (0, "")
    assert out.startswith("Usage: turnlog")
    assert "\nCommands:\n" in out


def test_an_overflow_by_the_system_prompt_says_so(tmp_path, here):
    (tmp_path / "config.toml").write_text(f'[agents.main]\nsystem = "{"be kind and brief " * 3_000}"\n')
    code, _, err = here("chat", "-p", "hi", "--model", "offline")
    assert code == 1
    assert "the system prompt and the tools alone take about" in err
    (tmp_path / "config.toml").unlink()
    code, _, err = here("chat", "-p", "hi " * 30_000, "--model", "offline")
    assert code == 1
    assert "system prompt" not in err


def test_claw0_context_counts_as_claw0_did(tmp_path, here, monkeypatch):
    here("chat", "-p", "x" * 4_936, "--model", script(tmp_path, {"error": {"status": 401, "message": "no"}}))
    store = f"sqlite:{tmp_path}/memory/sessions.db"
    monkeypatch.setattr(sys, "stdin", io.StringIO("/context\n/compact\n"))
    _, out, _ = here("chat", "--preset", "claw0", "--store", store)
    assert "Context usage: ~1,234 / 180,000 tokens" in out
    assert "[------------------------------] 0.7%" in out
    assert "Messages: 1" in out
    assert "Too few messages to compact (need > 4)." in out


@pytest.mark.parametrize(("preset", "session_id"), [("claw0", "a1b2c3d4e5f6"), ("claw0-keyed", "abc123abc123")])
def test_a_first_chat_in_a_directory_of_claw0_resumes_its_session(tmp_path, here, monkeypatch, preset, session_id):
    root = tmp_path / "theirs"
    shutil.copytree(Path(__file__).parents[1] / "transcripts" / preset, root)
    monkeypatch.setattr(sys, "stdin", io.StringIO("/quit\n"))
    _, out, _ = here("chat", "--preset", preset, "--store", f"jsonl:{root}")
    assert f"Resumed session: {session_id}" in out
    assert "Created" not in out


def test_claw0_keyed_new_makes_a_key(tmp_path, here, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("/new\n/new\nhello\n/list\n/quit\n"))
    store = f"sqlite:{tmp_path}/s.db"
    _, out, _ = here("chat", "--preset", "claw0-keyed", "--store", store)
    _, page, _ = here("sessions", "list", "--json", "--store", store)
    keys = {row["key"] for row in page["sessions"]}
    assert len(keys) == 3
    assert sum(key.startswith("agent:main:cli:direct:user_") for key in keys) == 2
    assert "  main:cli:user_" in out


def test_a_reader_who_leaves_early_does_not_end_the_turn(tmp_path):
    words = ["word "] * 100
    model = script(tmp_path, {"text": "".join(words), "deltas": words, "delay_ms": 5})
    command = f"{sys.executable} -m turnlog chat -p go --json --model {model} | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        env={**os.environ, "TURNLOG_HOME": str(tmp_path)},
        timeout=120,
    )
    assert done.stdout.splitlines()[-1] == "0"
    assert done.stderr == ""
    entries = json.loads(run("sessions", "show", "main:cli:user", "--json", home=tmp_path).stdout)["entries"]
    assert entries[-1]["type"] == "assistant"


def test_ctrl_c_ends_one_turn_with_what_was_said_so_far(tmp_path):
    model = script(tmp_path, {"deltas": ["partly "] * 300, "until": str(tmp_path / "never")})
    child = subprocess.Popen(
        [sys.executable, "-m", "turnlog", "chat", "-p", "go", "--json", "--model", model],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TURNLOG_HOME": str(tmp_path)},
    )
    child.stdout.readline()
    child.send_signal(signal.SIGINT)
    rest = child.stdout.read()
    assert child.wait(120) == 1
    assert json.loads(rest.splitlines()[-1]) == {"type": "stopped"}
    child.stdout.close()
    entries = json.loads(run("sessions", "show", "main:cli:user", "--json", home=tmp_path).stdout)["entries"]
    assert entries[-1]["stop"] == "interrupted"


def test_a_turn_that_was_killed_is_merged_with_the_next_one(tmp_path):
    log = tmp_path / "requests.jsonl"
    model = script(tmp_path, {"text": "never", "until": str(tmp_path / "never")}, {"text": "both"})
    child = subprocess.Popen(
        [sys.executable, "-m", "turnlog", "chat", "-p", "first", "--model", model],
        stdin=subprocess.DEVNULL,
        env={**os.environ, "TURNLOG_HOME": str(tmp_path), "TURNLOG_REQUEST_LOG": str(log)},
    )
    # The position too: a request is written down before its answer is taken from the script.
    wait_until(lambda: requests(log) and list(tmp_path.glob("*.position")))
    child.kill()
    child.wait()
    done = run("chat", "-p", "new", "--model", model, home=tmp_path, TURNLOG_REQUEST_LOG=str(log))
    assert done.stdout == "both\n"
    check_messages(requests(log)[-1]["messages"])
    assert requests(log)[-1]["messages"][-1]["content"] in ("first\n\nnew", [{"type": "text", "text": "first\n\nnew"}])


def test_a_full_disk_in_the_middle_of_a_turn_is_said_and_loses_nothing(tmp_path):
    """The file may grow no further, as on a full disk."""
    run("chat", "-p", "before", "--store", f"jsonl:{tmp_path}/data", home=tmp_path)
    limited = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "sys.dont_write_bytecode = True;"  # it would be cut short too, for everybody
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096));"
        "from turnlog.cli.app import run;"
        f"sys.exit(run(['chat', '-p', 'x' * 9000, '--store', 'jsonl:{tmp_path}/data']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", limited],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "TURNLOG_HOME": str(tmp_path)},
        timeout=120,
    )
    assert done.returncode == 3
    assert done.stderr.startswith("Error: ")
    assert "Traceback" not in done.stderr
    after = run("chat", "-p", "after", "--store", f"jsonl:{tmp_path}/data", home=tmp_path)
    assert after.returncode == 0


def test_a_lost_network_is_said_and_is_exit_code_4(here, monkeypatch):
    pytest.importorskip("openai")
    monkeypatch.setattr(retry, "RETRIES", 0)  # they take seconds, and have tests of their own
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    code, out, err = here("chat", "-p", "hello", "--model", "openai:any")
    assert (code, out) == (4, "")
    assert err.startswith("Error: ")
    assert "Traceback" not in err


def test_the_version_is_there_at_once():
    code = (
        "import sys; sys.argv = ['turnlog', '--version']; from turnlog.cli.main import main; main();"
        "sys.stderr.write(' '.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == f"turnlog {turnlog.__version__}\n"
    heavy = {"asyncio", "rich", "prompt_toolkit", "apsw", "click", "turnlog.wiring"}
    assert not heavy & set(done.stderr.split())


def test_a_script_that_answers_once_imports_nothing_of_the_terminal(tmp_path):
    code = (
        "import sys; from turnlog.cli.app import run; code = run(['chat', '-p', 'hello']);"
        "sys.stderr.write(' '.join(sys.modules))"
    )
    env = {**os.environ, "TURNLOG_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env, timeout=120
    )
    assert not {"rich", "prompt_toolkit"} & set(done.stderr.split())


def test_what_is_listed_cannot_act_on_the_terminal(tmp_path, here):
    title = "\x1b]0;owned\x07 \x9b31m \u202e title"
    here("chat", "-p", title)
    for args in (("sessions", "list"), ("sessions", "show", "main:cli:user"), ("sessions", "search", "title")):
        _, out, _ = here(*args)
        assert not set(out) & set("\x1b\x07\x9b\u202e")
        _, _, _ = here(*args, "--json")
    _, page, _ = here("sessions", "list", "--json")
    assert "\x1b" in page["sessions"][0]["title"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_get_a_completion_script_that_names_the_sessions(tmp_path, here, shell):
    assert "_TURNLOG_COMPLETE" in here("completion", shell)[1]
    here("chat", "-p", "hello", "--new", "--label", "zebra")
    words = {"COMP_WORDS": "turnlog prompt ze", "COMP_CWORD": "2", "_TURNLOG_COMPLETE": "bash_complete"}
    done = run(home=tmp_path, **words)
    assert "zebra" in done.stdout


@pytest.fixture
def typed(here, monkeypatch):
    """What a chat prints when these lines are piped into it."""

    def chat(*lines, args=()):
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        code, out, err = here("chat", *args)
        assert (code, err) == (0, "")
        return out

    return chat


@pytest.mark.parametrize("preset", ["default", "zeroclaw", "sessions", "zyhive", "claw0", "claw0-keyed", "openclaw"])
def test_with_every_preset_a_fourth_turn_sees_the_three_before(tmp_path, here, typed, monkeypatch, preset):
    log = tmp_path / "requests.jsonl"
    monkeypatch.setenv("TURNLOG_REQUEST_LOG", str(log))
    model = script(tmp_path, *({"text": f"answer {n}"} for n in range(4)))
    args = ("--preset", preset, "--store", f"sqlite:{tmp_path}/s.db", "--model", model)
    for n in range(3):
        assert here("chat", "-p", f"question {n}", *args)[1] == f"answer {n}\n"
    out = typed("/history", "question 3", "/quit", args=args)
    assert "Resumed session: ses-" in out
    assert "Restored: 3 previous turns" in out
    messages = requests(log)[-1]["messages"]
    check_messages(messages)
    said = json.dumps(messages)
    places = [said.index(words) for n in range(3) for words in (f"question {n}", f"answer {n}")]
    assert places == sorted(places)
    assert len(messages) == 7


@pytest.mark.parametrize(("count", "after"), [(4, None), (5, 5), (6, 6), (8, 6), (10, 8), (40, 22)])
def test_claw0_compacts_half_and_never_ends_with_more(tmp_path, here, typed, count, after):
    args = ("--preset", "claw0", "--store", f"sqlite:{tmp_path}/s.db")
    asyncio.run(_fill(tmp_path, count))
    out = typed("/compact", args=args)
    shown = here("prompt", "main:cli:user", "--json", *args)[1]["messages"]
    check_messages(shown)
    if after is None:
        assert "Too few messages to compact (need > 4)." in out
    elif after == count:
        assert "nothing to compact" in out
    else:
        assert f"{count} messages before, {after} after" in out
        assert len(shown) == after
        assert here("prompt", "main:cli:user", "--json", *args)[1]["messages"] == shown


async def _fill(folder, count):
    async with turnlog.open(f"sqlite:{folder}/s.db", home=folder) as t:
        said = [
            turnlog.User(content=f"question {n} about the rent")
            if n % 2 == 0
            else turnlog.Assistant(content=f"answer {n}")
            for n in range(count)
        ]
        await t.append("agent:main:cli:direct:user", *said)


def test_a_deletion_that_nobody_confirms_is_an_error_and_deletes_nothing(here, monkeypatch):
    here("chat", "-p", "keep this", "--new", "--label", "kept")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    code, out, err = here("sessions", "delete", "kept")
    assert (code, out) == (2, "")
    assert "nothing was deleted" in err
    code, out, err = here("sessions", "delete", "kept", "--json")
    assert (code, out, err["error"]) == (2, None, "nothing was deleted")
    assert here("sessions", "list", "--json")[1]["total"] == 1


@pytest.mark.parametrize("command", [("sessions", "pin"), ("sessions", "rewind"), ("expand",)])
def test_an_entry_that_does_not_exist_is_called_missing(here, command):
    here("chat", "-p", "hi", "--new", "--label", "short")
    code, _, err = here(*command, "short", "99", "--json")
    assert code == 2
    assert err["error"].endswith("has no entry 99")
    assert err["hint"] == "It has entries 1 to 4."


def test_an_unknown_scope_is_named(here):
    code, _, err = here("token", "create", "bob", "--scope", "chats", "--json")
    assert (code, err["error"]) == (2, "'chats' is not a scope")


def test_history_refuses_what_is_not_a_number(typed):
    out = typed("/history x", "/quit")
    assert "'x' is not a number" in out
    assert "Usage: /history [n]" in out


@pytest.mark.parametrize("command", ["rewind", "unpin", "history", "expand"])
@pytest.mark.parametrize("count", ["0", "-1", "9" * 5000])
def test_a_count_of_a_command_begins_at_one(typed, command, count):
    out = typed("hello", "/pin", f"/{command} {count}", "/sessions", "/quit")
    assert "is not a number from 1 on" in out
    assert f"Usage: /{command}" in out
    assert "rewound:" not in out
    assert "Unpinned" not in out


def test_a_hit_of_search_shows_its_match_on_a_narrow_screen():
    line = around_match("many words before it " * 5 + "«needle» and after", 40)
    assert "«needle»" in line
    assert line.startswith("…")
    assert len(line) <= 40
    assert around_match("short «hit»", 40) == "short «hit»"


def test_a_hit_of_search_is_one_line_also_where_only_its_beginning_fits(typed, monkeypatch):
    monkeypatch.setattr("turnlog.cli.chat.plain.columns_of_screen", lambda: 40)
    out = typed("a needle in a haystack of many words", "/search needle", "/quit")
    hits = [line for line in out.splitlines() if line.startswith("* ses-")]
    assert hits
    assert max(map(len, hits)) < 40
