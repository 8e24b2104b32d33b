"""A call for a client as its log tells it: what was asked, with what words, and what became of it.

    [head] · the call's own entry · its words · compaction · pieces · answer | failed

A call is known by the seq of its own entry, and ends where the next call begins. The words came in the same append as
that entry, which says how many there are; every answer of a model after them is the call's.
"""

from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct

from ..core.answers import told_as_one
from ..core.entries import Assistant, Compaction, Entry, Failed
from ..core.path import HEAD, REQUEST, note_of, said_until
from ..core.session import Session
from ..stores import Store
from .answer_pieces import PIECES

CHUNK = 200
"""Entries that are read at a time; most calls have fewer than ten."""


class StoredCall(Struct, frozen=True, kw_only=True):
    row: Session
    turn: int
    ts: str
    note: Mapping[str, Any]
    words: tuple[Entry, ...]
    answer: Assistant | None = None
    """What was answered; in an agent's turn everything that was said in it."""
    failed: Failed | None = None
    compaction: Compaction | None = None
    pieces: Mapping[str, Any] | None = None
    """How the answer came (`answer_pieces`)."""

    @property
    def compacts(self) -> bool:
        """Whether a compaction was asked for, and no answer."""
        return bool(self.note.get("compacts"))

    @property
    def is_agents(self) -> bool:
        return bool(self.note.get("agent"))


async def read(store: Store, row: Session, turn: int) -> StoredCall | None:
    """The call of this turn; None if there is none."""
    found = await _entries(store, row, turn)
    note = note_of(found[0], REQUEST) if found else None
    if note is None:
        return None
    last = said_until(note, turn)
    words = [entry for entry in found[1:] if entry.seq <= last]
    later = [entry for entry in found if entry.seq > last]
    said = [entry for entry in later if isinstance(entry, Assistant)]
    if is_agents := bool(note.get("agent")):
        said = [entry for entry in said if entry.stop != "error"]
    return StoredCall(
        row=row,
        turn=turn,
        ts=found[0].ts,
        note=note,
        words=tuple(words),
        answer=(told_as_one(said) if is_agents else said[-1]) if said else None,
        failed=next((entry for entry in reversed(later) if isinstance(entry, Failed)), None),
        compaction=next((entry for entry in reversed(later) if isinstance(entry, Compaction)), None),
        pieces=next((told for entry in reversed(later) if (told := note_of(entry, PIECES))), None),
    )


async def _entries(store: Store, row: Session, turn: int) -> list[Entry]:
    """From the call's own entry to the one before the next call."""
    found: list[Entry] = []
    while True:
        after = found[-1].seq if found else turn - 1
        chunk = await store.read(row.id, after=after, limit=CHUNK, incarnation=row.incarnation)
        for entry in chunk:
            if found and note_of(entry, REQUEST) is not None:
                return found
            found.append(entry)
        if len(chunk) < CHUNK:
            return found


async def head(store: Store, call: StoredCall) -> tuple[str, list[dict[str, Any]]]:
    """The system text and the tools of a call. The head is right before the call, unless the log had it already."""
    at = call.note.get("head_at")
    seq = at if isinstance(at, int) else call.turn - 1
    found = await store.read(call.row.id, after=seq - 1, limit=1, incarnation=call.row.incarnation)
    note = note_of(found[0], HEAD) if found else None
    return (str(note["system"]), cast("list[dict[str, Any]]", list(note["tools"]))) if note else ("", [])
