"""Killed at random moments, as a library, a command and a server: what an auditor recorded as acknowledged is there.

The auditor is a process of its own that syncs each acknowledgement before the next word is said. AUDIT_KILLS sets how
often each is killed (`make torture`: hundreds).
"""

import json
import os
import random
import shutil
import subprocess
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import httpx
import pytest
from httpx_sse import connect_sse

from .. import warm
from ..server.running import CHAT, Running, run_turnlog
from ..stores import postgres
from ..waiting import GIVES_UP_S, wait_until
from .auditor import NAME, Teller

KILLS = int(os.environ.get("AUDIT_KILLS", "2"))
URLS = {
    "jsonl": "jsonl:{}/store",
    "sqlite": "sqlite:{}/sessions.db",
    "postgresql": postgres.Urls(),
}
TALK_S = 0.25
CLIENTS = 4
REPLIES = 2_000
"""Slow enough to be met by a kill in the middle of a reply."""


@pytest.fixture
def folder():
    """Short, because the path of a socket must be."""
    place = Path(tempfile.mkdtemp(prefix="audit-"))
    yield place
    shutil.rmtree(place)


@pytest.fixture
def auditor(folder):
    process = run("tests.torture.auditor", str(folder), stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    teller = Teller(folder)
    yield teller
    teller.close()
    process.kill()
    process.wait()
    process.stdout.close()


def run(module, *args, **how):
    return warm.Process(*args, main=f"{module}:run", **how)


@pytest.fixture(params=URLS)
def url(request, folder):
    return URLS[request.param].format(folder)


@pytest.fixture
def rng():
    seed = random.SystemRandom().randrange(10**6)
    print("seed", seed)
    return random.Random(seed)


def recorded(folder):
    return (folder / NAME).stat().st_size


def answers(folder):
    return (folder / NAME).read_text().count('"answered"')


def wait_for_more(folder, before):
    wait_until(lambda: recorded(folder) > before)


def kill(process, url):
    """What it held can be taken by the next one at once."""
    process.kill()
    process.wait()
    if url.startswith("postgresql:"):
        postgres.expire_leases(url)


def assert_nothing_lost(auditor, url, **options):
    told = auditor.compare(url, **options)
    assert told["wrong"] == []
    return told


def test_a_library_that_is_killed_loses_nothing_it_acknowledged(url, folder, auditor, rng):
    for number in range(KILLS + 1):
        before = recorded(folder)
        process = run("tests.torture.talker", url, str(folder), str(number * 10_000))
        try:
            wait_for_more(folder, before)
            time.sleep(rng.random() * TALK_S)
            assert process.poll() is None
        finally:
            kill(process, url)
        told = assert_nothing_lost(auditor, url)
    print(told)
    assert told["accepted"] > KILLS


def script(folder):
    path = folder / "replies.jsonl"
    replies = ({"deltas": [f"reply {n}, ", "slowly, ", "to the end."], "delay_ms": 40} for n in range(REPLIES))
    path.write_text("".join(json.dumps(reply) + "\n" for reply in replies))
    return f"scripted:{path}"


def tell_what_it_says(process, teller, text):
    """As a script would that reads the events of `turnlog chat --json`."""
    session_id, reply = "", ""
    for line in process.stdout:
        if not line.endswith("\n"):
            return
        event = json.loads(line)
        if not session_id:
            session_id = event["sessionId"]
            teller.accepted(session_id, text)
        reply = taken(event, reply)
        if event["type"] == "done":
            teller.answered(session_id, text, reply)


def has_said_something(process, folder, before):
    return recorded(folder) > before or process.poll() is not None


def taken(event, reply):
    if event["type"] == "text_delta":
        return reply + event["text"]
    return event["text"] if event["type"] == "snapshot" else reply


def test_a_command_that_is_killed_loses_nothing_it_acknowledged(url, folder, auditor, rng):
    model = script(folder)
    for number in range(KILLS * 2):
        text = f"message {number}."
        args = ["chat", "--json", "--home", str(folder), "--store", url, "--model", model, "-p", text]
        process = run_turnlog(args, {}, stdout=subprocess.PIPE, text=True)
        before = recorded(folder)
        hearing = threading.Thread(target=tell_what_it_says, args=(process, auditor, text))
        hearing.start()
        if number % 4:  # the first ends by itself
            if number % 2:
                wait_until(partial(has_said_something, process, folder, before))
            time.sleep(rng.random() * (0.15 if number % 2 else 0.5))
            kill(process, url)
        process.wait()
        hearing.join()
        process.stdout.close()
        told = assert_nothing_lost(auditor, url)
    print(told)
    assert told["accepted"] >= KILLS
    assert told["answered"] >= 1


def test_the_auditor_notices_what_is_missing_changed_or_doubled(url, folder, auditor):
    args = ["chat", "--json", "--home", str(folder), "--store", url, "--model", "offline", "-p", "here."]
    process = run_turnlog(args, {}, stdout=subprocess.PIPE, text=True)
    tell_what_it_says(process, auditor, "here.")
    process.wait()
    process.stdout.close()
    told = json.loads((folder / NAME).read_text().splitlines()[0])
    assert_nothing_lost(auditor, url, settled=True)
    auditor.accepted(told["session"], "never said.")
    auditor.answered(told["session"], "here.", "another reply")
    auditor.accepted("no-such-session", "anything")
    wrong = auditor.compare(url)["wrong"]
    assert len(wrong) == 3, wrong


class Client(threading.Thread):
    """One person: asks, waits for the answer, asks on; also while the server is away."""

    def __init__(self, number, folder, address):
        super().__init__(daemon=True)
        self._number = number
        self._session = f"person-{number}"
        self._teller = Teller(folder)
        self._address = address
        self.stopping = threading.Event()

    def run(self):
        asked = 0
        while not self.stopping.is_set():
            asked += 1
            try:
                self._ask(f"message {asked} of person {self._number}.")
            except httpx.HTTPError:
                self.stopping.wait(0.02)
        self._teller.close()

    def _ask(self, text):
        reply = ""
        body = {"message": text, "sessionId": self._session}
        with self._client() as client, connect_sse(client, "POST", CHAT, json=body) as source:
            if source.response.status_code != 200:
                self.stopping.wait(0.02)
                return
            self._teller.accepted(self._session, text)
            for event in source.iter_sse():
                reply = taken(event.json(), reply)
                if event.json()["type"] == "done":
                    self._teller.answered(self._session, text, reply)

    def _client(self):
        base, token = self._address()
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=base, headers=headers, timeout=GIVES_UP_S, trust_env=False, verify=False)


def test_a_server_that_is_killed_under_several_clients_loses_nothing_it_acknowledged(url, folder, auditor, rng):
    script(folder)
    replies = [json.loads(line) for line in (folder / "replies.jsonl").read_text().splitlines()]
    env = {"TURNLOG_STORE_DURABILITY": "full"}
    server = Running(folder / "home", script=replies, env=env, store=url)
    clients = [Client(n, folder, lambda: (server.base, server.token)) for n in range(CLIENTS)]
    try:
        for client in clients:
            client.start()
        for _ in range(KILLS):
            before = answers(folder)
            wait_until(lambda before=before: answers(folder) >= before + CLIENTS)
            time.sleep(rng.random() * TALK_S)
            kill(server.process, url)
            assert_nothing_lost(auditor, url)
            server.start()
        for client in clients:
            client.stopping.set()
        for client in clients:
            client.join(GIVES_UP_S)
        assert_idle(server)
        assert server.stop() == 0
        told = assert_nothing_lost(auditor, url, settled=True)
    finally:
        for client in clients:
            client.stopping.set()
        server.kill()
    print(told)
    assert told["answered"] > KILLS


def assert_idle(server):
    with server.client() as client:
        for n in range(CLIENTS):
            where = {"sessionId": f"person-{n}"}
            wait_until(lambda where=where: client.get(f"{CHAT}/status", params=where).json()["status"] == "idle")
