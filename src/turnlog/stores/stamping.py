"""What a change is asked to do, whether it may, and the seqs and times of its entries: the same in every store."""

import os
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple

from msgspec.structs import replace

from ..core.entries import Entry, Foreign, Opened
from ..core.facts import ExpectedFact
from ..core.session import Session
from ..errors import Conflict, Corrupt, NotFound, UsageError

INCARNATION_BYTES = 8
"""Long enough that two incarnations of one id never collide."""


class AskedAppend(NamedTuple):
    """What a caller of `append` gave."""

    bodies: Sequence[Entry]
    expect: int | None
    expect_fact: ExpectedFact | None
    incarnation: str | None
    leased: bool


class AskedErase(NamedTuple):
    """What a caller of `erase` gave."""

    seqs: Sequence[int]
    redact: bool
    by: str
    incarnation: str | None


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class RisingClock:
    """Gives each append a later millisecond than the one before, so that lists by time have one order.

    All stores of a process share the clock of the machine. A thousand appends in a second run ahead of it by no more
    than they took.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._last = 0

    def __call__(self) -> int:
        self._last = max(self._clock(), self._last + 1)
        return self._last


_machine = RisingClock(now_ms)


def rising(clock: Callable[[], int] | None) -> Callable[[], int]:
    return _machine if clock is None else RisingClock(clock)


def timestamp(ms: int) -> str:
    """RFC 3339, UTC, milliseconds."""
    return f"{_second(ms // 1000)}.{ms % 1000:03d}Z"


@lru_cache(maxsize=16)
def _second(s: int) -> str:
    return datetime.fromtimestamp(s, UTC).isoformat()[:19]


def stamp(bodies: Sequence[Entry], last_seq: int, ms: int) -> list[Entry]:
    """A body that has a ts keeps it: copies and imports say when things happened, not when they were copied.

    A new log gets its own incarnation, also if it is a copy.
    """
    ts = timestamp(ms)
    entries = [replace(body, seq=last_seq + n, ts=body.ts or ts) for n, body in enumerate(bodies, 1)]
    if not last_seq and entries and isinstance(entries[0], Opened):
        # Not a time: a session may be deleted and created again within a millisecond, or while the clock stands still.
        entries[0] = replace(entries[0], incarnation=os.urandom(INCARNATION_BYTES).hex())
    return entries


def unreadable(seq: int, error: Corrupt) -> Entry:
    """Replaces an entry that cannot be read, so that later entries keep their places."""
    return Foreign(seq=seq, raw={"unreadable": str(error)})


def check_named(session_id: str, bodies: Sequence[Entry]) -> None:
    """Checks that a session entry has the id of its session."""
    if bodies and isinstance(bodies[0], Opened) and bodies[0].id != session_id:
        raise UsageError(f"the session entry has the id {bodies[0].id}, not {session_id}")


def check_expected(row: Session | None, session_id: str, asked: AskedAppend) -> None:
    """Checks that the log is the expected one and ends where the caller saw it end."""
    if asked.incarnation is not None:
        check_incarnation(row, session_id, asked.incarnation)
    last = row.last_seq if row else 0
    if asked.expect is not None and asked.expect != last:
        raise Conflict(f"the log ends at entry {last}, not at {asked.expect}")


def check_incarnation(row: Session | None, session_id: str, incarnation: str | None) -> Session:
    """The row, if the session exists and is the expected one."""
    if row is None:
        raise NotFound(f"there is no session {session_id}")
    if incarnation is not None and row.incarnation != incarnation:
        raise NotFound(
            f"session {session_id} was deleted; another session has its id now",
            hint="Open it again to use the new one.",
        )
    return row


def window(after: int, before: int | None, limit: int | None) -> tuple[int, int | None, int | None]:
    """Paging back: turns `before` with a limit and no `after` into the seq to start after."""
    if min(after, before or 0, limit or 0) < 0:
        raise UsageError("after, before and limit cannot be negative", hint="The first entry of a session is 1.")
    if before is not None and limit is not None and after == 0:
        after = max(0, before - 1 - limit)
    return after, before, limit
