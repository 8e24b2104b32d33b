"""The limit of a server of SSE turns: a bare ASGI application that stores two rows and streams six frames.

`python -m benchmarks.bare_server PORT FILE`: uvicorn on uvloop and httptools, no framework, no checks, no index. The
question is committed before the first frame and the answer before the last one, both to SQLite (WAL), as a turn that
keeps the first promise has to. Nothing that keeps conversations can answer more turns a second with these parts.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from benchmarks.clients import load, used_s
from benchmarks.peers.adk_server import free_port, wait_for
from benchmarks.workload import answer_pieces, make_turns

PYTHON = os.environ.get("RUN_PYTHON", sys.executable)
HEADERS = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
DONE = b'"type":"done"'


def application(path: str):
    import apsw

    db = apsw.Connection(path)
    db.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL")
    db.execute("CREATE TABLE messages (session TEXT, role TEXT, content TEXT)")
    pieces = answer_pieces()
    answer = "".join(pieces)

    def store(session: str, role: str, content: str) -> None:
        db.execute("INSERT INTO messages VALUES (?, ?, ?)", (session, role, content))

    async def app(scope, receive, send) -> None:
        body = b""
        while True:
            event = await receive()
            body += event["body"]
            if not event["more_body"]:
                break
        asked = json.loads(body)
        store(asked["sessionId"], "user", asked["message"])
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        for piece in pieces:
            frame = b'data: {"type":"text_delta","text":%b}\n\n' % json.dumps(piece).encode()
            await send({"type": "http.response.body", "body": frame, "more_body": True})
            await asyncio.sleep(0)
        store(asked["sessionId"], "assistant", answer)
        await send({"type": "http.response.body", "body": b'data: {"type":"done"}\n\n', "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    return app


def main() -> None:
    import uvicorn

    port, path = sys.argv[1:]
    uvicorn.run(
        application(path),
        host="127.0.0.1",
        port=int(port),
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        log_level="error",
        access_log=False,
    )


@contextmanager
def serving(place: str):
    port, log = free_port(), Path(place) / "log"
    command = [PYTHON, "-m", "benchmarks.bare_server", str(port), f"{place}/messages.db"]
    with log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        wait_for(process, port, log)
        yield port, process.pid
    finally:
        process.kill()
        process.wait()


def ask(number: int, turn: int) -> tuple[str, bytes]:
    return "/", json.dumps({"message": make_turns()[turn % 512][0], "sessionId": f"client-{number}"}).encode()


async def turns(place: str, clients: int, turns: int) -> dict[str, float]:
    with serving(place) as (port, pid):
        before, begin = used_s(pid), time.process_time()
        figures = await load(port, clients, turns, ask, done=DONE)
        count = clients * (turns + 1)
        return figures | {
            "cpu_us": (used_s(pid) - before) / count * 1e6,
            "clients_us": (time.process_time() - begin) / count * 1e6,
        }


if __name__ == "__main__":
    main()
