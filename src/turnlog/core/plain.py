"""Any content as plain text: blocks described in words, quoted safely, and cut to a length."""

import json
import re
from typing import Any

from .entries import Block

_BACKTICKS = re.compile("`+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")


def as_text(content: Any) -> str:
    """All of it as text: calls and blocks of unknown kinds as JSON, images as a note of their kind."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return as_json(content)
    blocks: list[Any] = content  # type: ignore[reportUnknownVariableType] - a cast is a call, and this runs often
    return _block_as_text(blocks[0]) if len(blocks) == 1 else "\n\n".join(filter(None, map(_block_as_text, blocks)))


def _block_as_text(block: Any) -> str:
    text = _plain_text(block)
    if text is not None:
        return text
    match block:
        case {"type": "thinking" | "redacted_thinking"}:
            return ""
        case {"type": "image"}:
            return "[image]"
        case {"type": "document"}:
            return _document_as_text(block)
        case {"type": "tool_use"}:
            return f"[called {block.get('name')}: {as_json(block.get('input'))}]"
        case {"type": "tool_result"}:
            return as_text(block.get("content") or "")
        case _:
            return as_json(block)


def _plain_text(block: Any) -> str | None:
    """Of a block of text, as most are: a pattern that matches takes five times as long."""
    if not isinstance(block, dict):
        return None
    fields: Block = block  # type: ignore[reportUnknownVariableType]
    text = fields.get("text")
    return text if isinstance(text, str) and fields.get("type") == "text" else None


def _document_as_text(block: Block) -> str:
    match block.get("source"):
        case {"type": "text", "data": str(text)}:
            return text
        case _:
            return "[document]"


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def fence(text: str) -> str:
    """Quotes a text so that nothing inside can close the quotation."""
    longest = max(map(len, _BACKTICKS.findall(text)), default=0)
    marks = "`" * max(3, longest + 1)
    return f"{marks}\n{text}\n{marks}"


def sentences(text: str) -> list[str]:
    return [sentence for part in _SENTENCE_END.split(text) if (sentence := part.strip())]


def shorten(text: str, limit: int) -> str:
    """The beginning and the end, cut at lines where that costs little, with a marker between; never longer than
    `limit`.
    """
    if len(text) <= limit:
        return text
    room = max(0, limit - len(_marker(len(text), len(text))))
    head = _to_line_end(text[: room * 2 // 3])
    tail = _from_line_start(text[len(text) - (room - room * 2 // 3) :] if room else "")
    marker = _marker(len(text), len(head) + len(tail))
    return (head + marker + tail)[:limit]


def _marker(total: int, shown: int) -> str:
    return f"\n[... shortened: {total} characters in all, {shown} shown ...]\n"


def _to_line_end(head: str) -> str:
    cut = head.rfind("\n")
    return head[: cut + 1] if cut >= len(head) * 4 // 5 else head


def _from_line_start(tail: str) -> str:
    cut = tail.find("\n")
    return tail[cut + 1 :] if 0 <= cut <= len(tail) // 5 else tail
