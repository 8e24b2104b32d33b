"""The conversation in order, for people: messages, calls, results and the places where it was compacted.

It has everything on the live path, including compacted parts, and shortens nothing.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ...core import approvals, entries as kinds
from ...core.entries import Block, Content, Entry, blocks_of, clean
from ...core.history import as_text, name_of
from ...core.session import Session, on_path
from ...core.user_content import user_content
from .writing import ExportWriter, LogOutline

ExportedKind: TypeAlias = Literal["user", "assistant", "call", "result", "compaction", "failed", "image", "approval"]


class ExportedItem(Struct, frozen=True):
    kind: ExportedKind
    seq: int
    ts: str
    who: str
    text: str
    source: str = ""
    """The data URI of an image."""


class TimelineWriter(ExportWriter):
    """Writes item after item."""

    looks = 1

    def __init__(self, session: Session) -> None:
        self.session = session
        self._log = LogOutline()

    def look(self, number: int, page: Sequence[Entry]) -> None:
        self._log.look(page)

    def write(self, page: Sequence[Entry]) -> Iterator[str]:
        return map(self.item, self._found(page))

    def item(self, item: ExportedItem) -> str:
        raise NotImplementedError

    def _found(self, page: Sequence[Entry]) -> Iterator[ExportedItem]:
        log = self._log
        counting = {mark.seq for mark in log.compactions()}
        for entry in page:
            if on_path(entry.seq, log.path):
                for item in _items(entry, log.received, entry.seq in counting):
                    who = " ".join(printable(item.who).split())
                    yield replace(item, who=who, ts=printable(item.ts), text=printable(item.text))


def _items(entry: Entry, received: dict[int, kinds.Received], counts: bool) -> Iterator[ExportedItem]:
    match entry:
        case kinds.User():
            yield from _said(entry, "user", name_of(entry.sender or "User"), user_content(entry, received))
        case kinds.Assistant():
            who = "Assistant (not sent: it ended in an error)" if entry.stop == "error" else "Assistant"
            yield from _said(entry, "assistant", who, entry.content)
        case kinds.ToolResult():
            who = "Result (an error)" if entry.is_error else "Result"
            yield ExportedItem("result", entry.seq, entry.ts, who, as_text(entry.content))
        case kinds.Compaction():
            yield ExportedItem("compaction", entry.seq, entry.ts, _marker(entry, counts), entry.summary)
        case kinds.Failed():
            yield ExportedItem("failed", entry.seq, entry.ts, f"No answer: {entry.code}", entry.reason)
        case kinds.Approval(state="requested"):
            yield ExportedItem("approval", entry.seq, entry.ts, f"Asked for approval of {entry.tool}", entry.why)
        case kinds.ApprovalAnswer():
            yield ExportedItem("approval", entry.seq, entry.ts, "Answer", approvals.describe(entry))
        case _:
            pass


def _marker(entry: kinds.Compaction, counts: bool) -> str:
    first, last = entry.covers
    sizes = f", {entry.tokens_before:,} → {entry.tokens_after:,} tokens" if entry.tokens_before else ""
    return f"{'Compacted' if counts else 'Compacted, then undone'}: entries {first} to {last}{sizes}"


def _said(entry: Entry, kind: ExportedKind, who: str, content: Content) -> Iterator[ExportedItem]:
    for block in blocks_of(content):
        item = _block(entry, kind, who, block)
        if item is not None:
            yield item


def _block(entry: Entry, kind: ExportedKind, who: str, block: Block) -> ExportedItem | None:
    match block:
        case {"type": "tool_use"}:
            given = json.dumps(block.get("input"), ensure_ascii=False, indent=2, default=str)
            return ExportedItem("call", entry.seq, entry.ts, f"Call: {block.get('name')}", given)
        case {"type": "image", "source": {"type": "base64", "media_type": str(form), "data": str(data)}}:
            return ExportedItem("image", entry.seq, entry.ts, who, "[image]", f"data:{form};base64,{data}")
        case _:
            text = as_text([block]).strip("\n")
            return ExportedItem(kind, entry.seq, entry.ts, who, text) if text.strip() else None


def printable(text: Any) -> str:
    """The text without control characters, which could control a terminal, and without what UTF-8 cannot encode."""
    return clean(str(text).replace("\r\n", "\n")).translate(_HIDDEN)


_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))
_TURNS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Characters that change the direction of the text after them, so that it could be misread."""
_HIDDEN = {code: "\ufffd" for code in (*_CONTROLS, *_TURNS) if chr(code) not in "\n\t"}
