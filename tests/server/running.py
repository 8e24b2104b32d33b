"""A real server in a process of its own, and what tests say to it."""

import json
import os
import signal
from contextlib import contextmanager
from pathlib import Path

import httpx
from httpx_sse import connect_sse

from turnlog.testing import check_messages

from .. import warm
from ..waiting import GIVES_UP_S, wait_until

PATIENT = {"trust_env": False, "verify": False, "timeout": GIVES_UP_S}
"""For httpx: without certificates, which take longer to load than most requests to answer; it is plain HTTP."""


class Running:
    """`turnlog serve` on a free port of 127.0.0.1. Every request it made to its model is checked when it ends."""

    def __init__(self, home, *, script=None, env=None, args=(), store=None, **how):
        """`how`: as `warm.Process` takes it."""
        self.home = Path(home)
        self.how = how
        self.home.mkdir(parents=True, exist_ok=True)
        self.script = self.home / "script.jsonl"
        self.requests = self.home / "requests.jsonl"
        if script is not None:
            self.write(*script)
        model = f"scripted:{self.script}" if script is not None else "offline"
        self.args = ["serve", "--home", str(self.home), "--port", "0", "--model", model, *args]
        if store:
            self.args += ["--store", store]
        self.env = {"TURNLOG_STORE_DURABILITY": "os", "TURNLOG_REQUEST_LOG": str(self.requests), **(env or {})}
        self.start()

    def write(self, *replies):
        with self.script.open("a") as file:
            for reply in replies:
                file.write(json.dumps(reply) + "\n")

    def start(self):
        self.log = self.home / "server.log"
        with (self.home / "server.out").open("w") as out, self.log.open("a") as log:
            self.process = run_turnlog(self.args, self.env, **self.how, stdout=out, stderr=log)
        self.said = self._wait_for_address()
        self.base = self.said.rpartition("listening on ")[2].split()[0]
        self.token = (self.home / "admin.token").read_text().strip()

    def _wait_for_address(self):
        def said():
            assert self.process.poll() is None, self.log.read_text()
            text = (self.home / "server.out").read_text()
            return text if "listening on " in text and text.endswith("\n") else None

        return wait_until(said)

    def client(self, token=None, **options):
        headers = {"Authorization": f"Bearer {token or self.token}", **options.pop("headers", {})}
        return httpx.Client(base_url=self.base, headers=headers, **PATIENT, **options)

    def make_token(self, name, *args):
        done = turnlog(["token", "create", name, *args, "--json", "--home", str(self.home)], self.env, self.args)
        return json.loads(done.stdout)["token"]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(GIVES_UP_S)

    def restart(self):
        self.kill()
        self.start()

    def logged(self, kind="turn"):
        text = self.requests.read_text() if self.requests.exists() else ""
        lines = text.split("\n")[:-1]  # the last one may be half written; words may hold other ends of lines
        found = [json.loads(line) for line in lines]
        return [request for request in found if request["kind"] == kind]

    def begun(self):
        """How many answers of the script the model has begun. One that was logged is begun a moment later."""
        position = self.script.with_name(self.script.name + ".position")
        return json.loads(position.read_text())["turn"] if position.exists() else 0

    def check(self):
        for request in self.logged():
            check_messages(request["messages"])


@contextmanager
def running(home, **options):
    server = Running(home, **options)
    try:
        yield server
        assert server.stop() == 0, server.log.read_text()
        server.check()
    finally:
        if server.process.poll() is None:
            server.kill()


def run_turnlog(args, env, **how):
    return warm.Process(*args, env=_clean(env), **how)


def turnlog(args, env=None, serve_args=()):
    """A command that runs while the server does, at the same store."""
    store = serve_args[serve_args.index("--store") + 1 :][:1] if "--store" in serve_args else []
    beside = {name: value for name, value in (env or {}).items() if name != "TURNLOG_REQUEST_LOG"}
    return warm.run(*args, *(["--store", *store] if store else []), env=_clean(beside))


def _clean(env):
    return {**{name: value for name, value in os.environ.items() if not name.startswith(("TURNLOG_", "COV_"))}, **env}


CHAT = "/api/agents/main/chat"
SESSIONS = "/api/agents/main/sessions"


def talk(client, message="hi", path=CHAT, headers=None, **fields):
    """Every frame of one message's turn, as (id, data)."""
    with connect_sse(client, "POST", path, json={"message": message, **fields}, headers=headers or {}) as source:
        assert source.response.status_code == 200, source.response.read()
        return [(event.id, event.json()) for event in source.iter_sse()]


def rejoin(client, session_id, *, after=None, last=None, path=CHAT):
    params = {"sessionId": session_id, **({"after": after} if after else {})}
    headers = {"Last-Event-ID": last} if last else {}
    with connect_sse(client, "GET", f"{path}/stream", params=params, headers=headers) as source:
        assert source.response.status_code == 200, source.response.read()
        return [(event.id, event.json()) for event in source.iter_sse()]


def kinds(frames):
    return [told["type"] for _, told in frames]


def text_of(frames):
    return "".join(told["text"] for _, told in frames if told["type"] == "text_delta")


def said_in(request):
    """All text of a logged request's messages."""
    return json.dumps(request["messages"], ensure_ascii=False)
