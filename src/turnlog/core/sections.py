"""Reads a settings file as tables, and one section of the settings into its Struct.

All sections report errors in the same way: the error about an unknown key names the nearest known one, and a wrong
value says which setting it is, where it came from, what was expected and where to read about it.
"""

import tomllib
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct

from ..errors import UsageError

NEAR = 0.3
"""How similar a name must be to be suggested, from 0 to 1."""
NOWHERE: Mapping[str, str] = MappingProxyType({})
T = TypeVar("T", bound=Struct)


def tables(path: object, data: bytes) -> dict[str, Any]:
    """`path`: named in the error about a file that is not TOML."""
    try:
        return tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint="Correct that line.") from error


def read(
    section: str, values: Mapping[str, Any], kind: type[T], *, page: str, origins: Mapping[str, str] = NOWHERE
) -> T:
    """`page`: where the section is documented. `origins`: "section.key" → where its value came from."""
    kinds = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for key in values:
        check_known(section, key, kinds)
    return kind(**{key: _value(f"{section}.{key}", value, kinds[key], page, origins) for key, value in values.items()})


def check_known(section: str, key: str, known: Collection[str]) -> None:
    if key not in known:
        raise unknown("setting", f"{section}.{key}", [f"{section}.{name}" for name in known])


def unknown(what: str, name: str, known: Collection[str]) -> UsageError:
    near = get_close_matches(name, known, n=1, cutoff=NEAR)
    hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(known)}."
    return UsageError(f"unknown {what} {name!r}", hint=hint)


def _value(name: str, value: Any, kind: Any, page: str, origins: Mapping[str, str]) -> Any:
    try:
        return msgspec.convert(value, kind, strict=False)  # variables of the environment are texts
    except msgspec.ValidationError as error:
        source = f" ({origins[name]})" if name in origins else ""
        words = ", ".join(_words(kind))
        hint = f"Use one of {words}; see {page}." if words else f"Correct {name}; see {page}."
        raise UsageError(f"{name}{source} has the wrong form: {error}", hint=hint) from error


def _words(kind: Any) -> tuple[str, ...]:
    """The words that a setting takes, if it takes only some."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    return tuple(word for part in get_args(kind) for word in _words(part))
