"""Decides when a key gets a new session, and when old sessions are archived and deleted.

A reset is checked when the next message arrives: the old session is archived and kept. The time to live archives first
and deletes later, never during a turn, and always reports what it does; without `apply` it only reports.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta, tzinfo
from typing import Literal

from msgspec import Struct

from ..core.entries import MESSAGES, Entry, Received
from ..core.query import Query
from ..core.reset import parse_reset
from ..core.session import Session, milliseconds
from ..errors import Busy, Corrupt, NotFound
from ..stores import Clock, Store
from ..stores.finding import rows_in_order
from . import Sessions

DAY_MS = 24 * 3600 * 1000
LOOKED_BACK = 50
"""The number of entries at the end of a log in which the last message is searched. Nobody writes this many renames or
pins after a message.
"""


class Expired(Struct, frozen=True, kw_only=True, rename="camel"):
    """The change that is due for one session."""

    session_id: str
    action: Literal["archive", "delete"]
    reason: str


async def spoken_at(store: Store, row: Session) -> int:
    """The time of the last message in Unix ms; renames, pins and notices do not count."""
    try:
        entries = await store.read(row.id, before=row.last_seq + 1, limit=LOOKED_BACK, incarnation=row.incarnation)
    except Corrupt:
        return row.last_at  # may be too late: damage keeps a session rather than ending it
    return next((milliseconds(entry.ts) for entry in reversed(entries) if _is_said(entry)), row.created_at)


def _is_said(entry: Entry) -> bool:
    return isinstance(entry, (*MESSAGES, Received))


def is_over(reset: str, spoken_ms: int, now_ms: int, zone: tzinfo | None = None) -> bool:
    """Whether a message that arrives now starts a new session. `daily` uses the clock of this machine, or `zone`."""
    kind, minutes = parse_reset(reset)
    match kind:
        case "idle":
            return now_ms - spoken_ms > minutes * 60_000
        case "daily":
            return spoken_ms < _last_reset(now_ms, minutes, zone)
        case _:
            return False


def _last_reset(now_ms: int, minutes: int, zone: tzinfo | None) -> int:
    """Once a day: if an hour occurs twice, the first one counts."""
    now = datetime.fromtimestamp(now_ms / 1000, tz=zone)
    today = now.replace(hour=minutes // 60, minute=minutes % 60, second=0, microsecond=0, fold=0)
    # Compares timestamps: Python compares two times of one zone by their local clock time, not as moments.
    todays = int(today.timestamp() * 1000)
    return todays if todays <= now_ms else int((today - timedelta(days=1)).timestamp() * 1000)


async def renewed(sessions: Sessions, store: Store, row: Session, reset: str, clock: Clock) -> Session:
    """The session for a message to this key now: this one, or a new one if its time is over."""
    if reset == "off" or row.under_way or row.received or not row.message_count:
        return row
    if not is_over(reset, await spoken_at(store, row), clock()):
        return row
    return await sessions.renew(row, f"reset {reset}")


async def expire(
    sessions: Sessions, store: Store, *, ttl_days: int | None, trash_days: int, clock: Clock, apply: bool = False
) -> list[Expired]:
    """The changes that are due, newest sessions last; `apply` makes them.

    With many sessions this takes long, so other tasks run after each page of the list and after each session.
    """
    due: list[Expired] = []
    async for row in _candidates(sessions, clock() - min(ttl_days or trash_days, trash_days) * DAY_MS, ttl_days):
        step = await _step(store, row, ttl_days, trash_days, clock())
        if step is not None and apply:
            step = await _carry_out(sessions, store, step, ttl_days, trash_days, clock())
        if step is not None:
            due.append(step)
        await asyncio.sleep(0)
    return due[::-1]


def _candidates(sessions: Sessions, before_ms: int, ttl_days: int | None) -> AsyncIterator[Session]:
    """Sessions without a change since then, newest first.

    Page by page: handling a session removes it from the rest of the list, or leaves it where it was.
    """
    cursor = f"{max(0, before_ms) + 1}.0"  # no id sorts before this one
    return rows_in_order(sessions.list, Query(status="trashed" if ttl_days is None else None, cursor=cursor))


async def _step(store: Store, row: Session, ttl_days: int | None, trash_days: int, now_ms: int) -> Expired | None:
    if (row.under_way or row.received) and not row.lacks_copies:
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
    """None if a turn runs, or somebody came back meanwhile: under the lease the decision is made again."""
    try:
        async with store.lease(step.session_id, wait_s=0):
            row = await store.describe(step.session_id)
            now = await _step(store, row, ttl_days, trash_days, now_ms)
            if now is None or now.action != step.action:
                return None
            if step.action == "archive":
                await sessions.set_status(row.id, "archived", step.reason, incarnation=row.incarnation)
            else:
                await sessions.delete(row.id, incarnation=row.incarnation)
    except (Busy, NotFound):
        return None
    return step
