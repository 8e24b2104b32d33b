"""Health, and an end in order: readiness off, turns finished or kept as far as they came, streams told."""

import signal
import threading

import httpx
from httpx_sse import connect_sse

from .. import warm
from ..waiting import GIVES_UP_S, wait_until
from .running import CHAT, SESSIONS, kinds, rejoin, running, talk, turnlog


def get(server, path):
    return httpx.get(server.base + path, timeout=GIVES_UP_S, trust_env=False, verify=False)


def test_a_server_that_is_well_says_so_to_anybody(tmp_path):
    with running(tmp_path, script=[], env={"TURNLOG_STORE_DURABILITY": "full"}) as server:
        assert get(server, "/healthz").json() == get(server, "/readyz").json() == {"status": "ok"}
        with server.client() as client:
            talk(client)
            text = client.get("/metrics").text
        assert 'turnlog_turns_total{outcome="done"} 1.0' in text
        assert "turnlog_requests_total" in text
        assert "ses-" not in text


def test_every_limit_that_tests_make_longer_is_one():
    assert [path for path in warm.PATIENCE if not hasattr(*warm.find(path))] == []


def test_readiness_is_proved_by_a_write(tmp_path):
    with running(tmp_path, script=[], store=f"jsonl:{tmp_path}/data") as server:
        assert get(server, "/readyz").status_code == 200
        ledger = tmp_path / "data" / "ledger.jsonl"
        path = ledger if ledger.exists() else next((tmp_path / "data").glob("*ledger*"))
        assert b"ready" in path.read_bytes()


def test_a_turn_may_end_while_the_server_closes_and_new_messages_are_refused(tmp_path):
    go = tmp_path / "go"
    patient = {"TURNLOG_SERVER_DRAIN_S": str(GIVES_UP_S)}
    script = [{"deltas": ["a", "b", "c", "d"], "until": str(go)}]
    with running(tmp_path, script=script, env=patient) as server:
        with server.client() as client, connect_sse(client, "POST", CHAT, json={"message": "long"}) as source:
            sid = source.response.headers["turnlog-session"]
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: get(server, "/readyz").status_code == 503)
            assert get(server, "/healthz").status_code == 200
            refused = client.post(CHAT, json={"message": "too late"})
            assert (refused.status_code, refused.json()["code"]) == (503, "closing")
            assert "retry-after" in refused.headers
            go.touch()
            told = [event.json() for event in source.iter_sse()]
            assert told[-1]["type"] == "done"
            assert "".join(event["text"] for event in told if event["type"] == "text_delta") == "abcd"
        assert server.process.wait(GIVES_UP_S) == 0
        server.start()
        with server.client() as client:
            assert client.get(f"{SESSIONS}/{sid}").json()["session"]["messageCount"] == 2


def test_a_turn_that_takes_too_long_is_stopped_with_what_it_said_kept(tmp_path):
    script = [{"deltas": ["first ", "more "], "until": str(tmp_path / "never")}]
    with running(tmp_path, script=script, env={"TURNLOG_SERVER_DRAIN_S": "1"}) as server:
        with server.client() as client, connect_sse(client, "POST", CHAT, json={"message": "endless"}) as source:
            sid = source.response.headers["turnlog-session"]
            told = source.iter_sse()
            frames = [next(told)]
            server.process.send_signal(signal.SIGTERM)
            frames += told
            assert frames[-1].json()["type"] == "stopped"
        assert server.process.wait(GIVES_UP_S) == 0
        server.start()
        with server.client() as client:
            last = client.get(f"{SESSIONS}/{sid}").json()["entries"][-1]
            assert (last["type"], last["stop"]) == ("assistant", "interrupted")
            assert kinds(rejoin(client, sid, last=frames[0].id)) == ["snapshot", "stopped"]


def test_listeners_of_a_tail_are_told_to_come_back(tmp_path):
    with running(tmp_path, script=[]) as server, server.client() as client:
        sid = talk(client)[-1][1]["sessionId"]
        got = []

        def listen():
            with client.stream("GET", f"{SESSIONS}/{sid}/events") as stream:
                started.set()
                got.extend(stream.iter_lines())

        started = threading.Event()
        thread = threading.Thread(target=listen)
        thread.start()
        assert started.wait(GIVES_UP_S)
        assert server.stop() == 0
        thread.join(GIVES_UP_S)
        assert "retry: 1000" in got


def test_a_second_signal_ends_it_at_once(tmp_path):
    script = [{"deltas": ["never ", "said"], "until": str(tmp_path / "never")}]
    patient = {"TURNLOG_SERVER_DRAIN_S": "3600"}
    with running(tmp_path, script=script, env=patient) as server:
        with server.client() as client, connect_sse(client, "POST", CHAT, json={"message": "endless"}) as source:
            next(source.iter_sse())
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: get(server, "/readyz").status_code == 503)
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(GIVES_UP_S)
        server.start()
        assert get(server, "/readyz").status_code == 200


def test_a_port_that_is_taken_is_a_clear_error(tmp_path):
    with running(tmp_path / "a", script=[]) as server:
        port = server.base.rpartition(":")[2]
        done = turnlog(["serve", "--home", str(tmp_path / "b"), "--port", port, "--model", "offline"])
        assert done.returncode == 2
        assert "address" in done.stderr.lower()
        assert "Traceback" not in done.stderr
