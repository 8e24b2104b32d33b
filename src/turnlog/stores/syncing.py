"""fdatasync for many files at once, without making one alone pay for threads.

A hop to a thread and back costs about half of what a sync costs on a fast disk. So requests are gathered for one pass
of the event loop: a lone one on a disk that answers quickly is done right there; several go to threads, where the
file system merges them into few flushes.
"""

import asyncio
import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

INLINE_MAX_S = 0.002
"""A disk slower than this never blocks the loop."""
THREADS = 16

Job = list[tuple[int, asyncio.Future[None]]]


class Syncer:
    def __init__(self, sync: Callable[[int], None] = os.fdatasync) -> None:
        self._sync = sync
        self._waiting: Job = []
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._cost_s = 0.0
        self._running = 0

    def request(self, fd: int) -> "asyncio.Future[None]":
        """Done when the file's bytes are on the disk; wait for it with `settled`."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._start, loop)
        self._waiting.append((fd, done))
        return done

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        job, self._waiting = self._waiting, []
        if len(job) == 1 and not self._running and self._cost_s < INLINE_MAX_S:
            start = time.perf_counter()
            _finish(job, self._do(job))
            self._cost_s = 0.8 * self._cost_s + 0.2 * (time.perf_counter() - start)
            return
        self._ensure_threads()
        share = -(-len(job) // THREADS)
        for first in range(0, len(job), share):
            self._running += 1
            self._jobs.put(job[first : first + share])
        self._loop = loop

    def _ensure_threads(self) -> None:
        while len(self._threads) < THREADS:
            thread = threading.Thread(target=self._work, name="turnlog-sync", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            start = time.perf_counter()
            outcome = self._do(job)
            spent = (time.perf_counter() - start) / len(job)
            try:
                self._loop.call_soon_threadsafe(self._done, job, outcome, spent)
            except RuntimeError:  # the loop was closed under us; nobody waits any more
                return

    def _do(self, job: Job) -> list[OSError | None]:
        outcome: list[OSError | None] = []
        for fd, _ in job:
            try:
                self._sync(fd)
                outcome.append(None)
            except OSError as error:
                outcome.append(error)
        return outcome

    def _done(self, job: Job, outcome: list[OSError | None], spent_s: float) -> None:
        self._running -= 1
        # Several at once wait for one another, so this only ever lowers the opinion of a lone sync.
        self._cost_s = min(self._cost_s, spent_s)
        _finish(job, outcome)

    def close(self) -> None:
        for _ in self._threads:
            self._jobs.put(None)
        self._threads = []


def _finish(job: Job, outcome: list[OSError | None]) -> None:
    for (_, done), error in zip(job, outcome, strict=True):
        if done.done():
            continue
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)


async def settled(done: "asyncio.Future[Any]") -> None:
    """Waits to the end even if cancelled, so that nobody acts on a write whose fate is open."""
    try:
        await asyncio.shield(done)
    except asyncio.CancelledError:
        while not done.done():
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await asyncio.shield(done)
        raise
