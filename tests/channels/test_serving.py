"""Channels of a real server in its own process, with an imitated platform; the server is killed and started again."""

import asyncio
import json
import time

import httpx
import pytest

import turnlog
from tests.channels.platforms import served
from turnlog.testing import FixedClock
from turnlog.testing.platforms import PlatformFailure
from turnlog.testing.platforms.telegram import TelegramPlatform

from ..server.running import PATIENT, run_turnlog, running
from ..waiting import GIVES_UP_S, wait_until
from .test_cli import old_session

HEADERS = {"X-Telegram-Bot-Api-Secret-Token": "hook-secret"}


def configure(home, api_url, **more):
    home.mkdir(parents=True, exist_ok=True)
    values = {"token": "1:test", "webhook_secret": "hook-secret", "api_url": api_url, **more}
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    (home / "config.toml").write_text("[channels.telegram]\n" + "\n".join(lines) + "\n")


@pytest.fixture
def platform():
    app = TelegramPlatform()
    with served(app) as address:
        app.address = address
        yield app


def bring(server, update, headers=HEADERS, path="/channels/telegram"):
    return httpx.post(server.base + path, json=update, headers=headers, **PATIENT)


def test_a_signed_request_is_acknowledged_and_answered_and_administrators_see_it(tmp_path, platform):
    configure(tmp_path / "home", platform.address)
    with running(tmp_path / "home", script=[{"text": "good day"}]) as server:
        answer = bring(server, platform.update("hello"))
        assert (answer.status_code, answer.content) == (200, b"")
        wait_until(lambda: platform.sent)
        with server.client() as client:
            found = client.get("/api/conversations").json()
            assert [row["channelId"] for row in found["conversations"]] == ["telegram-5"]

            def told():
                return client.get("/api/agents/main/conversations/telegram-5").json()["messages"]

            wait_until(lambda: len(told()) == 2)
            assert [(m["role"], m["content"], m["sender"]) for m in told()] == [
                ("user", "hello", "Ann"),
                ("assistant", "good day", "main"),
            ]
            [row] = client.get("/api/agents/main/sessions").json()["sessions"]
            assert row["key"] == "agent:main:telegram:direct:5"
            client.delete(f"/api/agents/main/sessions/{row['id']}")
            assert len(told()) == 2  # the convlog stays
    assert platform.texts() == ["good day"]


def test_what_is_not_signed_is_refused_and_nothing_is_stored(tmp_path, platform):
    configure(tmp_path / "home", platform.address)
    with running(tmp_path / "home", script=[]) as server:
        for headers in ({}, {"X-Telegram-Bot-Api-Secret-Token": "wrong"}, {"Authorization": "Bearer x"}):
            answer = bring(server, platform.update("hello"), headers)
            assert answer.status_code == 401
            assert answer.headers["content-type"] == "application/problem+json"
        assert bring(server, {}, path="/channels/slack").status_code == 404
        assert bring(server, {}, path="/channels/telegram/other").status_code == 404
        assert httpx.get(server.base + "/channels/telegram", **PATIENT).status_code == 405
        too_large = httpx.post(server.base + "/channels/telegram", content=b"x" * 3_000_000, **PATIENT)
        assert too_large.status_code == 413
        with server.client() as client:
            assert client.get("/api/agents/main/sessions").json()["total"] == 0
            assert client.get("/api/conversations").json()["total"] == 0
        assert server.logged() == []


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ('[channels.telegram]\ntoken = "1:x"\n', "webhook_secret"),
        ('[channels.telegram]\ntoken = "1:x"\nwebhook_secret = " "\n', "webhook_secret"),
        ('[channels.telegram]\nmode = "poll"\n', "token"),
        ('[channels.slack]\ntoken = "x"\n', "signing_secret"),
        ('[channels.discord]\ntoken = "x"\napplication_id = "1"\n', "public_key"),
        ('[channels.feishu]\napp_id = "x"\napp_secret = "y"\nverification_token = "z"\n', "encrypt_key"),
        ('[channels.feishu]\napp_id = "x"\napp_secret = "y"\nencrypt_key = "z"\n', "verification_token"),
        ('[channels.webhook]\nreply_url = "http://127.0.0.1:1"\n', "secret"),
        ('[channels.telegram.work]\ntoken = "x"\n', "[channels.telegram.work]"),
        ('[channels.telegram]\ntoken = "x"\nwebhook_secert = "y"\n', "webhook_secret"),
        ('[channels.telegran]\ntoken = "x"\n', "channels.telegram"),
        ('[channels.telegram]\ntoken = "x"\nwebhook_secret = "y"\nagent = "nobody"\n', "nobody"),
        ('[channels.telegram]\ntoken = "x"\nwebhook_secret = "y"\ndm_scope = "all"\n', "dm_scope"),
        ('[channels.telegram]\ntoken = "x"\nwebhook_secret = "y"\nqueue = "all"\n', "queue"),
    ],
)
def test_a_channel_without_its_secret_or_with_a_slip_does_not_start_and_says_which_setting(tmp_path, settings, named):
    (tmp_path / "config.toml").write_text(settings)
    with (tmp_path / "out").open("w+") as out:
        process = run_turnlog(["serve", "--home", str(tmp_path), "--port", "0"], {}, stdout=out, stderr=out)
        assert process.wait(GIVES_UP_S) == 2
        out.seek(0)
        told = out.read()
    assert named in told
    assert "listening" not in told


def test_a_message_whose_turn_was_killed_is_answered_once_after_the_restart(tmp_path, platform):
    configure(tmp_path / "home", platform.address)
    go = tmp_path / "go"
    script = [{"text": "never heard", "until": str(tmp_path / "never")}, {"text": "after all", "until": str(go)}]
    with running(tmp_path / "home", script=script) as server:
        update = platform.update("hello")
        assert bring(server, update).status_code == 200
        wait_until(server.begun)
        assert bring(server, update).status_code == 200
        server.restart()
        wait_until(lambda: len(server.logged()) == 2)  # begun again, and not over yet
        for _ in range(3):
            assert bring(server, update).status_code == 200
        go.touch()
        wait_until(lambda: platform.sent)
        assert bring(server, update).status_code == 200
    assert platform.texts() == ["after all"]


def test_an_answer_that_was_made_but_not_sent_before_a_kill_is_sent_once_after_the_restart(tmp_path, platform):
    configure(tmp_path / "home", platform.address, queue="followup")
    with running(tmp_path / "home", script=[{"text": "first"}, {"text": "second"}]) as server:
        platform.failure = PlatformFailure(503)
        for text in ("one", "two"):
            assert bring(server, platform.update(text)).status_code == 200
        wait_until(lambda: len(server.logged()) == 2)
        with server.client() as client:
            wait_until(lambda: client.get("/api/agents/main/sessions").json()["sessions"][0]["messageCount"] == 4)
        server.kill()
        platform.failure = None
        server.start()
        wait_until(lambda: len(platform.sent) == 2)
    assert platform.texts() == ["first", "second"]


def test_after_a_kill_answers_come_in_the_order_of_their_messages_whatever_their_delivery_ids(tmp_path, platform):
    configure(tmp_path / "home", platform.address, queue="followup")
    go = tmp_path / "go"
    script = [
        {"text": "never heard", "until": str(tmp_path / "never")},
        *({"text": f"answer {n}"} for n in range(3)),
        *({"text": f"answer {n}", "until": str(go)} for n in (3, 4)),
    ]
    with running(tmp_path / "home", script=script) as server:
        for n in range(4):
            # As texts, 1000 comes before 998.
            assert bring(server, {**platform.update(f"question {n}"), "update_id": 998 + n}).status_code == 200
        wait_until(server.begun)
        server.restart()
        wait_until(lambda: platform.sent)  # the first answer does not wait for the last turn
        assert bring(server, platform.update("question 4")).status_code == 200
        go.touch()
        wait_until(lambda: len(platform.sent) == 5)
    assert platform.texts() == [f"answer {n}" for n in range(5)]


def test_a_turn_that_ends_while_the_server_closes_is_still_answered(tmp_path, platform):
    configure(tmp_path / "home", platform.address)
    go = tmp_path / "go"
    script = [{"text": "just in time", "until": str(go)}]
    with running(tmp_path / "home", script=script) as server:
        assert bring(server, platform.update("hello")).status_code == 200
        wait_until(server.logged)
        server.process.terminate()
        wait_until(lambda: httpx.get(server.base + "/readyz", **PATIENT).status_code == 503)
        go.touch()
        assert server.process.wait(GIVES_UP_S) == 0
        assert platform.texts() == ["just in time"]
        server.start()


def test_a_bot_that_polls_gets_every_message_once_across_restarts(tmp_path, platform):
    configure(tmp_path / "home", platform.address, mode="poll", queue="followup")
    with running(tmp_path / "home", script=[{"text": f"answer {n}"} for n in range(6)]) as server:
        for n in range(3):
            platform.bring(platform.update(f"question {n}"))
        with server.client() as client:
            # Not only sent but written down: Telegram knows no tokens, and a kill in between would send it again.
            path = "/api/agents/main/conversations/telegram-5"
            wait_until(lambda: client.get(path).json().get("total") == 6)
        server.kill()
        for n in range(3, 6):
            platform.bring(platform.update(f"question {n}"))
        server.start()
        wait_until(lambda: len(platform.sent) >= 6)
    assert sorted(platform.texts()) == [f"answer {n}" for n in range(6)]
    assert len(server.logged()) == 6


def test_sessions_expire_by_themselves_where_they_have_a_time_to_live(tmp_path):
    home = tmp_path / "home"
    session_id = asyncio.run(old_session(home, 40))
    with running(home, script=[], env={"TURNLOG_SESSION_TTL": "30"}) as server, server.client() as client:

        def status():
            return client.get(f"/api/agents/main/sessions/{session_id}").json()["session"]["status"]

        wait_until(lambda: status() == "archived")
    assert session_id in server.log.read_text()


def test_without_a_time_to_live_only_what_was_put_into_the_trash_is_deleted_in_time(tmp_path):
    home = tmp_path / "home"

    async def put(days, status):
        clock = FixedClock(int(time.time() * 1000) - days * 24 * 3600 * 1000)
        async with turnlog.open(home=home, clock=clock, model_name="offline") as t:
            row = await t.sessions.new("agent:main:web:direct:admin")
            return (await t.sessions.set_status(row.id, status)).id

    old = asyncio.run(put(40, "trashed"))
    kept = [asyncio.run(put(*it)) for it in ((400, "archived"), (400, "inactive"), (20, "trashed"))]
    with running(home, script=[]) as server, server.client() as client:
        wait_until(lambda: client.get(f"/api/agents/main/sessions/{old}").status_code == 404)
        for session_id in kept:
            assert client.get(f"/api/agents/main/sessions/{session_id}").status_code == 200
    assert f'"session":"{old}","action":"delete"' in server.log.read_text()


def test_no_token_of_a_platform_is_written_to_the_log(tmp_path, platform):
    configure(tmp_path / "home", platform.address)
    with running(tmp_path / "home", script=[]) as server:
        platform.failure = PlatformFailure(503)
        bring(server, platform.update("hello"))
        wait_until(lambda: any(call.path.endswith("sendMessage") for call in platform.calls))
        platform.failure = None
        wait_until(lambda: platform.sent)
    assert "1:test" not in server.log.read_text()
    assert "hook-secret" not in server.log.read_text()


def counted(server, name, **labels):
    """The value of one count; 0 where there is none yet."""
    with server.client() as client:
        told = client.get("/metrics").text
    shown = ",".join(f'{label}="{value}"' for label, value in labels.items())
    line = f"{name}{{{shown}}} " if shown else f"{name} "
    return next((float(one.removeprefix(line)) for one in told.splitlines() if one.startswith(line)), 0.0)


def test_what_comes_in_and_what_is_sent_is_counted_by_kind(tmp_path, platform):
    def messages(outcome):
        return counted(server, "turnlog_channel_messages_total", kind="telegram", outcome=outcome)

    def replies(outcome):
        return counted(server, "turnlog_channel_replies_total", kind="telegram", outcome=outcome)

    def waiting():
        return counted(server, "turnlog_channel_replies_waiting")

    configure(tmp_path / "home", platform.address, queue="followup")
    with running(tmp_path / "home", script=[{"text": "one"}, {"text": "two"}]) as server:
        update = platform.update("hello")
        bring(server, update)
        wait_until(lambda: replies("delivered") == 1)
        bring(server, update)
        bring(server, platform.update("/status"))
        bring(server, platform.update("hello"), headers={})
        assert (messages("accepted"), messages("duplicate"), messages("refused")) == (2, 1, 1)
        wait_until(lambda: replies("delivered") == 2)
        platform.failure = PlatformFailure(503)
        bring(server, platform.update("and?"))
        wait_until(lambda: replies("postponed") >= 1)
        wait_until(lambda: waiting() == 1)
        platform.failure = PlatformFailure(403)
        wait_until(lambda: replies("refused") == 1)
        wait_until(lambda: waiting() == 0)
        platform.failure = None
        with server.client() as client:
            assert "Ann" not in client.get("/metrics").text
