"""Syncs one file in a thread, with as little as possible to do for the interpreter before and after the sync.

The thread takes the descriptor from a queue and answers through an eventfd that the loop watches. With
`call_soon_threadsafe`, the thread and the loop that it wakes compete for the interpreter, which takes a third as long
as a sync.

An answer has the number of its request: a loop may be closed before its answer came, and the next loop must not take
that answer for its own.
"""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

Done = Callable[[OSError | None], None]


class SingleSync:
    def __init__(self, sync: Callable[[int], None]) -> None:
        self._sync = sync
        self._requests: SimpleQueue[tuple[int, int] | None] = SimpleQueue()
        self._answers: deque[tuple[int, OSError | None]] = deque()
        self._eventfd = -1
        self._loop: asyncio.AbstractEventLoop | None = None
        self._number = 0
        self._done: Done | None = None
        self._closed = False
        self._pid = os.getpid()

    def start(self, loop: asyncio.AbstractEventLoop, fd: int, done: Done) -> bool:
        """Calls `done` on the loop. One at a time. False: it is not possible here, and nothing was started."""
        if self._pid != os.getpid():
            self._forget_parent()
        if self._loop is not loop and not self._listen(loop):
            return False
        self._number += 1
        self._done = done
        self._requests.put((self._number, fd))
        return True

    def _listen(self, loop: asyncio.AbstractEventLoop) -> bool:
        if self._closed or not hasattr(os, "eventfd"):  # only Linux has it
            return False
        try:
            if self._eventfd < 0:
                self._eventfd = self._begin()
            self._stop_listening()
            loop.add_reader(self._eventfd, self._answered)
        except (OSError, RuntimeError, NotImplementedError):  # no descriptor, no thread, or not with this loop
            return False
        self._loop = loop
        return True

    def _begin(self) -> int:
        eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            threading.Thread(target=self._work, args=(eventfd,), name="turnlog-sync", daemon=True).start()
        except RuntimeError:
            os.close(eventfd)
            raise
        return eventfd

    def _forget_parent(self) -> None:
        """In a forked child: the thread is the parent's, and its loop must not lose its reader."""
        self._requests = SimpleQueue()
        self._answers = deque()
        self._eventfd, self._loop, self._done = -1, None, None
        self._pid = os.getpid()

    def _stop_listening(self) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # it is closed
                self._loop.remove_reader(self._eventfd)
            self._loop = None

    def _work(self, eventfd: int) -> None:
        """Only this thread closes the eventfd: after a close its number may belong to a transcript."""
        while (request := self._requests.get()) is not None:
            number, fd = request
            error = None
            try:
                self._sync(fd)
            except OSError as failure:
                error = failure
            self._answers.append((number, error))
            os.eventfd_write(eventfd, 1)
        os.close(eventfd)

    def _answered(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._eventfd)
        while self._answers:
            number, error = self._answers.popleft()
            if number == self._number and (done := self._done) is not None:
                self._done = None
                done(error)
        if self._closed:
            self.close()

    def close(self) -> None:
        """After the answer that is still to come."""
        if self._pid != os.getpid():
            self._forget_parent()
        self._closed = True
        if self._done is None and self._eventfd >= 0:
            self._stop_listening()
            self._eventfd = -1
            self._requests.put(None)
