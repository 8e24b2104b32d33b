"""Which session a chat's message goes to, and that nothing is made where nobody can answer."""

import asyncio
import json
import time

import pytest

import turnlog
from turnlog.testing import FixedClock

from .running import run, script
from .terminals import terminal

KEY = "agent:main:cli:direct:user"
HOUR_MS = 3_600_000


def listed(home, *args):
    return json.loads(run("sessions", "list", "--status", "all", "--json", *args, home=home).stdout)["sessions"]


@pytest.mark.parametrize(
    "args",
    [
        ("--model", "ofline"),
        ("--model", "scripted:nowhere.jsonl"),
        ("--agent", "mian"),
        ("--key", "agent:mian:cli:direct:user"),
        ("--new", "--label", "invoices", "--model", "ofline"),
    ],
)
@pytest.mark.parametrize("how", [("-p", "these words"), ()], ids=["one turn", "dialogue"])
def test_a_mistyped_model_or_agent_stores_nothing_and_makes_no_session(tmp_path, args, how):
    done = run("chat", *how, *args, home=tmp_path, stdin="these words\n/quit\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert "not a known model" in done.stderr or "nowhere.jsonl" in done.stderr or "no agent 'mian'" in done.stderr
    assert listed(tmp_path) == []


def test_a_mistyped_agent_is_answered_with_the_nearest(tmp_path):
    assert "Did you mean 'main'?" in run("chat", "-p", "x", "--agent", "mian", home=tmp_path).stderr


def test_words_for_an_agent_that_does_not_exist_are_not_stored_by_the_library(tmp_path):
    async def own_call(shown):
        raise AssertionError("nothing is to be sent")

    async def main():
        async with turnlog.open(home=tmp_path, model_name="offline") as t:
            for call in (
                lambda: t.accept("agent:mian:cli:direct:user", "hello"),
                lambda: t.guard("agent:mian:cli:direct:user", own_call),
                lambda: t.compact("agent:mian:cli:direct:user"),
            ):
                with pytest.raises(turnlog.UsageError, match="no agent 'mian'"):
                    await call()
            assert (await t.sessions.list()).total == 0

    asyncio.run(main())


def test_a_server_with_a_mistyped_model_does_not_start(tmp_path):
    done = run("serve", "--port", "0", "--model", "ofline", home=tmp_path)
    assert done.returncode == 2
    assert "not a known model" in done.stderr
    assert not (tmp_path / "admin.token").exists()


@pytest.fixture
def old(tmp_path):
    """A session in which something was last said two hours ago."""

    async def main():
        clock = FixedClock(int(time.time() * 1000) - 2 * HOUR_MS)
        async with turnlog.open(home=tmp_path, model_name="offline", clock=clock) as t:
            async for _ in t.send(KEY, "two hours ago"):
                pass
            return (await t.session(KEY)).id

    return asyncio.run(main())


def test_one_turn_begins_a_new_session_where_the_old_ones_time_is_over(tmp_path, old):
    done = run("chat", "-p", "now", "--json", home=tmp_path, TURNLOG_SESSION_RESET="idle:60")
    assert json.loads(done.stdout.splitlines()[0])["sessionId"] != old
    assert {row["id"]: row["status"] for row in listed(tmp_path)}[old] == "archived"


@pytest.mark.parametrize(("reset", "args"), [("idle:180", ()), ("idle:60", ("--session",))])
def test_one_turn_stays_where_it_is_not_over_or_the_session_was_named(tmp_path, old, reset, args):
    named = (*args, old) if args else ()
    done = run("chat", "-p", "now", "--json", *named, home=tmp_path, TURNLOG_SESSION_RESET=reset)
    assert json.loads(done.stdout.splitlines()[0])["sessionId"] == old


def test_a_chat_resumes_a_session_whose_time_is_over_and_leaves_it_at_the_first_message(tmp_path, old):
    answers = script(tmp_path, {"text": "fresh"})
    with terminal("chat", "--model", answers, home=tmp_path, TURNLOG_SESSION_RESET="idle:60") as t:
        t.prompt()
        t.see(f"Resumed session: {old}")
        t.say("now")
        t.see("session.reset = idle:60", "fresh")
        t.say("and again")
        assert t.text.count("session.reset") == 1
    rows = {row["id"]: row for row in listed(tmp_path)}
    assert rows.pop(old)["status"] == "archived"
    assert [row["turnCount"] for row in rows.values()] == [2]


def test_a_backup_is_of_the_store_that_the_preset_names_and_so_is_what_is_restored(tmp_path):
    old, new, file = tmp_path / "old", tmp_path / "new", tmp_path / "b.zip"
    old.mkdir()
    new.mkdir()
    run("chat", "--preset", "claw0", "--model", "offline", "-p", "hello", home=old)
    for command, home in (("backup", old), ("restore", new)):
        done = run(command, "--preset", "claw0", file, home=home)
        assert done.returncode == 0, done.stderr
    listed = run("sessions", "list", "--preset", "claw0", "--json", home=new)
    assert [row["title"] for row in json.loads(listed.stdout)["sessions"]] == ["hello"]
