"""Two servers of one bot on one PostgreSQL: what one is stopped in, the other answers, once."""

import asyncio
import signal
import time
from contextlib import contextmanager

import pytest

from turnlog import open_store
from turnlog.outbox import AWAITED

from ..server.running import Running, wait_until
from ..stores import postgres
from .test_serving import bring, configure, platform as platform

LEASE_S = 2
ENV = {"TURNLOG_SERVER_DRAIN_S": "2"}
LOOK = {"name": "list_dir", "input": {"path": "."}}
SETTLED_S = 25
"""Longer than the pause between two looks for messages that nobody sees through."""


@contextmanager
def pair(tmp_path, platform):
    url = postgres.url_of(tmp_path, lease_s=LEASE_S)
    servers = []
    try:
        for name in ("one", "two"):
            home = tmp_path / name
            configure(home, platform.address, queue="followup")
            if servers:
                (home / "admin.token").write_text(servers[0].token)
            servers.append(Running(home, script=[], store=url, env=ENV))
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
    """Every message that came in has its letter."""

    async def look():
        async with open_store(postgres.url_of(tmp_path, lease_s=LEASE_S)) as store:
            return not await store.ledger.list(AWAITED)

    return asyncio.run(look())


def test_a_turn_that_was_taken_over_is_answered_by_the_other_server_while_its_first_one_wakes_up(tmp_path, platform):
    with pair(tmp_path, platform) as (one, two):
        one.write({"deltas": ["the old ", "answer"], "delay_ms": 1_500})
        two.write({"text": "the new answer", "delay_ms": 6_000})
        update = platform.update("hello")
        assert bring(one, update).status_code == 200
        wait_until(one.logged)
        one.process.send_signal(signal.SIGSTOP)
        wait_until(two.logged, 30)
        assert bring(two, update).status_code == 200, "a redelivery, while the turn is begun again"
        one.process.send_signal(signal.SIGCONT)
        time.sleep(2)
        assert bring(one, update).status_code == 200
        assert platform.texts() == [], "that it was cut short is not the end of it"
        wait_until(lambda: platform.sent, SETTLED_S)
        wait_until(lambda: is_settled(tmp_path), SETTLED_S)
        for server in (one, two):
            assert bring(server, update).status_code == 200
        time.sleep(1)
        with one.client() as client:
            told = client.get("/api/agents/main/conversations/telegram-5").json()["messages"]
    assert platform.texts() == ["the new answer"]
    assert [m["content"] for m in told] == ["hello", "the new answer"]


def test_a_server_that_wakes_up_after_the_answer_was_sent_sends_nothing(tmp_path, platform):
    with pair(tmp_path, platform) as (one, two):
        one.write({"deltas": ["the old ", "answer"], "delay_ms": 1_500}, {"text": "and on"})
        two.write({"text": "the new answer"}, {"text": "and on"})
        assert bring(one, platform.update("hello")).status_code == 200
        wait_until(one.logged)
        one.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: platform.sent, 40)
        one.process.send_signal(signal.SIGCONT)
        wait_until(lambda: is_settled(tmp_path), SETTLED_S)
        assert bring(one, platform.update("again")).status_code == 200
        wait_until(lambda: len(platform.sent) == 2, SETTLED_S)
        time.sleep(1)
    assert platform.texts() == ["the new answer", "and on"]


@pytest.mark.parametrize("wakes", [True, False])
def test_of_a_turn_whose_tool_had_started_the_sender_is_told_once_that_it_was_cut_short(tmp_path, platform, wakes):
    with pair(tmp_path, platform) as (one, two):
        one.write({"text": "let me look", "tool_calls": [LOOK]}, {"text": "never", "delay_ms": 60_000})
        two.write({"text": "now I can"})
        assert bring(one, platform.update("hello")).status_code == 200
        wait_until(lambda: len(one.logged()) == 2)
        one.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: platform.sent, 40)
        if wakes:
            one.process.send_signal(signal.SIGCONT)
        wait_until(lambda: is_settled(tmp_path), SETTLED_S)
        assert bring(two, platform.update("and now?")).status_code == 200
        wait_until(lambda: len(platform.sent) == 2, SETTLED_S)
        time.sleep(1)
        if not wakes:
            one.process.send_signal(signal.SIGCONT)
    assert "cut short by a restart" in platform.texts()[0]
    assert platform.texts()[1:] == ["now I can"]
