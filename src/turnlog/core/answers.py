"""What became of a message: the end of the turn that took it, and what that turn said. Read from the log alone.

So that an answer can be found again by a process that did not see it happen.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

from .entries import Assistant, Entry, Failed, Received, Transcript, User, text_of, tool_uses
from .turns import is_running

End: TypeAlias = Literal["done", "stopped", "failed", "cut"]
"""`cut`: by a crash, and not begun again so far."""


class Outcome(Struct, frozen=True):
    end_seq: int
    """Of the entry that ended the turn: the same for every message that the turn took."""
    end: End
    code: str = ""
    """Why, where it failed."""


def outcome_of(later: Transcript, delivery: str) -> Outcome | None:
    """None: nothing has taken the message yet, or its turn is not over. `later`: the log since before it came."""
    taker = _taker(later, delivery)
    return None if taker is None else end_of([entry for entry in later if entry.seq > taker.seq])


def end_of(rest: Transcript) -> Outcome | None:
    """How a turn ended, from what follows its user entry; a crash counts only if nobody began it again."""
    cut: Outcome | None = None
    for entry in rest:
        if isinstance(entry, User) and cut is not None:
            return cut  # another turn followed
        if found := _end_of(entry):
            if found.end != "cut":
                return found
            cut = found
    return cut


def _taker(later: Transcript, delivery: str) -> User | None:
    came = next((e for e in later if isinstance(e, User | Received) and e.dedupe_id == delivery), None)
    if came is None or isinstance(came, User):
        return came
    return next((e for e in later if isinstance(e, User) and came.seq in e.from_), None)


def _end_of(entry: Entry) -> Outcome | None:
    match entry:
        case Assistant() if entry.stop != "error" and not tool_uses(entry):
            return Outcome(entry.seq, "stopped" if entry.stop == "interrupted" else "done")
        case Failed(code="interrupted"):
            return Outcome(entry.seq, "cut", entry.code)
        case Failed(code="stopped"):
            return Outcome(entry.seq, "stopped")
        case Failed():
            return Outcome(entry.seq, "failed", entry.code)
        case _:
            return None


def said_in_turn(before: Transcript) -> str:
    """The texts of the turn that the last of these entries ended, message by message."""
    texts: list[str] = []
    for index in range(len(before) - 1, -1, -1):
        entry = before[index]
        if isinstance(entry, User) and not is_running(before[:index]):
            break
        if isinstance(entry, Assistant) and entry.stop != "error":
            texts.append(text_of(entry.content).strip())
    return "\n\n".join(filter(None, reversed(texts)))
