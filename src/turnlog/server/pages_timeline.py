"""Entries → what a page shows of a session, in order. Pure, and without a word of HTML: templates escape and sanitise.

Two ways of looking: a conversation shows what counts, with folded parts behind their compaction; a timeline shows
every entry where it was written.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct, field
from msgspec.structs import replace

from ..core.entries import (
    Assistant,
    Block,
    Compaction,
    Content,
    Entry,
    Failed,
    Foreign,
    Opened,
    Pin,
    Received,
    Rewind,
    Selected,
    Shortened,
    Status,
    Title,
    ToolResult,
    Undo,
    Unpin,
    User,
    text_of,
    tool_uses,
    user_content,
)
from ..core.session import Session, active, live_path, on_path

INPUT_MAX_CHARS = 8_000
"""Of a tool call's input in a page; the session view's address of the entry has all of it."""

Kind: TypeAlias = Literal["user", "assistant", "tool", "compaction", "note", "failed"]


class Card(Struct, frozen=True, kw_only=True):
    """A tool call and what came of it."""

    name: str
    input: str = ""
    output: str | None = None
    """None: nothing came yet."""
    is_error: bool = False
    seq: int = 0
    """Of the result."""


class Fold(Struct, frozen=True, kw_only=True):
    """A compaction as a marker."""

    summary: str
    before: int
    after: int
    entries: int
    trigger: str
    model: str
    state: Literal["active", "under", "undone"]
    undoable: bool = False


class Item(Struct, frozen=True, kw_only=True):
    kind: Kind
    seq: int
    ts: str = ""
    speaker: str = ""
    text: str = ""
    thinking: str = ""
    images: int = 0
    cards: tuple[Card, ...] = ()
    fold: Fold | None = None
    note: str = ""
    """The name of a text; `values` go into it."""
    values: Mapping[str, Any] = field(default_factory=lambda: cast("dict[str, Any]", {}))
    tags: tuple[str, ...] = ()
    """Names of texts: waiting, rewound, folded, pinned, partial."""


def conversation(row: Session, entries: Sequence[Entry], folds: Sequence[Compaction] = ()) -> list[Item]:
    """What counts now: the active compactions, then the messages that they left. `folds` are older than `entries`."""
    stack = [mark.seq for mark in active(row.marks, row.last_seq)]
    known = {entry.seq: entry for entry in (*folds, *entries) if isinstance(entry, Compaction)}
    heads = [_fold_item(row, known[seq]) for seq in stack if seq in known]
    path = live_path(row.marks, row.last_seq)
    shown = [entry for entry in entries if _is_said(entry, row, stack) and on_path(entry.seq, path)]
    return [*heads, *_items(row, shown, entries)]


def timeline(row: Session, entries: Sequence[Entry]) -> list[Item]:
    """Every entry, also what was rewound or folded since, where it was written."""
    taken = {seq for entry in entries if isinstance(entry, User) for seq in entry.from_}
    return _items(row, [entry for entry in entries if not _is_taken(entry, taken)], entries)


def _is_taken(entry: Entry, taken: set[int]) -> bool:
    return isinstance(entry, Received) and entry.seq in taken


def _is_said(entry: Entry, row: Session, stack: Sequence[int]) -> bool:
    match entry:
        case User() | Assistant() | ToolResult() | Failed():
            return entry.seq >= row.boundary
        case Received():
            return entry.seq in row.received
        case Compaction():
            return entry.seq not in stack  # undone ones stay visible; those that count stand at the top
        case Shortened() | Pin() | Unpin() | Rewind():
            return True
        case _:
            return False


def running_turn(entries: Sequence[Entry]) -> int:
    """The seq of the user entry that began the newest turn; 0 if there is none."""
    begun, before = 0, None
    for entry in entries:
        if isinstance(entry, User) and not isinstance(before, ToolResult):
            begun = entry.seq
        if isinstance(entry, User | Assistant | ToolResult | Failed):
            before = entry
    return begun


def _items(row: Session, shown: Sequence[Entry], around: Sequence[Entry]) -> list[Item]:
    received = {entry.seq: entry for entry in around if isinstance(entry, Received)}
    results = {entry.tool_use_id: entry for entry in around if isinstance(entry, ToolResult)}
    called = {str(call.get("id")) for entry in shown if isinstance(entry, Assistant) for call in tool_uses(entry)}
    items: list[Item] = []
    for entry in shown:
        if isinstance(entry, ToolResult) and entry.tool_use_id in called:
            continue  # on the card of its call
        item = _item(row, entry, received, results)
        items.append(replace(item, tags=(*item.tags, *_tags(row, entry))))
    return items


def _item(row: Session, entry: Entry, received: Mapping[int, Received], results: Mapping[str, ToolResult]) -> Item:
    match entry:
        case User():
            return _said(entry.seq, entry.ts, entry.sender, user_content(entry, received))
        case Received():
            return replace(_said(entry.seq, entry.ts, entry.sender, entry.content), tags=("waiting",))
        case Assistant():
            return _answer(row, entry, results)
        case ToolResult():
            card = Card(name=entry.tool_use_id, output=text_of(entry.content), is_error=entry.is_error, seq=entry.seq)
            return Item(kind="tool", seq=entry.seq, ts=entry.ts, cards=(card,))
        case Compaction():
            return _fold_item(row, entry)
        case Failed():
            return Item(
                kind="failed", seq=entry.seq, ts=entry.ts, note="note_failed", text=entry.reason, speaker=entry.code
            )
        case _:
            name, values = _note(entry)
            return Item(kind="note", seq=entry.seq, ts=entry.ts, note=name, values=values)


def _said(seq: int, ts: str, sender: str | None, content: Content) -> Item:
    return Item(kind="user", seq=seq, ts=ts, speaker=sender or "", text=text_of(content), images=_images(content))


def _answer(row: Session, entry: Assistant, results: Mapping[str, ToolResult]) -> Item:
    return Item(
        kind="assistant",
        seq=entry.seq,
        ts=entry.ts,
        speaker=row.agent,
        text=text_of(entry.content),
        thinking=_thinking(entry.content),
        cards=tuple(_card(call, results.get(str(call.get("id")))) for call in tool_uses(entry)),
        tags=("partial",) if entry.stop == "interrupted" else (),
    )


def _card(call: Block, result: ToolResult | None) -> Card:
    return Card(
        name=str(call.get("name")),
        input=as_json(call.get("input"), INPUT_MAX_CHARS),
        output=None if result is None else text_of(result.content),
        is_error=result is not None and result.is_error,
        seq=0 if result is None else result.seq,
    )


def as_json(value: Any, limit: int) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)[:limit]


def _thinking(content: Content) -> str:
    if isinstance(content, str):
        return ""
    return "\n\n".join(str(block.get("thinking") or "") for block in content if block.get("type") == "thinking")


def _images(content: Content) -> int:
    return 0 if isinstance(content, str) else sum(block.get("type") == "image" for block in content)


def _fold_item(row: Session, entry: Compaction) -> Item:
    stack = [mark.seq for mark in active(row.marks, row.last_seq)]
    state = "undone" if entry.seq not in stack else "active" if entry.seq == stack[-1] else "under"
    fold = Fold(
        summary=entry.summary,
        before=entry.tokens_before,
        after=entry.tokens_after,
        entries=max(0, entry.first_kept - entry.covers[0]),
        trigger=entry.trigger,
        model=entry.model or "",
        state=state,
        undoable=state == "active",
    )
    return Item(kind="compaction", seq=entry.seq, ts=entry.ts, fold=fold)


def _note(entry: Entry) -> tuple[str, dict[str, Any]]:
    match entry:
        case Shortened():
            return "note_shortened", {"n": len(entry.targets)}
        case Pin():
            return "note_pin", {"n": entry.target}
        case Unpin():
            return "note_unpin", {"n": entry.target}
        case Rewind():
            return "note_rewind", {"n": entry.to}
        case Undo():
            return "note_undo", {"n": entry.target}
        case Status():
            return "note_status", {"value": entry.value}
        case Title():
            return "note_title", {"title": entry.title}
        case Opened():
            return "note_opened", {"key": entry.key}
        case Selected():
            return "note_selected", {}
        case _:
            return "note_foreign", {}


def _tags(row: Session, entry: Entry) -> Iterable[str]:
    if isinstance(entry, Opened | Compaction | Foreign):
        return ()
    tags: list[str] = []
    if not on_path(entry.seq, live_path(row.marks, row.last_seq)):
        tags.append("rewound")
    elif isinstance(entry, User | Assistant | ToolResult) and entry.seq < row.boundary:
        tags.append("folded")
    if any(target == entry.seq for _, target in row.pins):
        tags.append("pinned")
    return tags
