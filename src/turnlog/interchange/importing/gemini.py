"""Gemini CLI: a line for the session, one for each message, patches (`$set`) and rewinds (`$rewindTo`).

Older versions wrote one JSON document with the same messages. A repeated message replaces the first.
"""

from collections.abc import Mapping
from typing import Any, cast

from ...core.entries import Assistant, Block, ToolResult, User, blocks_of, text_block
from ...core.strict_json import fields_in
from .draft import Draft, RecordReader, SourceRecord
from .plain import as_text, call_block, content_of, image_block, objects, text, without


class GeminiReader(RecordReader):
    def __init__(self, draft: Draft) -> None:
        super().__init__(draft)
        self.before: dict[str, int] = {}
        """id of a message → the entry before it."""
        self.newest = ""

    def add(self, record: SourceRecord, line: Mapping[str, Any]) -> None:
        at = line.get("timestamp")
        if "$rewindTo" in line:
            self._rewind(record, line)
            return
        if line.get("type") not in ("user", "gemini"):
            if isinstance(line.get("type"), str):
                self.draft.note(f"messages of type {line['type']} are kept and not shown", record.place)
            self.draft.keep(line, at or line.get("startTime"))
            return
        name = as_text(line.get("id"))
        if name in self.before and name != self.newest:
            self.draft.note("an older message written again is kept as it was first", record.place)
            self.draft.keep(line, at)
            return
        if name and name in self.before:
            self.draft.follow(self.before[name], record.place)
        else:
            self.before[name] = self.draft.last_seq
        self.newest = name
        if line["type"] == "user":
            self.draft.add(User(content=content_of(line.get("content"), _block), message_id=name or None), at)
            self.draft.rest(record, without(line, "id", "timestamp", "type", "content"))
        else:
            self._answer(record, line, at)

    def _rewind(self, record: SourceRecord, line: Mapping[str, Any]) -> None:
        before = self.before.get(as_text(line["$rewindTo"]))
        self.draft.keep(line)
        if before is not None:
            self.draft.rewind(before)
        else:
            self.draft.note("a rewind to a message that is not there is kept and not applied", record.place)

    def _answer(self, record: SourceRecord, line: Mapping[str, Any], at: Any) -> None:
        calls = objects(line.get("toolCalls"))
        content = content_of(line.get("content"), _block)
        if calls:
            content = [
                *blocks_of(content or []),
                *(call_block(call.get("id"), call.get("name"), call.get("args") or {}) for call in calls),
            ]
        usage = _usage(fields_in(line.get("tokens")))
        self.draft.add(Assistant(content=content, model=text(line.get("model")), usage=usage), at)
        for call in calls:
            if call.get("result") is not None or call.get("status") in ("error", "cancelled"):
                self.draft.add(_result(call), call.get("timestamp"))
        if line.get("thoughts"):
            self.draft.note("thoughts are kept and not shown")
        left = without(line, "timestamp", "type", "content", "toolCalls", "model")
        if calls:
            left["toolCalls"] = [without(call, "args", "result") for call in calls]
        self.draft.rest(record, left)


def _block(part: Any) -> Block:
    match part:
        case str(text) | {"text": str(text)}:
            return text_block(text)
        case {"inlineData": {"mimeType": str(kind), "data": str(data)}} if kind.startswith("image/"):
            return image_block(kind, data)
        case _:
            return text_block(as_text(part))


def _result(call: Mapping[str, Any]) -> ToolResult:
    found = call.get("result")
    parts = cast("list[Any]", found) if isinstance(found, list) else [] if found is None else [found]
    text = "\n\n".join(_response(part) for part in parts) or as_text(call.get("resultDisplay"))
    failed = call.get("status") in ("error", "cancelled")
    return ToolResult(tool_use_id=as_text(call.get("id")), content=text, is_error=failed)


def _response(part: Any) -> str:
    match part:
        case {"functionResponse": {"response": {"output": output}}}:
            return as_text(output)
        case {"functionResponse": {"response": response}}:
            return as_text(response)
        case {"text": str(text)}:
            return text
        case _:
            return as_text(part)


def _usage(counts: dict[str, Any]) -> dict[str, Any] | None:
    if not all(isinstance(counts.get(name) or 0, int) for name in ("input", "cached", "output")):
        return None
    cached = counts.get("cached") or 0
    found = {
        "input_tokens": (counts.get("input") or 0) - cached,
        "cache_read_input_tokens": cached,
        "output_tokens": counts.get("output") or 0,
    }
    return found if counts and min(found.values()) >= 0 else None
