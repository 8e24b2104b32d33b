"""Tools of the Responses API as functions, because every upstream has functions.

A tool of a namespace becomes a function with both names in its own (`mcp__docs__search`). A custom tool, whose input is
text instead of JSON, becomes a function with one parameter. The client's own names are kept with the function
(`CALLED`), so that the client gets calls as it expects them.

Codex sends some models their tools as an item of the input (`additional_tools`) instead of the field `tools`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from . import reading
from .errors import InvalidField

CALLED = "called"
"""The key in a tool of ours: the client's name, namespace and kind of it, where they are not those of a function."""
ADDITIONAL = "additional_tools"
DEFAULT_NAMESPACE = "functions"
"""The namespace that is left out of names."""
CUSTOM = "custom"
INPUT = "input"
"""The parameter of a custom tool."""
_CUSTOM_SCHEMA = {
    "type": "object",
    "properties": {INPUT: {"type": "string", "description": "The whole input, as plain text."}},
    "required": [INPUT],
    "additionalProperties": False,
}
OwnTool: TypeAlias = dict[str, Any]


def read(given: Sequence[Any], ignored: list[str]) -> list[OwnTool]:
    """Kinds that only the vendor can run are ignored and named."""
    reading.check_tools(given)
    found = [tool for number, one in enumerate(given) for tool in _read_one(one, "", f"tools[{number}]", ignored)]
    reading.check_tools(found)
    reading.check_names(found)
    return found


def _read_one(given: Any, namespace: str, where: str, ignored: list[str]) -> list[OwnTool]:
    match given:
        case {"type": "function", "name": name}:
            made = cast("dict[str, Any]", given)
            if made.get("strict"):
                ignored.append("tools.strict")
            return [_named(made, name, namespace, made.get("parameters"), where)]
        case {"type": "custom", "name": name}:
            return [_named({**cast("dict[str, Any]", given)}, name, namespace, _CUSTOM_SCHEMA, where)]
        case {"type": "namespace", "name": str(name), "tools": [*tools]} if not namespace:
            inner = [_read_one(one, name, f"{where}.tools[{n}]", ignored) for n, one in enumerate(tools)]
            return [tool for some in inner for tool in some]
        case {"type": str(kind)} if kind != "function":
            ignored.append(f"tools.{kind}")
            return []
        case _:
            raise InvalidField("a tool is {type: function, name, …}", param=where)


def _named(given: dict[str, Any], name: Any, namespace: str, schema: Any, where: str) -> OwnTool:
    description = given.get("description")
    called: dict[str, Any] = {}
    if given["type"] == CUSTOM:
        called["type"] = CUSTOM
        description = _with_grammar(description, given.get("format"))
    if namespace:
        called |= {"namespace": namespace, "name": name}
    tool = reading.own_tool(flat(name, namespace) if isinstance(name, str) else name, description, schema, where)
    return {**tool, CALLED: called} if called else tool


def _with_grammar(description: Any, form: Any) -> str:
    words = description if isinstance(description, str) else ""
    match form:
        case {"type": "grammar", "definition": str(grammar)}:
            return f"{words}\n\nThe input follows this grammar:\n{grammar}"
        case _:
            return words


def flat(name: str, namespace: Any) -> str:
    """The name of the function."""
    in_default = not isinstance(namespace, str) or namespace in ("", DEFAULT_NAMESPACE)
    return name if in_default else f"{namespace}__{name}"


def called(tools: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """By the name of the function: how the client calls it, where that differs."""
    return {tool["name"]: tool[CALLED] for tool in tools if CALLED in tool}


def is_whole(written: str) -> bool:
    """Whether the arguments of a call are all there."""
    try:
        return not written.strip() or isinstance(json.loads(written), dict)
    except (ValueError, RecursionError):
        return False


def text_of(written: str) -> str:
    """The input of a custom tool, of the arguments of its function."""
    try:
        found: Any = json.loads(written)
    except (ValueError, RecursionError):
        return written
    match found:
        case {"input": str(text)}:
            return text
        case _:
            return written
