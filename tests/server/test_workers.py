"""`turnlog serve --workers N`: one port, one store, several processes."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from prometheus_client.values import MultiProcessValue

from turnlog.runtime import background
from turnlog.server.metrics import Metrics

from ..stores import postgres
from ..waiting import GIVES_UP_S, is_alive, wait_until
from .running import CHAT, SESSIONS, Running, kinds, rejoin, run_turnlog, running, talk, text_of


def workers_of(server):
    """The pids of the processes that the parent started and that are up, oldest first."""
    pid = server.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children if "--worker" in command_of(child)]


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request, tmp_path):
    return postgres.url_of(tmp_path) if request.param == "postgresql" else f"sqlite:{tmp_path}/one/sessions.db"


def starts(server):
    return len(re.findall('"event":"started"', server.log.read_text()))


def test_sessions_turns_and_metrics_are_one_whichever_worker_answers(tmp_path, store):
    with running(tmp_path / "home", args=["--workers", "2"], store=store) as server:
        wait_until(lambda: starts(server) == 2)
        assert server.said.count("listening on") == 1
        said, threads = [], []
        for number in range(8):

            def one(number=number):
                with server.client() as client:  # a connection of its own: any worker may take it
                    for turn in range(3):
                        frames = talk(client, f"message {turn} of {number}", sessionId=f"s-{number}")
                        said.append(kinds(frames)[-1])

            threads.append(threading.Thread(target=one))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(GIVES_UP_S)
        assert said == ["done"] * 24
        for _ in range(4):
            with server.client() as client:
                rows = client.get(SESSIONS).json()["sessions"]
                assert {row["id"]: row["messageCount"] for row in rows} == {f"s-{n}": 6 for n in range(8)}
                assert 'turnlog_turns_total{outcome="done"} 24.0' in client.get("/metrics").text


def test_a_worker_that_is_killed_is_started_again_and_its_turn_is_taken_over(tmp_path):
    script = [{"deltas": ["never ", "whole"], "until": str(tmp_path / "never")}, {"text": "answered"}]
    with running(tmp_path / "home", args=["--workers", "2"], script=script) as server:
        wait_until(lambda: starts(server) == 2)
        before = workers_of(server)
        cut = threading.Thread(target=lambda: _ignore_errors(server), daemon=True)
        cut.start()
        wait_until(lambda: server.begun() == 1)
        for pid in before:  # one of them runs the turn
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: starts(server) >= 4)
        assert not set(workers_of(server)) & set(before)
        with server.client() as client:
            frames = rejoin(client, "s")
            wait_until(lambda: client.get(f"{CHAT}/status", params={"sessionId": "s"}).json()["status"] == "idle")
            assert kinds(frames)[-1] in ("done", "idle")
            entries = client.get(f"{SESSIONS}/s").json()["entries"]
            assert [entry["content"] for entry in entries if entry["type"] == "user"] == ["hello"]
            assert "answered" in str([entry["content"] for entry in entries if entry["type"] == "assistant"])


def test_a_worker_that_died_before_an_orderly_close_does_not_change_the_exit_code(tmp_path):
    with running(tmp_path / "home", args=["--workers", "2"]) as server:
        wait_until(lambda: starts(server) == 2)
        [_, killed] = workers_of(server)
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{killed}").exists())  # its parent knows
        assert server.stop() == 0


def _metric(server, name):
    with server.client() as client:
        told = client.get("/metrics", headers={"Connection": "close"}).text
    return sum(float(line.split()[-1]) for line in told.splitlines() if line.startswith(name))


def test_the_metrics_of_a_worker_that_was_killed_are_those_of_no_open_connection(tmp_path):
    with running(tmp_path / "home", args=["--workers", "2"]) as server:
        wait_until(lambda: starts(server) == 2)
        with ExitStack() as stack:
            clients = [stack.enter_context(server.client()) for _ in range(6)]

            def are_told():
                for client in clients:  # again and again: a server closes connections that are idle for long
                    client.get("/healthz")
                return _metric(server, "turnlog_connections ") == 7  # each worker tells the others now and then

            wait_until(are_told)
            for pid in workers_of(server):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: starts(server) == 4)
        wait_until(lambda: _metric(server, "turnlog_connections ") == 1)


def test_what_one_worker_counts_by_itself_is_told_by_all(tmp_path, monkeypatch):
    """A count that depends on the worker that answers would look like a restart, again and again."""
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    monkeypatch.setattr(background, "_failures", Counter(errands=2))
    for pid in (1, 2):
        monkeypatch.setattr("prometheus_client.values.ValueClass", MultiProcessValue(lambda pid=pid: pid))
        metrics = Metrics()
        metrics.share()
    told = metrics.page()
    assert b'turnlog_background_failures_total{loop="errands"} 4.0' in told
    assert metrics.page() == told


def test_a_worker_imports_nothing_from_the_working_directory(tmp_path):
    (tmp_path / "uuid.py").write_text("raise SystemExit('a module of somebody else')")
    args = [Path(sys.executable).with_name("turnlog"), "serve", "--home", tmp_path / "home", "--port", "0"]
    out = tmp_path / "out"
    with out.open("w") as file:
        process = subprocess.Popen(list(map(str, [*args, "--workers", "2"])), stdout=file, stderr=file, cwd=tmp_path)
        try:
            wait_until(lambda: "listening on" in out.read_text() or process.poll() is not None)
            assert "somebody else" not in out.read_text()
            assert process.poll() is None, out.read_text()
        finally:
            process.terminate()
            process.wait(GIVES_UP_S)


def _ignore_errors(server):
    try:
        with server.client() as client:
            talk(client, "hello", sessionId="s")
    except Exception:
        return


def test_a_turn_is_followed_to_its_end_from_any_worker(tmp_path):
    go = tmp_path / "go"
    script = [{"deltas": ["one ", "two"], "until": str(go)}]
    with running(tmp_path / "home", args=["--workers", "2"], script=script) as server:
        wait_until(lambda: starts(server) == 2)
        told = {}

        def first():
            with server.client() as client:
                told["first"] = talk(client, "hello", sessionId="s")

        def follow(number):
            with server.client() as client:
                told[number] = rejoin(client, "s")

        threads = [threading.Thread(target=first)]
        threads[0].start()
        wait_until(lambda: server.begun() == 1)
        threads += [threading.Thread(target=follow, args=(number,)) for number in range(6)]
        for thread in threads[1:]:
            thread.start()
        go.touch()
        for thread in threads:
            thread.join(GIVES_UP_S)
        assert text_of(told["first"]) == "one two"
        assert len(told) == 7
        assert {kinds(frames)[-1] for frames in told.values()} <= {"done", "idle"}


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_the_parent(tmp_path, how):
    server = Running(tmp_path / "home", args=["--workers", "2"])
    try:
        wait_until(lambda: starts(server) == 2)
        pids = workers_of(server)
        assert len(pids) == 2
        server.process.send_signal(how)
        assert server.process.wait(GIVES_UP_S) == (0 if how != signal.SIGKILL else -signal.SIGKILL)
        wait_until(lambda: not any(map(is_alive, pids)))
    finally:
        server.kill()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--workers", "0"], "0 workers"),
        (["--workers", "2", "--store", "memory:"], "cannot share the store memory:"),
        (["--workers", "2"], "a channel that polls"),
    ],
)
def test_a_number_of_workers_that_cannot_be_had_is_a_usage_error(tmp_path, args, says):
    out = tmp_path / "out"
    (tmp_path / "config.toml").write_text('[channels.telegram.ops]\ntoken = "1:x"\nmode = "poll"\n')
    with out.open("w") as file:
        process = run_turnlog(["serve", "--home", str(tmp_path), "--port", "0", *args], {}, stdout=file, stderr=file)
        assert process.wait(GIVES_UP_S) == 2
    assert says in out.read_text()


def test_a_first_worker_that_cannot_start_ends_the_command_with_its_code(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "bad.db").write_text("this is no database, and never was one; " * 100)
    out = tmp_path / "out"
    with out.open("w") as file:
        args = ["serve", "--home", str(tmp_path / "home"), "--port", "0", "--workers", "2"]
        process = run_turnlog([*args, "--store", f"sqlite:{tmp_path}/bad.db"], {}, stdout=file, stderr=file)
        assert process.wait(GIVES_UP_S) == 3
    assert "bad.db" in out.read_text()
