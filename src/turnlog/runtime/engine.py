"""One event loop in a thread of its own, for callers that have no loop, another one, or many.

    caller's thread                         engine's thread (daemon)
    engine.run(coroutine) ── waits ───────▶ a task of the loop ──▶ result or error back to the caller
    await engine.arun(coroutine)            the same; the caller's own loop goes on meanwhile
    for item in engine.iterate(items)       one task for each item
    engine.enter(manager)                   one task that holds the manager open until it is exited

The loop starts at the first use and ends with `close()`, or when the interpreter exits; then everything that was
entered is exited, newest first. A forked child has no such thread: its first use starts a new loop, and nothing of the
parent's is touched. Blocking works inside a running loop too, because the work is done in the other thread. The one
caller that cannot wait is code that runs in the engine's own thread; it gets a UsageError instead of a deadlock.
"""

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from contextvars import Context, copy_context
from functools import cache, partial
from importlib import import_module
from typing import Any, Generic, Self, TypeVar

from ..errors import UsageError
from . import jobs
from .jobs import Job, SettledJob
from .submitting import EngineLoop as EngineLoop

EXIT_S = 30.0
"""How long the end of the interpreter waits for objects that are still open."""

T = TypeVar("T")
J = TypeVar("J")
_END = object()
_engines: "weakref.WeakSet[Engine]" = weakref.WeakSet()
_inherited: list[object] = []
"""What belongs to the parent of a forked child. It is kept, because closing it here would disturb the parent."""


class Held(Generic[T]):
    """An async context manager that is open in a task of its own, from its entry to its exit.

    Some managers must be exited by the task that entered them. That task does both, so a caller may exit the manager
    from any task.
    """

    def __init__(self, manager: AbstractAsyncContextManager[T]) -> None:
        self._manager = manager
        self._leaving = asyncio.Event()
        self._ready: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live())
        self.value: T

    async def ready(self) -> Self:
        try:
            self.value = await asyncio.shield(self._ready)
        except asyncio.CancelledError:
            self._task.cancel()
            await asyncio.wait({self._task})
            raise
        return self

    async def _live(self) -> None:
        try:
            async with self._manager as value:
                self._ready.set_result(value)
                await self._leaving.wait()
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)
            self._ready.exception()  # marks it as retrieved: perhaps nobody waits any more

    async def leave(self) -> None:
        """Exits the manager; a second call waits for the first. For code that runs in the same loop."""
        self._leaving.set()
        await asyncio.shield(self._task)


class Entered(Held[T]):
    """An async context manager that an engine holds open."""

    def __init__(self, engine: "Engine", manager: AbstractAsyncContextManager[T]) -> None:
        super().__init__(manager)
        self._engine = engine

    @property
    def is_open(self) -> bool:
        """Whether it can be used: not exited, and not entered by the parent of a forked child."""
        return not self._task.done() and self._engine.owns(self._task.get_loop())

    def exit(self) -> None:
        """Exits the manager and waits until that is done; nothing happens where it is not open."""
        if self.is_open:
            self._engine.run(self.leave())

    async def aexit(self) -> None:
        """The same for asynchronous callers."""
        if self.is_open:
            await self._engine.arun(self.leave())


class Engine:
    """An event loop in a daemon thread. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # garbage collection may close an iterator while its thread holds the lock
        self._loop: EngineLoop | None = None
        self._thread: threading.Thread | None = None
        _engines.add(self)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs it in the engine and waits for its result.

        An exception that comes to the waiting thread, such as KeyboardInterrupt, cancels the coroutine and is raised
        when the coroutine has ended.
        """
        if self._is_here():
            coroutine.close()
            raise UsageError(
                "this code runs in Turnlog's own event loop, which cannot wait for itself",
                hint="Use the asynchronous API here, or call it from another thread.",
            )
        job = self._job(coroutine)
        try:
            return job.outcome.result()
        except BaseException:
            if not job.outcome.done():
                job.cancel()
                job.outcome.exception()  # waits; another interruption ends the waiting
            raise

    async def arun(
        self,
        coroutine: Coroutine[Any, Any, T],
        *,
        cancel: bool = False,
        settle: bool = False,
        in_place_s: float = 0,
        at_once: Callable[[], T | None] | None = None,
    ) -> T:
        """The same for asynchronous callers, under asyncio or trio.

        A caller that is cancelled gets the cancellation when the outcome is known: the coroutine goes on to its end, or
        is cancelled too, with `cancel` or by a second cancellation of the caller. `settle`: however often the caller is
        cancelled, the coroutine goes on to its end. `in_place_s`: first waits that long without giving way to other
        tasks of the caller's loop, for work that is done sooner than the loop would come back to it. `at_once`, with
        `settle`: may give the result without a task; None means that it cannot, and then the coroutine runs.
        """
        if self._is_here():
            return await coroutine
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return await self._run_for_trio(coroutine, in_place_s)
        if settle and not in_place_s:
            return await self._begun(lambda loop, work: SettledJob(loop, work, at_once), coroutine).settled()
        job = self._job(coroutine)
        if in_place_s and job.ends_within(in_place_s):
            return job.outcome.result()
        outcome = asyncio.wrap_future(job.outcome)
        try:
            return await asyncio.shield(outcome)
        except asyncio.CancelledError:
            await jobs.known(outcome, job, cancel=cancel, settle=settle)
            raise

    async def _run_for_trio(self, coroutine: Coroutine[Any, Any, T], in_place_s: float) -> T:
        in_thread = import_module("trio.to_thread").run_sync
        if not in_place_s:
            try:
                return await in_thread(self.run, coroutine)
            finally:
                coroutine.close()  # a caller that was cancelled before gets no thread
        job = self._job(coroutine)
        return job.outcome.result() if job.ends_within(in_place_s) else await in_thread(job.outcome.result)

    def iterate(self, items: AsyncIterator[T]) -> Generator[T]:
        """The items one by one, for a `for` loop. Leaving the loop closes the iterator."""
        try:
            while (item := self.run(_next(items))) is not _END:
                yield item
        finally:
            self._abandon(items)

    def enter(self, manager: AbstractAsyncContextManager[T]) -> Entered[T]:
        """Enters it in the engine, where it stays open until `exit()` or the end of the engine."""
        return self.run(self._enter(manager))

    async def aenter(self, manager: AbstractAsyncContextManager[T]) -> Entered[T]:
        """The same for asynchronous callers."""
        return await self.arun(self._enter(manager), cancel=True)

    async def _enter(self, manager: AbstractAsyncContextManager[T]) -> Entered[T]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, EngineLoop)
        entered = Entered(self, manager)
        loop.entered = [*(one for one in loop.entered if one.is_open), entered]
        return await entered.ready()

    def owns(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether this is the loop that runs now: not that of a parent process, nor one that was closed."""
        return loop is self._loop

    def close(self, within_s: float | None = None) -> None:
        """Exits everything that was entered, cancels what still runs, and ends the thread. A later use starts anew.

        `within_s`: gives up waiting after this time; the thread does not keep the interpreter alive.
        """
        if self._is_here():
            raise UsageError("the engine cannot be closed from its own thread", hint="Close it from another thread.")
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
            if loop is None or thread is None:
                return
            # Jobs are submitted under the lock, so all of them are tasks by the time this one runs.
            loop.submit(partial(_spawn, loop, partial(_end, loop), copy_context()))
        thread.join(within_s)

    def _is_here(self) -> bool:
        return threading.current_thread() is self._thread

    def _job(self, coroutine: Coroutine[Any, Any, T]) -> Job[T]:
        return self._begun(Job, coroutine)

    def _begun(self, kind: Callable[[EngineLoop, Coroutine[Any, Any, T]], J], coroutine: Coroutine[Any, Any, T]) -> J:
        try:
            with self._lock:
                return kind(self._loop or self._started(), coroutine)
        except BaseException:
            coroutine.close()
            raise

    def _started(self) -> EngineLoop:
        loop = EngineLoop()
        thread = threading.Thread(target=_work, args=(loop,), name="turnlog-engine", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the interpreter is exiting, or the system has no thread left
            loop.close()
            raise jobs.closed(f"no event loop can be started: {error}") from error
        self._loop, self._thread = loop, thread
        atexit.unregister(_close_all)
        atexit.register(_close_all)
        return loop

    def _abandon(self, items: AsyncIterator[Any]) -> None:
        """Closes an iterator without waiting: a loop may be left in any thread, also by garbage collection."""
        close: Callable[[], Awaitable[Any]] | None = getattr(items, "aclose", None)
        if close is not None:
            self.spawn(partial(_closing, close))

    def spawn(self, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs it without waiting, if the loop still runs. For garbage collection, which may come in any thread."""
        with self._lock:
            if self._loop is not None:
                self._loop.submit(partial(_spawn, self._loop, make, copy_context()))

    def forget(self) -> None:
        """In a forked child: leaves everything to the parent."""
        _inherited.append((self._loop, self._thread))
        self._lock = threading.RLock()
        self._loop = self._thread = None


@cache
def shared() -> Engine:
    """The engine of this process, which the synchronous API and the adapters share."""
    return Engine()


def _work(loop: EngineLoop) -> None:
    asyncio.set_event_loop(loop)
    while True:
        try:
            loop.run_forever()
            break
        except (KeyboardInterrupt, SystemExit):
            continue  # the task that raised it has ended, and its caller gets it; all the others go on
    loop.close()


def _spawn(loop: asyncio.AbstractEventLoop, make: Callable[[], Coroutine[Any, Any, None]], context: Context) -> None:
    task = loop.create_task(make(), context=context)
    _running.add(task)  # the loop itself keeps only weak references to its tasks
    task.add_done_callback(_running.discard)


_running: set[asyncio.Task[None]] = set()


async def _end(loop: EngineLoop) -> None:
    while loop.entered:
        await asyncio.wait({asyncio.ensure_future(loop.entered.pop().leave())})
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in others:
            task.cancel()
        await asyncio.wait(others)
    await loop.shutdown_asyncgens()
    loop.stop()


async def _next(items: AsyncIterator[T]) -> Any:
    return await anext(items, _END)


async def _closing(close: Callable[[], Awaitable[Any]]) -> None:
    await close()


def _close_all() -> None:
    for engine in list(_engines):
        engine.close(EXIT_S)


def _forget_in_child() -> None:
    for engine in list(_engines):
        engine.forget()


os.register_at_fork(after_in_child=_forget_in_child)
