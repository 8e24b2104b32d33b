"""Ctrl-C while something runs: it ends that, not the program."""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


@contextmanager
def on_interrupt(act: Callable[[], object]) -> Generator[None]:
    """Ctrl-C does this, here; afterwards what it did before. So these nest, which asyncio's own handlers do not."""
    loop = asyncio.get_running_loop()

    def pass_on(number: int, frame: object) -> None:
        loop.call_soon_threadsafe(act)

    before = signal.signal(signal.SIGINT, pass_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


async def stoppable(work: Coroutine[Any, Any, T]) -> T:
    """The same, until Ctrl-C; then KeyboardInterrupt, as in a program that waits."""
    task = asyncio.create_task(work)
    try:
        with on_interrupt(task.cancel):
            return await task
    except asyncio.CancelledError:
        if not task.cancelled():
            task.cancel()
            raise
        raise KeyboardInterrupt from None
