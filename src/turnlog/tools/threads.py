"""Blocking functions beside the event loop.

Not asyncio.to_thread: its threads are few and shared with the stores, and both the loop and the interpreter wait for
them at the end, so that one hanging tool would stop everybody and the exit. Here every call has a daemon thread of
its own. Nothing can stop a thread; one whose caller has gone is left alone, and counted.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from ..errors import Busy

ABANDONED_MAX = 16
"""Threads of one tool that never came back. Beyond it the tool is broken, and every further call would cost memory."""

T = TypeVar("T")


class Threads:
    """The threads of one tool."""

    def __init__(self) -> None:
        self._abandoned: set[threading.Thread] = set()

    async def call(self, function: Callable[[], T]) -> T:
        self._abandoned = {thread for thread in self._abandoned if thread.is_alive()}
        if len(self._abandoned) >= ABANDONED_MAX:
            raise Busy(f"{ABANDONED_MAX} earlier calls have not come back", hint="Do without this tool.")
        outcome = _Outcome(function)
        thread = threading.Thread(target=outcome.find, name="tool", daemon=True)
        thread.start()
        try:
            await outcome.known
        except asyncio.CancelledError:
            self._abandoned.add(thread)
            raise
        return outcome.give()


class _Outcome(Generic[T]):
    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._variables = contextvars.copy_context()
        self._loop = asyncio.get_running_loop()
        self.known: asyncio.Future[None] = self._loop.create_future()
        self._values: list[T] = []
        self._error: BaseException | None = None

    def find(self) -> None:
        try:
            self._values.append(self._variables.run(self._function))
        except BaseException as error:
            # SystemExit too: it would end this thread without a word, and its caller would wait for nothing.
            self._error = error
        try:
            self._loop.call_soon_threadsafe(self._settle)
        except RuntimeError:
            pass  # the loop is closed: nobody is waiting any more

    def _settle(self) -> None:
        if not self.known.done():
            self.known.set_result(None)

    def give(self) -> T:
        match self._error:
            case None:
                return self._values[0]
            case Exception():
                raise self._error
            case _:
                # Raised in the loop's thread it would look like a person's Ctrl-C, which never reaches a tool's thread.
                raise RuntimeError(f"{type(self._error).__name__}: {self._error}") from self._error
