"""What all public methods of a store share: arguments are checked, a closed store says so, disk errors are mapped.

`@store`, `@ledger` and `@memory` wrap all public methods of a class at once. So no store can forget a method, and no
OSError (a full disk, too many open files) gets through.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar

import msgspec

from ..core import names
from ..core.arguments import Checker, public_methods
from ..core.content import check_json, encodable
from ..errors import StoreUnavailable, UsageError
from .disk.files import unavailable

T = TypeVar("T")
_LEDGER = ("get", "put_if_absent", "cas", "list", "delete")
_VALUES = ("value", "old", "new")
"""The parameters of a ledger that hold facts."""
_KEYS = ("key", "prefix", "after")
_NAMES = ("space", "agent", "owner")
"""The parameters of ledgers and memories that every store must be able to hold as they are."""


def store(cls: type[T]) -> type[T]:
    """Closing twice is allowed; every other call after a close is refused, also by its ledger."""

    def end(self: Any) -> None:
        self._is_closed = self.ledger._is_closed = True

    return _closable(cls, Checker, end)


def memory(cls: type[T]) -> type[T]:
    """The same for the global memory, which has no ledger."""

    def end(self: Any) -> None:
        self._is_closed = True

    return _closable(cls, _NameChecker, end)


def _closable(cls: type[T], checker: type[Checker], end: Callable[[Any], None]) -> type[T]:
    methods = dict(public_methods(cls))
    methods.pop("__init__", None)
    close = methods.pop("close")
    cls._is_closed = False  # type: ignore[attr-defined]
    for name, method in methods.items():
        setattr(cls, name, _guarded(method, checker(method, name=name, method=True)))

    @wraps(close)
    async def close_once(self: Any) -> None:
        if not self._is_closed:
            try:
                await close(self)
            finally:
                end(self)

    cls.close = close_once  # type: ignore[attr-defined]
    return cls


def ledger(cls: type[T]) -> type[T]:
    """Names and facts may come from outside, such as the ids of a platform: what no store can hold is replaced."""
    methods = dict(public_methods(cls))
    cls._is_closed = False  # type: ignore[attr-defined]
    for name in _LEDGER:
        method = methods[name]
        check = _LedgerChecker(method, name=f"ledger.{name}", method=True)
        setattr(cls, name, _guarded(method, check, check.storable))
    return cls


class _NameChecker(Checker):
    def __call__(self, args: Sequence[Any], kwargs: Any) -> None:
        super().__call__(args, kwargs)
        for name, value in (*zip(self.positional, args, strict=False), *kwargs.items()):
            self.check_value(name, value)

    def check_value(self, name: str, value: Any) -> None:
        if name in _NAMES and isinstance(value, str) and names.escaped(value) != value:
            raise UsageError(f"{name} contains a NUL character or a lone surrogate", hint="Escape it, or leave it out.")


class _LedgerChecker(_NameChecker):
    def check_value(self, name: str, value: Any) -> None:
        super().check_value(name, value)
        if name in _VALUES:
            check_json(value, name)
        elif name == "limit" and value < 0:
            raise UsageError("limit cannot be negative")

    def storable(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        given = [_storable(name, value) for name, value in zip(self.positional, args, strict=False)]
        return given, {name: _storable(name, value) for name, value in kwargs.items()}


def _storable(name: str, value: Any) -> Any:
    if name in _KEYS:
        return names.escaped(value)
    if name not in _VALUES:
        return value
    try:
        msgspec.json.encode(value)
    except UnicodeEncodeError:
        return encodable(value)
    return value


def _closed() -> StoreUnavailable:
    return StoreUnavailable("the store is closed", hint="Open it again.")


def _guarded(
    method: Callable[..., Any], check: Checker, prepare: Callable[..., tuple[Any, Any]] | None = None
) -> Callable[..., Any]:
    what = f"{method.__name__} failed"
    if inspect.iscoroutinefunction(method):

        @wraps(method)
        async def later(self: Any, *args: Any, **kwargs: Any) -> Any:
            check(args, kwargs)
            if self._is_closed:
                raise _closed()
            if prepare is not None:
                args, kwargs = prepare(args, kwargs)
            try:
                return await method(self, *args, **kwargs)
            except OSError as error:
                raise unavailable(what, error) from error

        return later

    @wraps(method)
    def now(self: Any, *args: Any, **kwargs: Any) -> Any:
        check(args, kwargs)
        if self._is_closed:
            raise _closed()
        if prepare is not None:
            args, kwargs = prepare(args, kwargs)
        try:
            return method(self, *args, **kwargs)
        except OSError as error:
            raise unavailable(what, error) from error

    return now
