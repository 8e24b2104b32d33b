"""kill -9 under load, again and again: every acknowledged message is there once, and every stream ends as it should."""

import os
import random
import threading

import httpx
from httpx_sse import SSEError, connect_sse

from ..waiting import GIVES_UP_S, wait_until
from .running import CHAT, SESSIONS, rejoin, running

CLIENTS = int(os.environ.get("TURNLOG_TEST_CLIENTS", "24"))
TURNS = int(os.environ.get("TURNLOG_TEST_TURNS", "120"))
KILLS = int(os.environ.get("TURNLOG_TEST_KILLS", "2"))
ENDS = ("done", "error", "stopped")


class Visitor:
    """Talks in a session of its own, and comes back to its turn whenever the connection is lost."""

    def __init__(self, server, number):
        self.server = server
        self.sid = f"visitor-{number}"
        self.acknowledged = []
        self.ends = []
        self.failure = None

    def talk(self, turns):
        try:
            for n in range(turns):
                self._say(f"{self.sid} says {n}.")
        except Exception as error:
            self.failure = error

    def _say(self, words):
        """Sent again, with the same key, until it is acknowledged; its one terminal event, wherever that was told."""
        place, told = None, None

        def send():
            nonlocal place, told
            try:
                with (
                    self.server.client(headers={"Idempotency-Key": words}) as client,
                    self._post(client, words) as source,
                ):
                    assert source.response.status_code == 200, source.response.read()
                    self.acknowledged.append(words)
                    for event in source.iter_sse():
                        place, told = event.id or place, event.json()
            except (httpx.HTTPError, SSEError):
                pass
            return self.acknowledged[-1:] == [words]

        wait_until(send, GIVES_UP_S)
        if told is None or told["type"] not in ENDS:
            told = self._come_back(place)
        self.ends.append(told)

    def _post(self, client, words):
        return connect_sse(client, "POST", CHAT, json={"message": words, "sessionId": self.sid})

    def _come_back(self, place):
        ended = []

        def ask():
            try:
                with self.server.client() as client:
                    told = rejoin(client, self.sid, last=place)
            except (httpx.HTTPError, SSEError):
                return False
            if told and told[-1][1]["type"] in (*ENDS, "idle"):
                ended.append(told[-1][1])
            return ended

        wait_until(ask, GIVES_UP_S)
        # Who was told nothing of a turn cannot name it; it may be over by now.
        assert ended[0]["type"] != "idle" or place is None
        return ended[0]


def _reply(chance):
    if chance.random() < 0.3:
        return {"tool_calls": [{"name": "list_dir", "input": {"path": "."}}], "delay_ms": 20}
    return {"deltas": [f"word{n} " for n in range(10)], "delay_ms": chance.choice((0, 5, 20))}


def test_nothing_acknowledged_is_lost_or_doubled_by_kills_under_load(tmp_path):
    chance = random.Random(1)
    script = [_reply(chance) for _ in range(4 * TURNS)]
    with running(tmp_path, script=script, env={"TURNLOG_STORE_DURABILITY": "full"}) as server:
        visitors = [Visitor(server, n) for n in range(CLIENTS)]
        threads = [threading.Thread(target=visitor.talk, args=(-(-TURNS // CLIENTS),)) for visitor in visitors]
        for thread in threads:
            thread.start()
        for kill in range(1, KILLS + 1):
            told = kill * TURNS // (KILLS + 1)
            wait_until(lambda told=told: sum(len(visitor.acknowledged) for visitor in visitors) >= told, GIVES_UP_S)
            server.restart()
        for thread in threads:
            thread.join(GIVES_UP_S)
        assert [visitor.failure for visitor in visitors if visitor.failure] == []
        with server.client() as client:
            interrupted = sum(_check(client, visitor) for visitor in visitors)
    assert interrupted < TURNS // 2, "most turns ended well"


def _check(client, visitor):
    """How many of its turns a kill ended."""
    entries = client.get(f"{SESSIONS}/{visitor.sid}", params={"limit": 200}).json()["entries"]
    said = [entry["content"] for entry in entries if entry["type"] in ("user", "received") and "content" in entry]
    assert said == visitor.acknowledged, "each once, in the order in which they were said"
    assert [entry["seq"] for entry in entries] == list(range(1, len(entries) + 1))
    told = [end for end in visitor.ends if end["type"] == "error"]
    assert {end["code"] for end in told} <= {"interrupted"}
    cut = [_had_called(entries, at) for at, entry in enumerate(entries) if entry.get("code") == "interrupted"]
    assert sum(cut) >= len(told), "a stream ends with `interrupted` only where a tool had started"
    return len(told)


def _had_called(entries, at):
    """Whether the turn that was marked here had called a tool."""
    for entry in reversed(entries[:at]):
        if entry["type"] == "user":
            return False
        if any(block.get("type") == "tool_use" for block in entry.get("content") or () if isinstance(block, dict)):
            return True
    return False
