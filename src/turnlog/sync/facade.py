"""Runs calls of the synchronous objects in the engine, and says what is wrong if they cannot run there."""

import os
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

from ..errors import StoreUnavailable
from ..library import Turnlog
from ..runtime.engine import Engine, Entered

T = TypeVar("T")


class EngineDoor:
    """One open Turnlog in the engine. All synchronous objects that it leads to share one of these."""

    def __init__(self, engine: Engine, entered: Entered[Turnlog]) -> None:
        self._engine = engine
        self._entered = entered
        self._process = os.getpid()

    @property
    def turnlog(self) -> Turnlog:
        return self._entered.value

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Waits for the result."""
        try:
            self._check_open()
        except StoreUnavailable:
            coroutine.close()
            raise
        return self._engine.run(coroutine)

    def call(self, function: Callable[[], T]) -> T:
        """Calls a function that is not async in the thread of the loop, where everything else happens."""
        return self.run(_called(function))

    def iterate(self, items: AsyncIterator[T]) -> Generator[T]:
        """The items one by one."""
        self._check_open()
        yield from self._engine.iterate(items)

    @contextmanager
    def enter(self, manager: AbstractAsyncContextManager[T]) -> Generator[T]:
        """Enters it in the engine, until the end of the block."""
        self._check_open()
        entered = self._engine.enter(manager)
        try:
            yield entered.value
        finally:
            entered.exit()

    def close(self) -> None:
        """Ends the running turns and closes the store. A second call does nothing."""
        self._entered.exit()

    def _check_open(self) -> None:
        if os.getpid() != self._process:
            raise StoreUnavailable(
                "this Turnlog was opened by the parent of this process",
                hint="Call turnlog.connect() in this process; both can use the same store.",
            )
        if not self._entered.is_open:
            raise StoreUnavailable("Turnlog is closed", hint="Open it again with turnlog.connect().")


async def _called(function: Callable[[], T]) -> T:
    return function()
