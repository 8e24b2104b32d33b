"""Where a turn begins, where it ends, and how it ended. Every other module asks here.

A turn begins with a user message. A user message right after results of tools steers the turn that called them instead.
A turn is over after an answer that calls no tool, a `failed`, or the partial text of a failed answer. Results may be
their own entries or blocks of a user entry; results that no call waits for change nothing.

`begins` and `after` are the rule, entry by entry. `Walk` follows it through a log with its rewinds. The functions below
apply it to whole logs or tails.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from ..errors import UsageError
from .entries import MESSAGES, Assistant, Entry, Failed, Received, Rewind, ToolResult, Transcript, User, tool_uses
from .marks import LOOKED_BACK, Interval, on_path, path_of

Role: TypeAlias = Literal["", "user", "call", "tool", "assistant", "failed"]
"""The last thing said. `call`: an answer that asks for tools; `tool`: a result of one; "": nothing so far."""

UNDER_WAY: tuple[Role, ...] = ("user", "call", "tool")
End: TypeAlias = Literal["done", "stopped", "failed", "cut"]
"""`cut`: cut short by a crash, and not run again so far."""


def begins(role: Role, entry: Entry) -> bool:
    """Whether a turn begins with this entry, if `role` was said before it."""
    if not isinstance(entry, User):
        return False
    results, words = parts_of(entry)
    return words and role != "tool" and not (results and role == "call")


def after(role: Role, entry: Entry) -> Role:
    match entry:
        case User():
            results, words = parts_of(entry)
            if words:
                return "user"
            return _answered(role) if results else role
        case Assistant():
            if entry.stop == "error":
                return "failed"
            return "call" if tool_uses(entry) else "assistant"
        case ToolResult():
            return _answered(role)
        case Failed():
            return "failed"
        case _:
            return role


def _answered(role: Role) -> Role:
    return "tool" if role in ("call", "tool") else role


def parts_of(entry: User) -> tuple[bool, bool]:
    """(whether it contains tool results, whether it contains anything else)."""
    if not isinstance(entry.content, list):
        return False, True
    results = [b for b in entry.content if b.get("type") == "tool_result" and isinstance(b.get("tool_use_id"), str)]
    return bool(results), not results or len(results) < len(entry.content)


class Walk:
    """Reads a log in order and follows rewinds: each goes back to what had been said at its target."""

    def __init__(self, role: Role = "") -> None:
        self.role: Role = role
        self._past: dict[int, Role] = {}

    def take(self, entry: Entry) -> bool:
        """Whether a turn begins here."""
        if entry.after is not None:
            self.role = self._past.get(entry.after, "")
        if isinstance(entry, Rewind):
            self.role = self._past.get(entry.to, "")
        begun = begins(self.role, entry)
        self.role = self._past[entry.seq] = after(self.role, entry)
        return begun


def ends(transcript: Transcript) -> set[int]:
    """Every entry, including rewound ones, at which a turn ended: no turn was running when the log ended there."""
    walk = Walk()
    found: set[int] = set()
    for entry in transcript:
        walk.take(entry)
        if walk.role not in UNDER_WAY:
            found.add(entry.seq)
    return found


def last_role(transcript: Transcript) -> Role:
    walk = Walk()
    for entry in transcript:
        walk.take(entry)
    return walk.role


def starts(transcript: Transcript) -> list[int]:
    """The user entries that began turns, including rewound ones."""
    walk = Walk()
    return [entry.seq for entry in transcript if walk.take(entry)]


def live_starts(transcript: Transcript) -> list[int]:
    """The same, without those that were rewound."""
    path = path_of(transcript)
    return [seq for seq in starts(transcript) if on_path(seq, path)]


def newest(transcript: Transcript) -> list[Entry]:
    """The live entries of the newest turn, from its user entry on; if a tail begins within it, from its first user
    entry on.
    """
    path = path_of(transcript)
    users = [entry.seq for entry in transcript if isinstance(entry, User) and on_path(entry.seq, path)]
    start = max(live_starts(transcript), default=min(users, default=0))
    return [entry for entry in transcript if entry.seq >= start and on_path(entry.seq, path)]


def first(entries: Transcript) -> list[Entry]:
    """The first turn of a log that begins with its user entry, or with a message that waited for it.

    While the message still waits, only the message.
    """
    walk = Walk()
    begun = [entry.seq for entry in entries if walk.take(entry) or entry is entries[0]]
    if entries and isinstance(entries[0], Received):
        taker = next((e.seq for e in entries if isinstance(e, User) and entries[0].seq in e.from_), None)
        begun = [seq for seq in begun if taker is not None and seq >= taker]
        if not begun:
            return [entries[0]]
    return [entry for entry in entries if begun[0] <= entry.seq and (len(begun) < 2 or entry.seq < begun[1])]


def looked_at(path: Sequence[Interval]) -> Iterator[Interval]:
    """A path piece by piece, newest first: the last message is near the end."""
    for start, last in path:
        for end in range(last, start - 1, -LOOKED_BACK):
            yield max(start, end - LOOKED_BACK + 1), end


def is_over_after(entries: Transcript) -> bool | None:
    """Whether no turn is running after these consecutive entries; None if that depends on earlier ones."""
    alone: Role = ""
    called: Role = "call"
    for entry in entries:
        alone, called = after(alone, entry), after(called, entry)
    return alone not in UNDER_WAY if alone == called else None


def check_end(transcript: Transcript, seq: int) -> None:
    found = ends(transcript)
    if seq not in found:
        near = sorted(sorted(found, key=lambda end: abs(end - seq))[:3])
        raise UsageError(f"entry {seq} does not end a turn", hint=f"Turns end at entries {', '.join(map(str, near))}.")


def as_retried(entries: Transcript) -> list[Entry]:
    """A turn and what follows it, without the failure that a retry undid."""
    kept: list[Entry] = []
    for entry in entries:
        if isinstance(entry, Rewind) and entry.to >= entries[0].seq - 1:
            kept = [earlier for earlier in kept if earlier.seq <= entry.to]
        kept.append(entry)
    return kept


class Unanswered(Struct, frozen=True):
    """The newest turn of a log, if it failed."""

    start: int
    """Its user entry."""
    last: int
    """Its last message before the failure, without the partial text of an answer."""
    failed: int


def unanswered(transcript: Transcript) -> Unanswered | None:
    """None: the newest turn was answered or is running, or there is none."""
    path = path_of(transcript)
    said = [e for e in transcript if isinstance(e, (*MESSAGES, Failed)) and on_path(e.seq, path)]
    if not said or not isinstance(said[-1], Failed):
        return None
    sent = [e for e in said if isinstance(e, MESSAGES) and not (isinstance(e, Assistant) and e.stop == "error")]
    start = max(live_starts(transcript), default=0)
    return Unanswered(start, sent[-1].seq, said[-1].seq) if start and sent else None


class Outcome(Struct, frozen=True):
    end_seq: int
    """Of the entry that ended the turn: the same for every message that the turn took."""
    end: End
    code: str = ""
    """Why, where it failed."""


def end_of(rest: Transcript) -> Outcome | None:
    """How a turn ended, from what follows its user entry; whatever goes on after an end takes that end back."""
    found: Outcome | None = None
    walk = Walk("user")
    for entry in as_retried(rest):
        if walk.take(entry) and found is not None:
            return found  # another turn followed
        found = None if walk.role in UNDER_WAY else _end_of(entry) or found
    return found


def _end_of(entry: Entry) -> Outcome | None:
    match entry:
        case Assistant(stop="error"):  # the `failed` after it says why, where there is one
            return Outcome(entry.seq, "failed", "provider")
        case Assistant() if not tool_uses(entry):
            return Outcome(entry.seq, "stopped" if entry.stop == "interrupted" else "done")
        case Failed(code="interrupted"):
            return Outcome(entry.seq, "cut", entry.code)
        case Failed(code="stopped"):
            return Outcome(entry.seq, "stopped")
        case Failed():
            return Outcome(entry.seq, "failed", entry.code)
        case _:
            return None
