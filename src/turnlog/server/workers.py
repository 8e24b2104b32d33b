"""Several server processes on one port and one store: `turnlog serve --workers N`.

The parent binds the port and starts the workers, which accept connections from the same socket. It serves nothing
itself. The first worker is started alone, because it creates the store and the first token; the others follow when it
is ready. Turns and leases work as between any two servers on one store. A worker that dies is started again; a signal
to the parent closes all workers in order, and they also close if the parent is killed, because then their pipe ends.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from prometheus_client.multiprocess import mark_process_dead  # pyright: ignore[reportUnknownVariableType]

from ..errors import UsageError
from ..settings import Settings

WORKERS_MAX = 64
AGAIN_FIRST_S = 0.5
AGAIN_MAX_S = 30.0
"""The pause before a worker that died is started again; it doubles with each death in a row."""
LIVED_S = 60.0
"""A worker that ran for this long before it died is started again after the short pause."""
READY = b"r"
METRICS_DIR = "PROMETHEUS_MULTIPROC_DIR"
"""Tells prometheus_client to keep its values in files that the workers share."""


def check_workers(count: int, settings: Settings) -> None:
    if not 1 <= count <= WORKERS_MAX:
        raise UsageError(
            f"{count} workers are not possible", hint=f"Use 1 to {WORKERS_MAX} workers: at most one for each core."
        )
    if count > 1 and settings.store_url().startswith("memory:"):
        raise UsageError("several workers cannot share the store memory:", hint="Use a store on disk or PostgreSQL.")
    if count > 1 and _polls(settings.channels):
        raise UsageError(
            "a channel that polls cannot be shared by several workers",
            hint="Use webhooks, or poll from a server of its own on the same store.",
        )


def _polls(table: Mapping[str, Any]) -> bool:
    """Whether a channel's table, or that of one of its accounts, says so."""
    inner = [cast("dict[str, Any]", value) for value in table.values() if isinstance(value, dict)]
    return table.get("mode") == "poll" or any(map(_polls, inner))


async def supervise(arguments: Sequence[str], count: int, listening: socket.socket) -> int:
    """Runs until a signal comes, or until the first worker does not start; returns the exit code."""
    with tempfile.TemporaryDirectory(prefix="turnlog-metrics-", ignore_cleanup_errors=True) as metrics:
        environment = {**os.environ, METRICS_DIR: metrics}
        closing = asyncio.Event()
        workers = [Worker(number, arguments, listening, environment, closing) for number in range(count)]
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, _close, workers, closing)
        if not await workers[0].start():
            return await workers[0].wait()
        await asyncio.gather(*(worker.keep() for worker in workers))
        return max(abs(worker.code) for worker in workers)


def _close(workers: "Sequence[Worker]", closing: asyncio.Event) -> None:
    """The first signal closes the workers in order; a second one ends them at once, as it does with one process."""
    for worker in workers:
        worker.end() if closing.is_set() else worker.close()
    closing.set()


def _python() -> list[str]:
    """Finds modules where this process does. `-m` alone would look into the working directory before all else."""
    looks_there = bool(sys.path) and os.path.isdir(sys.path[0] or ".") and os.path.samefile(sys.path[0] or ".", ".")
    return [sys.executable] if looks_there else [sys.executable, "-P"]


class Worker:
    """One process, and what starts it again.

    It is closed by closing its pipe, not by a signal: a signal would kill a process that is still starting.
    """

    def __init__(
        self,
        number: int,
        arguments: Sequence[str],
        listening: socket.socket,
        environment: Mapping[str, str],
        closing: asyncio.Event,
    ) -> None:
        self._number = number
        self._arguments = arguments
        self._listening = listening
        self._environment = environment
        self._closing = closing
        self._process: asyncio.subprocess.Process | None = None
        self._pipe: int | None = None
        self.code = 0

    async def start(self) -> bool:
        """Whether it is ready; otherwise it has ended."""
        alive, self._pipe = os.pipe()  # ends with this process
        ready, told = os.pipe()
        fds = (self._listening.fileno(), alive, told)
        place = ",".join(map(str, (self._number, *fds)))
        command = [*_python(), "-m", "turnlog", *self._arguments, "--worker", place]
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command, pass_fds=fds, env=self._environment, stdin=subprocess.DEVNULL, start_new_session=True
            )
        finally:
            os.close(alive)
            os.close(told)
        with os.fdopen(ready, "rb") as says:
            return await asyncio.to_thread(says.read, 1) == READY

    async def wait(self) -> int:
        assert self._process is not None
        self.code = await self._process.wait()
        mark_process_dead(self._process.pid, self._environment[METRICS_DIR])  # it has no connections or turns any more
        self._process = None
        self.close()
        return self.code

    async def keep(self) -> None:
        """Until closing: starts it, and again when it has died."""
        loop = asyncio.get_running_loop()
        pause = AGAIN_FIRST_S
        while self._process or not self._closing.is_set():
            begun = loop.time()
            if self._process is None:
                await self.start()
            await self.wait()
            if not self._closing.is_set():
                self.code = 0  # it is started again: how it died says nothing about how the server ends
            pause = AGAIN_FIRST_S if loop.time() - begun > LIVED_S else min(2 * pause, AGAIN_MAX_S)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), pause)

    def close(self) -> None:
        """Begins the orderly close."""
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None

    def end(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()


class WorkerPlace:
    """What a worker was given by its parent."""

    def __init__(self, text: str) -> None:
        self.number, listening, self._parent, self._ready = map(int, text.split(","))
        self.listening = socket.socket(fileno=listening)

    def tell_ready(self) -> None:
        os.write(self._ready, READY)
        os.close(self._ready)

    def when_the_parent_ends(self, close: Any) -> None:
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(self._parent)
            close()

        loop.add_reader(self._parent, ended)
