"""A running turn as numbered pieces of HTML: its texts block by block, its thinking, and a card for each call.

A piece that changes is rendered again under the same number, and only such pieces are sent. Approvals are sent as the
events that they are: the page has the form for them.
"""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from ...core import events
from ...texts import Texts
from ..markdown import GrowingText
from .timeline import INPUT_MAX_CHARS, Card, as_json
from .view import Frame, fill

MODEL = "model: "
"""The stage that says that another model answers than the one that was chosen; its name follows."""
PieceKind = Literal["text", "thinking", "call", "approval", "note"]


class Piece(Struct, frozen=True):
    """What the page shows at one place of the turn."""

    part: int
    kind: PieceKind
    block: int = 0
    """Of a text."""
    html: str = ""
    event: dict[str, Any] | None = None
    """Of an approval."""


def question(request: events.ApprovalRequest, t: Texts) -> dict[str, Any]:
    return {**msgspec.to_builtins(request), "why": t.reason(request.why)}


class _Part:
    def __init__(self, kind: PieceKind) -> None:
        self.kind: PieceKind = kind
        self.pieces: list[str] = []
        self.text = GrowingText()
        self.card: Card | None = None
        self.call = ""
        self.event: dict[str, Any] | None = None


class LiveTurnView:
    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._parts: list[_Part] = []
        self._sent: dict[tuple[int, int], Piece] = {}
        self._touched: set[int] = set()

    def add(self, new: Sequence[events.Event]) -> None:
        for event in new:
            self._add(event)

    def _add(self, event: events.Event) -> None:
        match event:
            case events.TextDelta():
                self._said("text").pieces.append(event.text)
            case events.ThinkingDelta():
                self._said("thinking").pieces.append(event.text)
            case events.Snapshot() if event.text:
                self._begin("text").pieces.append(event.text)
            case events.ToolCall():
                part = self._begin("call")
                part.call = event.tool_call.id
                part.card = Card(name=event.tool_call.name, input=as_json(event.tool_call.input, INPUT_MAX_CHARS))
            case events.ToolDone():
                self._finish(event)
            case events.ApprovalRequest():
                self._begin("approval").event = question(event, self._frame.t)
            case events.ApprovalAnswered():
                self._begin("approval").event = msgspec.to_builtins(event)
            case events.GuardStage() if event.stage.startswith(MODEL):
                self._begin("note").pieces.append(event.stage.removeprefix(MODEL))
            case _:
                pass

    def _begin(self, kind: PieceKind) -> _Part:
        self._parts.append(_Part(kind))
        self._touched.add(len(self._parts) - 1)
        return self._parts[-1]

    def _said(self, kind: PieceKind) -> _Part:
        if not self._parts or self._parts[-1].kind != kind:
            return self._begin(kind)
        self._touched.add(len(self._parts) - 1)
        return self._parts[-1]

    def _finish(self, event: events.ToolDone) -> None:
        for number, part in enumerate(self._parts):
            if part.call == event.tool_call_id and part.card is not None:
                part.card = msgspec.structs.replace(part.card, output=event.text, is_error=event.is_error)
                self._touched.add(number)

    def render(self) -> list[Piece]:
        """The pieces that have changed since the last call."""
        changed: list[Piece] = []
        for number in sorted(self._touched):
            for piece in self._rendered(number, self._parts[number]):
                place = (piece.part, piece.block)
                if self._sent.get(place) != piece:
                    self._sent[place] = piece
                    changed.append(piece)
        self._touched.clear()
        return changed

    def _rendered(self, number: int, part: _Part) -> list[Piece]:
        match part.kind:
            case "text" | "thinking":
                text = "".join(part.pieces)
                part.pieces = [text]
                blocks = part.text.blocks(text)
                return [Piece(number, part.kind, block, str(html)) for block, html in enumerate(blocks)]
            case "call":
                return [Piece(number, "call", html=fill("part_card.html", self._frame, one=part.card, row=None))]
            case "note":
                html = fill("part_replaced.html", self._frame, model=part.pieces[0])
                return [Piece(number, "note", html=html)]
            case "approval":
                return [Piece(number, "approval", event=part.event)]
