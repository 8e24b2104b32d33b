"""Syncs many files at once, never on an event loop that has other work.

Requests of one pass of the event loop are collected and go to threads, where the file system merges them into few
flushes. Only on the engine's own loop, where nothing but calls of stores runs, a single request on a fast disk is done
at once: passing it to a thread and back costs about half as much as the sync. Many files of one file system are flushed
by a single syncfs if that is safe: on a kernel that reports write errors there (Linux 5.8), and while almost nothing
else waits to be written.
"""

import asyncio
import contextlib
import errno
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from queue import SimpleQueue
from typing import TypeVar

from ...runtime.engine import EngineLoop
from ...runtime.uncancellable import Uncancellable as Uncancellable
from .single_sync import SingleSync

ENGINE_INLINE_MAX_S = 0.02
"""A disk slower than this never blocks the loop of the engine. Only calls of stores run there, and those of one store
wait for one another anyway; two changes of threads less for each call are worth more.
"""
RECENT_COSTS = 16
"""So a disk that has become slow is noticed after twelve pieces of work, and one that is fast again after five."""
THREADS = 16
PASS_EVERY = 8
T = TypeVar("T")
FDATASYNC: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
"""macOS has only fsync."""


WHOLE_MIN_FILES = 16
"""From this number on, one flush of the file system is cheaper than one of each file."""
WHOLE_MAX_DIRTY_KB = 8 * 1024
"""Data of other programs would be flushed too, and should not delay an append."""


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
    """The amount of data that the machine has yet to write to its disks."""
    try:
        with open("/proc/meminfo", "rb") as file:
            rows = [line.split() for line in file]
    except OSError:
        return WHOLE_MAX_DIRTY_KB + 1
    return sum(int(row[1]) for row in rows if row[0] in (b"Dirty:", b"Writeback:"))


class RecentCost:
    """How long a piece of work takes on this disk, judged by the last few: a quarter of them was quicker.

    A mean would not do. One checkpoint, or one moment in which other programs had the processor, takes as long as fifty
    appends; after it the mean is above any limit for a while, and every append would pass through a thread although the
    disk is as fast as before. On a busy machine that happens all the time, and each change of threads waits for the
    processor once more. Load only adds to what a disk takes, so the quicker ones tell how fast the disk is.
    """

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=RECENT_COSTS)
        self.typical_s = 0.0
        """0 before anything is known."""

    def add(self, seconds: float) -> None:
        """The value at a quarter stays what it is while none comes or goes that changes how many are below it."""
        recent, typical = self._recent, self.typical_s
        oldest = recent[0] if len(recent) == RECENT_COSTS else typical
        recent.append(seconds)
        if oldest == typical or (oldest < typical) != (seconds < typical):
            self.typical_s = sorted(recent)[len(recent) // 4]


def patience_s(loop: asyncio.AbstractEventLoop) -> float:
    """How long a single sync may block this loop: 0 for a loop that has other work."""
    return ENGINE_INLINE_MAX_S if isinstance(loop, EngineLoop) else 0.0


async def aside(work: Callable[[], T]) -> T:
    """Runs blocking work in a thread, to its end: its resources stay in use even if the caller is cancelled.

    While the interpreter exits no thread can be started; then the work is done on the spot.
    """
    loop = asyncio.get_running_loop()
    try:
        running = loop.run_in_executor(None, work)
    except RuntimeError:
        return work()
    outcome = Uncancellable(loop=loop)

    def tell(done: asyncio.Future[T]) -> None:
        if error := done.exception():
            outcome.set_exception(error)
        else:
            outcome.set_result(done.result())

    running.add_done_callback(tell)
    return await outcome


class Syncer:
    """Runs at most one batch at a time; new requests form the next batch. All requests of a batch are answered
    together, so that the event loop and the threads do not compete for the interpreter.
    """

    def __init__(self, sync: Callable[[int], None] = FDATASYNC) -> None:
        self._sync = sync
        self._waiting: list[tuple[int, Uncancellable]] = []
        self._jobs: SimpleQueue[_Batch | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._single = SingleSync(sync)
        self._cost = RecentCost()
        self._busy = False
        self._scheduled = False
        self._streak = 0

    def request(self, fd: int) -> Uncancellable:
        """Done when the file's bytes are on the disk."""
        loop = asyncio.get_running_loop()
        outcome = Uncancellable(loop=loop)
        self._waiting.append((fd, outcome))
        # If nothing else is ready to run, there is nothing to collect, and a pass of the loop would cost a tenth of a
        # sync. (A loop that does not show what is ready, such as uvloop's, always takes the pass.) Now and then the
        # loop gets its pass anyway, so that a long series of appends does not keep it from its sockets.
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
        if len(requests) == 1 and self._cost.typical_s < patience_s(loop):
            fd, outcome = requests[0]
            start = time.perf_counter()
            error = self._try(fd)
            self._cost.add(time.perf_counter() - start)
            _tell(outcome, error)
            return
        self._busy = True
        batch = _Batch(loop, requests)
        if len(requests) == 1 and self._single.start(loop, requests[0][0], partial(self._single_done, batch)):
            return
        batch.whole = self._sync is FDATASYNC and may_flush_whole([fd for fd, _ in requests])
        helpers = 1 if batch.whole else min(THREADS, len(requests))
        try:
            while len(self._threads) < helpers:
                thread = threading.Thread(target=self._work, name="turnlog-sync", daemon=True)
                thread.start()
                self._threads.append(thread)
        except RuntimeError as error:
            if not self._threads:
                batch.errors = dict.fromkeys([fd for fd, _ in requests], OSError(errno.EAGAIN, str(error)))
                self._done(batch)
                return
        for _ in self._threads[:helpers]:
            self._jobs.put(batch)

    def _work(self) -> None:
        """Takes requests of a batch until none is left; the thread that finishes the last one tells the loop."""
        while (batch := self._jobs.get()) is not None:
            if batch.whole and batch.flush_whole():
                self._tell_loop(batch)
                continue
            while (fd := batch.take()) is not None:
                if batch.finished(fd, self._try(fd)):
                    self._tell_loop(batch)

    def _tell_loop(self, batch: "_Batch") -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile; nobody waits any more
            batch.loop.call_soon_threadsafe(self._done, batch)

    def _single_done(self, batch: "_Batch", error: OSError | None) -> None:
        if error is not None:
            batch.errors[batch.requests[0][0]] = error
        self._done(batch)

    def _done(self, batch: "_Batch") -> None:
        self._busy = False
        # Several at once wait for one another, so this can only lower the estimate for a single sync.
        cost_s = (time.perf_counter() - batch.started) / len(batch.requests)
        if cost_s < self._cost.typical_s:
            self._cost.add(cost_s)
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
        self._single.close()


class _Batch:
    def __init__(self, loop: asyncio.AbstractEventLoop, requests: list[tuple[int, Uncancellable]]) -> None:
        self.loop = loop
        self.requests = requests
        self.errors: dict[int, OSError] = {}
        self.whole = False
        self.started = time.perf_counter()
        self._left = [fd for fd, _ in requests]
        self._open = len(requests)
        self._lock = threading.Lock()

    def flush_whole(self) -> bool:
        """Flushes all at once. False if it failed: then each file is synced, to find the one that failed."""
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


def _tell(outcome: Uncancellable, error: OSError | None) -> None:
    if error is None:
        outcome.set_result(None)
    else:
        outcome.set_exception(error)
