"""The input of a tool call as a JSON object that can be stored and sent again.

Models write text that is not JSON, not an object, or cut off. Nothing is repaired here: the text is kept unchanged
under one name that the runner knows, so that the model can be told.
"""

import json
from typing import Any, NoReturn, cast

from ..core.entries import NESTING_MAX
from ..core.prompt import INVALID_INPUT

INPUT_NESTING_MAX = NESTING_MAX - 10
"""The nesting limit of an entry, minus the entry, its content and the call around the input."""


def read_input(text: str) -> dict[str, Any]:
    """Reads the input; no text is a call without arguments."""
    if not text.strip():
        return {}
    try:
        value: Any = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return {INVALID_INPUT: text}
    if not isinstance(value, dict) or _is_too_deep(value, text):
        return {INVALID_INPUT: text}
    return cast("dict[str, Any]", value)


def _refuse(constant: str) -> NoReturn:
    """NaN and Infinity: Python reads them, but they are not JSON."""
    raise ValueError(constant)


def _is_too_deep(value: Any, text: str) -> bool:
    if text.count("{") + text.count("[") <= INPUT_NESTING_MAX:
        return False
    level: list[Any] = [value]
    for _ in range(INPUT_NESTING_MAX):
        level = [inner for outer in level for inner in _parts(outer)]
        if not level:
            return False
    return True


def _parts(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(cast("dict[str, Any]", value).values())
    return cast("list[Any]", value) if isinstance(value, list) else []
