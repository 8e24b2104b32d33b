"""Checks the arguments of async functions and whole classes of the public API, as in `core.arguments`."""

import inspect
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from ..core.arguments import Checker, checked_by, public_methods

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def checked_async(function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """The error is raised when the call is awaited."""
    return _checked_async(Checker(function), function, skipped=0)


def _checked_async(check: Checker, function: Callable[P, Awaitable[R]], *, skipped: int) -> Callable[P, Awaitable[R]]:
    @wraps(function)
    async def later(*args: P.args, **kwargs: P.kwargs) -> R:
        check(args[skipped:], kwargs)
        return await function(*args, **kwargs)

    return later


def checked_methods(cls: type[T]) -> type[T]:
    """A class whose constructor and public methods are checked."""
    for name, function in public_methods(cls):
        check = Checker(function, name=f"{cls.__name__}.{name}", method=True)
        wrap = _checked_async if inspect.iscoroutinefunction(function) else checked_by
        setattr(cls, name, wrap(check, function, skipped=1))
    return cls
