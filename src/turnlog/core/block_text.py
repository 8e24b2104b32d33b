"""The text in the content of a message, and text that can be sent."""

from typing import Any, cast


def text_of(content: Any) -> str:
    """The text in it, for titles, search and summaries; tool calls and images have none.

    An import or a model may have put anything inside a block: values that are not text are skipped.
    """
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    blocks = cast("list[Any]", content)
    if len(blocks) == 1:  # most answers; this runs in every append
        return _block_text(blocks[0])
    return "\n\n".join(filter(None, map(_block_text, blocks)))


def _block_text(block: Any) -> str:
    if not isinstance(block, dict):
        return ""
    fields = cast("dict[str, Any]", block)
    kind = fields.get("type")
    if kind == "text":
        text = fields.get("text")
        return text if isinstance(text, str) else ""
    return text_of(fields.get("content")) if kind == "tool_result" else ""


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def blocks_of(content: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [text_block(content)] if isinstance(content, str) else content


def clean(text: str) -> str:
    """Replaces lone surrogates, which cannot be sent; everything else stays."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text
