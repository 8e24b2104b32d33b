"""Providers and tools that wait until a test lets them go on, so that no test depends on how fast a machine is."""

import asyncio
from contextlib import aclosing, asynccontextmanager

from turnlog.testing import ScriptedProvider


class Gated(ScriptedProvider):
    """Waits at the calls with the given numbers (from 0)."""

    def __init__(self, replies=(), *, at=(0,), **options):
        super().__init__(replies, **options)
        self.reached = {number: asyncio.Event() for number in at}
        self.go = {number: asyncio.Event() for number in at}
        self.calls = 0

    async def stream(self, prompt):
        number, self.calls = self.calls, self.calls + 1
        if number in self.go:
            self.reached[number].set()
            await self.go[number].wait()
        async with aclosing(super().stream(prompt)) as pieces:
            async for piece in pieces:
                yield piece


class Slow:
    """A tool that begins, and ends when it may."""

    def __init__(self):
        self.started = asyncio.Event()
        self.go = asyncio.Event()
        self.runs = 0

    @property
    def tool(self):
        async def slow() -> str:
            """Takes its time."""
            self.runs += 1
            self.started.set()
            await self.go.wait()
            return f"run {self.runs}"

        return slow


class Held:
    """The next call of the store of that name takes until it may go on: before it is made, or after."""

    def __init__(self, store, name, *, after=False):
        self.reached = asyncio.Event()
        self.go = asyncio.Event()
        real = getattr(store, name)

        async def held(*args, **options):
            setattr(store, name, real)
            if not after:
                await self._wait()
            result = await real(*args, **options)
            if after:
                await self._wait()
            return result

        setattr(store, name, held)

    async def _wait(self):
        self.reached.set()
        await self.go.wait()


def slow_calls(count, prefix="c"):
    return {"tool_calls": [{"id": f"{prefix}{n}", "name": "slow", "input": {}} for n in range(count)]}


async def heard(t, ticket):
    return [event async for event in t.queue.follow(ticket)]


@asynccontextmanager
async def listening(t, tickets):
    """Listeners of all these messages; they are not left behind, whatever happens."""
    tasks = [asyncio.create_task(heard(t, ticket)) for ticket in tickets]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
