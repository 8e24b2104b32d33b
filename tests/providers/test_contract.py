"""The contract of providers, on every provider of this package."""

import asyncio
import json
from contextlib import asynccontextmanager

import msgspec
import pytest

from turnlog.providers.anthropic import AnthropicProvider
from turnlog.providers.local import LocalProvider
from turnlog.providers.offline import OfflineProvider
from turnlog.providers.openai import OpenAIProvider
from turnlog.providers.scripted import ScriptProvider
from turnlog.testing import ProviderContract, ScriptedProvider

from ..waiting import until
from .llama import model_file
from .wire import PROXIES, SETTINGS, Refused, Said, Wire


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in (*SETTINGS, *PROXIES):
        monkeypatch.delenv(name, raising=False)


class TestScripted(ProviderContract):
    @asynccontextmanager
    async def open(self, place, replies):
        yield ScriptedProvider(replies, summaries=replies)


class TestScriptFile(ProviderContract):
    @asynccontextmanager
    async def open(self, place, replies):
        lines = [msgspec.to_builtins(reply) | {"for": purpose} for purpose in ("turn", "summary") for reply in replies]
        file = place / "script.jsonl"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.position = place / "script.jsonl.position"
        yield ScriptProvider(file)

    async def asked(self):
        """A reply is taken in a thread. One that was not taken yet would be the next caller's."""
        await until(self.position.exists)


class TestOffline(ProviderContract):
    scripted = False

    @asynccontextmanager
    async def open(self, place, replies):
        yield OfflineProvider()


@pytest.mark.slow
class TestLocal(ProviderContract):
    """A real model: minutes on a busy machine."""

    scripted = False

    @asynccontextmanager
    async def open(self, place, replies):
        provider = LocalProvider(model_file(), window=4_096, max_output=6)
        try:
            yield provider
        finally:
            await provider.close()


class WireContract(ProviderContract):
    @asynccontextmanager
    async def open(self, place, replies):
        with Wire() as self.wire:
            self.wire.say(*map(self.on_the_wire, replies))
            provider = self.provider()
            try:
                yield provider
            finally:
                await provider.close()

    async def asked(self):
        assert await asyncio.to_thread(self.wire.asked.wait, 30)

    async def disconnected(self):
        assert await asyncio.to_thread(self.wire.left.wait, 30)

    def on_the_wire(self, reply):
        error = reply.error
        if error and not reply.deltas:
            wait = {} if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
            return Refused(error.status, {"error": self.error(error)}, wait)
        calls = tuple({"id": call.id, "name": call.name, "input": call.input} for call in reply.tool_calls)
        return Said(
            text=reply.text,
            texts=reply.deltas,
            calls=calls,
            usage=reply.usage or {},
            stop=reply.stop or "",
            breaks="stall" if reply.delay_ms else "",
            error=error and self.error(error),
        )


class TestAnthropic(WireContract):
    def provider(self):
        return AnthropicProvider("claude-opus-5-5", api_key="key", base_url=self.wire.anthropic_url)

    def error(self, failure):
        return {"type": failure.code or "invalid_request_error", "message": failure.message}


class TestOpenAI(WireContract):
    def provider(self):
        return OpenAIProvider("qwen3", base_url=self.wire.openai_url)

    def error(self, failure):
        return {"type": "invalid_request_error", "message": failure.message, "code": failure.code or None}
