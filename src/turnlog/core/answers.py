"""What happened to a message: which entry took it, how that turn ended, and what it said. Computed from the log alone.

So a process that did not see the turn finds its answer too.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from .entries import Assistant, Received, Transcript, User, text_of
from .turns import Outcome, end_of, newest


def outcome_of(later: Transcript, delivery: str) -> Outcome | None:
    """None: no turn has taken the message yet, or its turn is not over. `later`: the log since before it came."""
    stored = delivered(later, delivery)
    taker = taker_of(later, stored.seq) if isinstance(stored, Received) else stored
    return None if taker is None else end_of([entry for entry in later if entry.seq > taker.seq])


def delivered(entries: Transcript, dedupe_id: str) -> User | Received | None:
    """The entry that a delivery was stored as."""
    return next((e for e in entries if isinstance(e, User | Received) and e.dedupe_id == dedupe_id), None)


def taker_of(later: Transcript, seq: int) -> User | None:
    """The user entry that took the waiting message `seq`."""
    return next((entry for entry in later if isinstance(entry, User) and seq in entry.from_), None)


def said_in_turn(before: Transcript) -> str:
    """The texts of the turn that the last of these entries ended, message by message."""
    said = [e for e in newest(before) if isinstance(e, Assistant) and e.stop != "error"]
    return "\n\n".join(filter(None, (text_of(entry.content).strip() for entry in said)))


def told_as_one(said: Sequence[Assistant]) -> Assistant:
    """The answer of a whole turn as a client gets it: all texts, with the usage of all calls. Calls ran here."""
    texts = [{"type": "text", "text": text} for entry in said if (text := text_of(entry.content)).strip()]
    usage: dict[str, int] = {}
    for entry in said:
        for name, number in (entry.usage or {}).items():
            if isinstance(number, int):
                usage[name] = usage.get(name, 0) + number
    return replace(said[-1], content=texts, usage=usage or None)
