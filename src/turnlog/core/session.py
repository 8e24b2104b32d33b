"""The index row of a session, as a fold over its entries; and which entries may be added to it.

`describe(row, entries)` is the only rule for what a list shows and for what a resume needs: where the tail begins,
which compactions are active, what is pinned, which messages wait. No store contains any of it.

A log is a line that may jump back: `rewind` makes an older entry the predecessor of the next one. So the entries that
count (the live path) are found by walking back from the end and jumping at each rewind. The row remembers only the
few entries that shape the log (marks), never the messages.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from ..errors import UsageError
from . import tokens
from .entries import (
    MESSAGES,
    Assistant,
    Compaction,
    Content,
    Entry,
    Failed,
    Opened,
    Origin,
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
    clean,
    context_tokens,
    has_results,
    text_of,
    tool_uses,
)

TITLE_MAX_CHARS = 60
MARKS_KEPT = 64
"""Marks in a row before those under older compactions are dropped from it (the log keeps them)."""
STACK_KEPT = 32
"""Active compactions a row remembers; undoing more reads the whole log once."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

StatusValue: TypeAlias = Literal["active", "inactive", "archived", "trashed"]
LastRole: TypeAlias = Literal["", "user", "call", "tool", "assistant", "failed"]
"""`call`: an assistant message that asks for tools."""
Interval: TypeAlias = tuple[int, int]


class Mark(Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """One entry that shapes the log. `at` is its target, `to` of a rewind, or `first_kept`."""

    kind: Literal["compaction", "shortened", "pin", "unpin", "rewind", "undo"]
    seq: int
    at: int
    saved: int = 0
    """Tokens a compaction took away, so that its undo can give them back."""


class Session(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel", gc=False):
    """What is known of a session without reading it."""

    id: str
    key: str
    agent: str = field(name="agentId")
    channel: str
    label: str | None = None
    title: str = ""
    title_by: Literal["", "first", "auto", "user"] = ""
    status: StatusValue = "inactive"
    message_count: int = 0
    turn_count: int = 0
    created_at: int = 0
    last_at: int = 0
    token_estimate: int = 0
    compactions: int = 0
    forked_from: Origin | None = None
    last_seq: int = 0
    selected_n: int = 0
    last_role: LastRole = ""
    first_message: int = 0
    boundary: int = 1
    """The first entry kept by the newest active compaction; 1 without one."""
    read_from: int = 1
    """Where reading must begin to see the boundary and the compaction that set it."""
    marks: tuple[Mark, ...] = ()
    pruned_to: int = 0
    """Marks up to this seq may be missing above."""
    pruned_compactions: int = 0
    """How many active ones are among those missing."""
    pins: tuple[Interval, ...] = ()
    """(seq of the pin, seq of what it pins), those that hold."""
    received: tuple[int, ...] = ()
    """Messages no turn has taken yet."""

    @property
    def under_way(self) -> bool:
        """Whether the last turn has neither an answer nor a `failed` yet: it runs, or was cut by a crash."""
        return self.last_role in ("user", "call", "tool")


def describe(row: Session | None, entries: Iterable[Entry]) -> Session:
    """The row after these entries. Without a row, `entries` must be the log from its first entry on."""
    if row is not None and row.title_by:
        entries = list(entries)
        if quick := _after_talk(row, entries):
            return quick
    fold = _Fold(row)
    for entry in entries:
        fold.add(entry)
    return fold.row()


def _after_talk(row: Session, entries: Sequence[Entry]) -> Session | None:
    """The row after plain questions and answers, which nearly every append is; None for anything else.

    `_Fold` is the rule. This is the same in a fraction of the time, and the property tests hold the two together.
    """
    size, role, turns = row.token_estimate, row.last_role, row.turn_count
    for entry in entries:
        if entry.after is not None:
            return None
        if isinstance(entry, Assistant):
            size = _tokens_after(size, entry)
            role = _role_of(entry)
        elif isinstance(entry, User) and not entry.from_ and not has_results(entry):
            size += tokens.quick(text_of(entry.content))
            turns += role != "tool"
            role = "user"
        else:
            return None
    if not entries:
        return row
    last = entries[-1]
    moment = max(entry.ts for entry in entries)
    return replace(
        row,
        message_count=row.message_count + len(entries),
        turn_count=turns,
        token_estimate=size,
        last_role=role,
        last_seq=last.seq,
        last_at=max(row.last_at, milliseconds(moment)) if moment else row.last_at,
        first_message=row.first_message or entries[0].seq,
    )


def _role_of(entry: Assistant) -> LastRole:
    content = entry.content
    if isinstance(content, str):
        return "assistant"
    return "call" if any(block.get("type") == "tool_use" for block in content) else "assistant"


def needs_whole_log(row: Session | None, bodies: Sequence[Entry]) -> bool:
    """Whether the row alone cannot tell what these entries do: then describe(None, the whole log)."""
    kinds = {type(body) for body in bodies}
    if Undo in kinds and row is not None and row.pruned_to and len(active(row.marks, row.last_seq)) <= len(bodies):
        return True
    return Rewind in kinds or any(body.after is not None for body in bodies)


def marks_of(entries: Iterable[Entry]) -> list[Mark]:
    """In order. An entry that follows an older one than the one before it is a rewind to that one as well."""
    marks: list[Mark] = []
    for entry in entries:
        if entry.after is not None:
            marks.append(Mark("rewind", entry.seq, entry.after))
        if not isinstance(entry, MESSAGES) and (mark := mark_of(entry)):
            marks.append(mark)
    return marks


def mark_of(entry: Entry) -> Mark | None:
    match entry:
        case Compaction():
            saved = max(0, entry.tokens_before - entry.tokens_after)
            return Mark("compaction", entry.seq, entry.first_kept, saved)
        case Shortened():
            return Mark("shortened", entry.seq, entry.limit)
        case Pin():
            return Mark("pin", entry.seq, entry.target)
        case Unpin():
            return Mark("unpin", entry.seq, entry.target)
        case Rewind():
            return Mark("rewind", entry.seq, entry.to)
        case Undo():
            return Mark("undo", entry.seq, entry.target)
        case _:
            return None


def live_path(marks: Sequence[Mark], last_seq: int) -> list[Interval]:
    """The entries that count, as intervals, newest first."""
    rewinds = [mark for mark in marks if mark.kind == "rewind"]
    path: list[Interval] = []
    end = last_seq
    while end > 0:
        jump = next((mark for mark in reversed(rewinds) if mark.seq <= end), None)
        if jump is None:
            path.append((1, end))
            break
        path.append((jump.seq, end))
        end = min(jump.at, jump.seq - 1)  # a damaged or forged log may point forward; it must not keep us walking
    return path


def on_path(seq: int, path: Sequence[Interval]) -> bool:
    return any(first <= seq <= last for first, last in path)


def active(marks: Sequence[Mark], last_seq: int) -> list[Mark]:
    """The compactions that count, oldest first: on the live path and not undone there."""
    path = live_path(marks, last_seq)
    live = [mark for mark in marks if on_path(mark.seq, path)]
    undone = {mark.at for mark in live if mark.kind == "undo"}
    return [mark for mark in live if mark.kind == "compaction" and mark.seq not in undone]


def pinned(marks: Sequence[Mark], last_seq: int) -> tuple[Interval, ...]:
    """What is pinned at the end of the log: (seq of the pin, seq of its target)."""
    path = live_path(marks, last_seq)
    held: dict[int, int] = {}
    for mark in marks:
        if mark.kind == "pin" and on_path(mark.seq, path) and on_path(mark.at, path):
            held[mark.at] = mark.seq
        elif mark.kind == "unpin" and on_path(mark.seq, path):
            held.pop(mark.at, None)
    return tuple(sorted((seq, target) for target, seq in held.items()))


class _Fold:
    """The row under construction: plain attributes, because this runs in every append."""

    def __init__(self, row: Session | None) -> None:
        self.before = row
        self.changes: dict[str, object] = {}
        self.opened: Opened | None = None
        self.last_seq = row.last_seq if row else 0
        self.last_ts = ""
        self.messages = row.message_count if row else 0
        self.turns = row.turn_count if row else 0
        self.tokens = row.token_estimate if row else 0
        self.role: LastRole = row.last_role if row else ""
        self.first_message = row.first_message if row else 0
        self.title = row.title if row else ""
        self.title_by = row.title_by if row else ""
        self.received = row.received if row else ()
        self.marks: list[Mark] = []
        self.past: dict[int, tuple[int, LastRole]] = {}
        """Size and role at each entry; only a fold over the whole log can go back to them (needs_whole_log)."""

    def add(self, entry: Entry) -> None:
        self.last_seq = entry.seq
        self.last_ts = max(self.last_ts, entry.ts)  # copies in a fork are older than the fork
        if entry.after is not None:
            self._go_back(entry.seq, entry.after)
        if isinstance(entry, MESSAGES):
            self._add_message(entry)
        else:
            self._add_other(entry)
        if self.before is None:
            self.past[entry.seq] = self.tokens, self.role

    def _go_back(self, seq: int, to: int) -> None:
        self.marks.append(Mark("rewind", seq, to))
        self.tokens, self.role = self.past.get(to, (self.tokens, self.role))

    def _add_message(self, entry: User | Assistant | ToolResult) -> None:
        self.first_message = self.first_message or entry.seq
        self.tokens = _tokens_after(self.tokens, entry)
        match entry:
            case User():
                self.messages += 1
                # A user entry right after tool results steers the running turn; any other one begins a turn.
                results = self.role == "call" and has_results(entry)
                self.turns += self.role != "tool" and not results
                self.role = "tool" if results else "user"
                if entry.from_:
                    taken = set(entry.from_)
                    self.received = tuple(seq for seq in self.received if seq not in taken)
                if not self.title_by:
                    self._title_from(entry.content)
            case Assistant():
                self.messages += 1
                self.role = _role_of(entry)
            case _:
                self.role = "tool"

    def _title_from(self, content: Content | None) -> None:
        if title := cut_title(text_of(content)):
            self.title, self.title_by = title, "first"

    def _add_other(self, entry: Entry) -> None:
        match entry:
            case Opened():
                self.opened = entry
            case Selected():
                self.changes["selected_n"] = entry.n
                self.changes["status"] = "active"
            case Status():
                self.changes["status"] = entry.value
            case Title() if entry.by == "user" or self.title_by != "user":
                self.title, self.title_by = cut_title(entry.title), entry.by
            case Received():
                # Its words count here, and not again in the user entry that is made from it.
                self.received = (*self.received, entry.seq)
                self.tokens = _tokens_after(self.tokens, entry)
                if not self.title_by:
                    self._title_from(entry.content)
            case Failed():
                self.role = "failed"
            case _:
                self._add_mark(entry)

    def _add_mark(self, entry: Entry) -> None:
        mark = mark_of(entry)
        if mark is None:
            return
        self.marks.append(mark)
        match entry:
            case Compaction():
                self.tokens = entry.tokens_after or max(0, self.tokens - mark.saved)
            case Undo():
                self.tokens += self._saved_by(entry.target)
            case Rewind():
                self.tokens, self.role = self.past.get(entry.to, (self.tokens, self.role))
            case _:
                pass

    def _saved_by(self, seq: int) -> int:
        known = (*(self.before.marks if self.before else ()), *self.marks)
        return next((mark.saved for mark in known if mark.seq == seq), 0)

    def row(self) -> Session:
        before = self.before or _first_row(self.opened)
        if self.opened is not None:
            self.changes["created_at"] = milliseconds(self.opened.ts)
        if self.marks:
            self._settle_marks(before)
        self.changes.update(
            title=self.title,
            title_by=self.title_by,
            message_count=self.messages,
            turn_count=self.turns,
            token_estimate=self.tokens,
            last_seq=self.last_seq,
            last_role=self.role,
            first_message=self.first_message,
            received=self.received,
        )
        if self.last_ts:
            self.changes["last_at"] = max(before.last_at, milliseconds(self.last_ts))
        return replace(before, **self.changes)

    def _settle_marks(self, before: Session) -> None:
        marks = (*before.marks, *self.marks)
        stack = active(marks, self.last_seq)
        pins = pinned(marks, self.last_seq)
        newest = stack[-1] if stack else None
        self.changes.update(
            boundary=newest.at if newest else 1,
            read_from=min(newest.at, newest.seq) if newest else 1,
            compactions=len(stack) + before.pruned_compactions,
            pins=pins,
            marks=marks,
        )
        if len(marks) > MARKS_KEPT and len(stack) > STACK_KEPT:
            oldest = stack[-STACK_KEPT].at
            held = {seq for seq, _ in pins}
            self.changes["pruned_to"] = oldest - 1
            self.changes["pruned_compactions"] = before.pruned_compactions + sum(m.seq < oldest for m in stack)
            self.changes["marks"] = tuple(mark for mark in marks if mark.seq >= oldest or mark.seq in held)


def _tokens_after(size: int, entry: User | Assistant | ToolResult | Received) -> int:
    """Anchored on what the provider reported, if it did; otherwise the old size plus a quick estimate."""
    if isinstance(entry, Assistant):
        reported = context_tokens(entry.usage)
        return reported or size + tokens.quick(text_of(entry.content)) + 20 * len(tool_uses(entry))
    if isinstance(entry, User) and entry.from_:
        return size  # counted when they were received
    return size + tokens.quick(text_of(entry.content))


def _first_row(opened: Opened | None) -> Session:
    if opened is None:
        raise UsageError("a transcript begins with a session entry")
    return Session(
        id=opened.id,
        key=opened.key,
        agent=opened.agent,
        channel=opened.channel,
        label=opened.label,
        forked_from=opened.forked_from,
    )


@lru_cache(maxsize=1024)
def milliseconds(ts: str) -> int:
    """RFC 3339 UTC with milliseconds, the only form we write, to Unix ms; 0 for anything else."""
    try:
        moment = datetime.fromisoformat(ts)
    except ValueError:
        return 0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    delta = moment - _EPOCH
    return delta.days * 86_400_000 + delta.seconds * 1000 + delta.microseconds // 1000


def cut_title(text: str, limit: int = TITLE_MAX_CHARS) -> str:
    """One line, at most `limit` characters, never cut inside a grapheme; `…` says that there was more."""
    head = text.lstrip()
    line = clean(" ".join(head[: limit * 8].split()))
    if len(line) <= limit and len(head) <= limit * 8:
        return line
    end = min(limit - 1, len(line))
    while end > 0 and _joins(line, end):
        end -= 1
    return line[:end].rstrip() + "…"


def _joins(text: str, at: int) -> bool:
    """Whether cutting before text[at] would tear a visible character apart."""
    if at >= len(text):
        return False
    char, previous = text[at], text[at - 1]
    if unicodedata.combining(char) or char in "\u200d\ufe0e\ufe0f\u20e3" or previous == "\u200d":
        return True
    if "\U0001f3fb" <= char <= "\U0001f3ff" or unicodedata.category(char) in ("Mn", "Me", "Mc"):
        return True
    if "\u1160" <= char <= "\u11ff" or "\U000e0020" <= char <= "\U000e007f":  # Hangul jamo, tags of regional flags
        return True
    flags = 0
    while at - flags > 0 and "\U0001f1e6" <= text[at - 1 - flags] <= "\U0001f1ff":
        flags += 1
    return flags % 2 == 1 and "\U0001f1e6" <= char <= "\U0001f1ff"
