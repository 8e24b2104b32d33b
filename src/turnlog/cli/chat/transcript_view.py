"""Entries as lines, for /history, /expand and `sessions show`."""

from collections.abc import Container

from ...core import approvals, entries as kinds
from ...core.entries import Entry, Transcript, text_of, tool_uses
from ...core.history import survey
from ...core.session import Interval, live_path, marks_of
from ...core.user_content import user_content
from ...texts import Texts
from ..escaping import escape, inline
from .notes import SHOWN_CHARS

LINE_MAX_CHARS = 2_000
"""Of one message; `sessions show --json` prints it whole."""
RESULT_SHOWN_CHARS = 200
TEXT_COLUMN = 7
"""Where the text begins, after the seq: its further lines are indented as far."""
_NEXT_LINE = "\n" + " " * TEXT_COLUMN


def lines_of(
    entries: Transcript, words: Texts, *, last: int | None = None, left_out: Container[int] | None = None
) -> list[str]:
    """One or more lines for each message and marker; only the newest `last` of them, if given. `left_out`: the messages
    that the model refused, if these are not all entries.
    """
    received = {entry.seq: entry for entry in entries if isinstance(entry, kinds.Received)}
    if left_out is None:
        left_out = survey(entries).left_out
    lines = [
        (entry.seq, f"{line}  --- {words('left_out')} ---" if entry.seq in left_out else line)
        for entry in entries
        if (line := _line(entry, received))
    ]
    return [f"{seq:>5}  {line}" for seq, line in (lines if last is None else lines[-last:])]


def _line(entry: Entry, received: dict[int, kinds.Received]) -> str:
    match entry:
        case kinds.User():
            return f"[user] {_cut(text_of(user_content(entry, received)))}"
        case kinds.Assistant():
            return "\n".join(_answer(entry))
        case kinds.ToolResult():
            word = "tool error" if entry.is_error else "tool result"
            return f"[{word}] {inline(text_of(entry.content), RESULT_SHOWN_CHARS)}"
        case _:
            mark = _mark(entry)
            return f"--- {mark} ---" if mark else ""


def _mark(entry: Entry) -> str:
    match entry:
        case kinds.Compaction():
            sizes = f"~{entry.tokens_before:,} → ~{entry.tokens_after:,} tokens"
            return f"compacted {entry.covers[0]}–{entry.covers[1]} ({entry.trigger}): {sizes}"
        case kinds.Failed():
            return f"failed ({inline(entry.code)}): {inline(entry.reason, RESULT_SHOWN_CHARS)}"
        case kinds.Approval(state="requested"):
            return f"asked for approval: {inline(entry.tool)} ({inline(entry.why, RESULT_SHOWN_CHARS)})"
        case kinds.ApprovalAnswer():
            return inline(approvals.describe(entry), RESULT_SHOWN_CHARS)
        case kinds.Rewind():
            return f"rewound to {entry.to}"
        case kinds.Shortened(plain=True):
            return f"shown as plain text up to {max(entry.targets, default=0)}"
        case kinds.Undo():
            return f"undone: {entry.target}"
        case _:
            return ""


def _answer(entry: kinds.Assistant) -> list[str]:
    calls = [
        f"{' ' * TEXT_COLUMN}[call] {inline(str(call.get('name')))} {inline(str(call.get('input')), SHOWN_CHARS)}"
        for call in tool_uses(entry)
    ]
    words = _cut(text_of(entry.content))
    return [f"[assistant] {words}", *calls] if words or not calls else [calls[0].strip(), *calls[1:]]


def _cut(text: str) -> str:
    shown = text if len(text) <= LINE_MAX_CHARS else f"{text[:LINE_MAX_CHARS]} … ({len(text):,} characters)"
    return escape(shown).replace("\n", _NEXT_LINE)


def path_of(entries: Transcript) -> list[Interval]:
    """The parts of the log that were not rewound."""
    return live_path(marks_of(entries), entries[-1].seq) if entries else []
