"""Plain JSON of unknown origin, looked at without trusting any of it: what is not there or of another kind is empty."""

import json
from collections.abc import Mapping
from typing import Any, cast

from ..core.entries import Block, Content


def text_block(text: str) -> Block:
    return {"type": "text", "text": text}


def as_content(value: Any) -> Content:
    """What a message may hold: a text, or blocks; anything else is kept as JSON text."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        blocks = cast("list[Any]", value)
        return [block if isinstance(block, dict) else text_block(as_text(block)) for block in blocks]
    return as_text(value)


def as_blocks(content: Content) -> list[Block]:
    if isinstance(content, str):
        return [text_block(content)] if content else []
    return content


def as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def without(value: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: item for name, item in value.items() if name not in names}


def fields(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def objects(value: Any) -> list[dict[str, Any]]:
    return [cast("dict[str, Any]", item) for item in items(value) if isinstance(item, dict)]


def items(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
