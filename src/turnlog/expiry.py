"""The end of sessions: when a key gets a new one, and what becomes of those nobody comes back to.

Reset is looked at when the next message comes in: the old session is archived and kept. Time to live archives first
and deletes later, never where a turn runs, and always says what it does; without `apply` it only says so.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Literal

from msgspec import Struct

from .core.entries import MESSAGES, Entry, Received
from .core.query import PAGE_MAX, Query
from .core.session import Session, milliseconds
from .errors import Busy, Corrupt, NotFound
from .sessions import Sessions
from .settings import parse_reset
from .stores import Clock, Store

DAY_MS = 24 * 3600 * 1000
LOOKED_BACK = 50
"""Entries at a log's end in which its last message is looked for; renames and pins do not come in such numbers."""


class Expired(Struct, frozen=True, kw_only=True, rename="camel"):
    """What is due for one session."""

    session_id: str
    action: Literal["archive", "delete"]
    reason: str


async def spoken_at(store: Store, row: Session) -> int:
    """When somebody last said something, in Unix ms; renames, pins and notices do not count."""
    try:
        entries = await store.read(row.id, before=row.last_seq + 1, limit=LOOKED_BACK)
    except Corrupt:
        return row.last_at  # later than it may have been: damage keeps a session rather than ending it
    return next((milliseconds(entry.ts) for entry in reversed(entries) if _is_said(entry)), row.created_at)


def _is_said(entry: Entry) -> bool:
    return isinstance(entry, (*MESSAGES, Received))


def is_over(reset: str, spoken_ms: int, now_ms: int, zone: tzinfo | None = None) -> bool:
    """Whether a message that comes in now begins a new session. `daily` is by the clock of this machine, or `zone`."""
    kind, minutes = parse_reset(reset)
    match kind:
        case "idle":
            return now_ms - spoken_ms > minutes * 60_000
        case "daily":
            return spoken_ms < _last_reset(now_ms, minutes, zone)
        case _:
            return False


def _last_reset(now_ms: int, minutes: int, zone: tzinfo | None) -> int:
    """Once a day: of an hour that the clock strikes twice, the first one counts."""
    now = datetime.fromtimestamp(now_ms / 1000, tz=zone)
    today = now.replace(hour=minutes // 60, minute=minutes % 60, second=0, microsecond=0, fold=0)
    # By timestamps: two times of one zone are compared by what the clock shows.
    todays = int(today.timestamp() * 1000)
    return todays if todays <= now_ms else int((today - timedelta(days=1)).timestamp() * 1000)


async def renewed(sessions: Sessions, store: Store, row: Session, reset: str, clock: Clock) -> Session:
    """The session that a message for this one's key goes to now: itself, or a new one if its time is over."""
    if reset == "off" or row.under_way or row.received or not row.message_count:
        return row
    if not is_over(reset, await spoken_at(store, row), clock()):
        return row
    await sessions.set_status(row.id, "archived", f"reset {reset}")
    return await sessions.open(row.key)


async def expire(
    sessions: Sessions, store: Store, *, ttl_days: int | None, trash_days: int, clock: Clock, apply: bool = False
) -> list[Expired]:
    """What is due, newest sessions last; with `apply` it is done."""
    due: list[Expired] = []
    status = "trashed" if ttl_days is None else None
    for row in await _candidates(sessions, clock() - min(ttl_days or trash_days, trash_days) * DAY_MS, status):
        step = await _step(store, row, ttl_days, trash_days, clock())
        if step is not None and apply:
            step = await _carry_out(sessions, store, step, ttl_days, trash_days, clock())
        if step is not None:
            due.append(step)
    return due


async def _candidates(sessions: Sessions, before_ms: int, status: str | None) -> Sequence[Session]:
    """Sessions nobody touched since then, oldest first. Collected first: what is done to them changes the list."""
    found: list[Session] = []
    cursor: str | None = f"{max(0, before_ms) + 1}.0"  # no id is before this one
    while cursor is not None:
        page = await sessions.list(Query(status=status, limit=PAGE_MAX, cursor=cursor))
        found += page.items
        cursor = page.next
    return found[::-1]


async def _step(store: Store, row: Session, ttl_days: int | None, trash_days: int, now_ms: int) -> Expired | None:
    if row.under_way or row.received:
        return None
    untouched = (now_ms - row.last_at) / DAY_MS
    if row.status == "trashed":
        if untouched > trash_days:
            return Expired(session_id=row.id, action="delete", reason=f"in the trash for {untouched:.0f} days")
        return None
    if ttl_days is None:
        return None
    silent = (now_ms - await spoken_at(store, row)) / DAY_MS
    if row.status != "archived":
        why = f"nothing was said for {silent:.0f} days"
        return Expired(session_id=row.id, action="archive", reason=why) if silent > ttl_days else None
    if untouched > trash_days and silent > ttl_days + trash_days:
        return Expired(session_id=row.id, action="delete", reason=f"archived for {untouched:.0f} days")
    return None


async def _carry_out(
    sessions: Sessions, store: Store, step: Expired, ttl_days: int | None, trash_days: int, now_ms: int
) -> Expired | None:
    """None where a turn runs, or somebody came back since it was decided: with the lease it is decided once more."""
    try:
        async with store.lease(step.session_id, wait_s=0):
            now = await _step(store, await store.describe(step.session_id), ttl_days, trash_days, now_ms)
            if now is None or now.action != step.action:
                return None
            if step.action == "archive":
                await sessions.set_status(step.session_id, "archived", step.reason)
            else:
                await sessions.delete(step.session_id)
    except (Busy, NotFound):
        return None
    return step
