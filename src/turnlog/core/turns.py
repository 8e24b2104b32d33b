"""Where turns begin and end: what steers a running one, and the places a session can be rewound to."""

from collections.abc import Mapping, Sequence

from .entries import MESSAGES, Assistant, Entry, Failed, ToolResult, Transcript, User, tool_uses
from .session import Mark, live_path, marks_of


def ends(transcript: Transcript) -> set[int]:
    """Every entry, rewound ones included, that a turn ended with: nothing was under way when the log was there."""
    marks = marks_of(transcript)
    by_seq = {entry.seq: entry for entry in transcript}
    return {e.seq for e in transcript if _is_end(e.seq, [m for m in marks if m.seq <= e.seq], by_seq)}


def _is_end(end: int, marks: Sequence[Mark], by_seq: Mapping[int, Entry]) -> bool:
    """Looks back along the path that led here for the last thing said."""
    for first, last in live_path(marks, end):
        for seq in range(last, first - 1, -1):
            entry = by_seq.get(seq)
            if isinstance(entry, Assistant):
                return not tool_uses(entry)
            if isinstance(entry, User | ToolResult | Failed):
                return isinstance(entry, Failed)
    return True


def is_running(before: Transcript) -> bool:
    """Whether a user entry after these steers a turn: it comes right after a tool's result. Others begin one."""
    last = next((entry for entry in reversed(before) if isinstance(entry, (*MESSAGES, Failed))), None)
    return isinstance(last, ToolResult)
