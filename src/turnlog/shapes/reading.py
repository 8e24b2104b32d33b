"""Reads messages of any of the three shapes as entries. Each dict becomes one entry, except that every tool result in a
message of Anthropic's shape is an entry of its own.

Which shape a dict has is told by its fields. A message without role user, assistant or tool, such as a system message,
and an item that is no message become `foreign` entries: they are kept, and not shown to a model.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from msgspec.structs import replace

from ..core import content as contents
from ..core.arguments import shown
from ..core.entries import MESSAGES, Assistant, Block, Content, Entry, Foreign, Stored, ToolResult, User
from ..core.strict_json import fields_in, list_in
from ..errors import UsageError
from . import MessageDict
from .detecting import BLOCK_PARTS, shape_of
from .writing import in_shape

HINT = 'Give messages such as {"role": "user", "content": "…"}, or entries such as turnlog.User(content="…").'


NewMessage: TypeAlias = Entry | MessageDict | Sequence[Entry | MessageDict]
"""A message to append: an entry, a dict in any shape, or a list of these."""


def new_messages(content: Any) -> list[Entry]:
    """The messages that a call brings: a text or blocks are one message of the user."""
    if isinstance(content, str):
        return [User(content=content)]
    if isinstance(content, list) and content and all(map(_is_block, cast("list[Any]", content))):
        return [User(content=_content(cast("list[Any]", content)))]
    return entries_of([content])


def _is_block(value: Any) -> bool:
    fields = fields_in(value)
    return "role" not in fields and (fields.get("type") in contents.REQUIRED or fields.get("type") in BLOCK_PARTS)


def entries_of(given: Iterable[Any]) -> list[Entry]:
    """Entries, dicts, and lists of both, in order."""
    found: list[Entry] = []
    for one in given:
        if isinstance(one, Stored):
            found.append(cast("Entry", one))
        elif isinstance(one, Mapping):
            found += _entries(dict(cast("Mapping[str, Any]", one)))
        elif isinstance(one, list | tuple):
            found += entries_of(cast("list[Any]", one))
        else:
            raise UsageError(f"{shown(one)} is not a message", hint=HINT)
    return found


def _entries(message: MessageDict) -> list[Entry]:
    contents.check_json(message, "message")
    shape = shape_of(message)
    found: list[Entry] = []
    for part in _parted(message) if shape in ("anthropic", None) else [message]:
        entry = _entry(part)
        if isinstance(entry, MESSAGES) and in_shape(entry, shape or "anthropic") != [part]:
            entry = replace(entry, raw=part)
        found.append(entry)
    return found


def _parted(message: MessageDict) -> list[MessageDict]:
    """Each result of a user message as a message of its own, then the rest."""
    if message.get("role") != "user" or not isinstance(message.get("content"), list):
        return [message]
    blocks = list_in(message["content"])
    results = [block for block in blocks if fields_in(block).get("type") == "tool_result"]
    rest = [block for block in blocks if fields_in(block).get("type") != "tool_result"]
    parts: list[MessageDict] = [{**message, "content": [result]} for result in results]
    return [*parts, {**message, "content": rest}] if rest or not parts else parts


def _entry(message: MessageDict) -> Entry:
    match message:
        case {"role": "user", "content": [{"type": "tool_result", "tool_use_id": str(call_id), **result}]} if call_id:
            content = _content(result.get("content") or "")
            return ToolResult(tool_use_id=call_id, content=content, is_error=result.get("is_error") is True)
        case {"role": "user"}:
            return User(content=_content(message.get("content")))
        case {"role": "assistant"}:
            return _assistant(message)
        case {"role": "tool", "tool_call_id": str(call_id)} if call_id:
            return ToolResult(tool_use_id=call_id, content=_content(message.get("content") or ""))
        case {"type": "function_call", "call_id": str(call_id), "name": str(name)} if call_id and name:
            return Assistant(content=[_call(call_id, name, message.get("arguments"))], stop="tool_use")
        case {"type": "function_call_output", "call_id": str(call_id)} if call_id:
            return ToolResult(tool_use_id=call_id, content=_content(message.get("output") or ""))
        case {"role": "tool" | "function"} | {"type": "function_call" | "function_call_output"}:
            raise UsageError(f"{shown(message)} does not say which call it belongs to", hint="Give the id of the call.")
        case {"role": str()} | {"type": str()}:
            return Foreign(raw=message)
        case _:
            raise UsageError(f"{shown(message)} has neither a role nor a type", hint=HINT)


def _assistant(message: MessageDict) -> Assistant:
    given = message.get("content")
    calls: list[Block] = []
    for call in cast("list[Any]", message.get("tool_calls") or []):
        match call:
            case {"id": str(call_id), "function": {"name": str(name), **function}} if call_id and name:
                calls.append(_call(call_id, name, function.get("arguments")))
            case _:
                raise UsageError(f"{shown(call)} is not a tool call", hint="Give id and function.name.")
    content = _content(given if given is not None else message.get("refusal") or "")
    usage, model, stop = message.get("usage"), message.get("model"), message.get("stop_reason")
    blocks = [{"type": "text", "text": content}] * bool(content) if isinstance(content, str) else content
    has_calls = bool(calls) or any(block.get("type") == "tool_use" for block in blocks)
    return Assistant(
        content=[*blocks, *calls] if calls else content,
        model=model if isinstance(model, str) else None,
        usage=cast("dict[str, Any]", usage) if isinstance(usage, dict) else None,
        stop=stop if isinstance(stop, str) else "tool_use" if has_calls else "end_turn",
    )


def _content(content: Any) -> Content:
    if isinstance(content, list):
        content = [
            {"type": "text", "text": part} if isinstance(part, str) else part for part in cast("list[Any]", content)
        ]
    return contents.accepted(content)


def _call(call_id: str, name: str, arguments: Any) -> Block:
    try:
        given: Any = json.loads(arguments or "{}") if isinstance(arguments, str | None) else arguments
        contents.check_json(given, "arguments")
    except (ValueError, RecursionError, UsageError):
        given = arguments  # the model's own text: history shows it as an object
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}
