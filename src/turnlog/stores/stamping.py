"""Seqs and times for entries about to be stored, the same way in every store."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache

from msgspec.structs import replace

from ..core.entries import Entry
from ..core.session import Session
from ..errors import Conflict


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def timestamp(ms: int) -> str:
    """RFC 3339, UTC, milliseconds."""
    return f"{_second(ms // 1000)}.{ms % 1000:03d}Z"


@lru_cache(maxsize=16)
def _second(s: int) -> str:
    return datetime.fromtimestamp(s, UTC).isoformat()[:19]


def stamp(bodies: Sequence[Entry], last_seq: int, ms: int) -> list[Entry]:
    """A body that has a ts keeps it: copies and imports say when things happened, not when they were copied."""
    ts = timestamp(ms)
    return [replace(body, seq=last_seq + n, ts=body.ts or ts) for n, body in enumerate(bodies, 1)]


def check_expected(row: Session | None, expect: int | None) -> None:
    last = row.last_seq if row else 0
    if expect is not None and expect != last:
        raise Conflict(f"the log ends at entry {last}, not at {expect}")


def window(after: int, before: int | None, limit: int | None) -> tuple[int, int | None, int | None]:
    """`before` with a limit and no `after` pages back: turn it into the seq to begin after."""
    if before is not None and limit is not None and after == 0:
        after = max(0, before - 1 - limit)
    return after, before, limit
