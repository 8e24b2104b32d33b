"""kill -9 under load: every acknowledged message is there once, and every rejoined stream ends as it should."""

import os
import random
import threading

import httpx
import pytest
from httpx_sse import SSEError, connect_sse

from .running import CHAT, SESSIONS, kinds, rejoin, running, wait_until

CLIENTS = int(os.environ.get("TURNLOG_TEST_CLIENTS", "12"))
TURNS = int(os.environ.get("TURNLOG_TEST_TURNS", "72"))


class Visitor:
    """Talks in a session of its own; remembers what was acknowledged and where it lost the connection."""

    def __init__(self, server, number):
        self.server = server
        self.sid = f"visitor-{number}"
        self.acknowledged = []
        self.unsure = []
        self.last = None
        self.cut = False

    def talk(self, turns):
        with self.server.client() as client:
            for n in range(turns):
                words = f"{self.sid} says {n}."
                self.unsure.append(words)
                try:
                    with connect_sse(client, "POST", CHAT, json={"message": words, "sessionId": self.sid}) as source:
                        if source.response.status_code != 200:
                            return
                        self.unsure.remove(words)
                        self.acknowledged.append(words)
                        self.cut = True
                        for event in source.iter_sse():
                            self.last = event.id
                            self.cut = event.json()["type"] not in ("done", "error", "stopped")
                except (httpx.HTTPError, SSEError):
                    return


def _reply(chance):
    if chance.random() < 0.3:
        return {"tool_calls": [{"name": "list_dir", "input": {"path": "."}}], "delay_ms": 20}
    return {"deltas": [f"word{n} " for n in range(10)], "delay_ms": chance.choice((0, 5, 20))}


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_nothing_acknowledged_is_lost_or_doubled_by_a_kill(tmp_path, seed):
    chance = random.Random(seed)
    script = [_reply(chance) for _ in range(3 * TURNS)]
    with running(tmp_path, script=script, env={"TURNLOG_STORE_DURABILITY": "full"}) as server:
        visitors = [Visitor(server, n) for n in range(CLIENTS)]
        threads = [threading.Thread(target=visitor.talk, args=(TURNS // CLIENTS,)) for visitor in visitors]
        for thread in threads:
            thread.start()
        wait_until(lambda: sum(len(visitor.acknowledged) for visitor in visitors) >= TURNS // 3, 60)
        server.kill()
        for thread in threads:
            thread.join(30)
        server.start()
        with server.client() as client:
            for visitor in visitors:
                _check(client, visitor)


def _check(client, visitor):
    if visitor.cut:
        told = rejoin(client, visitor.sid, last=visitor.last)
        # Who was told nothing of a turn cannot name it; it may be over by now.
        assert kinds(told)[-1] in ("done", "error", *(() if visitor.last else ("idle",)))
        if kinds(told)[-1] == "error":
            assert told[-1][1]["code"] == "interrupted"
            assert "tool_use" in client.get(f"{SESSIONS}/{visitor.sid}").text
    found = client.get(f"{SESSIONS}/{visitor.sid}")
    if found.status_code == 404:
        assert not visitor.acknowledged
        return
    said = [
        entry["content"]
        for entry in found.json()["entries"]
        if entry["type"] in ("user", "received") and "content" in entry
    ]
    for words in visitor.acknowledged:
        assert said.count(words) == 1, words
    assert set(said) <= {*visitor.acknowledged, *visitor.unsure}
    assert [e["seq"] for e in found.json()["entries"]] == list(range(1, len(found.json()["entries"]) + 1))
