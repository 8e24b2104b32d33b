"""The content of user entries: written in them, joined from the `received` entries that they were made from, or mixed
with tool results by another program.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from msgspec.structs import replace

from .entries import Block, Content, Entry, Message, Received, ToolResult, Transcript, User


def has_results(entry: User) -> bool:
    return isinstance(entry.content, list) and any(block.get("type") == "tool_result" for block in entry.content)


def parted(entry: Message) -> list[Message]:
    """Splits a user message in which another program wrote several results as blocks: each result, then the rest."""
    if not isinstance(entry, User) or not isinstance(entry.content, list) or not has_results(entry):
        return [entry]
    results: list[Message] = []
    rest: list[Block] = []
    for block in entry.content:
        call_id = block.get("tool_use_id")
        if block.get("type") != "tool_result" or not isinstance(call_id, str):
            rest.append(block)
            continue
        content: Any = block.get("content")
        results.append(
            ToolResult(
                seq=entry.seq,
                ts=entry.ts,
                tool_use_id=call_id,
                content=cast("Content", content) if _is_content(content) else "",
                is_error=block.get("is_error") is True,
            )
        )
    return [*results, replace(entry, content=rest)] if rest else results


def _is_content(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and all(isinstance(block, dict) for block in cast("list[Any]", value))
    )


def user_content(entry: User, received: Mapping[int, Received]) -> Content:
    """The content of a user entry, which may be in the `received` entries that it was made from."""
    if entry.content is not None:
        return entry.content
    parts = [received[seq].content for seq in entry.from_ if seq in received]
    return join_content(parts)


def with_words(entries: Transcript) -> list[Entry]:
    """The same entries, but each user entry holds its content itself, if its `received` entries are among them."""
    received = {entry.seq: entry for entry in entries if isinstance(entry, Received)}
    return [
        replace(entry, content=user_content(entry, received))
        if isinstance(entry, User) and entry.content is None
        else entry
        for entry in entries
    ]


def join_content(parts: Iterable[Content]) -> Content:
    """Joins texts by a blank line; if one part has blocks, all parts become blocks."""
    kept = list(parts)
    texts = [part for part in kept if isinstance(part, str)]
    if len(texts) == len(kept):
        return "\n\n".join(text for text in texts if text)
    blocks: list[Block] = []
    for part in kept:
        if isinstance(part, str):
            blocks.append({"type": "text", "text": part})
        else:
            blocks.extend(part)
    return blocks
