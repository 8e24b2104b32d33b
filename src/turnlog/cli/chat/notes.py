"""Events of a turn as lines: one quiet line for each tool result, compaction, step of the guard, and repair; a question
with its diff.
"""

import json
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from ...core import events
from ...core.events import Call, Event
from ...texts import Texts
from ..escaping import inline

Tone: TypeAlias = Literal["plain", "quiet", "good", "bad", "strong"]
SHOWN_CHARS = 60
"""Of the arguments or the error of a tool: enough to recognise the call."""
PREVIEW_LINES = 60
"""Lines of a diff that are shown; the page shows the whole."""
_TONES: dict[str, Tone] = {"+": "good", "-": "bad"}


class Note(Struct, frozen=True):
    text: str
    tone: Tone = "quiet"


class TurnNotes:
    """Remembers the running calls, because a result names only the id of its call."""

    def __init__(self, words: Texts) -> None:
        self._words = words
        self._calls: dict[str, Call] = {}

    @property
    def under_way(self) -> list[str]:
        return [describe_call(call) for call in self._calls.values()]

    def of(self, event: Event) -> list[Note]:
        match event:
            case events.ToolCall():
                self._calls[event.tool_call.id] = event.tool_call
            case events.ToolDone():
                return [self._outcome(event)]
            case events.CompactionEnd(error=None):
                text = self._words("compaction", before=event.tokens_before, after=event.tokens_after)
                return [Note(f"· {text}")]
            case events.CompactionEnd():
                return [Note(f"· {self._words('compaction_failed', error=inline(event.error or ''))}")]
            case events.GuardStage():
                return [Note(f"· {self._stage(event.stage)}")]
            case events.ApprovalRequest():
                return question(event, self._words)
            case events.ApprovalAnswered():
                return [self._answer(event)]
            case events.ErrorEvent():
                return notes_of_error(event.error, event.hint, self._words)
            case events.Stopped():
                return [Note(f"· {self._words('stopped')}")]
            case _:
                pass
        return []

    def _answer(self, event: events.ApprovalAnswered) -> Note:
        """Nobody has answered if a message came instead, or if the time was over."""
        name, tone = ("approval_yes", "good") if event.word == "approved" else ("approval_no", "bad")
        told = self._words(name, by=inline(event.by, 40)) if event.by else self._words("approval_none")
        return Note(f"· {told}", tone)

    def _outcome(self, event: events.ToolDone) -> Note:
        call = self._calls.pop(event.tool_call_id, None)
        what = describe_call(call) if call else "tool"
        if event.is_error:
            return Note(f"✗ {what} → {inline(event.text, SHOWN_CHARS)}", "bad")
        count = len(event.text.splitlines())
        text = self._words("outcome_lines", n=count) if count > 1 else inline(event.text, SHOWN_CHARS)
        return Note(f"● {what} → {text or self._words('outcome_empty')}", "good")

    def _stage(self, stage: str) -> str:
        name, _, rest = stage.partition(":")
        known = f"guard_{name}"
        if name not in ("shortened", "compacted", "rescued", "plain", "retry", "damaged", "repaired", "model"):
            return inline(stage)
        return self._words(known) + (f":{inline(rest)}" if rest else "")


def question(request: events.ApprovalRequest, words: Texts) -> list[Note]:
    lines = request.preview.splitlines()
    call = Call(id=request.call_id, name=request.tool, input=request.input)
    notes = [Note(f"? {describe_call(call)} · {words.reason(request.why)}", "strong")]
    notes += [Note(f"  {line}", _TONES.get(line[:1], "quiet")) for line in lines[:PREVIEW_LINES]]
    if len(lines) > PREVIEW_LINES:
        notes.append(Note(f"  … {words('more_lines', n=len(lines) - PREVIEW_LINES)}"))
    if request.always:
        notes.append(Note(f"  {words('approval_always', pattern=inline(request.always, 200))}"))
    return [*notes, Note(f"  {words('approval_keys')}", "strong")]


def notes_of_error(error: str, hint: str, words: Texts) -> list[Note]:
    notes = [Note(words("error", error=inline(words.refusal(error))), "bad")]
    return [*notes, Note(f"  {inline(words.refusal(hint))}")] if hint else notes


def describe_call(call: Call) -> str:
    arguments = ", ".join(f"{name}: {_value(value)}" for name, value in call.input.items())
    return inline(f"{call.name}({arguments})", SHOWN_CHARS)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
