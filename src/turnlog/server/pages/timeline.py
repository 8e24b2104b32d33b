"""Entries → the items of a page, in order. Pure, and without HTML: templates escape and sanitise.

A conversation shows the current history, with folded entries behind their compaction. A chat shows the same branch of
the log with the folded entries too, and each compaction as a divider where the kept messages begin. A timeline shows
every entry in the order of writing.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct, field
from msgspec.structs import replace

from ...core import entries as kinds, history, turns
from ...core.entries import MESSAGES, Block, Content, Entry, Message, kind_of, text_of, tool_uses
from ...core.heard import is_heard
from ...core.pairing import Pairing, pair
from ...core.session import Session, active, live_path, marks_of, on_path
from ...core.user_content import parted, user_content

INPUT_MAX_CHARS = 8_000
"""Of a tool call's input in a page; the URL of the entry has the whole input."""

CLIENT_MAX_CHARS = 60
"""Of the name that a client gives itself."""

TimelineKind: TypeAlias = Literal["user", "assistant", "tool", "compaction", "note", "failed"]


class Card(Struct, frozen=True, kw_only=True):
    """A tool call and its result."""

    name: str
    input: str = ""
    output: str | None = None
    """None: there is no result yet."""
    is_error: bool = False
    seq: int = 0
    """Of the result."""
    left_out: bool = False
    """The model refused the result and is not shown it."""


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


class TimelineItem(Struct, frozen=True, kw_only=True):
    kind: TimelineKind
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
    """Names of texts: waiting, heard, rewound, folded, left_out, pinned, newer_fields, partial."""
    retriable: bool = False
    """Whether this is the failure of the last turn, which can be retried, edited or discarded."""
    turn: int = 0
    """The user entry that began its turn."""
    ends: bool = False
    """Whether a turn ended here: the history can go on from here."""


def conversation(row: Session, entries: Sequence[Entry], folds: Sequence[kinds.Compaction] = ()) -> list[TimelineItem]:
    """The current history: the active compactions (`folds`, older than `entries`), then the messages after them."""
    stack = [mark.seq for mark in active(row.marks, row.last_seq)]
    known = {entry.seq: entry for entry in (*folds, *entries) if isinstance(entry, kinds.Compaction)}
    heads = [_fold_item(row, known[seq]) for seq in stack if seq in known]
    # A row keeps only the latest marks of a long log; the marks of these entries are among them.
    path = live_path(sorted((*row.marks, *marks_of(entries)), key=lambda mark: mark.seq), row.last_seq)
    notes = (kinds.Shortened, kinds.Pin, kinds.Unpin, kinds.Rewind)
    said = [entry for entry in entries if _is_shown(entry, row, stack, notes, first=row.boundary)]
    shown = [entry for entry in said if on_path(entry.seq, path)]
    return [*heads, *_items(row, shown, entries)]


def chat(row: Session, entries: Sequence[Entry], folds: Sequence[kinds.Compaction] = ()) -> list[TimelineItem]:
    """One branch of the log. `row` describes that branch; `folds`: its active compactions whose dividers are here."""
    path = live_path(sorted({*row.marks, *marks_of(entries)}, key=lambda mark: mark.seq), row.last_seq)
    taken = {entry.seq for entry in folds} | {mark.seq for mark in active(row.marks, row.last_seq)}
    notes = (kinds.Shortened, kinds.Rewind, kinds.ModelChoice)
    shown = [entry for entry in entries if _is_shown(entry, row, taken, notes) and on_path(entry.seq, path)]
    found = _items(row, shown, entries)
    items = [replace(item, tags=tuple(tag for tag in item.tags if tag != "folded")) for item in found]
    for fold in sorted(folds, key=lambda entry: (entry.first_kept, entry.seq), reverse=True):
        at = next((n for n, item in enumerate(items) if item.seq >= fold.first_kept), len(items))
        items.insert(at, _fold_item(row, fold))
    return items


def timeline(row: Session, entries: Sequence[Entry]) -> list[TimelineItem]:
    """Every entry in the order of writing, including those that were rewound or folded."""
    taken = {seq for entry in entries if isinstance(entry, kinds.User) for seq in entry.from_}
    shown = [entry for entry in entries if not isinstance(entry, kinds.Received) or entry.seq not in taken]
    return _items(row, shown, entries)


def _is_shown(
    entry: Entry, row: Session, folds: Collection[int], notes: tuple[type[Entry], ...], *, first: int = 0
) -> bool:
    """`folds`: compactions that are shown elsewhere. `notes`: what is shown besides messages, the oldest of which is
    `first`.
    """
    match entry:
        case kinds.Received():
            return entry.seq in (*row.received, *row.heard)
        case kinds.Compaction():
            return entry.seq not in folds  # undone ones stay visible
        case _:
            return isinstance(entry, notes) or (isinstance(entry, (*MESSAGES, kinds.Failed)) and entry.seq >= first)


def _items(row: Session, shown: Sequence[Entry], around: Sequence[Entry]) -> list[TimelineItem]:
    received = {entry.seq: entry for entry in around if isinstance(entry, kinds.Received)}
    parts = {entry.seq: parted(entry) for entry in around if isinstance(entry, MESSAGES)}
    pairing = pair([part for entry in parts.values() for part in entry])
    seqs = {entry.seq for entry in shown}
    elsewhere = {id(call.result) for seq, call in pairing.pairs() if seq not in seqs}
    left_out = history.survey(around).left_out
    failed = turns.unanswered(around)
    begun, ended = _turns_of(around)
    items: list[TimelineItem] = []
    for entry in shown:
        left = [part for part in parts.get(entry.seq, ()) if _is_left(part, pairing, elsewhere)]
        if isinstance(entry, kinds.User | kinds.ToolResult) and not left:
            continue  # shown on the cards of its calls
        item = _item(row, entry, received, left, pairing)
        cards = tuple(replace(card, left_out=card.seq in left_out) for card in item.cards)
        place = {"turn": begun.get(entry.seq, 0), "ends": entry.seq in ended}
        items.append(replace(item, tags=(*item.tags, *_tags(row, entry, left_out)), cards=cards, **place))
        if failed and failed.failed == entry.seq:
            items[-1] = replace(items[-1], retriable=True, turn=failed.start)
    return items


def _turns_of(around: Sequence[Entry]) -> tuple[dict[int, int], set[int]]:
    """The turn of each entry, along the branches of the log, and the entries at which a turn ended."""
    walk = turns.Walk()
    begun: dict[int, int] = {}
    ended: set[int] = set()
    turn = 0
    for entry in around:
        if entry.after is not None:
            turn = begun.get(entry.after, 0)
        if isinstance(entry, kinds.Rewind):
            turn = begun.get(entry.to, 0)
        if walk.take(entry):
            turn = entry.seq
        begun[entry.seq] = turn
        if walk.role not in turns.UNDER_WAY:
            ended.add(entry.seq)
    return begun, ended


def _is_left(part: Message, pairing: Pairing, elsewhere: set[int]) -> bool:
    """Whether no card of a call in this page shows it."""
    return not isinstance(part, kinds.ToolResult) or pairing.is_orphan(part) or id(part) in elsewhere


def _item(
    row: Session, entry: Entry, received: Mapping[int, kinds.Received], left: Sequence[Message], pairing: Pairing
) -> TimelineItem:
    match entry:
        case kinds.User() | kinds.ToolResult():
            return _message(entry, received, left)
        case kinds.Received():
            tag = "heard" if is_heard(entry) else "waiting"
            return replace(_said(entry.seq, entry.ts, entry.sender, entry.content), tags=(tag,))
        case kinds.Assistant():
            return _answer(row, entry, pairing)
        case kinds.Compaction():
            return _fold_item(row, entry)
        case kinds.Failed():
            return TimelineItem(
                kind="failed", seq=entry.seq, ts=entry.ts, note="note_failed", text=entry.reason, speaker=entry.code
            )
        case _:
            name, values = _note(entry)
            return TimelineItem(kind="note", seq=entry.seq, ts=entry.ts, note=name, values=values)


def _message(
    entry: kinds.User | kinds.ToolResult, received: Mapping[int, kinds.Received], left: Sequence[Message]
) -> TimelineItem:
    """The rest of a message: results whose calls are not in this page get cards of their own."""
    cards = tuple(
        Card(name=part.tool_use_id, output=text_of(part.content), is_error=part.is_error, seq=part.seq)
        for part in left
        if isinstance(part, kinds.ToolResult)
    )
    words = next((part for part in left if isinstance(part, kinds.User)), None)
    if words is None:
        return TimelineItem(kind="tool", seq=entry.seq, ts=entry.ts, cards=cards)
    return replace(_said(words.seq, words.ts, words.sender, user_content(words, received)), cards=cards)


def _said(seq: int, ts: str, sender: str | None, content: Content) -> TimelineItem:
    return TimelineItem(
        kind="user", seq=seq, ts=ts, speaker=sender or "", text=text_of(content), images=_images(content)
    )


def _answer(row: Session, entry: kinds.Assistant, pairing: Pairing) -> TimelineItem:
    calls = tool_uses(entry)
    results = pairing.results_of(entry) or [None] * len(calls)
    return TimelineItem(
        kind="assistant",
        seq=entry.seq,
        ts=entry.ts,
        speaker=row.agent,
        text=text_of(entry.content),
        thinking=_thinking(entry.content),
        cards=tuple(_card(call, result) for call, result in zip(calls, results, strict=True)),
        tags=("partial",) if entry.stop == "interrupted" else (),
    )


def _card(call: Block, result: kinds.ToolResult | None) -> Card:
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


def _fold_item(row: Session, entry: kinds.Compaction) -> TimelineItem:
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
    return TimelineItem(kind="compaction", seq=entry.seq, ts=entry.ts, fold=fold)


def _note(entry: Entry) -> tuple[str, dict[str, Any]]:
    """The text has the name of the type, and may use every field of the entry."""
    match entry:
        case kinds.Shortened(plain=True):
            return "note_plain", {"n": max(entry.targets, default=0)}
        case kinds.Shortened():
            return "note_shortened", {"n": len(entry.targets)}
        case kinds.Foreign(unknown={"type": kind}):
            return "note_unknown", {"type": kind}
        case kinds.Foreign(raw={"turnlog": "request", "client": str(client), "match": str(match)}):
            return "note_request", {"client": client[:CLIENT_MAX_CHARS] or "?", "match": match}
        case kinds.Foreign(raw={"turnlog": "head"}):
            return "note_head", {}
        case kinds.Foreign():
            return "note_foreign", {}
        case _:
            return f"note_{kind_of(entry)}", {name: getattr(entry, name) for name in entry.__struct_fields__}


def client_of(entries: Sequence[Entry]) -> str:
    """What the newest client of a relay calls itself; empty where there is none."""
    for entry in reversed(entries):
        match entry:
            case kinds.Foreign(raw={"turnlog": "request", "client": str(client)}):
                return client
            case _:
                continue
    return ""


def _tags(row: Session, entry: Entry, left_out: Mapping[int, int]) -> Iterable[str]:
    if isinstance(entry, kinds.Opened | kinds.Compaction | kinds.Foreign):
        return ()
    tags: list[str] = []
    if not on_path(entry.seq, live_path(row.marks, row.last_seq)):
        tags.append("rewound")
    elif isinstance(entry, kinds.User | kinds.Assistant | kinds.ToolResult) and entry.seq < row.boundary:
        tags.append("folded")
    if entry.seq in left_out:
        tags.append("left_out")
    if any(target == entry.seq for _, target in row.pins):
        tags.append("pinned")
    if entry.unknown:
        tags.append("newer_fields")
    return tags
