"""The request log: one whole line for each request, whichever process writes it, and only its owner can read it."""

import json
import stat
import subprocess
import sys

import pytest

from turnlog import StoreUnavailable
from turnlog.core.prompt import Prompt, ToolDefinition
from turnlog.testing import check_messages
from turnlog.turns.request_log import RequestLog, from_env

from ..waiting import GIVES_UP_S

TOOL = ToolDefinition(name="look", description="Looks.", input_schema={"type": "object"})
HI = Prompt(system="Be kind.", messages=[{"role": "user", "content": "héllo 你好"}], tools=(TOOL,))


def lines(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_a_request_is_one_line_in_anthropic_shape(tmp_path):
    path = tmp_path / "log.jsonl"
    log = RequestLog(path)
    log.write("turn", "s1", HI)
    log.write("summary", "s1", Prompt(system="", messages=HI.messages, tools=(TOOL,), may_call=False))
    first, second = lines(path)
    assert first == {
        "kind": "turn",
        "session": "s1",
        "system": "Be kind.",
        "messages": [{"role": "user", "content": "héllo 你好"}],
        "tools": [{"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}],
    }
    assert (second["kind"], second["tools"]) == ("summary", [])
    check_messages(first["messages"])
    assert "你好" in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_half_a_surrogate_pair_does_not_stop_the_log(tmp_path):
    path = tmp_path / "log.jsonl"
    RequestLog(path).write("turn", "s1", Prompt(system="a\ud800b", messages=[{"role": "user", "content": "你\udfff"}]))
    (line,) = lines(path)
    assert line["system"] == "a\ud800b"
    assert line["messages"][0]["content"] == "你\udfff"


def test_a_log_that_was_moved_away_begins_anew(tmp_path):
    path = tmp_path / "log.jsonl"
    log = RequestLog(path)
    log.write("turn", "s1", HI)
    path.rename(tmp_path / "old.jsonl")
    log.write("turn", "s2", HI)
    assert [line["session"] for line in lines(path)] == ["s2"]


WRITE = """
import sys
from turnlog.core.prompt import Prompt
from turnlog.turns.request_log import RequestLog
log = RequestLog(sys.argv[1])
for n in range(150):
    log.write("turn", sys.argv[2], Prompt(system=str(n), messages=[{"role": "user", "content": "x" * 20_000}]))
"""


def test_several_processes_share_a_log_without_tearing_lines(tmp_path):
    path = tmp_path / "log.jsonl"
    writers = [subprocess.Popen([sys.executable, "-c", WRITE, str(path), f"s{n}"]) for n in range(3)]
    assert [writer.wait(GIVES_UP_S) for writer in writers] == [0, 0, 0]
    got = lines(path)
    for n in range(3):
        assert [line["system"] for line in got if line["session"] == f"s{n}"] == [str(k) for k in range(150)]


def test_the_environment_names_the_file(tmp_path, monkeypatch):
    assert from_env({}) is None
    assert from_env({"TURNLOG_REQUEST_LOG": ""}) is None
    monkeypatch.setenv("HOME", str(tmp_path))
    log = from_env({"TURNLOG_REQUEST_LOG": "~/requests.jsonl"})
    assert log is not None
    log.write("turn", "s1", HI)
    assert len(lines(tmp_path / "requests.jsonl")) == 1


def test_a_log_that_cannot_be_written_is_an_error_that_says_so(tmp_path):
    with pytest.raises(StoreUnavailable, match="request log") as caught:
        RequestLog(tmp_path / "absent" / "log.jsonl").write("turn", "s1", HI)
    assert "TURNLOG_REQUEST_LOG" in caught.value.hint
    with pytest.raises(StoreUnavailable):
        RequestLog("/dev/full").write("turn", "s1", HI)
