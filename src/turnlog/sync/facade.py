"""Makes synchronous methods of asynchronous ones, and runs them in the engine.

A method that is made here has the parameters, types and docstring of the asynchronous one, for type checkers and at run
time. Its object has the asynchronous object as `_inner` and an `EngineBridge` as `_bridge`.
"""

import inspect
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, get_args

from ..errors import StoreUnavailable
from ..library import Turnlog
from ..runtime.engine import Engine, Entered

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


class EngineBridge:
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


def waited(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """The method that waits for the result of this one."""

    def run(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._bridge.run(method(self._inner, *args, **kwargs))

    return _described(run, method)


def called(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """The method that calls this one, which is not async, in the thread of the loop."""

    def run(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._bridge.call(lambda: method(self._inner, *args, **kwargs))

    return _described(run, method)


def iterated(method: Callable[Concatenate[Any, P], AsyncIterator[T]]) -> Callable[Concatenate[Any, P], Generator[T]]:
    """The method that gives the items of this one."""

    def run(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Generator[T]:
        return self._bridge.iterate(method(self._inner, *args, **kwargs))

    return _described(run, method, Generator)


def entered(
    method: Callable[Concatenate[Any, P], AbstractAsyncContextManager[T]],
) -> Callable[Concatenate[Any, P], AbstractContextManager[T]]:
    """The method for `with` where this one is for `async with`."""

    def run(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> AbstractContextManager[T]:
        return self._bridge.enter(method(self._inner, *args, **kwargs))

    return _described(run, method, AbstractContextManager)


def wrapped(
    kind: Callable[[EngineBridge, S], T], method: Callable[Concatenate[Any, P], S]
) -> Callable[Concatenate[Any, P], T]:
    """The method that gives what this one gives as a synchronous object of this kind."""

    def run(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return kind(self._bridge, method(self._inner, *args, **kwargs))

    return _described(run, method, kind)


def _described(run: Callable[P, T], method: Callable[..., Any], returns: Any = None) -> Callable[P, T]:
    """With the name, the parameters and the words of the method; `returns`: what it gives instead, or a container of
    the same items.
    """
    described = wraps(method)(run)
    described.__doc__ = without_await(method.__doc__)
    if returns is not None:
        items = get_args(method.__annotations__["return"])[:1]
        found = returns[items] if items else returns
        described.__annotations__ = {**method.__annotations__, "return": found}
        described.__dict__["__signature__"] = inspect.signature(method).replace(return_annotation=found)
    return described


def without_await(doc: str | None) -> str | None:
    """The docstring with its example as the synchronous method is used."""
    text, example, code = (doc or "").rpartition("Example: ")
    return text + example + code.replace("await ", "").replace("async ", "") if example else doc
