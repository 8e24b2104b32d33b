"""Two servers of one bot on one PostgreSQL: what one is stopped in, the other answers, once."""

import asyncio
import signal
from contextlib import contextmanager

import pytest

from turnlog import open_store
from turnlog.channels.outbox import PENDING, UNSENT, WAITING, replies_in

from ..server.running import Running
from ..stores import postgres
from ..waiting import wait_until
from .test_serving import bring, configure, platform as platform

ENV = {"TURNLOG_SERVER_DRAIN_S": "1"}
SOON = {
    "turnlog.channels.replies.SWEEP_S": 0.3,
    "turnlog.channels.outbox.LOOK_S": 0.3,
}
"""Messages that nobody sees through are looked for often."""
LEASE_S = 4.0
"""Of the server that is stopped: its leases run out by the clock that it reads itself when it wakes up."""
LOOK = {"name": "list_dir", "input": {"path": "."}}


@contextmanager
def pair(tmp_path, platform):
    servers = []
    try:
        for name, options in (("one", {"lease_s": LEASE_S}), ("two", {})):
            url = postgres.url_of(tmp_path, **options)
            home = tmp_path / name
            configure(home, platform.address, queue="followup")
            if servers:
                (home / "admin.token").write_text(servers[0].token)
            servers.append(Running(home, script=[], store=url, env=ENV, constants=SOON))
        yield servers
        for server in servers:
            assert server.stop() == 0, server.log.read_text()
            server.check()
    finally:
        for server in servers:
            if server.process.poll() is None:
                server.process.send_signal(signal.SIGCONT)
                server.kill()


def is_settled(tmp_path):
    """Every message that came in has its reply, and every reply was sent."""

    async def look():
        async with open_store(postgres.url_of(tmp_path)) as store:
            return not await store.ledger.list(PENDING) and not await replies_in(store.ledger, WAITING, UNSENT)

    return asyncio.run(look())


def has_ended_a_turn(server):
    with server.client() as client:
        return "turnlog_turns_total{" in client.get("/metrics").text


def test_a_turn_that_was_taken_over_is_answered_by_the_other_server_while_its_first_one_wakes_up(tmp_path, platform):
    old, new = tmp_path / "old", tmp_path / "new"
    with pair(tmp_path, platform) as (one, two):
        one.write({"deltas": ["the old ", "answer"], "until": str(old)})
        two.write({"text": "the new answer", "until": str(new)})
        update = platform.update("hello")
        assert bring(one, update).status_code == 200
        wait_until(one.logged)
        one.process.send_signal(signal.SIGSTOP)
        wait_until(two.logged)
        assert bring(two, update).status_code == 200, "a redelivery, while the turn is begun again"
        one.process.send_signal(signal.SIGCONT)
        old.touch()
        wait_until(lambda: has_ended_a_turn(one))
        assert bring(one, update).status_code == 200
        assert platform.texts() == [], "that it was cut short is not the end of it"
        new.touch()
        wait_until(lambda: platform.sent)
        wait_until(lambda: is_settled(tmp_path))
        for server in (one, two):
            assert bring(server, update).status_code == 200
        with one.client() as client:
            told = client.get("/api/agents/main/conversations/telegram-5").json()["messages"]
    assert platform.texts() == ["the new answer"]
    assert [m["content"] for m in told] == ["hello", "the new answer"]


def test_a_server_that_wakes_up_after_the_answer_was_sent_sends_nothing(tmp_path, platform):
    old = tmp_path / "old"
    with pair(tmp_path, platform) as (one, two):
        one.write({"deltas": ["the old ", "answer"], "until": str(old)}, {"text": "and on"})
        two.write({"text": "the new answer"}, {"text": "and on"})
        assert bring(one, platform.update("hello")).status_code == 200
        wait_until(one.logged)
        one.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: platform.sent)
        one.process.send_signal(signal.SIGCONT)
        old.touch()
        wait_until(lambda: is_settled(tmp_path))
        assert bring(one, platform.update("again")).status_code == 200
        wait_until(lambda: len(platform.sent) == 2)
    assert platform.texts() == ["the new answer", "and on"]


@pytest.mark.parametrize("wakes", [True, False])
def test_of_a_turn_whose_tool_had_started_the_sender_is_told_once_that_it_was_cut_short(tmp_path, platform, wakes):
    with pair(tmp_path, platform) as (one, two):
        one.write({"text": "let me look", "tool_calls": [LOOK]}, {"text": "never", "until": str(tmp_path / "never")})
        two.write({"text": "now I can"})
        assert bring(one, platform.update("hello")).status_code == 200
        wait_until(lambda: len(one.logged()) == 2)
        one.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: platform.sent)
        if wakes:
            one.process.send_signal(signal.SIGCONT)
        wait_until(lambda: is_settled(tmp_path))
        assert bring(two, platform.update("and now?")).status_code == 200
        wait_until(lambda: len(platform.sent) == 2)
        if not wakes:
            one.process.send_signal(signal.SIGCONT)
    assert "restart interrupted" in platform.texts()[0]
    assert platform.texts()[1:] == ["now I can"]
