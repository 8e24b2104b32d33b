"""Writes entries and histories in one of the three shapes."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, cast

from ..core import wires
from ..core.entries import Assistant, Block, Content, Message, ToolResult, User, text_of
from ..core.history import History
from ..core.prompt import Prompt, assemble
from ..providers import chat_messages
from . import MessageDict, MessageShape, ShapedMessages
from .detecting import shape_of

_HIDDEN = ("thinking", "redacted_thinking")


def shaped(history: History, shape: MessageShape) -> ShapedMessages:
    """What the model is shown, as this API accepts it."""
    fitted = wires.fit(assemble(history), "anthropic" if shape == "anthropic" else "openai")
    return of_prompt(fitted.prompt, shape, as_is=None if fitted.repairs else history)


def of_prompt(prompt: Prompt, shape: MessageShape, *, as_is: History | None = None) -> ShapedMessages:
    """`prompt`: adapted to the API. `as_is`: the history, if nothing had to be adapted."""
    match shape:
        case "openai":
            messages = chat_messages.messages_of(prompt)
        case "anthropic":
            messages = [_simple(message) for message in (as_is.messages if as_is else prompt.messages)]
        case "responses":
            messages = [item for message in prompt.messages for item in _items(message["role"], message["content"])]
    return ShapedMessages(messages, system=prompt.system)


def _simple(message: MessageDict) -> MessageDict:
    """The text itself, where a message has nothing else."""
    match message:
        case {"content": [{"type": "text", "text": str(text), **rest}]} if not rest:
            return {**message, "content": text}
        case _:
            return message


def all_in_shape(entries: Iterable[Message], shape: MessageShape) -> list[MessageDict]:
    """The messages themselves. Where the shape has one message for them, the parts of an answer are joined, and so are
    results that follow each other.
    """
    found: list[MessageDict] = []
    before: Message | None = None
    for entry in entries:
        raw: Any = entry.raw
        is_own = isinstance(raw, dict) and shape_of(cast("MessageDict", raw)) in (shape, None)
        if not is_own and isinstance(entry, Assistant) and isinstance(before, Assistant) and shape != "responses":
            entry = Assistant(content=[*_blocks(before.content), *_blocks(entry.content)])  # noqa: PLW2901 - joined with the one before
            found.pop()
        made = [cast("MessageDict", raw)] if is_own else in_shape(entry, shape)
        if shape == "anthropic" and isinstance(before, ToolResult) and not isinstance(entry, Assistant) and not is_own:
            made = [{"role": "user", "content": [*found.pop()["content"], *_blocks(made[0]["content"])]}]
        found += made
        before = None if is_own else entry
    return found


def in_shape(entry: Message, shape: MessageShape) -> list[MessageDict]:
    """One entry; several items where an answer has text and calls."""
    match shape:
        case "anthropic":
            return [_anthropic(entry)]
        case "openai":
            return [_openai(entry)]
        case "responses":
            return _responses(entry)


def _anthropic(entry: Message) -> MessageDict:
    if isinstance(entry, ToolResult):
        failed = {"is_error": True} if entry.is_error else {}
        block = {"type": "tool_result", "tool_use_id": entry.tool_use_id, "content": entry.content, **failed}
        return {"role": "user", "content": [block]}
    return {"role": "assistant" if isinstance(entry, Assistant) else "user", "content": entry.content or ""}


def _openai(entry: Message) -> MessageDict:
    if isinstance(entry, ToolResult):
        return {"role": "tool", "tool_call_id": entry.tool_use_id, "content": _text_parts(entry.content)}
    if isinstance(entry, User):
        return {"role": "user", "content": _text_parts(entry.content or "")}
    calls = [_openai_call(block) for block in _blocks(entry.content) if block.get("type") == "tool_use"]
    if not calls:
        return {"role": "assistant", "content": _words(entry.content)}
    return {"role": "assistant", "content": text_of(entry.content) or None, "tool_calls": calls}


def _openai_call(block: Block) -> dict[str, Any]:
    function = {"name": block.get("name"), "arguments": _arguments(block)}
    return {"id": block.get("id"), "type": "function", "function": function}


def _words(content: Content) -> Any:
    if isinstance(content, str):
        return content
    said = [block for block in content if block.get("type") not in _HIDDEN]
    return said if said and all(block.get("type") == "text" for block in said) and len(said) > 1 else text_of(said)


def _text_parts(content: Content) -> Any:
    return content if isinstance(content, str) else [chat_messages.part_of(block) for block in content]


def _responses(entry: Message) -> list[MessageDict]:
    if isinstance(entry, ToolResult):
        return [_output(entry.tool_use_id, entry.content)]
    return _items("assistant" if isinstance(entry, Assistant) else "user", entry.content or "")


def _items(role: str, content: Content) -> list[MessageDict]:
    """The items of one message: results, then its words, then its calls."""
    blocks = _blocks(content)
    items = [_output(str(one.get("tool_use_id")), one.get("content") or "") for one in _of_kind(blocks, "tool_result")]
    said = [block for block in blocks if block.get("type") not in ("tool_use", "tool_result", *_HIDDEN)]
    if role == "assistant":
        words = content if isinstance(content, str) else text_of(said)
        items += [{"role": role, "content": words}] if words else []
    elif said:
        is_text = isinstance(content, str) or [block.get("type") for block in said] == ["text"]
        items.append({"role": role, "content": text_of(said) if is_text else [input_part(block) for block in said]})
    for block in _of_kind(blocks, "tool_use"):
        call = {"call_id": block.get("id"), "name": block.get("name"), "arguments": _arguments(block)}
        items.append({"type": "function_call", **call})
    return items


def _output(call_id: str, content: Content) -> MessageDict:
    output = content if isinstance(content, str) else [input_part(block) for block in content]
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def input_part(block: Block) -> Block:
    """A block as a part of an item of the Responses API."""
    part = chat_messages.part_of(block)
    if part["type"] == "text":
        return {"type": "input_text", "text": part["text"]}
    return {"type": "input_image", "detail": "auto", "image_url": part["image_url"]["url"]}


def _arguments(block: Block) -> str:
    given = block.get("input")
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, separators=(",", ":"))


def _blocks(content: Content) -> list[Block]:
    return ([{"type": "text", "text": content}] if content else []) if isinstance(content, str) else content


def _of_kind(blocks: Sequence[Block], kind: str) -> list[Block]:
    return [block for block in blocks if block.get("type") == kind]
