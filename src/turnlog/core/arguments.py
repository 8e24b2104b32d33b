"""Checks calls of the public API against their signatures: a wrong argument is a UsageError that names it.

Python itself accepts any value and fails where that value first breaks something, perhaps after half of the work. The
checks are made from the annotations, so a new method or parameter is covered without being listed anywhere.

`checked` is for functions, `Checker` for modules that add their own checks (`sessions.checking`, `stores.boundary`).
The metaclasses are for values that users construct: `Named` turns a constructor's TypeError into a UsageError, `Typed`
also checks each field.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence, Set
from functools import cache, cached_property, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar, cast, get_type_hints

from msgspec import StructMeta
from msgspec.structs import fields as fields_of

from ..errors import UsageError
from . import kinds

P = ParamSpec("P")
R = TypeVar("R")
SHOWN_CHARS = 60
SHAPES_MAX = 32
"""Of calls of one function: names of an open one may come from outside."""
LEARNED_MAX = 64
"""Classes that one parameter remembers to fit."""
Fit: TypeAlias = tuple[Set[type], kinds.Matcher]
"""(classes that fit whatever the value, what fits)"""
ArgumentCheck: TypeAlias = tuple[str, Any, Set[type], kinds.Matcher]
"""(parameter, its default, classes that fit, what fits)"""
FieldCheck: TypeAlias = tuple[str, Any, Set[type], kinds.Matcher, Any]
"""(field, its default, classes that fit, what fits, its annotation)"""
_ANYTHING: Fit = (frozenset(), kinds.anything)
_EMPTY = inspect.Parameter.empty
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Checker:
    """Checks the arguments of one function. It reads the annotations at the first call, because by then all names
    exist.
    """

    def __init__(self, function: Callable[..., Any], *, name: str = "", method: bool = False) -> None:
        self._function = function
        self._name = name or function.__qualname__
        self._skipped = 1 if method else 0

    @cached_property
    def _parameters(self) -> list[inspect.Parameter]:
        return list(inspect.signature(self._function).parameters.values())[self._skipped :]

    @cached_property
    def _hints(self) -> dict[str, Any]:
        hints = get_type_hints(self._function)
        return {one.name: hints.get(one.name, Any) for one in self._parameters}

    @cached_property
    def _fits(self) -> dict[str, Fit]:
        named = [one for one in self._parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
        return {one.name: fit_of(self._hints[one.name]) for one in named}

    @cached_property
    def positional(self) -> list[str]:
        return [one.name for one in self._parameters if one.kind in _BY_POSITION]

    @cached_property
    def _required(self) -> frozenset[str]:
        return frozenset(one.name for one in self._parameters if one.name in self._fits and one.default is _EMPTY)

    @cached_property
    def _rest(self) -> tuple[str, Fit] | None:
        """For a parameter such as `*bodies`: its name and the check for each value."""
        found = next((one for one in self._parameters if one.kind is one.VAR_POSITIONAL), None)
        return None if found is None else (found.name, fit_of(self._hints[found.name]))

    @cached_property
    def _open(self) -> bool:
        return any(one.kind is one.VAR_KEYWORD for one in self._parameters)

    @cached_property
    def _defaults(self) -> dict[str, Any]:
        return {one.name: one.default for one in self._parameters}

    @cached_property
    def _shapes(self) -> dict[tuple[int | str, ...], list[ArgumentCheck]]:
        """The checks of calls that were made before, by the number of values without a name and the names of the
        others: most calls of a function have one of two or three such shapes.
        """
        return {}

    def __call__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        shape = (len(args), *kwargs)
        checks = self._shapes.get(shape)
        if checks is None:
            checks = self._checks_of(args, kwargs)
            if len(self._shapes) < SHAPES_MAX:
                self._shapes[shape] = checks
        for value, (name, default, classes, fits) in zip((*args, *kwargs.values()), checks, strict=True):
            if type(value) not in classes and value is not default and not fits(value):
                raise self._wrong(name, value)

    def _checks_of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[ArgumentCheck]:
        """One for each value, in their order. Refuses values that have no place, and a call that lacks some."""
        names = [*self.positional[: len(args)]]
        rest = len(args) - len(names)
        if rest and self._rest is None:
            raise self._refusal(f"takes at most {len(self.positional)} values without a name")
        for name in kwargs:
            if name in names or (name not in self._fits and not self._open):
                raise self._refusal(f"has no use for {name!r}" if name not in names else f"is given {name!r} twice")
        if missing := self._required.difference(names, kwargs):
            raise self._refusal(f"needs {', '.join(sorted(missing))}")
        others = [(self._rest[0], _EMPTY, *self._rest[1])] * rest if self._rest else []
        return [*map(self._check_of, names), *others, *map(self._check_of, kwargs)]

    def _check_of(self, name: str) -> ArgumentCheck:
        return name, self._defaults.get(name, _EMPTY), *self._fits.get(name, _ANYTHING)

    def _wrong(self, name: str, value: Any) -> UsageError:
        kind = kinds.name_of(self._hints[name])
        return UsageError(f"{self._name}: {name} is {shown(value)}", hint=f"It must be {kind}.")

    def _refusal(self, what: str) -> UsageError:
        names = [f"{'*' * (one.kind is one.VAR_POSITIONAL)}{one.name}" for one in self._parameters]
        return UsageError(f"{self._name} {what}", hint=f"It takes {', '.join(names) or 'nothing'}.")


def fit_of(kind: Any) -> Fit:
    """Which classes fit a protocol is learned from the values: looking for all that it asks for takes long."""
    classes, fits = {*kinds.whole_classes(kind)}, kinds.matcher(kind)

    def fits_and_learns(value: Any) -> bool:
        if not fits(value):
            return False
        cls = cast("type[Any]", type(value))
        if len(classes) < LEARNED_MAX and kinds.fits_a_protocol(kind, cls):
            classes.add(cls)
        return True

    return classes, fits_and_learns if kinds.has_protocol(kind) else fits


def shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """A plain function whose arguments are checked; for async functions and classes there is `sessions.checking`."""
    return checked_by(Checker(function), function, skipped=0)


def checked_by(check: Checker, function: Callable[P, R], *, skipped: int) -> Callable[P, R]:
    """`skipped`: 1 for a method, whose first argument is its object."""

    @wraps(function)
    def now(*args: P.args, **kwargs: P.kwargs) -> R:
        check(args[skipped:], kwargs)
        return function(*args, **kwargs)

    return now


def public_methods(cls: type) -> list[tuple[str, Callable[..., Any]]]:
    found = [(name, value) for name, value in vars(cls).items() if inspect.isfunction(value)]
    return [(name, value) for name, value in found if not name.startswith("_") or name == "__init__"]


class Named(StructMeta):
    """For values that users construct: a field that is missing, unknown or not named is a UsageError."""

    if (
        not TYPE_CHECKING
    ):  # pragma: no branch - type checkers take a constructor of a metaclass for one that may return anything

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            try:
                return super().__call__(*args, **kwargs)
            except TypeError as error:
                names = ", ".join(f"{field.name}=…" for field in fields_of(self))
                call = f"{self.__name__}({names})"
                raise UsageError(f"{self.__name__}: {error}", hint=f"Name its fields: {call}.") from error


class Typed(Named):
    """Like Named, and checks the type of each field."""

    if not TYPE_CHECKING:  # pragma: no branch

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            made = super().__call__(*args, **kwargs)
            for name, default, classes, fits, hint in checks_of(self):
                value = getattr(made, name)
                if type(value) not in classes and value is not default and not fits(value):
                    kind = kinds.name_of(hint)
                    raise UsageError(f"{self.__name__}.{name} is {shown(value)}", hint=f"It must be {kind}.")
            return made


@cache
def checks_of(cls: Any) -> list[FieldCheck]:
    hints = get_type_hints(cls)
    return [(one.name, one.default, *fit_of(hints[one.name]), hints[one.name]) for one in fields_of(cls)]
