"""Decides which entries may be appended to a log. Every store asks here, inside its own lock or transaction."""

from collections.abc import Sequence

from msgspec.structs import replace

from ..errors import Conflict, NotFound, UsageError
from .entries import (
    FORMAT_VERSION,
    NEEDS_LEASE,
    ApprovalAnswer,
    Compaction,
    Entry,
    Opened,
    Pin,
    Undo,
    User,
    kind_of,
    named_by,
)
from .session import Session, active, describe, live_path, on_path
from .wellformed import accepted

PINS_MAX = 10_000
"""The most pins of a session: each is in its row and in every prompt, so no real session comes near."""


def admit(row: Session | None, bodies: Sequence[Entry], *, leased: bool) -> list[Entry]:
    """Returns the entries to store; raises if they may not follow. Every store calls it inside its own lock or
    transaction.
    """
    if not bodies:
        raise UsageError("nothing to append")
    bodies = [accepted(body) for body in bodies]
    if row is None:
        _admit_first(bodies)
    else:
        _admit_next(row, bodies[0])
    has_marks = False
    for body in bodies:
        has_marks = has_marks or type(body) in _CHECKED or body.after is not None or bool(body.names and named_by(body))
        if not leased and isinstance(body, NEEDS_LEASE):
            raise UsageError(
                f"a {kind_of(body)} entry needs a lease",
                hint="Use `async with store.lease(session_id) as lease` and pass lease=lease.",
            )
    if has_marks:
        _admit_marks(row, bodies)
    return bodies


def _admit_first(bodies: Sequence[Entry]) -> None:
    first = bodies[0]
    if not isinstance(first, Opened):
        raise NotFound("there is no such session to append to")
    if first.version > FORMAT_VERSION:
        raise UsageError(
            f"this transcript has format version {first.version}; this Turnlog knows up to {FORMAT_VERSION}",
            hint="Upgrade Turnlog.",
        )


def _admit_next(row: Session, first: Entry) -> None:
    if isinstance(first, Opened):
        raise Conflict(f"session {row.id} exists already", hint="Open it, or choose another id.")


_CHECKED = frozenset((Compaction, Undo, Opened, ApprovalAnswer))
"""Types with a rule of their own, in addition to the entries that they name."""


def _admit_marks(row: Session | None, bodies: Sequence[Entry]) -> None:
    """Checks each entry against the row that results from the entries before it in the same append."""
    first = row.last_seq + 1 if row else 1
    pending: list[Entry] = []
    for seq, body in enumerate(bodies, first):
        if body.after is not None:
            _admit_target("after", body.after, seq)
        for target in named_by(body):
            _admit_target("from" if isinstance(body, User) else kind_of(body), target, seq)
        match body:
            case Opened() if seq > 1:
                raise UsageError("a session entry can only be the first entry")
            case Compaction() | Undo():
                row, pending = describe(row, pending) if pending else row, []
                _admit_fold(row, body, seq)
            case ApprovalAnswer() if not body.ts:
                row, pending = describe(row, pending) if pending else row, []
                _admit_answer(row, body)
            case _:
                pass
        pending.append(replace(body, seq=seq))
    if row and len(row.pins) + sum(isinstance(body, Pin) for body in bodies) > PINS_MAX:
        raise UsageError(f"more than {PINS_MAX:,} pins in one session", hint="Unpin something first.")


def _admit_fold(row: Session | None, body: Compaction | Undo, seq: int) -> None:
    assert row is not None  # _admit_first has checked that a new log begins with a session entry
    if isinstance(body, Compaction):
        _admit_compaction(row, body, seq)
    else:
        _admit_undo(row, body)


def _admit_answer(row: Session | None, body: ApprovalAnswer) -> None:
    """Decides which of two answers counts: the first one."""
    asked = row.approvals if row else ()
    found = [one for one in asked if one.call == body.call and body.request in (0, one.seq)]
    if not found:
        raise NotFound(f"no call {body.call!r} waits for an answer", hint="Its turn has gone on or has ended.")
    if all(one.answer for one in found):
        raise Conflict(f"the call {body.call!r} has been answered", hint="The first answer counts.")


def _admit_target(kind: str, target: int, seq: int) -> None:
    if not 1 <= target < seq:
        raise UsageError(f"{kind} names entry {target}, which is not before it", hint="Name an entry that exists.")


def _admit_compaction(row: Session, body: Compaction, seq: int) -> None:
    """Refuses a gap: the summary must reach from the old boundary to the new one."""
    boundary = row.boundary
    start = boundary if boundary > 1 else max(1, row.first_message)
    first, last = body.covers
    if not boundary < body.first_kept <= seq:
        raise UsageError(f"a compaction cannot move the boundary from entry {boundary} to {body.first_kept}")
    if first > start or last != body.first_kept - 1:
        raise UsageError(
            f"the summary covers entries {first} to {last}, but {start} to {body.first_kept - 1} would be compacted",
            hint="Plan the compaction again from the current transcript.",
        )
    if not body.summary.strip():
        raise UsageError("a compaction needs a summary")


def _admit_undo(row: Session, body: Undo) -> None:
    stack = active(row.marks, row.last_seq)
    newest = stack[-1].seq if stack else 0
    if body.target not in _live_shortenings(row) and (not newest or body.target != newest):
        raise UsageError(
            f"entry {body.target} cannot be undone",
            hint=f"The newest active compaction is entry {newest}." if newest else "No compaction is active.",
        )


def _live_shortenings(row: Session) -> set[int]:
    path = live_path(row.marks, row.last_seq)
    undone = {mark.at for mark in row.marks if mark.kind == "undo" and on_path(mark.seq, path)}
    return {mark.seq for mark in row.marks if mark.kind == "shortened" and on_path(mark.seq, path)} - undone
