"""What a running turn tells its caller. Not stored; names and fields are those of the HTTP stream."""

from typing import Any, TypeAlias

from msgspec import Struct


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
