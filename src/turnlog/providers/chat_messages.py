"""Converts an adapted prompt (`core/wires`) to the messages and tools of Chat Completions, for any server.

It uses the form that most servers understand: contents are plain strings unless there is an image, and tool results are
text. Each message depends on nothing after it, so the request of a longer session begins like that of the shorter one.
Thinking is never sent, because no server accepts the thinking of another.
"""

import json
from typing import Any, TypeAlias, cast

from ..core.entries import Block, blocks_of, text_block
from ..core.history import ApiMessage, as_text
from ..core.prompt import Prompt

ChatMessage: TypeAlias = dict[str, Any]

PICTURES_NOTE = "Images from the tool results above:"
ERROR_NOTE = "[error]"


def messages_of(prompt: Prompt) -> list[ChatMessage]:
    sent: list[ChatMessage] = []
    if prompt.system:
        sent.append({"role": "system", "content": prompt.system})
    for message in prompt.messages:
        for made in _made_of(message):
            _append(sent, made)
    return sent


def tools_of(prompt: Prompt) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = []
    for tool in prompt.tools:
        described = {"description": tool.description} if tool.description else {}
        parameters: dict[str, Any] = {"type": "object", "properties": {}, **tool.input_schema}
        tools.append({"type": "function", "function": {"name": tool.name, **described, "parameters": parameters}})
    return tools


def _made_of(message: ApiMessage) -> list[ChatMessage]:
    blocks = cast("list[Block]", message["content"])
    if message["role"] == "assistant":
        return _assistant(blocks)
    if len(blocks) == 1 and blocks[0].get("type") == "text":  # most messages, and every call sends all of them
        return [{"role": "user", "content": as_text(blocks)}]
    results = [block for block in blocks if block.get("type") == "tool_result"]
    pictures = [part for block in results for part in _pictures(block)]
    if pictures:
        pictures.insert(0, text_block(PICTURES_NOTE))
    parts = pictures + [part_of(block) for block in blocks if block.get("type") != "tool_result"]
    made = [_result(block) for block in results]
    return [*made, {"role": "user", "content": _content(parts)}] if parts else made


def _assistant(blocks: list[Block]) -> list[ChatMessage]:
    text = "\n\n".join(block["text"] for block in blocks if block.get("type") == "text")
    calls = [_call(block) for block in blocks if block.get("type") == "tool_use"]
    if calls:
        # The key stays if there is no text: some servers require it, and OpenAI itself writes null.
        return [{"role": "assistant", "content": text or None, "tool_calls": calls}]
    return [{"role": "assistant", "content": text}] if text else []


def _call(block: Block) -> dict[str, Any]:
    # Keys are not sorted: the cache has the model's own order.
    arguments = json.dumps(block["input"], ensure_ascii=False, separators=(",", ":"))
    return {
        "id": block["id"],
        "type": "function",
        "function": {"name": block["name"], "arguments": arguments},
    }


def _result(block: Block) -> ChatMessage:
    text = as_text(block.get("content") or "")
    marked = f"{ERROR_NOTE} {text}" if block.get("is_error") else text
    return {"role": "tool", "tool_call_id": block["tool_use_id"], "content": marked}


def _pictures(result: Block) -> list[dict[str, Any]]:
    """A tool message holds only text, so its images go into the user message that follows."""
    inner = result.get("content")
    if not isinstance(inner, list):
        return []
    parts = [part_of(block) for block in cast("list[Block]", inner) if block.get("type") == "image"]
    return [part for part in parts if part["type"] == "image_url"]


def part_of(block: Block) -> dict[str, Any]:
    match block:
        case {"type": "image", "source": {"type": "base64", "media_type": str(kind), "data": str(encoded)}}:
            return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{encoded}"}}
        case {"type": "image", "source": {"type": "url", "url": str(url)}}:
            return {"type": "image_url", "image_url": {"url": url}}
        case _:
            return text_block(as_text([block]))


def _content(parts: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    if all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def _append(sent: list[ChatMessage], message: ChatMessage) -> None:
    """Merges two messages of one role, which arise if a message between them had nothing to send; many templates refuse
    them.
    """
    last = sent[-1] if sent else None
    if last is None or last["role"] != message["role"] or message["role"] == "tool":
        sent.append(message)
    elif message["role"] == "user":
        last["content"] = _content([*blocks_of(last["content"]), *blocks_of(message["content"])])
    else:
        texts = [text for text in (last["content"], message["content"]) if text]
        calls = [*last.get("tool_calls", ()), *message.get("tool_calls", ())]
        last.update({"content": "\n\n".join(texts) or None}, **({"tool_calls": calls} if calls else {}))
