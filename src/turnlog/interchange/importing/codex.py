"""Codex rollouts: `{timestamp, type, payload}` per line, linear, items of OpenAI's Responses API.

Events repeat the content of the items for the screen; both are kept, the items are shown. Reasoning is encrypted, or a
summary that must not be sent to another model, so it is kept and not shown.
"""

from collections.abc import Mapping
from typing import Any, cast

from ...core.entries import Assistant, Block, ToolResult, User, text_block
from ...core.strict_json import fields_in
from .draft import Draft, RecordReader, SourceRecord
from .lines import parsed
from .plain import as_text, call_block, content_of, image_block, without

_CALLS = ("function_call", "custom_tool_call", "local_shell_call")
_RESULTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")


class CodexReader(RecordReader):
    def __init__(self, draft: Draft) -> None:
        super().__init__(draft)
        self.model: str | None = None
        self.prompts: list[int] = []
        """The entry before each question, for rollbacks."""

    def add(self, record: SourceRecord, line: Mapping[str, Any]) -> None:
        at, inner = line.get("timestamp"), fields_in(line.get("payload"))
        if not inner:
            self.draft.hide("a line without payload is", record, at)
            return
        match line.get("type"), inner.get("type"):
            case "response_item", "message":
                self._message(record, line, inner)
            case "response_item", kind if kind in _CALLS:
                self.draft.add(Assistant(content=[_call(inner)], model=self.model, stop="tool_use"), at)
                used = ("type", "name", "arguments", "input", "action", "call_id")
                self._rest(record, line, without(inner, *used))
            case "response_item", kind if kind in _RESULTS:
                self.draft.add(_result(inner), at)
                self._rest(record, line, without(inner, "type", "call_id", "output"))
            case "compacted", _:
                self._fold(record, line, inner)
            case "event_msg", "thread_rolled_back":
                self.draft.keep(line, at)
                self._roll_back(record, inner.get("num_turns"))
            case kind, inner_kind:
                self._keep(record, line, inner, f"{kind} {inner_kind or ''}".strip())

    def _keep(self, record: SourceRecord, line: Mapping[str, Any], inner: Mapping[str, Any], kind: str) -> None:
        if kind.startswith("turn_context") and isinstance(inner.get("model"), str):
            self.model = inner["model"]
        if kind.startswith("response_item"):
            self.draft.note(f"items of type {inner.get('type')} are kept and not shown", record.place)
        self.draft.keep(line, line.get("timestamp"))

    def _message(self, record: SourceRecord, line: Mapping[str, Any], inner: Mapping[str, Any]) -> None:
        at, content = line.get("timestamp"), content_of(inner.get("content"), _block)
        match inner.get("role"):
            case "user":
                self.prompts.append(self.draft.last_seq)
                self.draft.add(User(content=content), at)
            case "assistant":
                self.draft.add(Assistant(content=content, model=self.model), at)
            case role:
                self.draft.hide(f"messages with role {role} are instructions;", record, at)
                return
        self._rest(record, line, without(inner, "type", "role", "content"))

    def _rest(self, record: SourceRecord, line: Mapping[str, Any], left: Mapping[str, Any]) -> None:
        outer = without(line, "type", "timestamp", "payload")
        self.draft.rest(record, {**outer, "payload": dict(left) or None})

    def _fold(self, record: SourceRecord, line: Mapping[str, Any], inner: Mapping[str, Any]) -> None:
        at = line.get("timestamp")
        if self.draft.compact(as_text(inner.get("message")), None, at=at):
            if inner.get("replacement_history"):
                self.draft.note("what Codex kept word for word is under the summary here", record.place)
            self._rest(record, line, without(inner, "message"))
        else:
            self.draft.note("a compaction without a readable summary is kept and not applied", record.place)
            self.draft.keep(line, at)

    def _roll_back(self, record: SourceRecord, turns: Any) -> None:
        if not isinstance(turns, int) or not 0 < turns <= len(self.prompts):
            self.draft.note("a rollback that does not fit is kept and not applied", record.place)
            return
        to = self.prompts[-turns]
        del self.prompts[-turns:]
        self.draft.rewind(to)


def _block(part: Any) -> Block:
    match part:
        case {"type": "input_text" | "output_text" | "text", "text": str(text)}:
            return text_block(text)
        case {"type": "input_image", "image_url": str(url)}:
            return image(url)
        case _:
            return text_block(as_text(part))


def image(url: str) -> Block:
    """A data URI becomes the picture itself; any other address is named and never fetched."""
    kind, comma, data = url.partition(";base64,")
    if comma and kind.startswith("data:image/"):
        return image_block(kind[5:], data)
    return text_block(f"[image: {url}]")


def _call(inner: Mapping[str, Any]) -> Block:
    given = next((inner[field] for field in ("arguments", "input", "action") if field in inner), None)
    return call_block(inner.get("call_id") or inner.get("id"), inner.get("name") or "shell", arguments(given))


def arguments(given: Any) -> Any:
    """Arguments are JSON in a text; invalid JSON stays a text."""
    if not isinstance(given, str):
        return {} if given is None else given
    try:
        value: Any = parsed(given or "{}")
    except ValueError:
        return {"value": given}
    return cast("Any", value) if isinstance(value, dict) else {"value": value}


def _result(inner: Mapping[str, Any]) -> ToolResult:
    output, failed = inner.get("output"), False
    if isinstance(output, dict):
        told = fields_in(cast("Any", output))
        failed = told.get("success") is False
        output = told.get("content", told)
    return ToolResult(tool_use_id=as_text(inner.get("call_id")), content=content_of(output, _block), is_error=failed)
