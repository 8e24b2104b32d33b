"""Items of OpenAI's Responses API, as openai-agents keeps them, and the entries that stand for them.

Messages of user and assistant, function calls and their outputs become messages, so that history, search, titles and
compaction work with them. All other items become `foreign` entries, which keep their place and their words. An entry
keeps the item itself in `raw`, unless the item can be rebuilt from the other fields.
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, cast

from ..core import plain
from ..core.entries import Assistant, Compaction, Content, Entry, Foreign, Message, ToolResult, User, text_of
from ..core.history import SUMMARY_NOTE, View, fence, pins_text
from ..core.strict_json import fields_in
from ..shapes.writing import input_part
from .blocks import content_of, copied, input_of

Item: TypeAlias = dict[str, Any]

CHANNEL = "openai_agents"
OPAQUE = "openai_agents"
"""The field of a `foreign` entry's `raw` that holds the item; others of that type are not items."""
PROJECTED_MAX_BYTES = 8 * 1024 * 1024
"""A larger item is stored once, as an opaque one: a message would hold it in its own fields and in `raw`."""


PLAIN_MAX_CHARS = 100_000
"""A longer text is measured first."""


def entry_of(item: Any, size: int = 0) -> Entry:
    """`size`: the length of its JSON, if known."""
    message = _message_of(fields_in(item)) if size <= PROJECTED_MAX_BYTES else None
    if message is None:
        return Foreign(raw={OPAQUE: item})
    if items_of(message) == [item]:
        return message
    match message:
        case User():
            return User(content=message.content, raw=item)
        case Assistant():
            return Assistant(content=message.content, raw=item)
        case _:
            return ToolResult(tool_use_id=message.tool_use_id, content=message.content, raw=item)


def plain_message(item: Any) -> Message | None:
    """The message of an item that has only a role and a text, which needs no second look."""
    if item.__class__ is not dict or len(item) != 2:
        return None
    role, content = item.get("role"), item.get("content")
    if content.__class__ is not str or not 0 < len(content) <= PLAIN_MAX_CHARS:
        return None
    return User(content=content) if role == "user" else Assistant(content=content) if role == "assistant" else None


def _message_of(item: Item) -> Message | None:
    """The message that the item is to a model; None if it is none, or not in its usual form."""
    match item:
        case {"type": "function_call", "call_id": str(call_id), "name": str(name), "arguments": str(arguments)}:
            if not call_id or not name:
                return None
            return Assistant(content=[{"type": "tool_use", "id": call_id, "name": name, "input": input_of(arguments)}])
        case {"type": "function_call_output", "call_id": str(call_id), "output": output} if call_id:
            return ToolResult(tool_use_id=call_id, content=content_of(output))
        case {"role": "user", "content": str() | list()} if item.get("type", "message") == "message":
            return User(content=content_of(item["content"]))
        case {"role": "assistant", "content": str() | list()} if item.get("type", "message") == "message":
            return Assistant(content=content_of(item["content"]))
        case _:
            return None


def items_in(entries: Iterable[Entry]) -> list[Item]:
    """The items of many entries. Most are texts, which need no list of their own."""
    found: list[Item] = []
    for entry in entries:
        kind = entry.__class__
        if (kind is User or kind is Assistant) and entry.raw is None:
            message = cast("User | Assistant", entry)
            if message.content.__class__ is str and (kind is User or cast("Assistant", entry).stop != "error"):
                found.append({"role": "user" if kind is User else "assistant", "content": message.content})
                continue
        found += items_of(entry)
    return found


def items_of(entry: Entry) -> list[Item]:
    """The items that an entry stands for: none for entries that are no messages, several for an answer with calls.

    They are the caller's own: the entry may be kept for the next caller.
    """
    if entry.__class__ is User and entry.raw is None and (content := cast("User", entry).content).__class__ is str:
        return [{"role": "user", "content": content}]
    match entry:
        case User() | Assistant() if entry.raw is not None:
            return [copied(entry.raw)]
        case User():
            return [{"role": "user", "content": _parts(entry.content or "")}]
        case Assistant():
            return [] if entry.stop == "error" else _answer(entry.content)
        case ToolResult(erased=True):
            return []  # its call is shown as text
        case ToolResult() if entry.raw is not None:
            return [copied(entry.raw)]
        case ToolResult():
            return [{"type": "function_call_output", "call_id": entry.tool_use_id, "output": _parts(entry.content)}]
        case Foreign(raw={"openai_agents": item}) if len(cast("Item", entry.raw)) == 1:
            return [copied(item)]
        case _:
            return []


def _answer(content: Content) -> list[Item]:
    if isinstance(content, str):
        return [{"role": "assistant", "content": content}]
    items: list[Item] = []
    words = [block for block in content if block.get("type") == "text"]
    if words:
        items.append({"role": "assistant", "content": text_of(words)})
    for block in content:
        if block.get("type") == "tool_use":
            arguments = block.get("input")
            items.append(
                {
                    "type": "function_call",
                    "call_id": block.get("id", ""),
                    "name": block.get("name", ""),
                    "arguments": arguments if isinstance(arguments, str) else plain.as_json(arguments),
                }
            )
    return items


def _parts(content: Content) -> str | list[Item]:
    if isinstance(content, str):
        return content
    return [input_part(block) for block in content]


def summary_item(compaction: Compaction | None, view: View | None = None) -> list[Item]:
    """The one item that stands for everything before the boundary: pinned messages and the summary, as quoted data."""
    parts = [pins_text(view)] if view and view.pins else []
    if compaction is not None:
        parts.append(f"{SUMMARY_NOTE}\n{fence(compaction.summary)}")
    return [{"role": "user", "content": "\n\n".join(parts)}] if parts else []


def needs_next(entry: Entry) -> bool:
    """A model's reasoning belongs to the answer or the call right after it, and a call to a result further on: the API
    refuses one without the other.
    """
    return isinstance(entry, Foreign) and any(
        item.get("type") == "reasoning" or ("call_id" in item and not str(item.get("type")).endswith("_output"))
        for item in _dicts(items_of(entry))
    )


def _dicts(items: Iterable[Any]) -> Sequence[Item]:
    return [cast("Item", item) for item in items if isinstance(item, dict)]
