"""JSON from outside: it must match its type exactly, or it is refused.

Nothing is converted: 0 is not false, and "true" is not true; but 5.0 is an integer, as JSON Schema says. A lone
surrogate escape (`\\ud800`), which JSON allows and the fast decoder refuses, is stored unchanged.

`fields_in` and `list_in` are for values that may be anything: a value of another type is empty.
"""

import json
from typing import Any, NoReturn, cast

import msgspec


def decode(data: bytes | str, kind: Any = Any) -> Any:
    """Raises msgspec.ValidationError if the type differs, and msgspec.DecodeError if it is not JSON."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from error
    except msgspec.DecodeError as error:
        return _converted(_slowly(data, error), kind)


def _converted(value: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind)
    except UnicodeEncodeError as error:  # only a text is kept as it is; names, and values of other types, are compared
        raise msgspec.ValidationError("half a character where no text belongs") from error


def _number(text: str) -> int | float:
    value = float(text)
    return int(value) if value.is_integer() else value


def _slowly(data: bytes | str, first: msgspec.DecodeError) -> Any:
    try:
        return json.loads(
            data.decode() if isinstance(data, bytes) else data, parse_float=_number, parse_constant=_refuse
        )
    except (ValueError, RecursionError):
        raise first from None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def fields_in(value: Any) -> dict[str, Any]:
    """The fields of an object; none for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def list_in(value: Any) -> list[Any]:
    """The items of a list; none for anything else."""
    return cast("list[Any]", value) if isinstance(value, list) else []
