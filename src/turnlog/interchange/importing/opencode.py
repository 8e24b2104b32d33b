"""OpenCode exports: `{info, messages: [{info, parts}]}`. One answer may hold several rounds of calls and results.

A compaction is a question with a part of that type, and an answer marked as the summary.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...core.entries import Assistant, Block, Title, ToolResult, User, text_block, text_of
from ...core.strict_json import fields_in
from .codex import image
from .draft import Draft, RecordReader, SourceRecord
from .plain import as_text, call_block, objects, text, without

_INERT = ("step-start", "step-finish", "snapshot", "patch", "agent", "retry", "compaction", "subtask", "reasoning")


class OpenCodeReader(RecordReader):
    def __init__(self, draft: Draft) -> None:
        super().__init__(draft)
        self.before: dict[str, int] = {}
        """id of a message → the entry before it."""
        self.tail: str | None = None
        self.folding = False
        self.reverted: str | None = None

    def field(self, record: SourceRecord) -> None:
        super().field(record)
        info = fields_in(record.value)
        if (text(info.get("title")) or "").strip():
            self.draft.add(Title(title=info["title"], by="auto"))
        self.reverted = text(fields_in(info.get("revert")).get("messageID")) or self.reverted

    def add(self, record: SourceRecord, message: Mapping[str, Any]) -> None:
        info, parts = fields_in(message.get("info")), objects(message.get("parts"))
        at = fields_in(info.get("time")).get("created")
        self.before[as_text(info.get("id"))] = self.draft.last_seq
        match info.get("role"):
            case "user":
                self._question(info, parts, at)
            case "assistant" if self.folding and info.get("summary"):
                self._fold(record, parts, at)
            case "assistant":
                self._answer(info, parts, at)
            case role:
                self.draft.hide(f"messages with role {role} are", record, at)
                return
        left = [_leftover(part) for part in parts]
        if any(part.get("type") == "reasoning" for part in parts):
            self.draft.note("reasoning is kept and not shown")
        self.draft.rest(record, {"info": info, "parts": left, **without(message, "info", "parts")})

    def _question(self, info: Mapping[str, Any], parts: Sequence[Mapping[str, Any]], at: Any) -> None:
        mark = next((part for part in parts if part.get("type") == "compaction"), None)
        if mark is not None:
            self.folding, self.tail = True, as_text(mark.get("tail_start_id")) or None
            return
        blocks = [block for part in parts if (block := _block(part))]
        self.draft.add(User(content=blocks, message_id=as_text(info.get("id")) or None), at)

    def _fold(self, record: SourceRecord, parts: Sequence[Mapping[str, Any]], at: Any) -> None:
        self.folding = False
        summary = text_of([block for part in parts if (block := _block(part))])
        known = self.before.get(self.tail) if self.tail else None
        first_kept = None if known is None else known + 1
        if (self.tail and known is None) or not self.draft.compact(summary, first_kept, at=at):
            self.draft.note("a compaction whose reach is not known is kept and not applied", record.place)

    def _answer(self, info: Mapping[str, Any], parts: Sequence[Mapping[str, Any]], at: Any) -> None:
        rounds = list(_rounds(parts))
        for number, (blocks, calls) in enumerate(rounds, 1):
            body = Assistant(
                content=[*blocks, *map(_call, calls)],
                model=text(info.get("modelID")),
                usage=_usage(fields_in(info.get("tokens"))) if number == len(rounds) else None,
                stop="error" if info.get("error") and number == len(rounds) and not calls else None,
            )
            self.draft.add(body, at)
            for call in calls:
                result = _result(call)
                if result is not None:
                    self.draft.add(result, at)

    def finish(self) -> None:
        if self.reverted in self.before:
            self.draft.note("messages that were reverted are kept and not shown")
            self.draft.rewind(self.before[self.reverted])


def _rounds(parts: Sequence[Mapping[str, Any]]) -> Iterator[tuple[list[Block], list[Mapping[str, Any]]]]:
    """(texts, the calls after them), once for each time that text follows calls."""
    blocks: list[Block] = []
    calls: list[Mapping[str, Any]] = []
    for part in parts:
        if part.get("type") == "tool":
            calls.append(part)
            continue
        block = _block(part)
        if calls and (block or part.get("type") in ("step-start", "step-finish")):
            yield blocks, calls
            blocks, calls = [], []
        if block:
            blocks.append(block)
    if blocks or calls:
        yield blocks, calls


def _block(part: Mapping[str, Any]) -> Block | None:
    match part:
        case {"type": "text", "text": str(text)}:
            return None if part.get("ignored") else text_block(text)
        case {"type": "file", "url": str(url)} if url.startswith("data:image/"):
            return image(url)
        case {"type": "file"}:
            return text_block(f"[file: {as_text(part.get('filename') or part.get('url'))[:500]}]")
        case {"type": kind} if kind in _INERT or kind == "tool":
            return None
        case _:
            return text_block(as_text(part))


def _leftover(part: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a part that entries do not hold."""
    match part:
        case {"type": "text"}:
            return without(part, "text")
        case {"type": "tool", "state": dict()}:
            return {**part, "state": without(part["state"], "input", "output")}
        case {"type": "file", "url": str(url)} if url.startswith("data:image/"):
            return without(part, "url")
        case _:
            return dict(part)


def _call(part: Mapping[str, Any]) -> Block:
    return call_block(part.get("callID"), part.get("tool"), fields_in(part.get("state")).get("input") or {})


def _result(part: Mapping[str, Any]) -> ToolResult | None:
    state = fields_in(part.get("state"))
    status, failed = state.get("status"), state.get("status") == "error"
    if status not in ("completed", "error"):
        return None
    said = as_text(state.get("error" if failed else "output"))
    return ToolResult(tool_use_id=as_text(part.get("callID")), content=said, is_error=failed)


def _usage(tokens: dict[str, Any]) -> dict[str, Any] | None:
    match tokens:
        case {"input": int(given), "output": int(made)}:
            cache = fields_in(tokens.get("cache"))
            return {
                "input_tokens": given,
                "output_tokens": made,
                "cache_read_input_tokens": cache.get("read") or 0,
                "cache_creation_input_tokens": cache.get("write") or 0,
            }
        case _:
            return None
