"""What a running turn tells its caller. Not stored; names and fields are those of the HTTP stream."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from msgspec import Struct

from ..errors import (
    Conflict,
    ContextOverflow,
    NotFound,
    ProviderError,
    StoreError,
    ToolLimit,
    TurnlogError,
    UsageError,
)
from .entries import Assistant, Block, ToolResult, text_of


class _Event(Struct, frozen=True, kw_only=True, tag_field="type"):
    pass


class TextDelta(_Event, frozen=True, kw_only=True, tag="text_delta"):
    text: str


class ThinkingDelta(_Event, frozen=True, kw_only=True, tag="thinking_delta"):
    text: str


class Call(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    input: dict[str, Any]


class ToolCall(_Event, frozen=True, kw_only=True, tag="tool_call"):
    tool_call: Call


class ToolDone(_Event, frozen=True, kw_only=True, tag="tool_result"):
    tool_call_id: str
    text: str
    is_error: bool = False


class UsageReport(_Event, frozen=True, kw_only=True, tag="usage"):
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0


class CompactionStart(_Event, frozen=True, kw_only=True, tag="compaction_start"):
    tokens_before: int


class CompactionEnd(_Event, frozen=True, kw_only=True, omit_defaults=True, tag="compaction_end"):
    tokens_before: int
    tokens_after: int
    error: str | None = None


class GuardStage(_Event, frozen=True, kw_only=True, tag="guard"):
    stage: str


class Queued(_Event, frozen=True, kw_only=True, tag="queued"):
    position: int


class Snapshot(_Event, frozen=True, kw_only=True, tag="snapshot"):
    text: str


class ErrorEvent(_Event, frozen=True, kw_only=True, tag="error"):
    error: str
    code: str
    hint: str = ""


class Stopped(_Event, frozen=True, kw_only=True, tag="stopped"):
    pass


class Done(_Event, frozen=True, kw_only=True, tag="done", rename="camel"):
    session_id: str
    token_estimate: int
    title: str = ""


Event: TypeAlias = (
    TextDelta
    | ThinkingDelta
    | ToolCall
    | ToolDone
    | UsageReport
    | CompactionStart
    | CompactionEnd
    | GuardStage
    | Queued
    | Snapshot
    | ErrorEvent
    | Stopped
    | Done
)
TERMINAL = (Done, ErrorEvent, Stopped)
"""Exactly one of these ends a turn."""


def of_call(call: Block) -> ToolCall:
    given = call.get("input")
    return ToolCall(tool_call=Call(id=str(call["id"]), name=str(call.get("name")), input=given or {}))


def of_result(result: ToolResult) -> ToolDone:
    return ToolDone(tool_call_id=result.tool_use_id, text=text_of(result.content), is_error=result.is_error)


def of_usage(reply: Assistant) -> UsageReport:
    usage = reply.usage or {}
    figures = {name: count for name in UsageReport.__struct_fields__ if isinstance(count := usage.get(name), int)}
    return UsageReport(**figures)


_CODES: tuple[tuple[type[Exception], str], ...] = (
    (ContextOverflow, "overflow"),
    (ProviderError, "provider"),
    (ToolLimit, "tool_limit"),
    (StoreError, "store"),
    (NotFound, "deleted"),
    (Conflict, "conflict"),
    (UsageError, "usage"),
    (TurnlogError, "refused"),
)


def code_of(error: Exception) -> str:
    """What a `failed` entry and an error event call it."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), "internal")


def of_error(error: Exception) -> ErrorEvent:
    if isinstance(error, TurnlogError):
        return ErrorEvent(error=str(error), code=code_of(error), hint=error.hint)
    return ErrorEvent(
        error=f"{type(error).__name__}: {error}",
        code="internal",
        hint="This is a defect, not your fault; what was said is stored.",
    )


def spoken(told: Sequence[Event]) -> str:
    """The texts of a turn, message by message."""
    texts: list[str] = [""]
    for event in told:
        match event:
            case TextDelta():
                texts[-1] += event.text
            case ToolCall():
                texts.append("")
            case _:
                pass
    return "\n\n".join(filter(None, map(str.strip, texts)))
