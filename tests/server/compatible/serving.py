"""One server with real SDKs in front of it and a stub of the vendors' APIs behind it."""

import json
import re
from contextlib import contextmanager

import anthropic
import httpx
import httpx2
import openai

from tests.providers.wire import Wire
from tests.server.running import PATIENT, Running
from tests.waiting import GIVES_UP_S

LOOK = {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}}
CHAT_TOOL = {"type": "function", "function": LOOK}
TOOL = {"name": "look", "description": "Looks.", "input_schema": LOOK["parameters"]}
HI = [{"role": "user", "content": "Hi"}]


class Relay:
    """`server`: Turnlog; `wire`: the upstream, with every request that it got."""

    def __init__(self, server, wire):
        self.server, self.wire = server, wire
        self._clients = []

    def say(self, *replies):
        """What the upstream answers next; what an earlier test left over is dropped."""
        self.wire._script.clear()
        self.wire.requests.clear()
        self.wire.left.clear()
        self.wire.say(*replies)

    def openai(self, token=None, **options):
        return self._client(openai.OpenAI, f"{self.server.base}/v1", token, options)

    def anthropic(self, token=None, **options):
        return self._client(anthropic.Anthropic, self.server.base, token, options)

    def _client(self, kind, base, token, options):
        http = httpx2.Client(trust_env=False, verify=False, timeout=GIVES_UP_S)
        given = {"api_key": token or self.server.token, "max_retries": 0, **options}
        self._clients.append(kind(base_url=base, http_client=http, **given))
        return self._clients[-1]

    def close(self):
        for client in self._clients:
            client.close()

    def post(self, path, body, *, token=None, **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        own = {"Authorization": f"Bearer {token or self.server.token}", "Content-Type": "application/json"}
        with httpx.Client(base_url=self.server.base, **PATIENT) as client:
            return client.post(path, content=data, headers={**own, **headers})

    def chat(self, **fields):
        return self.post("/v1/chat/completions", {"model": "m", "messages": HI, **fields})

    def messages(self, headers=None, **fields):
        return self.post("/v1/messages", {"model": "m", "max_tokens": 100, "messages": HI, **fields}, **(headers or {}))

    def sent(self):
        """The newest request that the upstream got."""
        return self.wire.requests[-1].body

    def sessions(self, token=None):
        with self.server.client(token) as client:
            return client.get("/api/agents/main/sessions").json()["sessions"]


@contextmanager
def serving(home, *, env=None, args=(), **options):
    with Wire() as wire:
        keys = {
            "OPENAI_BASE_URL": wire.openai_url,
            "OPENAI_API_KEY": "upstream-key",
            "ANTHROPIC_API_KEY": "upstream-key",
            "ANTHROPIC_BASE_URL": wire.anthropic_url,
        }
        server = Running(home, env={**keys, **(env or {})}, args=("--model", "openai:gpt", *args), **options)
        try:
            relay = Relay(server, wire)
            yield relay
            relay.close()
            assert server.stop() == 0, server.log.read_text()
        finally:
            if server.process.poll() is None:
                server.kill()


def frames(text):
    """(event, data) of each frame; comments are left out."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(re.findall(r"^(event|data): (.*)$", block, re.MULTILINE))
        if "data" in fields:
            data = fields["data"] if fields["data"] == "[DONE]" else json.loads(fields["data"])
            found.append((fields.get("event"), data))
    return found
