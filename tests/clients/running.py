"""How each client is run: with a home of its own, no open stdin, and nothing but this server to talk to."""

import json
import os
import shutil
import socket
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from tests.waiting import wait_until

KEPT = Path(
    os.environ.get("TURNLOG_CLIENTS")
    or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "turnlog-clients"
)
GIVES_UP_S = 300
SCRIPTS = Path(__file__).parent / "scripts"


def needs(name, *, tool="node"):
    """Skips the test unless this client is fetched."""
    if not (KEPT / name / ".done").exists():
        pytest.skip(f"the client {name} is not fetched: make clients")
    if (KEPT / name / "node_modules").exists() and shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    return KEPT / name


class Machine:
    """A user's machine: an empty home, and the address and token of the server."""

    def __init__(self, home, relay, token=None, base=None):
        self.home, self.relay = Path(home), relay
        self.base, self.token = base or relay.server.base, token or relay.server.token
        self.home.mkdir(parents=True, exist_ok=True)

    def run(self, *command, env=None, stdin="", ok=True, timeout=GIVES_UP_S):
        own = {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "U": self.base,
            "T": self.token,
            "NO_PROXY": "127.0.0.1",
            **{f"XDG_{name}_HOME": str(self.home / name.lower()) for name in ("CONFIG", "DATA", "CACHE", "STATE")},
            **(env or {}),
        }
        done = subprocess.run(
            [str(part) for part in command],
            env=own,
            input=stdin,
            capture_output=True,
            text=True,
            cwd=self.home,
            timeout=timeout,
        )
        if ok:
            assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done

    def python(self, environment, script, **how):
        """What the script prints last, as JSON."""
        done = self.run(needs(environment) / "bin" / "python", SCRIPTS / f"{script}.py", **how)
        return json.loads(done.stdout.splitlines()[-1])

    def node(self, environment, script, **how):
        """Node looks for packages next to the script, so a copy of the script runs there."""
        copy = shutil.copy(SCRIPTS / f"{script}.mjs", needs(environment) / f"{script}-{os.getpid()}.mjs")
        try:
            done = self.run("node", copy, **how)
        finally:
            Path(copy).unlink()
        return json.loads(done.stdout.splitlines()[-1])

    def sessions(self):
        return self.relay.sessions(self.relay.server.token)

    def entries(self, session_id):
        with self.relay.server.client() as client:
            return client.get(f"/api/agents/main/sessions/{session_id}").json()["entries"]

    def kinds(self, session_id):
        """The types of a session's entries, without Turnlog's own notes."""
        return [entry["type"] for entry in self.entries(session_id) if entry["type"] not in ("session", "foreign")]


def search(relay, words):
    """What a search finds in all sessions of the principal."""
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    body = {**asked, "params": {"name": "search", "arguments": {"words": words, "limit": 20}}}
    answer = relay.post("/mcp", body, Accept="application/json, text/event-stream").json()
    return answer["result"]["structuredContent"]["hits"]


class Cutting:
    """A proxy that breaks the connection within the first streamed answers, and waits for a server that is away."""

    def __init__(self, base, times=1):
        host, port = base.removeprefix("http://").split(":")
        self.target, self.times, self.cuts = (host, int(port)), times, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.base = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.listener.close()

    def _accept(self):
        with suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with client, wait_until(self._reached) as server:
            forth = threading.Thread(target=self._pass_on, args=(client, server, b""), daemon=True)
            forth.start()
            self._pass_on(server, client, b"delta")
            forth.join()

    def _reached(self):
        """It takes little at once: what it holds when it breaks the connection counts as delivered."""
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        with suppress(ConnectionRefusedError):
            server.connect(self.target)
            return server
        server.close()
        return None

    def _pass_on(self, source, target, mark):
        with suppress(OSError):
            while data := source.recv(65536):
                if mark and mark in data and self.cuts < self.times:
                    self.cuts += 1
                    target.sendall(data[: data.index(mark)])
                    break
                target.sendall(data)
        for side in (source, target):
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
