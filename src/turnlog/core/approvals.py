"""Calls that wait for a person's approval: what the log says about them.

    requested ──▶ answered ──▶ resumed ──▶ results
        │ turn paused │           │
        └── no lease is held ─────┘

A turn is paused from its `approval` (requested) to the `approval` (resumed) that the next holder of the lease appends
when every call has its `approval_answer`. So a paused turn can be distinguished from a turn that a crash cut short, and
a call that was approved runs at most once: after `resumed` nobody takes the turn up again.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from .entries import (
    Approval,
    ApprovalAnswer,
    Assistant,
    Block,
    Entry,
    Failed,
    Rewind,
    ToolResult,
    Transcript,
    User,
    tool_uses,
)

WORDS_MAX_CHARS = 2_000
"""The length of a reason, which the model reads."""
EXPIRED = "nobody answered in time"
SUPERSEDED = "a new message arrived"
BY_TURNLOG = "turnlog"
"""Who denied a call that nobody answered in time."""
WaitingState: TypeAlias = Literal["waiting", "approved", "denied"]


class WaitingCall(Struct, frozen=True):
    """A call of a paused turn, and the answer that it has."""

    request: Approval
    answer: ApprovalAnswer | None = None


def asked(transcript: Transcript) -> dict[str, WaitingCall]:
    """By call id: what the turn at the end of the log asked for since it was last resumed."""
    found: dict[str, WaitingCall] = {}
    for entry in transcript:
        match entry:
            case Approval(state="requested"):
                found[entry.call] = WaitingCall(entry)
            case ApprovalAnswer() if entry.call in found and found[entry.call].answer is None:
                found[entry.call] = WaitingCall(found[entry.call].request, entry)
            case Approval() | Failed() | Rewind() | User() | Assistant():
                found = {}
            case _:
                pass
    return found


def open_calls(transcript: Transcript) -> set[str]:
    return set(asked(transcript))


class ApprovalRecord(Struct, frozen=True, kw_only=True, rename="camel"):
    """One request, its answer and what came of it: a line of the audit list."""

    seq: int
    call_id: str
    tool: str
    input: dict[str, Any]
    why: str = ""
    preview: str = ""
    always: str = ""
    requested_at: str = ""
    expires: int = 0
    state: WaitingState = "waiting"
    by: str = ""
    answered_at: str = ""
    words: str = ""
    changed: dict[str, Any] | None = None
    """The arguments, if the person changed them."""
    allowed: str = ""
    """The pattern that the answer allowed for the rest of the session."""
    ran: bool = False
    """Whether the call ran to a result. An approved call without one was interrupted, or waits to be run."""
    failed: bool = False
    result_at: str = ""


def records(transcript: Transcript) -> list[ApprovalRecord]:
    """Every request of a log, in order."""
    found: list[tuple[Approval, ApprovalAnswer | None, ToolResult | None]] = []
    newest: dict[str, int] = {}
    """Where the newest request of a call is in `found`: a model may use an id again."""
    for entry in transcript:
        match entry:
            case Approval(state="requested"):
                newest[entry.call] = len(found)
                found.append((entry, None, None))
            case ApprovalAnswer() if entry.call in newest:
                at = newest[entry.call]
                found[at] = (found[at][0], found[at][1] or entry, None)
            case ToolResult() if entry.tool_use_id in newest:
                at = newest.pop(entry.tool_use_id)
                found[at] = (*found[at][:2], entry)
            case _:
                pass
    waiting = {one.seq for one in unanswered(asked(transcript))}
    return [_record(*one, waits=one[0].seq in waiting) for one in found]


def _record(
    request: Approval, answer: ApprovalAnswer | None, result: ToolResult | None, *, waits: bool
) -> ApprovalRecord:
    """A question without an answer whose turn was stopped or has failed counts as denied, by nobody."""
    return ApprovalRecord(
        seq=request.seq,
        call_id=request.call,
        tool=request.tool,
        input=request.input or {},
        why=request.why,
        preview=request.preview,
        always=request.always,
        requested_at=request.ts,
        expires=request.expires,
        state=answer.word if answer else "waiting" if waits and result is None else "denied",
        by=answer.by if answer else "",
        answered_at=answer.ts if answer else "",
        words=answer.words if answer else "",
        changed=answer.input if answer else None,
        allowed=answer.always if answer else "",
        ran=result is not None and answer is not None and answer.word == "approved",
        failed=result is not None and result.is_error,
        result_at=result.ts if result else "",
    )


def denial(words: str) -> str:
    """The result of a call that was denied."""
    return f"denied: {words}" if words else "denied"


def is_expired(request: Approval, now_ms: int) -> bool:
    return bool(request.expires) and request.expires <= now_ms


def unanswered(found: Mapping[str, WaitingCall]) -> list[Approval]:
    return [one.request for one in found.values() if one.answer is None]


def open_blocks(turn: Sequence[Entry]) -> list[Block]:
    """The calls of the newest answer of a turn that have no result yet, in order."""
    last = next((entry for entry in reversed(turn) if isinstance(entry, Assistant)), None)
    if last is None:
        return []
    results = {entry.tool_use_id for entry in turn if isinstance(entry, ToolResult) and entry.seq > last.seq}
    return [block for block in tool_uses(last) if block.get("id") not in results]


def describe(answer: ApprovalAnswer) -> str:
    """Who said what about a call, and when: one line for people, in lists and exports."""
    parts = [f"{answer.word} by {answer.by or 'an unnamed person'} at {answer.ts}"]
    if answer.words:
        parts.append(answer.words)
    if answer.input is not None:
        parts.append("with other arguments")
    if answer.always:
        parts.append(f"always: {answer.always}")
    return "; ".join(parts)
