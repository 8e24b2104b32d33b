"""Messages of pydantic-ai as entries, and how they are made to fit (`fitting`).

A request may hold several parts: instructions, a prompt, results of tools. As an entry it is one message. To make a
call fit it is split into its parts, because results are shortened one by one, and joined again.
"""

from collections.abc import Sequence
from dataclasses import replace as changed
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from ..core import content as contents, plain
from ..core.entries import Assistant, Block, Content, Entry, Foreign, Message, ToolResult, Transcript, User
from ..core.guard import Limits
from ..core.strict_json import fields_in
from ..errors import UsageError
from .blocks import counts_in, input_of
from .fitting import NO_CALL, NO_RESULT
from .framework import framework

with framework("pydantic-ai"):
    from pydantic_ai.messages import (
        ModelMessage,
        ModelRequest,
        ModelResponse,
        SystemPromptPart,
        ToolReturnPart,
        UserPromptPart,
    )

OPAQUE = "pydantic_ai"
"""The field of `raw` that holds a message with its place in the conversation."""
PROJECTED_MAX_BYTES = 8 * 1024 * 1024
_RETURNS = ("tool-return", "retry-prompt")
_UNSEEN = ("thinking", "builtin-tool-call", "builtin-tool-return")


def entry_of(message: dict[str, Any], raw: Any, size: int = 0) -> Entry:
    """The entry of a message, given as JSON. `raw`: what is stored with it."""
    body = message_of(message) if size <= PROJECTED_MAX_BYTES else None
    held = {OPAQUE: raw}
    match body:
        case User():
            return User(content=body.content, raw=held)
        case Assistant():
            return Assistant(content=body.content, model=body.model, usage=body.usage, raw=held)
        case ToolResult():
            return ToolResult(tool_use_id=body.tool_use_id, content=body.content, is_error=body.is_error, raw=held)
        case None:
            return Foreign(raw=held)


def held_in(entry: Entry) -> dict[str, Any] | None:
    """What was given as `raw`; None if the entry is of another origin."""
    return fields_in(fields_in(entry.raw).get(OPAQUE)) or None


def message_of(message: dict[str, Any]) -> Message | None:
    """The message as a person or a model would see it; None if there is nothing to see, such as instructions alone."""
    parts = [fields_in(part) for part in message.get("parts") or ()]
    if message.get("kind") == "response":
        blocks = [block for part in parts for block in _answer_blocks(part)]
        name, usage = message.get("model_name"), counts_in(message.get("usage"))
        return Assistant(content=blocks, model=name if isinstance(name, str) else None, usage=usage)
    returns = [part for part in parts if _is_return(part)]
    blocks = [block for part in parts for block in _prompt_blocks(part)]
    if len(returns) == 1 and not blocks:
        part = returns[0]
        return ToolResult(tool_use_id=_call_id(part), content=_words(part.get("content")), is_error=_is_failed(part))
    blocks = [*(_result_block(part) for part in returns), *blocks]
    return User(content=blocks) if blocks else None


def _is_return(part: dict[str, Any]) -> bool:
    return part.get("part_kind") in _RETURNS and bool(part.get("tool_name")) and bool(_call_id(part))


def _call_id(part: dict[str, Any]) -> str:
    return str(part.get("tool_call_id") or "")


def _is_failed(part: dict[str, Any]) -> bool:
    return part.get("part_kind") == "retry-prompt" or part.get("outcome") in ("failed", "denied")


def _words(value: Any) -> str:
    return value if isinstance(value, str) else plain.as_json(value)


def _result_block(part: dict[str, Any]) -> Block:
    block: Block = {"type": "tool_result", "tool_use_id": _call_id(part), "content": _words(part.get("content"))}
    return {**block, "is_error": True} if _is_failed(part) else block


def _prompt_blocks(part: dict[str, Any]) -> list[Block]:
    if _is_return(part) or part.get("part_kind") not in ("user-prompt", "retry-prompt", "retry-feedback"):
        return []
    given: Any = part.get("content")
    found: list[Any] = cast("list[Any]", given) if isinstance(given, list) else [given]
    return [block for one in found if (block := _prompt_block(one)) is not None]


def _prompt_block(given: Any) -> Block | None:
    match given:
        case str():
            return {"type": "text", "text": given} if given else None
        case {"kind": "text", "content": str(text)} if text:
            return {"type": "text", "text": text}
        case {"kind": "binary", "media_type": str(kind), "data": str(data)} if kind.startswith("image/") and data:
            source = {"type": "base64", "media_type": kind, "data": data.replace("-", "+").replace("_", "/")}
            return _accepted({"type": "image", "source": source}, "image")
        case {"kind": "image-url", "url": str(url)} if url:
            return {"type": "image", "source": {"type": "url", "url": url}}
        case {"kind": str(kind)}:
            return {"type": "text", "text": f"[{kind}]"}
        case None:
            return None
        case _:
            return {"type": "text", "text": plain.as_json(given)}


def _accepted(block: Block, kind: str) -> Block:
    try:
        contents.accepted([block])
    except UsageError:
        return {"type": "text", "text": f"[{kind}]"}
    return block


def _answer_blocks(part: dict[str, Any]) -> list[Block]:
    match part:
        case {"part_kind": "text", "content": str(text)}:
            return [{"type": "text", "text": text}] if text else []
        case {"part_kind": "tool-call", "tool_name": str(name), "tool_call_id": str(call_id)} if name and call_id:
            return [{"type": "tool_use", "id": call_id, "name": name, "input": input_of(part.get("args") or {})}]
        case {"part_kind": str(kind)} if kind in _UNSEEN:
            return []
        case {"part_kind": str(kind)}:
            return [{"type": "text", "text": f"[{kind}]"}]
        case _:
            return []


class PydanticItem(Struct, frozen=True):
    """A message, or one part of a request."""

    message: ModelMessage
    origin: int
    """The place of the message among those that were given; -1: it is new."""
    whole: ModelMessage | None = None
    """The request that this is a part of."""


class PydanticDialect:
    def split(self, items: Sequence[Any]) -> list[Any]:
        found: list[Any] = []
        for origin, item in enumerate(items):
            if isinstance(item, PydanticItem):
                found.append(item)
            elif isinstance(item, ModelRequest) and len(item.parts) > 1:
                found += [PydanticItem(changed(item, parts=[part]), origin, item) for part in item.parts]
            else:
                found.append(PydanticItem(item, origin, item))
        return found

    def join(self, items: list[Any]) -> list[Any]:
        found: list[ModelMessage] = []
        group: list[PydanticItem] = []
        for item in cast("list[PydanticItem]", items):
            if group and not _belong_together(group[-1], item):
                found.append(_joined(group))
                group = []
            group.append(item)
        return [*found, _joined(group)] if group else found

    def entry(self, item: Any) -> Entry:
        return message_of(dumped(item.message)) or User(content=[])

    def is_instruction(self, item: Any) -> bool:
        message = item.message
        return isinstance(message, ModelRequest) and any(isinstance(part, SystemPromptPart) for part in message.parts)

    def words(self, item: Any) -> Any:
        return item.message.parts[0].content

    def cut(self, item: Any, content: Content) -> Any:
        [part] = item.message.parts
        return replace(item, message=changed(item.message, parts=[changed(part, content=plain.as_text(content))]))

    def summary(self, text: str) -> Any:
        return PydanticItem(ModelRequest(parts=[UserPromptPart(content=text)]), -1)

    def finish(self, items: list[Any], transcript: Transcript, limits: Limits) -> list[Any]:
        """Models refuse a result without its call, and a call without its result."""
        waiting: dict[str, str] = {}
        found: list[Any] = []
        for item in cast("list[PydanticItem]", items):
            message = item.message
            if isinstance(message, ModelResponse):
                found += _unanswered(waiting)
                waiting = {part.tool_call_id: part.tool_name for part in message.tool_calls}
                found.append(item)
                continue
            answers = [_answered(part) for part in message.parts]
            if any(call_id and call_id not in waiting for call_id in answers):
                words = plain.fence(plain.as_text(cast("Any", message_of(dumped(message)) or User(content="")).content))
                found.append(self.summary(f"{NO_CALL}\n{words}"))
                continue
            for call_id in answers:
                waiting.pop(call_id, None)
            if not any(answers):
                found += _unanswered(waiting)
                waiting = {}
            found.append(item)
        return [*found, *_unanswered(waiting)]


def dumped(message: ModelMessage) -> dict[str, Any]:
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    return cast("list[dict[str, Any]]", ModelMessagesTypeAdapter.dump_python([message], mode="json"))[0]


def _answered(part: Any) -> str:
    """The call that a part of a request answers."""
    is_return = getattr(part, "part_kind", "") in _RETURNS and getattr(part, "tool_name", None)
    return str(part.tool_call_id) if is_return else ""


def _unanswered(waiting: dict[str, str]) -> list[PydanticItem]:
    return [
        PydanticItem(ModelRequest(parts=[ToolReturnPart(tool_name=name, content=NO_RESULT, tool_call_id=call_id)]), -1)
        for call_id, name in waiting.items()
    ]


def _belong_together(one: PydanticItem, other: PydanticItem) -> bool:
    """Parts of one request; and requests that follow each other, of which one is new."""
    if isinstance(one.message, ModelResponse) or isinstance(other.message, ModelResponse):
        return False
    return one.origin == other.origin or -1 in (one.origin, other.origin)


def _joined(group: Sequence[PydanticItem]) -> ModelMessage:
    first = group[0]
    parts: list[Any] = [part for item in group for part in item.message.parts]
    whole = next((item.whole for item in group if item.whole is not None), None)
    if whole is not None and [*map(id, whole.parts)] == [*map(id, parts)]:
        return whole
    base = whole or first.message
    if len(group) == 1 and whole is None:
        return first.message
    assert isinstance(base, ModelRequest)
    return changed(base, parts=parts)
