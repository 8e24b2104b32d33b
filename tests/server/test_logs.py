"""Every line that `turnlog serve` writes to stderr is one JSON object, whichever library wrote it."""

import json
import socket
import subprocess
import sys

import httpx

from .running import CHAT, PATIENT, running

NOISE = """
import asyncio, gc, logging, threading, warnings
from turnlog.server.logs import log_everything_as_json, open_log

async def trouble():
    logging.getLogger("some.library").warning("a warning with\\nline breaks and \\x1b[31m")
    logging.getLogger("some.library").info("not worth a line")
    try:
        raise ValueError("sk-abcdefghijklmnopqrstuvwxyz0123456789")
    except ValueError:
        logging.getLogger("another").exception("it failed %s", "badly")
    logging.getLogger("broken").warning("%s %s", "one argument")
    warnings.warn("this is old", DeprecationWarning)
    warnings.warn("this was left open", ResourceWarning)

    async def fail():
        raise RuntimeError("nobody awaited me")

    task = asyncio.create_task(fail())
    await asyncio.sleep(0)
    del task
    asyncio.get_running_loop().call_soon(lambda: 1 / 0)
    thread = threading.Thread(target=lambda: [][0])
    thread.start()
    thread.join()

    class Careless:
        def __del__(self):
            raise KeyError("in a destructor")

    Careless()
    await asyncio.sleep(0.01)
    gc.collect()
    open_log().info("ours")

warnings.simplefilter("always")
log_everything_as_json()
asyncio.run(trouble())
raise LookupError("at the very end")
"""


def as_objects(text):
    return [json.loads(line) for line in text.splitlines()]


def test_whatever_is_written_by_libraries_loops_threads_and_warnings_is_json():
    done = subprocess.run([sys.executable, "-c", NOISE], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    lines = as_objects(done.stderr)
    said = json.dumps(lines)
    for expected in (
        "a warning with",
        "it failed badly",
        "one argument",
        "this is old",
        "this was left open",
        "nobody awaited me",
        "ZeroDivisionError",
        "IndexError",
        "in a destructor",
        "ours",
        "at the very end",
    ):
        assert expected in said, (expected, done.stderr)
    assert "not worth a line" not in said
    assert "abcdefghijklmnopqrstuvwxyz0123456789" not in said
    assert all({"event", "level", "timestamp"} <= line.keys() for line in lines)
    assert "\x1b" not in done.stderr


def test_a_server_under_garbage_writes_nothing_but_json(tmp_path):
    with running(tmp_path, script=[]) as server:
        host, _, port = server.base.removeprefix("http://").partition(":")
        for junk in (
            b"\x00" * 100,
            b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            b"A" * 100_000,
            b"POST /api/signin HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        ):
            with socket.create_connection((host, int(port)), timeout=120) as wire:
                wire.sendall(junk)
                wire.shutdown(socket.SHUT_WR)
                try:
                    wire.recv(1000)
                except ConnectionResetError:
                    pass
        headers = {"Authorization": f"Bearer {server.token}"}
        httpx.post(f"{server.base}{CHAT}", json={"message": "x"}, headers=headers, **PATIENT)
    lines = as_objects(server.log.read_text())
    assert any("Invalid HTTP request" in line["event"] for line in lines), "what uvicorn says is there, as JSON"
