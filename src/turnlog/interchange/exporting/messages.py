"""The whole conversation as a list of messages in the shape of Anthropic's or OpenAI's API, with compaction markers.

Nothing is compacted: the list holds the messages that summaries replace, and `compactions` says before which message
each one took effect. `core.history` builds every part between two of them, so calls and results are paired as in a
prompt.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ...core import history
from ...core.entries import (
    MESSAGES,
    Assistant,
    Block,
    Compaction,
    Content,
    Entry,
    Received,
    ToolResult,
    clean,
    text_of,
)
from ...core.history import ApiMessage
from ...core.session import Session, active, live_path, marks_of, on_path

VERSION = 1


def write(entries: Sequence[Entry], session: Session, shape: str) -> Iterator[str]:
    """Writes compactions before messages, so that a reader can use both in one pass."""
    messages: list[ApiMessage] = []
    marks: list[dict[str, Any]] = []
    for part, following in _parts(entries):
        built = _built(part, first=not marks)
        messages += built if shape == "anthropic" else [turned for message in built for turned in _openai(message)]
        if following:
            marks.append(_mark(following, len(messages)))
    row = {name: value for name, value in msgspec.to_builtins(session).items() if name in _ROW}
    head = {"turnlog": VERSION, "shape": shape, "session": row, "compactions": marks}
    yield json.dumps(head, ensure_ascii=False, indent=1)[:-2] + ',\n "messages": ['
    for number, message in enumerate(messages):
        yield ("," if number else "") + "\n  " + json.dumps(message, ensure_ascii=False)
    yield "\n ]\n}\n"


_ROW = ("id", "key", "agentId", "channel", "label", "title", "createdAt", "lastAt")


def _mark(entry: Compaction, before: int) -> dict[str, Any]:
    return {"before": before, "summary": clean(entry.summary), "ts": entry.ts, "covers": list(entry.covers)}


def _parts(entries: Sequence[Entry]) -> Iterator[tuple[list[Entry], Compaction | None]]:
    """(messages up to a boundary, the compaction that set it); the last part has no compaction."""
    marks = marks_of(entries)
    path = live_path(marks, entries[-1].seq) if entries else []
    stack = {mark.seq for mark in active(marks, entries[-1].seq)} if entries else set[int]()
    folds = [entry for entry in entries if isinstance(entry, Compaction) and entry.seq in stack]
    said = [entry for entry in entries if isinstance(entry, MESSAGES) and on_path(entry.seq, path)]
    received = [entry for entry in entries if isinstance(entry, Received)]
    start = 0
    for fold in [*folds, None]:
        end = fold.first_kept if fold else said[-1].seq + 1 if said else 0
        part = [msgspec.structs.replace(entry, after=None) for entry in said if start <= entry.seq < end]
        yield [*received, *part], fold
        start = end


def _built(part: Sequence[Entry], *, first: bool) -> list[ApiMessage]:
    messages = history.build(part).messages
    if first:
        return messages
    # The opening of a prompt is not needed inside a conversation.
    stand_in = {"role": "user", "content": history.CONTINUES}
    if messages[:1] == [stand_in]:
        return messages[1:]
    blank = not any(text_of(entry.content).strip() for entry in part if isinstance(entry, MESSAGES))
    return [] if blank and messages == [{"role": "user", "content": history.EMPTY}] else messages


def _openai(message: ApiMessage) -> Iterator[ApiMessage]:
    content: Content = message["content"]
    if isinstance(content, str):
        yield message
        return
    for block in content:
        if block.get("type") == "tool_result":
            yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": _parts_of(block["content"])}
    said = [block for block in content if block.get("type") not in ("tool_result", "tool_use", *_HIDDEN)]
    calls = [_call(block) for block in content if block.get("type") == "tool_use"]
    if said or calls:
        turned: ApiMessage = {"role": message["role"], "content": _parts_of(said) if said else None}
        yield turned | ({"tool_calls": calls} if calls else {})


_HIDDEN = ("thinking", "redacted_thinking")


def _call(block: Block) -> dict[str, Any]:
    given = json.dumps(block["input"], ensure_ascii=False)
    return {"id": block["id"], "type": "function", "function": {"name": block["name"], "arguments": given}}


def _parts_of(content: Content) -> Content:
    return content if isinstance(content, str) else [_part(block) for block in content]


def _part(block: Block) -> Block:
    match block:
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "image", "source": {"type": "base64", "media_type": form, "data": data}}:
            return {"type": "image_url", "image_url": {"url": f"data:{form};base64,{data}"}}
        case _:
            return {"type": "text", "text": history.as_text([block])}


def openai_losses(entries: Sequence[Entry]) -> list[str]:
    kinds = {str(b.get("type")) for e in entries if isinstance(e, Assistant | ToolResult) for b in _blocks(e.content)}
    found: list[str] = []
    if kinds & set(_HIDDEN):
        found.append("thinking is left out")
    if "tool_use" in kinds:
        found.append("in an answer all words stand before all calls")
    if any(isinstance(entry, ToolResult) and entry.is_error for entry in entries):
        found.append("which tool results are errors is left out")
    return found


def _blocks(content: Content) -> list[Block]:
    return [] if isinstance(content, str) else content
