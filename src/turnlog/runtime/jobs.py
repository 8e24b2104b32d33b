"""A coroutine that runs in the loop of an engine (`engine`), and how its callers wait for it."""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, TypeVar

from ..errors import StoreUnavailable
from .submitting import EngineLoop, submit_to
from .uncancellable import Uncancellable

T = TypeVar("T")


class EngineTask(Generic[T]):
    """A coroutine in the loop of an engine. `tell` gets its result or its error when it has ended, once, there.

    `at_once` is called first, if given, outside of any task. If it gives a result or raises, the coroutine is closed.
    """

    def __init__(
        self,
        loop: EngineLoop,
        coroutine: Coroutine[Any, Any, T],
        tell: Callable[[Any, BaseException | None], None],
        at_once: Callable[[], T | None] | None = None,
    ) -> None:
        self._loop = loop
        self._coroutine = coroutine
        self._tell = tell
        self._at_once = at_once
        self._context = contextvars.copy_context()
        self._task: asyncio.Task[None] | None = None
        loop.submit(self._start)

    def _start(self) -> None:
        if self._at_once is None or not self._ends_at_once(self._at_once):
            self._task = self._loop.create_task(self._work(), context=self._context)
            self._task.add_done_callback(self._end)

    def _ends_at_once(self, at_once: Callable[[], T | None]) -> bool:
        try:
            result = self._context.run(at_once)
        except BaseException as error:  # noqa: BLE001 - the caller gets it, whatever it is
            self._tell(None, error)
        else:
            if result is None:
                return False
            self._tell(result, None)
        self._coroutine.close()
        return True

    async def _work(self) -> None:
        """Tells the outcome itself: a callback of the task would cost another pass of the loop."""
        assert self._task is not None  # this is its first step
        self._task.remove_done_callback(self._end)
        try:
            result = await self._coroutine
        except BaseException as error:  # noqa: BLE001 - the caller gets it, whatever it is
            self._tell(None, _ended() if isinstance(error, asyncio.CancelledError) else error)
        else:
            self._tell(result, None)

    def _end(self, task: "asyncio.Task[None]") -> None:
        """It was cancelled before its first step."""
        self._coroutine.close()
        self._tell(None, _ended())

    def cancel(self) -> None:
        self._loop.submit(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()


class Job(Generic[T]):
    """A coroutine that runs in the engine. `outcome` is set when it has ended, never before."""

    def __init__(self, loop: EngineLoop, coroutine: Coroutine[Any, Any, T]) -> None:
        self.outcome: Future[T] = Future()
        self.outcome.set_running_or_notify_cancel()  # from here on nobody else can cancel it
        self.cancel = EngineTask(loop, coroutine, self._tell).cancel

    def _tell(self, result: T, error: BaseException | None) -> None:
        if error is None:
            self.outcome.set_result(result)
        else:
            self.outcome.set_exception(error)

    def ends_within(self, seconds: float) -> bool:
        """Waits for the end, but no longer than this."""
        try:
            self.outcome.exception(seconds)
        except TimeoutError:
            return False
        return True


class SettledJob(Generic[T]):
    """A coroutine that runs in the engine to its end, however often its caller, a task of another loop, is cancelled.

    The caller awaits a future of its own loop, which cannot be cancelled, without the future of a `Job` in between,
    which has a lock.
    """

    def __init__(
        self, loop: EngineLoop, coroutine: Coroutine[Any, Any, T], at_once: Callable[[], T | None] | None = None
    ) -> None:
        caller = asyncio.get_running_loop()
        self._submit = submit_to(caller)
        self._waiting = Uncancellable(loop=caller)
        self._result: Any = None
        self._error: BaseException | None = None
        EngineTask(loop, coroutine, self._tell, at_once)

    def _tell(self, result: T, error: BaseException | None) -> None:
        self._result, self._error = result, error
        with suppress(RuntimeError):  # the caller's loop was closed meanwhile
            self._submit(self._known)

    def _known(self) -> None:
        self._waiting.set_result(None)

    async def settled(self) -> T:
        """The outcome; a cancellation of the caller comes after it."""
        await self._waiting
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                error = None  # its traceback holds this frame
        return self._result


async def known(outcome: "asyncio.Future[Any]", job: Job[Any], *, cancel: bool, settle: bool) -> None:
    while not outcome.done():
        if cancel:
            job.cancel()
        try:
            await asyncio.wait({outcome})
        except asyncio.CancelledError:
            cancel = not settle
    outcome.exception()  # marks it as retrieved


def _ended() -> StoreUnavailable:
    return closed("Turnlog was closed before the call ended")


def closed(message: str) -> StoreUnavailable:
    return StoreUnavailable(message, hint="Open it again.")
