"""Ctrl-C while something runs: ends that, and not the program."""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


@contextmanager
def on_interrupt(act: Callable[[], object]) -> Generator[None]:
    """Inside the block Ctrl-C calls `act`. Blocks can be nested, unlike asyncio's own signal handlers."""
    loop = asyncio.get_running_loop()

    def pass_on(number: int, frame: object) -> None:
        loop.call_soon_threadsafe(act)

    before = signal.signal(signal.SIGINT, pass_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


async def stoppable(work: Coroutine[Any, Any, T]) -> T:
    """Awaits the work; Ctrl-C cancels it and raises KeyboardInterrupt."""
    task = asyncio.create_task(work)
    try:
        with on_interrupt(task.cancel):
            return await task
    except asyncio.CancelledError:
        if not task.cancelled():
            task.cancel()
            raise
        raise KeyboardInterrupt from None
