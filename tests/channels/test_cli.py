"""Commands besides `serve`: a platform imitated in the terminal, replies that wait to be sent, memory and expiry."""

import asyncio
import json
import time

import turnlog
from turnlog.memory import open_memory
from turnlog.testing import FixedClock, check_messages

from ..cli.running import requests, run, script


def test_a_bot_can_be_tried_without_an_account(tmp_path):
    model = script(tmp_path, {"text": "good day"}, {"text": "again"})
    log = tmp_path / "requests.jsonl"
    said = "hello\n/status\nand again\n"
    done = run("channels", "try", "telegram", "--model", model, home=tmp_path, stdin=said, TURNLOG_REQUEST_LOG=str(log))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("bot > good day\nbot > Conversation: ses-")
    assert done.stdout.endswith("bot > again\n")
    for request in requests(log):
        check_messages(request["messages"])
    assert "/status" not in log.read_text()
    shown = json.loads(run("sessions", "list", "--json", home=tmp_path).stdout)["sessions"]
    assert [(row["key"], row["messageCount"]) for row in shown] == [("agent:main:telegram:direct:5", 4)]
    replies = json.loads(run("channels", "outbox", "--json", home=tmp_path).stdout)["replies"]
    assert [reply["state"] for reply in replies] == ["delivered"] * 3
    group = ("channels", "try", "telegram", "--group", "--name", "Eve", "--model", model)
    second = run(*group, home=tmp_path, stdin="x\n@try_bot y\n/help\n")
    heard, answered, helped = second.stdout.split("\n", 2)
    assert "@try_bot" in heard
    assert answered == "bot > ok"
    assert helped.startswith("bot > /new")
    assert "delivered" in run("channels", "outbox", home=tmp_path).stdout


def test_another_platform_cannot_be_tried_and_says_which_can(tmp_path):
    done = run("channels", "try", "slack", home=tmp_path)
    assert done.returncode == 2
    assert "telegram" in done.stderr


async def old_session(home, days):
    clock = FixedClock(int(time.time() * 1000) - days * 24 * 3600 * 1000)
    async with turnlog.open(home=home, clock=clock, model_name="offline") as t:
        async for _ in t.send("agent:main:telegram:direct:5", "long ago"):
            pass
        return (await t.session("agent:main:telegram:direct:5")).id


def test_expiry_says_what_it_would_do_and_does_it_when_told(tmp_path):
    session_id = asyncio.run(old_session(tmp_path, 40))
    env = {"TURNLOG_SESSION_TTL": "30"}
    assert run("sessions", "expire", home=tmp_path, **env).returncode == 2
    assert run("sessions", "expire", "--dry-run", "--apply", home=tmp_path, **env).returncode == 2
    assert run("sessions", "expire", "--dry-run", home=tmp_path).stdout == "Nothing is due.\n"
    told = json.loads(run("sessions", "expire", "--dry-run", "--json", home=tmp_path, **env).stdout)
    [step] = told["expired"]
    assert (told["applied"], step["sessionId"], step["action"]) == (False, session_id, "archive")
    assert session_id in run("sessions", "expire", "--apply", home=tmp_path, **env).stdout
    rows = json.loads(run("sessions", "list", "--status", "archived", "--json", home=tmp_path).stdout)["sessions"]
    assert [row["id"] for row in rows] == [session_id]


def test_a_session_goes_into_the_trash_and_comes_back_and_so_does_an_archived_one(tmp_path):
    session_id = asyncio.run(old_session(tmp_path, 40))

    def listed(status):
        shown = json.loads(run("sessions", "list", "--status", status, "--json", home=tmp_path).stdout)["sessions"]
        return [row["id"] for row in shown]

    env = {"TURNLOG_SESSION_TTL": "30"}
    run("sessions", "expire", "--apply", home=tmp_path, **env)
    assert listed("archived") == [session_id]
    assert run("sessions", "restore", session_id, home=tmp_path).stdout == f"{session_id}: inactive\n"
    due = run("sessions", "expire", "--apply", home=tmp_path, **env).stdout
    assert due == "Nothing is due.\n", "what was brought back is not put away at once"
    assert run("sessions", "trash", session_id, home=tmp_path).stdout == f"{session_id}: trashed\n"
    assert (listed("trashed"), listed("active")) == ([session_id], [])
    told = json.loads(run("sessions", "restore", session_id, "--json", home=tmp_path).stdout)
    assert (told["id"], told["status"], told["messageCount"]) == (session_id, "inactive", 2)
    assert run("sessions", "restore", "nobody", home=tmp_path).returncode != 0
    key = "agent:main:telegram:direct:5"
    run("chat", "--key", key, "-p", "and now?", "--model", "offline", home=tmp_path)
    assert len(listed("active")) == 1


def test_the_memory_can_be_listed_searched_and_made_to_forget(tmp_path):
    async def fill():
        async with open_memory(str(tmp_path / "memory" / "memory.db")) as memory:
            await memory.save("main", "telegram:direct:5", "User: the code is 4711\nAssistant: noted")
            await memory.save("main", "telegram:direct:6", "User: 数据库密码\nAssistant: \x1b[31mred")

    asyncio.run(fill())
    memos = json.loads(run("memory", "list", "--json", home=tmp_path).stdout)["memos"]
    assert [memo["id"] for memo in memos] == [2, 1]
    assert "\x1b" not in run("memory", "list", home=tmp_path).stdout
    found = json.loads(run("memory", "search", "数据库", "--json", home=tmp_path).stdout)["memos"]
    assert [memo["owner"] for memo in found] == ["telegram:direct:6"]
    own = json.loads(run("memory", "list", "--owner", "telegram:direct:5", "--json", home=tmp_path).stdout)["memos"]
    assert [memo["id"] for memo in own] == [1]
    assert json.loads(run("memory", "forget", "1", "--json", home=tmp_path).stdout) == {"id": 1, "forgotten": True}
    again = run("memory", "forget", "1", home=tmp_path)
    assert again.returncode == 2
    assert "no memo 1" in again.stderr
