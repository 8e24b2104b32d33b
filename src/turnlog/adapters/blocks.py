"""Content of other programs' messages as blocks."""

import json
from typing import Any, cast

from ..core import content as contents, plain
from ..core.entries import Block, Content
from ..core.strict_json import fields_in
from ..core.usage import is_count
from ..errors import UsageError


def copied(value: Any) -> Any:
    """A copy of plain JSON that shares nothing that could be changed."""
    if value.__class__ is dict:
        return {name: copied(item) for name, item in value.items()}
    return [copied(item) for item in value] if value.__class__ is list else value


def input_of(arguments: Any) -> Any:
    """The arguments of a call; text that is not JSON stays as it is, and what no block can hold becomes text."""
    try:
        found: Any = json.loads(arguments) if isinstance(arguments, str) else arguments
        contents.check_json(found, "arguments")
    except (ValueError, RecursionError, UsageError):
        return arguments if isinstance(arguments, str) else str(arguments)
    return found


def counts_in(given: Any, sent: str = "input_tokens", answered: str = "output_tokens") -> dict[str, Any] | None:
    """The counts of tokens that a framework has under these names."""
    counts = fields_in(given)
    found = {"input_tokens": counts.get(sent), "output_tokens": counts.get(answered)}
    return {name: count for name, count in found.items() if is_count(count)} or None


def content_of(content: Any) -> Content:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return plain.as_json(content)
    return [block_of(part) for part in cast("list[Any]", content)]


def block_of(part: Any) -> Block:
    """The part as a block; a kind that no block can hold is only named, because its data may be large."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    try:
        [block] = cast("list[Block]", contents.accepted([part]))
    except UsageError:
        kind = fields_in(part).get("type") or type(cast("object", part)).__name__
        return {"type": "text", "text": f"[{kind}]"}
    return {"type": "text", "text": block["text"]} if block.get("type") == "text" else block
