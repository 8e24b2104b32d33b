"""Reads plain JSON of unknown origin without trusting it: a missing value, or one of another type, is empty."""

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from ...core.entries import Block, Content, ToolResult, text_block
from ...core.strict_json import list_in


def call_block(call_id: Any, name: Any, given: Any) -> Block:
    return {"type": "tool_use", "id": as_text(call_id), "name": as_text(name), "input": given}


def image_block(media_type: str, data: str) -> Block:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def result_of(block: Mapping[str, Any]) -> ToolResult:
    """A block in Anthropic's shape as an entry of its own."""
    content, failed = as_content(block.get("content") or ""), bool(block.get("is_error"))
    return ToolResult(tool_use_id=as_text(block.get("tool_use_id")), content=content, is_error=failed)


def as_content(value: Any) -> Content:
    """Content of a message: a text or blocks; anything else is kept as JSON text."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        blocks = cast("list[Any]", value)
        return [block if isinstance(block, dict) else text_block(as_text(block)) for block in blocks]
    return as_text(value)


def content_of(value: Any, block: Callable[[Any], Block]) -> Content:
    """Content of a message whose parts `block` reads; anything but a list is text."""
    return [block(part) for part in cast("list[Any]", value)] if isinstance(value, list) else as_text(value)


def as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def without(value: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: item for name, item in value.items() if name not in names}


def objects(value: Any) -> list[dict[str, Any]]:
    return [cast("dict[str, Any]", item) for item in list_in(value) if isinstance(item, dict)]


def text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
