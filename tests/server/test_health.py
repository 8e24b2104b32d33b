"""What a server says of itself when something in it fails."""

import asyncio

import msgspec

import turnlog
from turnlog.runtime.background import FAILING_S, Loop
from turnlog.server.api.health import healthz
from turnlog.server.metrics import Metrics

from .running import kinds, running, talk


def test_healthz_names_what_has_failed_for_a_minute():
    now = [0.0]
    with Loop("odd jobs", clock=lambda: now[0]) as loop:
        loop.begin()
        loop.failed(KeyError("odd"))
        assert msgspec.to_builtins(asyncio.run(healthz.fn())) == {"status": "ok"}
        now[0] = FAILING_S
        told = msgspec.to_builtins(asyncio.run(healthz.fn()))
        assert told == {"status": "failing", "failing": ["odd jobs"]}
        assert b'turnlog_background_failures_total{loop="odd jobs"} 1.0' in Metrics().page()


def test_a_server_starts_and_answers_whatever_is_in_the_ledger(tmp_path):
    url = f"sqlite:{tmp_path}/sessions.db"

    async def spoil():
        async with turnlog.open_store(url) as store:
            for space in ("tokens", "selected", "delivered", "stops", "pending", "outbox", "sent", "scales", "first"):
                await store.ledger.put_if_absent(space, "odd", {"what": [1]})

    asyncio.run(spoil())
    (tmp_path / "home").mkdir()
    channel = f'[channels.webhook]\nsecret = "whsec_{"a" * 32}"\nreply_url = "http://127.0.0.1:9/"\n'
    (tmp_path / "home" / "config.toml").write_text(channel)
    with running(tmp_path / "home", store=url) as server, server.client() as client:
        assert kinds(talk(client))[-1] == "done"
        assert client.get("/healthz").json() == {"status": "ok"}
        assert client.get("/metrics", headers={"Authorization": "Bearer tl_odd_secret"}).status_code == 401
        counted = client.get("/metrics").text
        assert 'turnlog_unreadable_facts_total{space="tokens"} 1.0' in counted
        assert 'turnlog_unreadable_facts_total{space="outbox"} 1.0' in counted
        assert 'turnlog_background_failures_total{loop="outbox"} 0.0' in counted
    lines = [msgspec.json.decode(line) for line in server.log.read_text().splitlines()]
    assert any("tokens/odd" in line["event"] for line in lines)
