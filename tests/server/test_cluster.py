"""Several servers on one PostgreSQL: whatever dies, stops or is cut off, every message is there once and is answered.

The storm is short by default; CLUSTER_TURNS=2000 CLUSTER_SESSIONS=200 CLUSTER_SERVERS=4 is the long form.
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path

import httpx
import pytest
from httpx_sse import connect_sse

from turnlog import open_store
from turnlog.core.entries import Assistant, Failed, text_of

from .. import warm
from ..stores import postgres
from ..waiting import GIVES_UP_S, wait_until
from .running import CHAT, PATIENT, SESSIONS, Running, kinds, rejoin, talk, text_of as text_in
from .storm import LEASE_S, Talker, blow, check_logs, check_requests, leases, see_takeovers

EXAMPLE = Path(__file__).parents[2] / "examples" / "cluster.py"
TURNS = int(os.environ.get("CLUSTER_TURNS", "60"))
SESSIONS_COUNT = int(os.environ.get("CLUSTER_SESSIONS", "12"))
SERVERS = int(os.environ.get("CLUSTER_SERVERS", "3"))
IS_LONG = "CLUSTER_TURNS" in os.environ
TAKEOVER_S = 10
"""From the moment a holder falls silent: as long as its lease lasts, and what looking for it takes. Asked of the long
form alone, which has the machine for itself."""
ENV = {
    "TURNLOG_STORE_DURABILITY": "full",
    "TURNLOG_QUEUE_MODE": "followup",
    "TURNLOG_SERVER_DRAIN_S": "2",
    "TURNLOG_SERVER_RATE": "5000",
}
STOPS_ARE_AWAITED = {"turnlog.turns.stopping.ANSWERED_S": GIVES_UP_S}
LOOK = {"name": "list_dir", "input": {"path": "."}}


@pytest.fixture
def own_database():
    """Not the one that other tests use: this one is stopped."""
    return postgres.stoppable()


@contextmanager
def cluster(tmp_path, urls, script=()):
    """A server for each URL, all with the first one's token."""
    servers = []
    try:
        for number, url in enumerate(urls):
            home = tmp_path / f"home-{number}"
            home.mkdir()
            if servers:
                (home / "admin.token").write_text(servers[0].token)
            servers.append(Running(home, script=list(script), store=url, env=ENV, constants=STOPS_ARE_AWAITED))
        yield servers
    finally:
        for server in servers:
            if server.process.poll() is None:
                server.process.send_signal(signal.SIGCONT)
                server.kill()


def begin(client, message="go", **fields):
    """A session whose turn runs, and the place of its first frame; the connection is then dropped."""
    with connect_sse(client, "POST", CHAT, json={"message": message, **fields}) as source:
        first = next(source.iter_sse())
        return source.response.headers["turnlog-session"], first.id


def entries_of(url, session_id):
    async def read():
        async with open_store(url) as store:
            return await store.read(session_id)

    return asyncio.run(read())


def at(entry):
    return datetime.fromisoformat(entry.ts).timestamp()


def test_a_turn_of_a_killed_server_is_taken_over_soon_after_its_lease_and_its_client_gets_done_elsewhere(tmp_path):
    here = postgres.server()
    name = here.database(tmp_path)
    url = here.url(name, lease_s=postgres.LONG_S)
    never = str(tmp_path / "never")
    with cluster(tmp_path, [url, url]) as (one, two), one.client() as client, two.client() as other:
        one.write({"deltas": ["never ", "said"], "until": never})
        two.write({"deltas": ["an ", "answer"], "delay_ms": 300})
        sid, last = begin(client)
        one.kill()
        here.sql("UPDATE turnlog.leases SET expires_at = clock_timestamp() + interval '1 second'", name)
        [(expires,)] = leases(here, name)
        told = rejoin(other, sid, last=last)
        assert kinds(told)[0] == "snapshot"
        assert told[0][1]["text"] == ""
        assert kinds(told)[-1] == "done"
        assert text_in(told) == "an answer", "deltas, where the turn runs"
        [cut] = [entry for entry in entries_of(url, sid) if isinstance(entry, Failed)]
        assert at(cut) > expires - 0.01, "not before its lease was over; an entry's time is in milliseconds"
        wait_until(lambda: not leases(here, name))


def test_a_turn_whose_tool_had_started_is_told_as_interrupted_by_whoever_takes_it_over(tmp_path):
    url = postgres.url_of(tmp_path)
    with cluster(tmp_path, [url, url], script=[]) as (one, two), one.client() as client, two.client() as other:
        one.write({"text": "let me look", "tool_calls": [LOOK]}, {"text": "never", "until": str(tmp_path / "never")})
        sid, last = begin(client)
        wait_until(lambda: "tool_result" in other.get(f"{SESSIONS}/{sid}").text)
        one.kill()
        postgres.expire_leases(url, one.process.pid)
        told = rejoin(other, sid, last=last)
        assert kinds(told) == ["snapshot", "error"]
        assert told[0][1]["text"] == "let me look"
        assert told[-1][1]["code"] == "interrupted"
        assert kinds(talk(other, "go on", sessionId=sid))[-1] == "done"


def test_a_server_that_was_stopped_tells_its_clients_how_the_turn_ended_elsewhere(tmp_path):
    url = postgres.url_of(tmp_path, lease_s=LEASE_S)
    with cluster(tmp_path, [url, url]) as (one, two), one.client() as client, two.client() as other:
        old = tmp_path / "old"
        one.write({"deltas": ["the old ", "answer"], "until": str(old)})
        two.write({"text": "the new answer"})
        with connect_sse(client, "POST", CHAT, json={"message": "go"}) as source:
            told = source.iter_sse()
            frames = [next(told).json()]
            sid = source.response.headers["turnlog-session"]
            one.process.send_signal(signal.SIGSTOP)
            status = {"sessionId": sid}
            wait_until(lambda: "the new answer" in other.get(f"{SESSIONS}/{sid}").text)
            wait_until(lambda: other.get(f"{CHAT}/status", params=status).json()["status"] == "idle")
            one.process.send_signal(signal.SIGCONT)
            old.touch()
            frames += [event.json() for event in told]
        assert [frame["type"] for frame in frames][-2:] == ["snapshot", "done"]
        assert frames[-2]["text"] == "the new answer", "replaces what the client held"
        assert not [frame for frame in frames if frame["type"] == "error"]
        answers = [text_of(e.content) for e in entries_of(url, sid) if isinstance(e, Assistant)]
        assert answers == ["the new answer"]
        assert kinds(talk(client, "again", sessionId=sid))[-1] == "done", "it goes on as if nothing had happened"


def test_a_message_to_another_server_waits_durably_and_is_answered_there(tmp_path):
    url = postgres.url_of(tmp_path)
    go = tmp_path / "go"
    with cluster(tmp_path, [url, url]) as (one, two), one.client() as client, two.client() as other:
        one.write({"text": "slow", "until": str(go)}, {"text": "to the second"})
        sid, _ = begin_unheard(client)
        with connect_sse(other, "POST", CHAT, json={"message": "second", "sessionId": sid}) as source:
            told = source.iter_sse()
            assert next(told).json()["type"] == "queued"
            go.touch()
            assert [event.json()["type"] for event in told][-1] == "done"
        said = [text_of(e.content) for e in entries_of(url, sid) if isinstance(e, Assistant)]
        assert len(said) == 2


def test_a_turn_is_stopped_through_a_server_that_does_not_run_it(tmp_path):
    url = postgres.url_of(tmp_path)
    with cluster(tmp_path, [url, url]) as (one, two), one.client() as client, two.client() as other:
        one.write({"deltas": ["it ", "goes ", "on"], "until": str(tmp_path / "never")}, {"text": "the second"})
        with connect_sse(client, "POST", CHAT, json={"message": "go"}) as source:
            told = source.iter_sse()
            frames = [next(told).json()]
            sid = source.response.headers["turnlog-session"]
            assert other.post(f"{CHAT}/stop", json={"sessionId": sid}).json() == {"stopped": True}
            frames += [event.json() for event in told]
        assert frames[-1]["type"] == "stopped"
        [kept] = [entry for entry in entries_of(url, sid) if isinstance(entry, Assistant)]
        assert kept.stop == "interrupted"
        assert other.post(f"{CHAT}/stop", json={"sessionId": sid}).json() == {"stopped": False}
        assert kinds(talk(client, "again", sessionId=sid))[-1] == "done", "the wish is not for a later turn"


def begin_unheard(client, message="go"):
    """The same, where the first frame is long in coming."""
    with connect_sse(client, "POST", CHAT, json={"message": message}) as source:
        return source.response.headers["turnlog-session"], None


def test_a_server_whose_database_is_gone_says_so_and_comes_back_by_itself(tmp_path, own_database):
    url = own_database.url(own_database.database(tmp_path), patience_s=0.3)
    with cluster(tmp_path, [url]) as (server,), server.client() as client:
        sid = talk(client)[-1][1]["sessionId"]
        assert client.get("/readyz").status_code == 200
        own_database.stop()
        try:
            wait_until(lambda: client.get("/readyz").status_code == 503)
            for answer in (
                client.get("/readyz"),
                client.get(f"{SESSIONS}/{sid}"),
                client.post(CHAT, json={"message": "hello", "sessionId": sid}),
            ):
                assert answer.status_code == 503
                assert answer.headers["content-type"].startswith("application/problem+json")
                assert answer.json()["code"] == "store"
                assert answer.json()["hint"]
                assert answer.headers["retry-after"]
            assert client.get("/healthz").status_code == 200
        finally:
            own_database.start()
        wait_until(lambda: client.get("/readyz").status_code == 200)
        assert kinds(talk(client, "again", sessionId=sid))[-1] == "done"


def test_a_stream_waits_while_the_database_is_away_and_is_told_done_once_when_the_reply_is_stored(
    tmp_path, own_database
):
    url = own_database.url(own_database.database(tmp_path), lease_s=1, patience_s=0.3)
    go = tmp_path / "go"
    with cluster(tmp_path, [url, url]) as (one, two), one.client() as client, two.client() as other:
        one.write({"deltas": ["so ", "it ", "is"], "until": str(go)})
        two.write({"text": "so it is"})  # if it is the first to reach the database, and takes the turn over
        with connect_sse(client, "POST", CHAT, json={"message": "go"}) as source, ThreadPoolExecutor(1) as aside:
            told = source.iter_sse()
            first = next(told)
            sid = source.response.headers["turnlog-session"]
            elsewhere = aside.submit(rejoin, other, sid, last=first.id)
            wait_until(lambda: "turnlog_streams 1.0" in other.get("/metrics").text)
            own_database.stop()
            go.touch()
            time.sleep(2.5)  # for the reply to be complete, and for calls and leases to fail
            own_database.start()
            frames = [first.json(), *[event.json() for event in told]]
            followed = elsewhere.result(GIVES_UP_S)
        for kinds_told in ([frame["type"] for frame in frames], kinds(followed)):
            assert kinds_told[-1] == "done"
            assert not {"error", "stopped", "done"} & set(kinds_told[:-1])
        answers = [text_of(e.content) for e in entries_of(url, sid) if isinstance(e, Assistant)]
        assert answers == ["so it is"]


def test_of_servers_that_start_at_once_one_makes_the_first_token(tmp_path):
    url = postgres.url_of(tmp_path)
    command = ["serve", "--home", str(tmp_path), "--store", url, "--port", "0", "--model", "offline"]
    outs = [tmp_path / f"out-{n}" for n in range(3)]
    servers = []
    try:
        for out in outs:
            with out.open("w") as file:
                servers.append(warm.Process(*command, stdout=file, stderr=file))
        wait_until(lambda: all("listening on" in out.read_text() for out in outs))
        assert sum("Sign in once" in out.read_text() for out in outs) == 1
        base = re.search(r"listening on (\S+)", outs[0].read_text())[1]
        token = (tmp_path / "admin.token").read_text().strip()
        answer = httpx.get(f"{base}{SESSIONS}", headers={"Authorization": f"Bearer {token}"}, **PATIENT)
        assert answer.status_code == 200
    finally:
        for server in servers:
            server.terminate()
        for server in servers:
            server.wait(GIVES_UP_S)


def test_the_example_shares_sign_in_and_sessions_between_its_two_servers(tmp_path):
    out = tmp_path / "out"
    with out.open("w") as file:
        example = subprocess.Popen(
            [sys.executable, "-W", "error", str(EXAMPLE), str(tmp_path / "place"), "--ports", "0", "0"],
            stdout=file,
            stderr=subprocess.STDOUT,
            env={k: v for k, v in os.environ.items() if not k.startswith("TURNLOG_")}
            | {"TURNLOG_MODEL_NAME": "offline"},
        )
    try:
        wait_until(lambda: "Stop with Ctrl-C" in out.read_text() or example.poll() is not None)
        bases = re.findall(r"listening on (\S+)", out.read_text())
        assert len(bases) == 2, out.read_text()
        link = re.search(r"Sign in once at (\S+)", out.read_text())[1]
        assert link.startswith(bases[0])
        assert httpx.get(link, **PATIENT).status_code in (200, 302, 303)
        token = (tmp_path / "place" / "home" / "admin.token").read_text().strip()
        options = {"headers": {"Authorization": f"Bearer {token}"}, **PATIENT}
        with httpx.Client(base_url=bases[0], **options) as one, httpx.Client(base_url=bases[1], **options) as two:
            sid = talk(one, "hello")[-1][1]["sessionId"]
            assert [row["id"] for row in two.get(SESSIONS).json()["sessions"]] == [sid]
            assert kinds(talk(two, "and again", sessionId=sid))[-1] == "done"
            assert one.get(f"{SESSIONS}/{sid}").json()["session"]["messageCount"] == 4
            conversation = "/api/agents/main/conversations/web-admin"
            wait_until(lambda: two.get(conversation).json()["total"] == 4)
    finally:
        example.send_signal(signal.SIGTERM)
        assert example.wait(GIVES_UP_S) == 0, out.read_text()
    assert "Warning" not in out.read_text()


def test_in_a_storm_every_acknowledged_message_is_there_once_and_is_answered(tmp_path, own_database):
    name = own_database.database(tmp_path)
    url = own_database.url(name, tcp=True, lease_s=LEASE_S)
    script = [
        {"text": "looking", "tool_calls": [LOOK]} if n % 9 == 4 else {"deltas": ["so ", "it ", "is"], "delay_ms": 150}
        for n in range(4 * TURNS)
    ]
    ended, asked = {}, Counter()

    async def go():
        async with postgres.Proxy(own_database.port) as proxy:
            through = own_database.url(name, tcp=True, port=proxy.port, lease_s=LEASE_S)
            with ExitStack() as stack:
                urls = [through, *[url] * (SERVERS - 1)]
                # Aside, because the proxy runs here.
                servers = await asyncio.to_thread(stack.enter_context, cluster(tmp_path, urls, script=script))
                await drive(servers, proxy)

    async def drive(servers, proxy):
        sids = await asyncio.to_thread(new_sessions, servers[-1])
        storm = asyncio.create_task(blow(servers, own_database, proxy))
        lateness = asyncio.create_task(see_takeovers(own_database, name, storm))
        talkers = [Talker(servers, sid, number, ended) for sid in sids for number in (1, 2)]
        quota = -(-TURNS // len(talkers))
        async with asyncio.TaskGroup() as group:
            for talker in talkers:
                group.create_task(talker.talk(quota, storm))
        await storm
        print(f"slowest message {max(talker.slowest for talker in talkers):.1f} s, ", end="")
        print(f"longest without a holder {await lateness:.1f} s")
        if IS_LONG:
            assert LEASE_S + await lateness <= TAKEOVER_S
        for server in servers:
            check_requests(server, asked)

    asyncio.run(go())
    odd = ended.pop("odd", Counter())
    print(len(ended), Counter(ended.values()), odd)
    assert len(ended) >= TURNS
    asyncio.run(check_logs(url, SESSIONS_COUNT, ended, asked))
    assert set(odd) <= {"store", "busy", "conflict"}, odd


def new_sessions(server):
    with server.client() as client, ThreadPoolExecutor(16) as several:
        ends = several.map(lambda _: talk(client, "hello")[-1][1], range(SESSIONS_COUNT))
        return [end["sessionId"] for end in ends]
