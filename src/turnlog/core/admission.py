"""Which entries may be added to a log. Every store asks here, inside its own lock or transaction."""

from collections.abc import Sequence

from msgspec.structs import replace

from ..errors import Conflict, NotFound, UsageError
from .entries import (
    FORMAT_VERSION,
    NEEDS_LEASE,
    Compaction,
    Entry,
    Opened,
    Pin,
    Rewind,
    Shortened,
    Undo,
    Unpin,
)
from .session import Session, active, describe, live_path, on_path

MARKS_MAX = 10_000
"""Pins, rewinds and undos since the newest compactions: each is written by hand, so this is out of reach."""


def admit(row: Session | None, bodies: Sequence[Entry], *, leased: bool) -> None:
    """Raises unless these entries may follow. Every store calls it inside its own lock or transaction."""
    if not bodies:
        raise UsageError("nothing to append")
    if row is None:
        _admit_first(bodies)
    else:
        _admit_next(row, bodies[0])
    for body in bodies:
        if not leased and isinstance(body, NEEDS_LEASE):
            raise UsageError(
                f"a {kind_of(body)} entry needs a lease",
                hint="Use `async with store.lease(session_id) as lease` and pass lease=lease.",
            )
    if any(type(body) in _CHECKED or body.after is not None for body in bodies):
        _admit_marks(row, bodies)


def kind_of(entry: Entry) -> str:
    return str(entry.__struct_config__.tag)


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


_CHECKED = (Compaction, Undo, Rewind, Pin, Unpin, Shortened, Opened)


def _admit_marks(row: Session | None, bodies: Sequence[Entry]) -> None:
    """Each against the row that the ones before it in the same append lead to."""
    first = row.last_seq + 1 if row else 1
    pending: list[Entry] = []
    for seq, body in enumerate(bodies, first):
        if body.after is not None:
            _admit_target("after", body.after, seq)
        match body:
            case Opened() if seq > 1:
                raise UsageError("a session entry can only be the first")
            case Compaction() | Undo():
                row, pending = describe(row, pending) if pending else row, []
                _admit_fold(row, body, seq)
            case Rewind(to=target) | Pin(target=target) | Unpin(target=target):
                _admit_target(kind_of(body), target, seq)
            case Shortened(targets=targets):
                for target in targets:
                    _admit_target("shortened", target, seq)
            case _:
                pass
        pending.append(replace(body, seq=seq))
    if row and len(row.marks) + len(pending) > MARKS_MAX:
        raise UsageError(f"more than {MARKS_MAX:,} pins and rewinds in one session", hint="Compact it, or fork it.")


def _admit_fold(row: Session | None, body: Compaction | Undo, seq: int) -> None:
    assert row is not None  # _admit_first has seen to it that a new log begins with a session entry
    if isinstance(body, Compaction):
        _admit_compaction(row, body, seq)
    else:
        _admit_undo(row, body)


def _admit_target(kind: str, target: int, seq: int) -> None:
    if not 1 <= target < seq:
        raise UsageError(f"{kind} names entry {target}, which is not before it", hint="Name an entry that exists.")


def _admit_compaction(row: Session, body: Compaction, seq: int) -> None:
    """Nothing falls between: the summary must reach from the old boundary up to the new one."""
    boundary = row.boundary
    start = boundary if boundary > 1 else max(1, row.first_message)
    first, last = body.covers
    if not boundary < body.first_kept <= seq:
        raise UsageError(f"a compaction cannot move the boundary from entry {boundary} to {body.first_kept}")
    if first > start or last != body.first_kept - 1:
        raise UsageError(
            f"the summary covers entries {first} to {last}, but {start} to {body.first_kept - 1} would be folded",
            hint="Plan the compaction anew from the current transcript.",
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
