"""A coroutine that runs in the loop of an engine (`engine`), and how its callers wait for it."""

import asyncio
import contextvars
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, TypeVar

from ..errors import StoreUnavailable
from .uncancellable import Uncancellable

T = TypeVar("T")


class Job(Generic[T]):
    """A coroutine that runs in the engine. `outcome` is set when it has ended, never before."""

    def __init__(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> None:
        self.outcome: Future[T] = Future()
        self.outcome.set_running_or_notify_cancel()  # from here on nobody else can cancel it
        self._loop = loop
        self._coroutine = coroutine
        self._context = contextvars.copy_context()
        self._task: asyncio.Task[None] | None = None
        loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        self._task = self._loop.create_task(self._work(), context=self._context)
        self._task.add_done_callback(self._end)

    async def _work(self) -> None:
        """Says the outcome itself: a callback of the task is called one pass of the loop later."""
        try:
            result = await self._coroutine
        except BaseException as error:  # noqa: BLE001 - the caller gets it, whatever it is
            self.outcome.set_exception(_ended() if isinstance(error, asyncio.CancelledError) else error)
        else:
            self.outcome.set_result(result)

    def _end(self, task: "asyncio.Task[None]") -> None:
        if not self.outcome.done():  # cancelled before its first step
            self._coroutine.close()
            self.outcome.set_exception(_ended())

    def ends_within(self, seconds: float) -> bool:
        """Waits for the end, but no longer than this."""
        try:
            self.outcome.exception(seconds)
        except TimeoutError:
            return False
        return True

    def cancel(self) -> None:
        self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


async def settled(job: Job[T]) -> T:
    """The outcome; a cancellation of the caller comes after it. A future that cannot be cancelled takes one pass of the
    caller's loop less than a shielded one.
    """
    loop = asyncio.get_running_loop()
    waiting = Uncancellable(loop=loop)

    def tell(outcome: Future[T]) -> None:
        with suppress(RuntimeError):  # the caller's loop was closed meanwhile
            loop.call_soon_threadsafe(waiting.set_result, None)

    job.outcome.add_done_callback(tell)
    await waiting
    return job.outcome.result()


async def known(outcome: "asyncio.Future[Any]", job: Job[Any], *, cancel: bool) -> None:
    while not outcome.done():
        if cancel:
            job.cancel()
        try:
            await asyncio.wait({outcome})
        except asyncio.CancelledError:
            cancel = True
    outcome.exception()  # marks it as retrieved


def _ended() -> StoreUnavailable:
    return closed("Turnlog was closed before the call ended")


def closed(message: str) -> StoreUnavailable:
    return StoreUnavailable(message, hint="Open it again.")
