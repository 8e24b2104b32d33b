"""The events of a running turn. They are not stored; names and fields are those of the HTTP stream."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, TypeAlias

from msgspec import Struct

from ..errors import (
    Conflict,
    ContentRefused,
    ContextOverflow,
    NotFound,
    ProviderError,
    StoreError,
    StoreUnavailable,
    ToolLimit,
    TurnlogError,
    TurnStopped,
    UsageError,
)
from .entries import REFUSED_CONTENT, Approval, ApprovalAnswer, Assistant, Block, ToolResult, text_of


class _Event(Struct, frozen=True, kw_only=True, tag_field="type"):
    """Each class has a `type`: the one on the wire."""


class TextDelta(_Event, frozen=True, kw_only=True, tag="text_delta"):
    type: ClassVar[Literal["text_delta"]] = "text_delta"
    text: str


class ThinkingDelta(_Event, frozen=True, kw_only=True, tag="thinking_delta"):
    type: ClassVar[Literal["thinking_delta"]] = "thinking_delta"
    text: str


class Call(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    input: dict[str, Any]


class ToolCall(_Event, frozen=True, kw_only=True, tag="tool_call"):
    type: ClassVar[Literal["tool_call"]] = "tool_call"
    tool_call: Call


class ToolDone(_Event, frozen=True, kw_only=True, tag="tool_result"):
    type: ClassVar[Literal["tool_result"]] = "tool_result"
    tool_call_id: str
    text: str
    is_error: bool = False


class ApprovalRequest(_Event, frozen=True, kw_only=True, tag="approval_request"):
    """A call waits for a person's approval; the stream goes on after the answer."""

    type: ClassVar[Literal["approval_request"]] = "approval_request"
    call_id: str
    tool: str
    input: dict[str, Any]
    why: str = ""
    preview: str = ""
    always: str = ""
    expires: int = 0
    seq: int = 0
    """Of its entry. An answer that names it counts for this question only, also if a model uses the id again."""


class ApprovalAnswered(_Event, frozen=True, kw_only=True, omit_defaults=True, tag="approval_answer"):
    type: ClassVar[Literal["approval_answer"]] = "approval_answer"
    call_id: str
    word: str
    by: str = ""
    words: str = ""
    input: dict[str, Any] | None = None
    always: str = ""


class UsageReport(_Event, frozen=True, kw_only=True, tag="usage"):
    type: ClassVar[Literal["usage"]] = "usage"
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0


class CompactionStart(_Event, frozen=True, kw_only=True, tag="compaction_start"):
    type: ClassVar[Literal["compaction_start"]] = "compaction_start"
    tokens_before: int


class CompactionEnd(_Event, frozen=True, kw_only=True, omit_defaults=True, tag="compaction_end"):
    type: ClassVar[Literal["compaction_end"]] = "compaction_end"
    tokens_before: int
    tokens_after: int
    error: str | None = None


class GuardStage(_Event, frozen=True, kw_only=True, tag="guard"):
    type: ClassVar[Literal["guard"]] = "guard"
    stage: str


class Queued(_Event, frozen=True, kw_only=True, tag="queued"):
    type: ClassVar[Literal["queued"]] = "queued"
    position: int


class Snapshot(_Event, frozen=True, kw_only=True, tag="snapshot"):
    type: ClassVar[Literal["snapshot"]] = "snapshot"
    text: str


class ErrorEvent(_Event, frozen=True, kw_only=True, tag="error"):
    type: ClassVar[Literal["error"]] = "error"
    error: str
    code: str
    hint: str = ""


class Stopped(_Event, frozen=True, kw_only=True, tag="stopped"):
    type: ClassVar[Literal["stopped"]] = "stopped"


class Done(_Event, frozen=True, kw_only=True, tag="done", rename="camel"):
    type: ClassVar[Literal["done"]] = "done"
    session_id: str
    token_estimate: int
    title: str = ""


Event: TypeAlias = (
    TextDelta
    | ThinkingDelta
    | ToolCall
    | ToolDone
    | ApprovalRequest
    | ApprovalAnswered
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
Tell: TypeAlias = Callable[[Event], None]
"""What a turn calls with each event, at the moment it happens. Results are returned, not told."""


def of_call(call: Block) -> ToolCall:
    given = call.get("input")
    return ToolCall(tool_call=Call(id=str(call["id"]), name=str(call.get("name")), input=given or {}))


def of_result(result: ToolResult) -> ToolDone:
    return ToolDone(tool_call_id=result.tool_use_id, text=text_of(result.content), is_error=result.is_error)


def of_request(entry: Approval) -> ApprovalRequest:
    return ApprovalRequest(
        call_id=entry.call,
        tool=entry.tool,
        input=entry.input or {},
        why=entry.why,
        preview=entry.preview,
        always=entry.always,
        expires=entry.expires,
        seq=entry.seq,
    )


def of_answer(entry: ApprovalAnswer) -> ApprovalAnswered:
    return ApprovalAnswered(
        call_id=entry.call,
        word=entry.word,
        by=entry.by,
        words=entry.words,
        input=entry.input,
        always=entry.always,
    )


def of_usage(reply: Assistant) -> UsageReport:
    usage = reply.usage or {}
    figures = {name: count for name in UsageReport.__struct_fields__ if isinstance(count := usage.get(name), int)}
    return UsageReport(**figures)


_CODES: tuple[tuple[type[Exception], str], ...] = (
    (ContextOverflow, "overflow"),
    (ContentRefused, REFUSED_CONTENT),
    (ProviderError, "provider"),
    (ToolLimit, "tool_limit"),
    (StoreError, "store"),
    (NotFound, "deleted"),
    (Conflict, "conflict"),
    (UsageError, "usage"),
    (TurnlogError, "refused"),
)


def code_of(error: Exception) -> str:
    """The code of this error in a `failed` entry and an error event."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), "internal")


_ERRORS: dict[str, type[TurnlogError]] = {
    "store": StoreUnavailable,
    **{code: kind for kind, code in _CODES if issubclass(kind, TurnlogError) and kind is not StoreError},
}


def error_of(event: ErrorEvent) -> TurnlogError:
    """The error to raise for an error event, wherever its turn ran. `code_of` gives the event's code again."""
    kind = _ERRORS.get(event.code, TurnlogError)
    return kind(event.error, hint=event.hint or "Try again; your message is stored.")


def of_error(error: Exception) -> ErrorEvent:
    if isinstance(error, TurnlogError):
        return ErrorEvent(error=str(error), code=code_of(error), hint=error.hint)
    return ErrorEvent(
        error=f"{type(error).__name__}: {error}",
        code="internal",
        hint="This is a defect in Turnlog. Your message is stored; try again.",
    )


def answer_of(told: Sequence[Event]) -> str:
    """The text of a turn's last message. Raises if the turn failed or was stopped."""
    said: list[str] = []
    for event in told:
        match event:
            case TextDelta():
                said.append(event.text)
            case Snapshot():
                said = [event.text]
            case ToolCall():
                said = []
            case ErrorEvent():
                raise error_of(event)
            case Stopped():
                raise TurnStopped(text="".join(said))
            case _:
                pass
    return "".join(said)


def spoken(told: Sequence[Event]) -> str:
    """The texts of a turn, message by message."""
    texts: list[list[str]] = [[]]
    for event in told:
        match event:
            case TextDelta():
                texts[-1].append(event.text)
            case ToolCall():
                texts.append([])
            case _:
                pass
    return "\n\n".join(filter(None, ("".join(pieces).strip() for pieces in texts)))
