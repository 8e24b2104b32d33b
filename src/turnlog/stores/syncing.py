"""fdatasync for many files at once, without making one alone pay for threads.

A hop to a thread and back costs about half of what a sync costs on a fast disk. So requests are gathered for one pass
of the event loop: a lone one on a disk that answers quickly is done right there; several go to threads, where the
file system merges them into few flushes.
"""

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

INLINE_MAX_S = 0.002
"""A disk slower than this never blocks the loop."""
THREADS = 32
T = TypeVar("T")
FDATASYNC: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
"""macOS has only fsync."""


class Outcome(asyncio.Future[Any]):
    """Cannot be called off: a task that is cancelled while it waits for this hears of it when the outcome is known.

    So nobody acts on a write whose fate is open, and a lock is not released under it.
    """

    def cancel(self, msg: Any | None = None) -> bool:
        return False


async def aside(work: Callable[[], T]) -> T:
    """Runs blocking work in a thread, to its end: what it uses stays in use even if the caller is cancelled."""
    loop = asyncio.get_running_loop()
    outcome = Outcome(loop=loop)

    def tell(done: asyncio.Future[T]) -> None:
        if error := done.exception():
            outcome.set_exception(error)
        else:
            outcome.set_result(done.result())

    loop.run_in_executor(None, work).add_done_callback(tell)
    return await outcome


class Syncer:
    def __init__(self, sync: Callable[[int], None] = FDATASYNC) -> None:
        self._sync = sync
        self._waiting: list[tuple[int, Outcome]] = []
        self._jobs: SimpleQueue[tuple[int, Outcome] | None] = SimpleQueue()
        self._finished: deque[tuple[Outcome, OSError | None, float]] = deque()
        self._threads: list[threading.Thread] = []
        self._cost_s = 0.0
        self._running = 0

    def request(self, fd: int) -> Outcome:
        """Done when the file's bytes are on the disk."""
        loop = asyncio.get_running_loop()
        outcome = Outcome(loop=loop)
        if not self._waiting:
            loop.call_soon(self._start, loop)
        self._waiting.append((fd, outcome))
        return outcome

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        jobs, self._waiting = self._waiting, []
        if len(jobs) == 1 and not self._running and self._cost_s < INLINE_MAX_S:
            fd, outcome = jobs[0]
            start = time.perf_counter()
            error = self._try(fd)
            self._cost_s = 0.8 * self._cost_s + 0.2 * (time.perf_counter() - start)
            _tell(outcome, error)
            return
        self._loop = loop
        self._running += len(jobs)
        while len(self._threads) < min(THREADS, self._running):
            thread = threading.Thread(target=self._work, name="turnlog-sync", daemon=True)
            self._threads.append(thread)
            thread.start()
        for job in jobs:
            self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            fd, outcome = job
            start = time.perf_counter()
            error = self._try(fd)
            idle = not self._finished
            self._finished.append((outcome, error, time.perf_counter() - start))
            if idle and not self._wake():
                return

    def _wake(self) -> bool:
        """One wake-up for all that finish until the loop has looked."""
        try:
            self._loop.call_soon_threadsafe(self._collect)
        except RuntimeError:  # the loop was closed under us; nobody waits any more
            return False
        return True

    def _collect(self) -> None:
        while self._finished:
            outcome, error, spent_s = self._finished.popleft()
            self._running -= 1
            # Several at once wait for one another, so this only ever lowers the opinion of a lone sync.
            self._cost_s = min(self._cost_s, spent_s)
            _tell(outcome, error)

    def _try(self, fd: int) -> OSError | None:
        try:
            self._sync(fd)
        except OSError as error:
            return error
        return None

    def close(self) -> None:
        for _ in self._threads:
            self._jobs.put(None)
        self._threads = []


def _tell(outcome: Outcome, error: OSError | None) -> None:
    if error is None:
        outcome.set_result(None)
    else:
        outcome.set_exception(error)
