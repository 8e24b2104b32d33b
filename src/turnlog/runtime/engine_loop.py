"""The event loop of the engine, which a calling thread may drive for a moment in place of the engine's own thread.

    calling thread                                  the engine's thread
                                                    waits for events, without the turn
    takes the turn and runs the steps of its call
    gives the turn back; most calls have ended      goes on with a call that still waits for something

Passing a call to another thread and its result back costs as much as a short append, and more on a busy machine. Who
runs callbacks of the loop has its turn, so no two threads ever run any at once. A thread takes the turn only while the
loop has nothing else to do; otherwise the call is passed to the engine's thread.

Signals are handled in the main thread, between any two of its instructions, and a handler may raise. In the engine's
thread no call is ever cut short in that way. So while the main thread drives the loop, handlers are called afterwards.
"""

import asyncio
import os
import selectors
import signal
import sys
import threading
from asyncio.events import _get_running_loop, _set_running_loop  # pyright: ignore[reportPrivateUsage]
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .engine import Entered

MAY_DRIVE = sys.version_info < (3, 14)
"""From 3.14 on a thread has one current task for all its loops."""
STEPS_MAX = 64
"""A call that takes more steps is continued by the engine's thread."""
# Those of the module `signal` itself try to make an enumeration member of each handler, which costs more than a call.
_signal = import_module("_signal")
_handler_of: Callable[[int], Any] = _signal.getsignal
_handle_by: Callable[[int, Any], Any] = _signal.signal
_SIGNALS = tuple(
    int(getattr(signal, name))
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGVTALRM", "SIGPROF")
    if hasattr(signal, name)
)


class _Turn:
    """Who runs callbacks of the loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engine_waits = False
        self.release = self._lock.release

    @property
    def is_taken(self) -> bool:
        return self._engine_waits or self._lock.locked()

    def take(self) -> None:
        """For the engine's thread, which comes first."""
        self._engine_waits = True
        self._lock.acquire()
        self._engine_waits = False

    def try_take(self) -> bool:
        return self._lock.acquire(blocking=False)


class _Selector(selectors.DefaultSelector):
    """Waits for events without the turn."""

    def __init__(self, turn: _Turn) -> None:
        super().__init__()
        self._turn = turn

    def select(self, timeout: float | None = None) -> Any:
        self._turn.release()
        try:
            return super().select(timeout)
        finally:
            self._turn.take()


class EngineLoop(asyncio.SelectorEventLoop):
    """A loop that a forked child neither uses nor closes: its descriptors are shared with the parent."""

    if TYPE_CHECKING:  # how asyncio keeps what is to be run
        _ready: deque[Any]
        _scheduled: list[Any]

    def __init__(self) -> None:
        self._turn = _Turn()
        super().__init__(_Selector(self._turn))
        self.entered: list[Entered[Any]] = []
        self.another_waits = False
        """Whether the thread that drives the loop now has an event loop of its own, which waits meanwhile."""
        self.is_ending = False
        self._process = os.getpid()

    def __del__(self) -> None:
        if self._process == os.getpid():
            super().__del__()

    def run_forever(self) -> None:
        self._turn.take()
        try:
            super().run_forever()
        finally:
            self._turn.release()

    def drive(self, start: Callable[[], object], has_ended: Callable[[], bool], signals: "LateSignals") -> bool:
        """Calls `start` in this thread, and then what becomes ready, until the call has ended or waits for something.

        False if that is not possible now, and nothing was called. `signals`: takes those that arrive meanwhile.
        """
        if not MAY_DRIVE or self._turn.is_taken:
            return False
        with signals:
            return self._turn.try_take() and self._drive(start, has_ended)

    def _drive(self, start: Callable[[], object], has_ended: Callable[[], bool]) -> bool:
        must_wake = False
        try:
            if self._ready or self.is_ending or not self.is_running():
                return False
            timers = len(self._scheduled)
            with self._driven_here():
                start()
                self._run_ready(has_ended)
            must_wake = not has_ended() or bool(self._ready) or len(self._scheduled) != timers
        finally:
            self._turn.release()
            if must_wake:
                self.call_soon_threadsafe(_nothing)
        return True

    def _run_ready(self, has_ended: Callable[[], bool]) -> None:
        for _ in range(STEPS_MAX):
            if has_ended() or not self._ready:
                return
            handle = self._ready.popleft()
            if not handle.cancelled():
                try:
                    handle._run()
                except (KeyboardInterrupt, SystemExit):
                    continue  # the task that raised it has ended, and its caller gets it

    @contextmanager
    def _driven_here(self) -> Generator[None]:
        own = _get_running_loop()
        self.another_waits = own is not None
        _set_running_loop(self)
        try:
            yield
        finally:
            _set_running_loop(own)
            self.another_waits = False

    def _check_thread(self) -> None:
        """In asyncio's debug mode: whoever has the turn may use the loop."""
        if _get_running_loop() is not self:
            super()._check_thread()  # type: ignore[misc]


class LateSignals:
    """Within it, handlers of signals are not called in this thread; `call` does that afterwards."""

    def __init__(self) -> None:
        self._arrived: list[tuple[_LateHandler, int, Any]] = []
        self._replaced: list[tuple[int, _LateHandler]] = []

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            handler = _handler_of(number)
            if callable(handler):
                late = _LateHandler(handler, self._arrived)
                self._replaced.append((number, late))
                _handle_by(number, late)

    def __exit__(self, *_error: object) -> None:
        for _, late in self._replaced:
            late.is_late = False
        for number, late in self._replaced:
            _handle_by(number, late.handler)

    def call(self) -> None:
        while self._arrived:
            late, number, frame = self._arrived.pop(0)
            late.handler(number, frame)


class _LateHandler:
    def __init__(self, handler: Any, arrived: "list[tuple[_LateHandler, int, Any]]") -> None:
        self.handler = handler
        self.is_late = True
        """If not, it acts as the handler itself: one of the others may have raised while they were put back."""
        self._arrived = arrived

    def __call__(self, number: int, frame: Any) -> None:
        if self.is_late:
            self._arrived.append((self, number, frame))
        else:
            self.handler(number, frame)


def _nothing() -> None:
    """Wakes the loop."""
