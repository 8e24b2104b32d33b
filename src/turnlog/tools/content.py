"""Converts a tool's output to content that can be stored and sent.

A result stays in the history for good, so one that a provider refuses would end the session. Therefore only text and
pictures of kinds that providers accept stay blocks; everything else becomes text.
"""

import base64
import json
from typing import Any, TypeGuard, cast

import msgspec

from ..core.entries import Block, Content, text_block
from ..core.history import NO_OUTPUT, cut_content
from ..core.pictures import PICTURE_TYPES, form_of

IMAGE_MAX_BYTES = 5_000_000
"""The size of one picture. Anthropic refuses the whole request because of a larger one."""

IMAGES_MAX_CHARS = 16 * 1024 * 1024
"""The size of all pictures of one result as base64: what an entry has room for in addition to its text."""


def as_content(value: Any) -> Content:
    """Text and blocks stay unchanged, nothing becomes a note, anything else becomes JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return NO_OUTPUT
    plain = msgspec.to_builtins(value, str_keys=True, enc_hook=str)
    if _are_blocks(plain):
        return plain
    return json.dumps(plain, ensure_ascii=False)


def _are_blocks(value: Any) -> TypeGuard[list[Block]]:
    """Whether all items are blocks; otherwise it is a list of records that happen to have a type."""
    blocks = cast("list[Any]", value) if isinstance(value, list) else []
    return bool(blocks) and all(map(_is_block, blocks))


def _is_block(value: Any) -> bool:
    match value:
        case {"type": "text", "text": str()}:
            return True
        case {"type": "image", "source": {"type": "base64", "data": str()}}:
            return True
        case _:
            return False


def bound(content: Content, cap_chars: int) -> Content:
    """Cuts the text to `cap_chars`, and keeps only pictures that can be sent."""
    if isinstance(content, str):
        return cut_content(content, cap_chars)
    room = IMAGES_MAX_CHARS
    kept: list[Block] = []
    for block in content:
        if block.get("type") != "image":
            kept.append(block)
            continue
        image = _sendable(block, room)
        room -= len(image["source"]["data"]) if image["type"] == "image" else 0
        kept.append(image)
    return cut_content(kept, cap_chars)


def _sendable(block: Block, room: int) -> Block:
    """The picture with the type that its bytes show, or a note instead."""
    if not _is_block(block):
        return text_block("[a picture was left out: it is not given as base64]")
    data: str = block["source"]["data"]
    if len(data) > min(room, IMAGE_MAX_BYTES * 4 // 3 + 4):
        return text_block(f"[a picture of {len(data) * 3 // 4:,} bytes was left out: too large]")
    try:
        kind = form_of(base64.b64decode(data, validate=True))
    except ValueError:
        kind = ""
    if kind not in PICTURE_TYPES:
        return text_block("[a picture was left out: not PNG, JPEG, GIF or WebP]")
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}
