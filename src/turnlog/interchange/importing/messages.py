"""Lists of messages as sent to a model, in Anthropic's or OpenAI's shape, decided message by message.

They hold what a model saw and little else: no ids, and rarely times. System messages are instructions to a model and
not part of the conversation; they are kept and not shown.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from ...core.entries import Assistant, Block, Content, ToolResult, User, blocks_of, text_block
from ...core.strict_json import fields_in
from .codex import arguments, image
from .draft import Draft, RecordReader, SourceRecord
from .plain import as_content, as_text, call_block, objects, result_of, text, without

_USED = ("role", "content", "tool_calls", "tool_call_id", "function_call", "is_error", "refusal", "name")
_TIMES = ("timestamp", "created_at", "ts")


class MessagesReader(RecordReader):
    def __init__(self, draft: Draft) -> None:
        super().__init__(draft)
        self.marks: list[dict[str, Any]] = []
        self.number = 0

    def field(self, record: SourceRecord) -> None:
        """Turnlog's own export says where it was compacted."""
        if record.field == "compactions":
            self.marks = objects(record.value) or self.marks
        else:
            super().field(record)

    def add(self, record: SourceRecord, fields: Mapping[str, Any]) -> None:
        self.finish()
        self.number += 1
        _add(record, fields, self.draft)

    def finish(self) -> None:
        """Adds the compactions that come after the messages so far."""
        for mark in self.marks:
            summary, at = as_text(mark.get("summary")), mark.get("ts")
            if mark.get("before") == self.number and not self.draft.compact(summary, None, at=at):
                self.draft.note("a compaction that does not fit is left out", f"message {self.number + 1}")


def _add(record: SourceRecord, message: Mapping[str, Any], draft: Draft) -> None:
    at = next((message[name] for name in _TIMES if name in message), None)
    match message.get("role"):
        case "user" | "human":
            _add_user(message, draft, at)
        case "assistant" | "ai" | "model":
            draft.add(_assistant(message), at)
        case "tool" | "function":
            call_id = as_text(message.get("tool_call_id") or message.get("name"))
            failed = bool(message.get("is_error"))
            draft.add(ToolResult(tool_use_id=call_id, content=_content(message), is_error=failed), at)
        case role:
            draft.hide(f"messages with role {role} are", record, at)
            return
    sender = ("name",) if message.get("role") == "user" else ()
    draft.rest(record, without(message, *(set(_USED) - set(sender)), *_TIMES, *_ASSISTANT))


_ASSISTANT = ("model", "usage", "stop_reason", "stop", "type")


def _add_user(message: Mapping[str, Any], draft: Draft, at: Any) -> None:
    content = _content(message)
    if isinstance(content, str):
        draft.add(User(content=content), at)
        return
    said: list[Block] = []
    for block in content:
        if block.get("type") != "tool_result":
            said.append(block)
            continue
        if said:
            draft.add(User(content=said), at)
            said = []
        draft.add(result_of(block), at)
    if said or not content:
        draft.add(User(content=said), at)


def _assistant(message: Mapping[str, Any]) -> Assistant:
    calls = list(_calls(message))
    content = _content(message)
    if calls:
        content = [*blocks_of(content or []), *calls]
    return Assistant(
        content=content,
        model=text(message.get("model")),
        usage=fields_in(message.get("usage")) or None,
        stop=text(message.get("stop_reason") or message.get("stop")),
    )


def _calls(message: Mapping[str, Any]) -> Iterator[Block]:
    for call in objects(message.get("tool_calls")):
        if function := fields_in(call.get("function")):
            yield call_block(call.get("id"), function.get("name"), arguments(function.get("arguments") or {}))
    if function := fields_in(message.get("function_call")):  # the form before tools had ids
        yield call_block(function.get("name"), function.get("name"), arguments(function.get("arguments") or {}))


def _content(message: Mapping[str, Any]) -> Content:
    content = message.get("content")
    if content is None:
        return as_text(message.get("refusal"))
    if not isinstance(content, list):
        return as_content(content)
    return [_block(part) for part in cast("list[Any]", content)]


def _block(part: Any) -> Block:
    match part:
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return image(url)
        case {"type": "refusal", "refusal": str(text)} | {"type": "input_text" | "output_text", "text": str(text)}:
            return text_block(text)
        case {"type": str()}:
            return cast("Block", part)
        case _:
            return text_block(as_text(part))
