"""A chat in somebody's home directory, and a model that goes for Turnlog's own files."""

import json
import os
import subprocess
import sys

import pytest

from ..waiting import GIVES_UP_S
from .running import script


@pytest.fixture
def turnlog(tmp_path):
    """In a home directory whose data directory is the default one."""

    def call(*args, cwd=tmp_path):
        variables = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"}
        command = [sys.executable, "-m", "turnlog", *map(str, args)]
        options = {"env": variables, "cwd": cwd, "timeout": GIVES_UP_S}
        return subprocess.run(command, input="", capture_output=True, text=True, **options)

    return call


def test_a_chat_in_the_home_directory_cannot_empty_its_own_database_or_read_it(tmp_path, turnlog):
    paths = [".turnlog/memory/sessions.db", ".turnlog/memory/sessions.db-wal", ".turnlog/config.toml"]
    calls = [{"id": f"w{n}", "name": "write_file", "input": {"path": p, "content": ""}} for n, p in enumerate(paths)]
    calls += [{"id": f"r{n}", "name": "read_file", "input": {"path": p}} for n, p in enumerate(paths)]
    calls += [{"id": "ok", "name": "write_file", "input": {"path": "notes.txt", "content": "mine"}}]
    model = script(tmp_path, {"tool_calls": calls}, {"text": "tried"})
    done = turnlog("chat", "-p", "go", "--json", "--approve", "none", "--model", model)
    results = {e["tool_call_id"]: e for e in map(json.loads, done.stdout.splitlines()) if e["type"] == "tool_result"}
    assert [name for name, result in results.items() if not result["is_error"]] == ["ok"]
    assert "Turnlog's own data" in results["w0"]["text"]
    listed = json.loads(turnlog("sessions", "list", "--json").stdout)
    assert listed["total"] == 1
    assert not (tmp_path / ".turnlog" / "config.toml").exists()


@pytest.mark.parametrize("how", ["store", "data directory"])
def test_an_emptied_database_is_not_taken_for_a_new_store(tmp_path, turnlog, how):
    where = ("--store", "sqlite:chats.db") if how == "store" else ()
    path = tmp_path / ("chats.db" if how == "store" else ".turnlog/memory/sessions.db")
    assert turnlog("chat", "-p", "keep this", *where).returncode == 0
    path.write_bytes(b"")
    for command in (("sessions", "list"), ("chat", "-p", "again")):
        done = turnlog(*command, *where)
        assert done.returncode == 3
        assert "is empty, but it was a database" in done.stderr
        assert path.stat().st_size == 0
    path.unlink()
    assert turnlog("chat", "-p", "anew", *where).returncode == 0


def test_an_empty_file_that_never_was_a_database_becomes_one(tmp_path, turnlog):
    (tmp_path / "chats.db").touch()
    assert turnlog("chat", "-p", "hello", "--store", "sqlite:chats.db").returncode == 0


def test_a_database_that_was_copied_alone_is_known_as_one_from_then_on(tmp_path, turnlog):
    turnlog("chat", "-p", "hello", "--store", "sqlite:chats.db")
    (tmp_path / "other").mkdir()
    (tmp_path / "chats.db").rename(tmp_path / "other" / "copy.db")
    listed = turnlog("sessions", "list", "--json", "--store", "sqlite:other/copy.db")
    assert json.loads(listed.stdout)["total"] == 1
    (tmp_path / "other" / "copy.db").write_bytes(b"")
    assert turnlog("sessions", "list", "--store", "sqlite:other/copy.db").returncode == 3
