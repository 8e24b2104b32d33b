"""Labels and titles in every script, wherever they are given."""

import json

import pytest

from tests.core.test_names import FAMILY, HINDI, PERSIAN

from .running import run
from .terminals import terminal


@pytest.mark.parametrize("name", [FAMILY, HINDI, PERSIAN])
def test_a_label_or_a_title_in_any_script_is_kept_and_found(tmp_path, name):
    assert run("chat", "-p", "hi", "--new", "--label", name, home=tmp_path).returncode == 0
    shown = run("sessions", "rename", name, f"{name} 2", "--json", home=tmp_path)
    assert json.loads(shown.stdout)["title"] == f"{name} 2"
    [row] = json.loads(run("sessions", "list", "--json", home=tmp_path).stdout)["sessions"]
    assert (row["label"], row["title"]) == (name, f"{name} 2")
    fork = json.loads(run("sessions", "fork", row["id"], "--label", f"{name}!", "--json", home=tmp_path).stdout)
    assert (
        json.loads(run("sessions", "show", f"{name}!", "--json", home=tmp_path).stdout)["session"]["id"] == fork["id"]
    )
    assert name in run("sessions", "list", home=tmp_path).stdout


@pytest.mark.parametrize("name", ["a\x1b[31mb", "a\u202eb", "a\u2066b", "a\x9bb"])
def test_a_label_with_control_characters_is_refused_and_makes_no_session(tmp_path, name):
    done = run("chat", "-p", "hi", "--new", "--label", name, home=tmp_path)
    assert done.returncode == 2
    assert "a label is one line" in done.stderr
    assert json.loads(run("sessions", "list", "--json", home=tmp_path).stdout)["total"] == 0


def test_a_label_in_the_chat_may_join_its_characters(tmp_path):
    with terminal("chat", home=tmp_path) as t:
        t.prompt()
        t.type(f"/new {PERSIAN}")
        t.wait(lambda: PERSIAN in t.raw, "the label")  # the tests' own screen does not draw what follows a joiner
        t.type("\r")
        t.prompt(2)
    rows = json.loads(run("sessions", "list", "--json", home=tmp_path).stdout)["sessions"]
    assert PERSIAN in [row["label"] for row in rows]
