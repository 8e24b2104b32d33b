"""Checks the input of a call against the JSON schema of its tool, where the tool has no check of its own.

Only what no server could mean otherwise is refused: a field that is missing or unknown, and text, lists and objects in
each other's place. Numbers and truth values may be written as text, because models often do that and servers convert
them; null may stand for a field that can be left out.
"""

from collections.abc import Mapping
from typing import Any, cast

from ..errors import UsageError

_KINDS: Mapping[str, type] = {"string": str, "array": list, "object": dict}


def check(schema: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raises UsageError if the input does not fit. A schema of another form than usual refuses nothing."""
    known, required = schema.get("properties"), schema.get("required")
    fields = cast("dict[str, Any]", known) if isinstance(known, dict) else {}
    needed = (
        [name for name in cast("list[Any]", required) if isinstance(name, str)] if isinstance(required, list) else []
    )
    hint = f"The fields are: {', '.join(_told(name, needed) for name in fields)}." if fields else "It takes no fields."
    for name in needed:
        if name not in given:
            raise UsageError(f"the input does not fit: the field `{name}` is missing", hint=hint)
    if schema.get("additionalProperties") is False and "patternProperties" not in schema:
        for name in given:
            if name not in fields:
                raise UsageError(f"the input does not fit: there is no field `{name}`", hint=hint)
    for name, value in given.items():
        kind = _kind(fields.get(name))
        if kind and not isinstance(value, _KINDS[kind]) and not (value is None and name not in needed):
            raise UsageError(f"the input does not fit: the field `{name}` is not of the type {kind}", hint=hint)


def _told(name: str, needed: list[str]) -> str:
    return name if name in needed else f"{name} (optional)"


def _kind(field: Any) -> str:
    """The only type of a field; empty if there are several, or if it is one that may be written in other ways."""
    kind = cast("dict[str, Any]", field).get("type") if isinstance(field, dict) else None
    return kind if isinstance(kind, str) and kind in _KINDS else ""
