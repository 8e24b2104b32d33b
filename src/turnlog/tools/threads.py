"""Runs blocking functions outside the event loop.

asyncio.to_thread does not work here: it has few threads, shared with the stores, and both the loop and the interpreter
wait for them at the end, so one hanging tool would stop everything, including the exit. Here every call has its own
daemon thread. Nothing can stop a thread; one whose caller is gone is abandoned, and counted.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from ..errors import Busy

ABANDONED_MAX = 16
"""The abandoned threads of one tool. Above this the tool is broken, and every further call would cost memory."""

T = TypeVar("T")


class Threads:
    """The threads of one tool."""

    def __init__(self) -> None:
        self._abandoned: set[threading.Thread] = set()

    async def call(self, function: Callable[[], T]) -> T:
        self._abandoned = {thread for thread in self._abandoned if thread.is_alive()}
        if len(self._abandoned) >= ABANDONED_MAX:
            raise Busy(f"{ABANDONED_MAX} earlier calls have not returned", hint="Continue without this tool.")
        outcome: Future[T] = Future()
        outcome.set_running_or_notify_cancel()  # from here on its caller may leave, but cannot cancel it
        run = partial(contextvars.copy_context().run, function)
        thread = threading.Thread(target=_run, args=(run, outcome), name="tool", daemon=True)
        thread.start()
        try:
            return await asyncio.wrap_future(outcome)
        except asyncio.CancelledError:
            self._abandoned.add(thread)
            raise


def _run(function: Callable[[], T], outcome: "Future[T]") -> None:
    try:
        outcome.set_result(function())
    except BaseException as error:  # noqa: BLE001 - the caller that waits for the thread gets the error
        # SystemExit too: it would silently end this thread, and its caller would wait forever. Raised in the loop's
        # thread it would look like Ctrl-C, which never reaches a tool's thread.
        plain = isinstance(error, Exception) and not isinstance(error, StopIteration)
        outcome.set_exception(error if plain else RuntimeError(f"{type(error).__name__}: {error}"))
