"""Decides whether a value matches an annotation, which Python itself does not check.

`matcher(annotation)` returns a function that answers for one value. It is made once and called often. It accepts
everything for annotations that it does not know; do not rely on it for values that only our own code passes.
"""

import math
import types
from collections import abc
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union, cast, get_args, get_origin

Matcher: TypeAlias = Callable[[Any], bool]
_CALLABLE = get_origin(Callable[[], None])
SEQ_MAX = 2**63 - 1
"""The largest integer that every store can keep."""


def matcher(kind: Any) -> Matcher:
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    origin = get_origin(kind)
    if origin is None:
        return _of_class(kind)
    if origin in (Union, types.UnionType):
        return _of_union(get_args(kind))
    if origin is Annotated:
        return matcher(get_args(kind)[0])
    if origin is Literal:
        return _of_literals(get_args(kind))
    if origin is tuple:
        return _of_tuple(get_args(kind))
    if origin in (list, abc.Sequence):
        return _of_items(origin, get_args(kind)[0])
    if origin in (dict, abc.Mapping):
        return _of_mapping(*get_args(kind))
    return callable if origin is _CALLABLE else _of_class(origin)


def whole_classes(kind: Any) -> frozenset[type]:
    """Classes whose own values all match, so that `type(value)` answers without a call. It may know fewer than all."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return frozenset[type]().union(*map(whole_classes, get_args(kind)))
    if origin is Annotated:
        return whole_classes(get_args(kind)[0])
    if kind is None or kind is types.NoneType:
        return frozenset((types.NoneType,))
    is_plain = isinstance(kind, type) and origin is None and kind not in _SIMPLE
    return frozenset((kind,)) if is_plain and not _is_protocol(kind) else frozenset()


def name_of(kind: Any) -> str:
    """The annotation as a person would write it."""
    if isinstance(kind, type) and get_origin(kind) is None:
        return kind.__name__
    if get_origin(kind) in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(name_of(one) for one in get_args(kind)))
    if get_origin(kind) is Literal:
        return ", ".join(repr(one) for one in get_args(kind))
    return "None" if kind is None else str(kind).replace("typing.", "").replace("collections.abc.", "")


def anything(value: Any) -> bool:
    return True


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -SEQ_MAX <= value <= SEQ_MAX


def _is_float(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


_SIMPLE: dict[Any, Matcher] = {
    Any: anything,
    object: anything,
    None: lambda value: value is None,
    types.NoneType: lambda value: value is None,
    int: _is_int,
    float: _is_float,
}


def _of_class(kind: Any) -> Matcher:
    if isinstance(kind, TypeVar) or not isinstance(kind, type):
        return anything
    if _is_protocol(kind):
        return _of_protocol(_names_in(kind))
    return lambda value: isinstance(value, kind)


def _of_literals(options: tuple[Any, ...]) -> Matcher:
    classes = frozenset(map(type, options))
    allowed = frozenset(zip(map(type, options), options, strict=True))
    return lambda value: type(value) in classes and (type(value), value) in allowed


def _of_protocol(names: tuple[str, ...]) -> Matcher:
    return lambda value: _has_all(value, names)


def _has_all(value: Any, names: tuple[str, ...]) -> bool:
    return all(hasattr(value, name) for name in names)


def fits_a_protocol(kind: Any, cls: type) -> bool:
    """Whether the class itself has all that a protocol in the annotation asks for: then all its values match."""
    if get_origin(kind) in (Union, types.UnionType):
        return any(fits_a_protocol(one, cls) for one in get_args(kind))
    return _is_protocol(kind) and _has_all(cls, _names_in(kind))


def has_protocol(kind: Any) -> bool:
    """Whether a protocol is among what the annotation allows."""
    if get_origin(kind) in (Union, types.UnionType):
        return any(map(has_protocol, get_args(kind)))
    return _is_protocol(kind)


def _is_protocol(kind: Any) -> bool:
    return isinstance(kind, type) and get_origin(kind) is None and getattr(kind, "_is_protocol", False)


def _names_in(protocol: type) -> tuple[str, ...]:
    return tuple(name for name in dir(protocol) if not name.startswith("_"))


def _of_union(options: tuple[Any, ...]) -> Matcher:
    plain = tuple(one for one in options if isinstance(one, type) and one not in _SIMPLE and get_origin(one) is None)
    plain = tuple(one for one in plain if not _is_protocol(one))
    plain += (types.NoneType,) if types.NoneType in options else ()
    others = [matcher(one) for one in sorted(options, key=_is_not_literal) if one not in plain]
    if not others:
        return lambda value: isinstance(value, plain)

    def matches(value: Any) -> bool:
        if isinstance(value, plain):
            return True
        for fits in others:  # noqa: SIM110 - a generator takes longer than what it would ask
            if fits(value):
                return True
        return False

    return matches


def _is_not_literal(kind: Any) -> bool:
    """Literals are looked at first: whether a value has all that a protocol asks for takes longer."""
    return get_origin(kind) is not Literal


def _of_tuple(items: tuple[Any, ...]) -> Matcher:
    if len(items) == 2 and items[1] is ...:
        return _of_items(tuple, items[0])
    fits = [matcher(one) for one in items]

    def matches(value: Any) -> bool:
        if not isinstance(value, tuple) or len(cast("tuple[Any, ...]", value)) != len(fits):
            return False
        return all(fit(item) for fit, item in zip(fits, cast("tuple[Any, ...]", value), strict=True))

    return matches


def _of_items(container: type, item: Any) -> Matcher:
    fits, whole = matcher(item), whole_classes(item)
    usual = frozenset(one for one in (list, tuple) if issubclass(one, container))

    def matches(value: Any) -> bool:
        if type(value) not in usual and (
            isinstance(value, str | bytes | bytearray) or not isinstance(value, container)
        ):
            return False
        items = cast("list[Any]", value)
        return whole.issuperset(map(type, items)) or all(map(fits, items))

    return matches


def _of_mapping(key: Any, item: Any) -> Matcher:
    names, fits = matcher(key), matcher(item)

    def matches(value: Any) -> bool:
        if not isinstance(value, Mapping):
            return False
        return all(names(name) and fits(item) for name, item in cast("Mapping[Any, Any]", value).items())

    return matches
