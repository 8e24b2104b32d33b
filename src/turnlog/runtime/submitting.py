"""Calls that one thread submits to the event loop of another, for less than `call_soon_threadsafe` takes.

That method wakes the loop through a pair of sockets, which are read until nothing is left, in a callback of their own.
Here the loop watches an eventfd: one read, and what was submitted is called in the same callback. Where there is no
eventfd, or a loop cannot watch one, `call_soon_threadsafe` does the work.

The eventfd lives as long as an object that somebody may still submit to: the number of a closed one may be that of
another file.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from typing import Any, TypeAlias
from weakref import ReferenceType, WeakKeyDictionary, ref

Submit: TypeAlias = Callable[[Callable[[], object]], object]
"""Calls something in the thread of a loop, after all that was submitted before it, perhaps in an empty context. For any
thread.
"""


class SubmittedCalls:
    """It does not hold its loop: the loop holds it, until it is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Raises OSError or NotImplementedError where it is not possible."""
        self._calls: deque[Callable[[], object]] = deque()
        self._eventfd = -1
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        Context().run(loop.add_reader, self._eventfd, self._take)  # not in the first caller's, which it would keep

    def submit(self, call: Callable[[], object]) -> None:
        self._calls.append(call)
        os.eventfd_write(self._eventfd, 1)

    def _take(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._eventfd)
        calls = self._calls
        if len(calls) == 1:
            calls.popleft()()
            return
        loop = asyncio.get_running_loop()
        while calls:  # each in a callback of its own: the error of one does not concern the others
            loop.call_soon(calls.popleft())

    def __del__(self) -> None:
        if self._eventfd >= 0:
            os.close(self._eventfd)


def submitted_calls(loop: asyncio.AbstractEventLoop) -> SubmittedCalls | None:
    """None: only `call_soon_threadsafe` is possible."""
    if not hasattr(os, "eventfd"):  # only Linux has it
        return None
    try:
        return SubmittedCalls(loop)
    except (OSError, NotImplementedError):
        return None


class EngineLoop(asyncio.SelectorEventLoop):
    """A loop that a forked child neither uses nor closes: its descriptors are shared with the parent."""

    def __init__(self) -> None:
        super().__init__()
        self.entered: list[Any] = []
        """What the engine holds open in this loop, newest last."""
        self._process = os.getpid()
        self._calls = submitted_calls(self)

    def submit(self, call: Callable[[], object]) -> None:
        calls = self._calls
        if calls is None:
            self.call_soon_threadsafe(call)
        else:
            calls.submit(call)

    def close(self) -> None:
        super().close()
        self._calls = None

    def __del__(self) -> None:
        if self._process == os.getpid():
            super().__del__()


_known: "WeakKeyDictionary[asyncio.AbstractEventLoop, ReferenceType[SubmittedCalls] | None]" = WeakKeyDictionary()
"""Weak on both sides: a call that is never taken, because its loop was closed, holds that loop."""


def submit_to(loop: asyncio.AbstractEventLoop) -> Submit:
    """For the loop that runs in this thread. Other threads may use what it returns."""
    try:
        known = _known[loop]
        calls = known and known()
    except KeyError:
        calls = submitted_calls(loop)
        _known[loop] = calls and ref(calls)
    return loop.call_soon_threadsafe if calls is None else calls.submit
