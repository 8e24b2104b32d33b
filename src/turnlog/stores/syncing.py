"""fdatasync for many files at once, without making one alone pay for threads.

A hop to a thread and back costs about half of what a sync costs on a fast disk. So requests are gathered for one pass
of the event loop: a lone one on a disk that answers quickly is done right there; several go to threads, where the
file system merges them into few flushes. Many files of one file system are flushed by a single syncfs, where that is
safe: on a kernel that reports write errors there (Linux 5.8), and while next to nothing else is waiting to be written.
"""

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from queue import SimpleQueue
from typing import Any, TypeVar

INLINE_MAX_S = 0.002
"""A disk slower than this never blocks the loop."""
THREADS = 16
PASS_EVERY = 8
T = TypeVar("T")
FDATASYNC: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
"""macOS has only fsync."""


WHOLE_MIN_FILES = 16
"""From so many on, one flush of the file system is cheaper than one of each file."""
WHOLE_MAX_DIRTY_KB = 8 * 1024
"""What others wrote is flushed too, and nobody should wait for that."""


def syncfs(fd: int) -> int:
    import ctypes

    return int(ctypes.CDLL(None).syncfs(fd))


def may_flush_whole(fds: Sequence[int]) -> bool:
    if len(fds) < WHOLE_MIN_FILES or not _kernel_reports_errors():
        return False
    return len({os.fstat(fd).st_dev for fd in fds}) == 1 and _dirty_kb() <= WHOLE_MAX_DIRTY_KB


@lru_cache(maxsize=1)
def _kernel_reports_errors() -> bool:
    if sys.platform != "linux":
        return False
    major, minor = os.uname().release.split(".")[:2]
    return (int(major), int("".join(filter(str.isdigit, minor)) or 0)) >= (5, 8)


def _dirty_kb() -> int:
    """What the machine has yet to write to its disks."""
    try:
        with open("/proc/meminfo", "rb") as file:
            rows = [line.split() for line in file]
    except OSError:
        return WHOLE_MAX_DIRTY_KB + 1
    return sum(int(row[1]) for row in rows if row[0] in (b"Dirty:", b"Writeback:"))


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
    """At most one batch under way; what comes meanwhile is the next one. All of a batch hear of it together, so that
    the event loop and the threads take turns instead of fighting over the interpreter."""

    def __init__(self, sync: Callable[[int], None] = FDATASYNC) -> None:
        self._sync = sync
        self._waiting: list[tuple[int, Outcome]] = []
        self._jobs: SimpleQueue[_Batch | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._cost_s = 0.0
        self._busy = False
        self._scheduled = False
        self._streak = 0

    def request(self, fd: int) -> Outcome:
        """Done when the file's bytes are on the disk."""
        loop = asyncio.get_running_loop()
        outcome = Outcome(loop=loop)
        self._waiting.append((fd, outcome))
        # With nothing else ready to run there is nothing to gather: a pass of the loop would cost a tenth of a sync.
        # (A loop that does not show what is ready, such as uvloop's, takes the other way.) Now and then it gets its
        # pass all the same, so that a long row of appends does not keep it from its sockets.
        self._streak += 1
        alone = len(self._waiting) == 1 and not self._busy and not getattr(loop, "_ready", True)
        if alone and self._streak % PASS_EVERY:
            self._start(loop)
        else:
            self._schedule(loop)
        return outcome

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._busy and not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._start, loop)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._scheduled = False
        requests, self._waiting = self._waiting, []
        if len(requests) == 1 and self._cost_s < INLINE_MAX_S:
            fd, outcome = requests[0]
            start = time.perf_counter()
            error = self._try(fd)
            self._cost_s = 0.8 * self._cost_s + 0.2 * (time.perf_counter() - start)
            _tell(outcome, error)
            return
        self._busy = True
        batch = _Batch(loop, requests)
        batch.whole = self._sync is FDATASYNC and may_flush_whole([fd for fd, _ in requests])
        helpers = 1 if batch.whole else min(THREADS, len(requests))
        while len(self._threads) < helpers:
            thread = threading.Thread(target=self._work, name="turnlog-sync", daemon=True)
            self._threads.append(thread)
            thread.start()
        for _ in range(helpers):
            self._jobs.put(batch)

    def _work(self) -> None:
        """Takes requests of a batch until none is left; whoever finishes the last one tells the loop."""
        while (batch := self._jobs.get()) is not None:
            if batch.whole and batch.flush_whole():
                self._tell_loop(batch)
                continue
            while (fd := batch.take()) is not None:
                if batch.finished(fd, self._try(fd)):
                    self._tell_loop(batch)

    def _tell_loop(self, batch: "_Batch") -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed under us; nobody waits any more
            batch.loop.call_soon_threadsafe(self._done, batch)

    def _done(self, batch: "_Batch") -> None:
        self._busy = False
        # Several at once wait for one another, so this only ever lowers the opinion of a lone sync.
        self._cost_s = min(self._cost_s, (time.perf_counter() - batch.started) / len(batch.requests))
        for fd, outcome in batch.requests:
            _tell(outcome, batch.errors.get(fd))
        if self._waiting:
            self._schedule(batch.loop)

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


class _Batch:
    def __init__(self, loop: asyncio.AbstractEventLoop, requests: list[tuple[int, Outcome]]) -> None:
        self.loop = loop
        self.requests = requests
        self.errors: dict[int, OSError] = {}
        self.whole = False
        self.started = time.perf_counter()
        self._left = [fd for fd, _ in requests]
        self._open = len(requests)
        self._lock = threading.Lock()

    def flush_whole(self) -> bool:
        """One flush for all. False if it failed: then each file is asked, to learn which of them it concerns."""
        return syncfs(self.requests[0][0]) == 0

    def take(self) -> int | None:
        try:
            return self._left.pop()
        except IndexError:
            return None

    def finished(self, fd: int, error: OSError | None) -> bool:
        """Whether that was the last."""
        with self._lock:
            if error is not None:
                self.errors[fd] = error
            self._open -= 1
            return self._open == 0


def _tell(outcome: Outcome, error: OSError | None) -> None:
    if error is None:
        outcome.set_result(None)
    else:
        outcome.set_exception(error)
