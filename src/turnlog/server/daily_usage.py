"""Turns, errors and tokens by day, agent and model, counted from the logs (decision 0056).

The ledger has one fact a day, which also says up to which moment its entries are counted. A round reads what was
written since then, whichever program wrote it, and adds it with one compare-and-swap. So nothing is counted twice, even
after a crash or if several servers count at once: one of them wins. Entries that were imported or copied by a fork have
older times, and were counted where they were made.
"""

import asyncio
from collections.abc import AsyncGenerator
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ..core import usage
from ..core.entries import Assistant, Entry, Failed
from ..core.query import Query
from ..core.rows import Session, milliseconds
from ..core.usage import ModelUse
from ..errors import Corrupt, NotFound
from ..sessions import Sessions
from ..stores import Clock, Ledger, facts
from ..stores.finding import rows_in_order
from ..stores.stamping import now_ms

USAGE = "usage"
"""The ledger's space."""
SETTLE_MS = 5_000
"""An append is visible to everybody this long after the time in its entries."""
BACK_DAYS = 30
"""A store that was never counted is counted back to here."""
KEPT_DAYS = 400
SESSIONS_MAX, ENTRIES_MAX = 20_000, 500_000
"""The most that one round reads, the newest sessions first. If there is more, the days say that they are cut."""
CHUNK = 100
"""Entries in one read, from the end of a log backwards."""
CELLS_MAX = 200
"""Pairs of agent and model in a day; the others are counted as one."""
PASSES_MAX = 5
RACES_MAX = 5
DAY_MS = 86_400_000

Scanned: TypeAlias = dict[date, dict[tuple[str, str], "UsageCell"]]


class UsageCell(Struct, frozen=True, array_like=True, omit_defaults=True):
    """What one agent did with one model on one day."""

    agent: str
    use: ModelUse
    """Its model is empty for turns that failed, and for what is counted together."""
    turns: int = 0
    """Turns that ended, with an answer or without."""
    errors: int = 0
    """Those of them without an answer."""


class UsageDay(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A day in UTC, as it is stored."""

    to: int
    """Entries up to here are counted; Unix ms."""
    cells: tuple[UsageCell, ...] = ()
    cut: bool = False
    """There was more to read than a round reads."""


class DailyUsage:
    def __init__(self, sessions: Sessions, ledger: Ledger, *, clock: Clock = now_ms) -> None:
        """`sessions`: of somebody who may see all of them. `ledger`: with the space `USAGE`."""
        self._sessions = sessions
        self._ledger = ledger
        self._clock = clock
        self._lock = asyncio.Lock()

    async def days(self, since: date) -> dict[date, UsageDay]:
        """The days that were counted, oldest first."""
        found = await self._ledger.list(USAGE, limit=1_000)
        days = {date.fromisoformat(one.key): facts.read(USAGE, one.key, one.value, UsageDay) for one in found}
        return {day: days[day] for day in sorted(days) if day >= since and days[day] is not None}  # type: ignore[misc]

    async def count(self) -> None:
        """Counts what was written since the last round; the first round begins `BACK_DAYS` ago."""
        async with self._lock:
            known = await self.days(date.min)
            now = self._clock() - SETTLE_MS
            newest = max(known, default=None)
            since = known[newest].to if newest else _start(_day(now) - timedelta(days=BACK_DAYS))
            if now > since:
                found, cut = await self._scan(since, now)
                await self._add(found, since, now, cut=cut)

    async def _add(self, found: Scanned, since: int, now: int, *, cut: bool) -> None:
        """Oldest day first: after a crash, the newest fact still says where to continue."""
        day = _day(since)
        while day <= _day(now):
            old = await self._ledger.get(USAGE, day.isoformat())
            before = facts.read(USAGE, day.isoformat(), old, UsageDay) or UsageDay(to=max(since, _start(day)))
            if before.to != max(since, _start(day)):
                return  # another server was faster; its next round continues
            cells = _joined(before.cells, found.get(day, {}))
            to = min(now, _start(day) + DAY_MS - 1)
            if not await self._put(day, old, UsageDay(to=to, cells=cells, cut=before.cut or cut)):
                return
            day += timedelta(days=1)

    async def recount(self) -> None:
        """Counts the days anew from the logs: also what was deleted since is then missing."""
        async with self._lock:
            known = await self.days(_day(self._clock()) - timedelta(days=BACK_DAYS))
            if not known:
                return
            found, cut = await self._scan(_start(min(known)) - 1, known[max(known)].to)
            for day in known:
                await self._replace(day, found, cut=cut)

    async def _replace(self, day: date, found: Scanned, *, cut: bool) -> None:
        for attempt in range(RACES_MAX):
            old = await self._ledger.get(USAGE, day.isoformat())
            now = facts.read(USAGE, day.isoformat(), old, UsageDay)
            if now is None:
                return
            if attempt:  # another server has counted more of this day
                found, cut = await self._scan(_start(day) - 1, now.to)
            if await self._put(day, old, replace(now, cells=_joined((), found.get(day, {})), cut=cut)):
                return

    async def _put(self, day: date, old: Any, new: UsageDay) -> bool:
        ttl_s = KEPT_DAYS * 86_400.0
        return await self._ledger.cas(USAGE, day.isoformat(), old, facts.write(new), ttl_s=ttl_s)

    async def _scan(self, since: int, until: int) -> tuple[Scanned, bool]:
        """What was written after `since` and up to `until`, and whether there was more than one round reads."""
        found: Scanned = {}
        seen: set[str] = set()
        left = ENTRIES_MAX
        after = since
        for _ in range(PASSES_MAX):
            begun, fresh = self._clock(), 0
            async for row in rows_in_order(self._sessions.list, Query()):
                if row.last_at <= after:
                    break
                if row.id in seen:
                    continue
                if left <= 0 or len(seen) >= SESSIONS_MAX:
                    return found, True
                seen.add(row.id)
                fresh += 1
                async for entry in self._entries(row, since):
                    left -= 1
                    _take(found, row, entry, until)
            if not fresh:
                break
            after = begun - SETTLE_MS  # a session that was written to meanwhile has moved to the front
        return found, False

    async def _entries(self, row: Session, since: int) -> AsyncGenerator[Entry]:
        """Newest first, down to that moment; copies of a fork are left out."""
        first = row.forked_from.last_copy if row.forked_from else 0
        before = row.last_seq + 1
        while before > first + 1:
            try:
                chunk = await self._sessions.read(row, before=before, limit=CHUNK)
            except (NotFound, Corrupt):
                return  # deleted meanwhile, or damaged: `turnlog doctor` says so
            for entry in reversed(chunk):
                if entry.seq <= first or milliseconds(entry.ts) <= since:
                    return
                yield entry
            before = chunk[0].seq if chunk else 0
            await asyncio.sleep(0)


def _take(found: Scanned, row: Session, entry: Entry, until: int) -> None:
    at = milliseconds(entry.ts)
    if at > until:
        return
    match entry:
        case Assistant():
            use = usage.use_of(entry) or ModelUse(entry.model or "")
            cell = UsageCell(row.agent, use, turns=0 if entry.calls else 1)
        case Failed():
            cell = UsageCell(row.agent, ModelUse(), turns=1, errors=1)
        case _:
            return
    cells = found.setdefault(_day(at), {})
    _put_cell(cells, cell)


def _put_cell(cells: dict[tuple[str, str], UsageCell], cell: UsageCell) -> None:
    place = (cell.agent, cell.use.model)
    if place not in cells and len(cells) >= CELLS_MAX:
        place = ("", "")
        cell = replace(cell, agent="", use=replace(cell.use, model=""))
    if known := cells.get(place):
        used = usage.joined(known.use, cell.use)
        cell = UsageCell(known.agent, used, known.turns + cell.turns, known.errors + cell.errors)
    cells[place] = cell


def _joined(cells: tuple[UsageCell, ...], more: dict[tuple[str, str], UsageCell]) -> tuple[UsageCell, ...]:
    joined = {(cell.agent, cell.use.model): cell for cell in cells}
    for cell in more.values():
        _put_cell(joined, cell)
    return tuple(joined[place] for place in sorted(joined))


def _day(ms: int) -> date:
    return datetime.fromtimestamp(ms / 1000, UTC).date()


def _start(day: date) -> int:
    """The first millisecond of the day."""
    return (day - date(1970, 1, 1)).days * DAY_MS
