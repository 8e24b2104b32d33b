"""How every store searches: it gives candidates, rows and entries; `core` decides what is found, in which order."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from msgspec.structs import replace

from ..core import query as queries
from ..core.entries import Entry
from ..core.marks import Mark, marks_of
from ..core.query import PAGE_MAX, Hit, Page, Query
from ..core.rows import Session
from ..core.search import Candidate, Ranked, SearchState, Sought, Wanted, closest_first, rank, steps, understand
from ..core.searchable import SearchUnit, units
from ..core.snippets import Excerpt, excerpt
from ..core.states import LogStates, is_known
from ..errors import StoreError

MARKS_KEPT = 64
"""Logs whose marks are remembered, because their rows do not hold all of them."""
TOOLS_LOOKED_BACK = 50
"""How many entries before a result are looked through for its call."""

EntryPlace: TypeAlias = tuple[str, int]
"""(session id, seq)."""


async def every_row(find: Callable[[Query], Awaitable[Page[Session]]], query: Query) -> AsyncGenerator[Session]:
    """All rows that match, by id, page by page; other tasks run after each page. `find`: of a store, or
    `Sessions.list`. Each session that is there all the time is given once, whatever is written meanwhile.
    """
    async for row in rows_in_order(find, replace(query, sort="id")):
        yield row


async def rows_in_order(find: Callable[[Query], Awaitable[Page[Session]]], query: Query) -> AsyncGenerator[Session]:
    """The same in the order of the query: there a session that moves to the front meanwhile can be missed."""
    page = await find(query := replace(query, limit=PAGE_MAX))
    while True:
        await asyncio.sleep(0)
        for row in page.items:
            yield row
        if page.next is None:
            return
        page = await find(query := replace(query, cursor=page.next))


class Looking(Protocol):
    """What a store answers about one search."""

    async def candidates(self, step: Sequence[Wanted], sought: Sought) -> list[list[Candidate]]:
        """For each list: entries in scope that match, the newest first."""
        ...

    async def rows(self, session_ids: Sequence[str]) -> Mapping[str, Session]: ...
    async def entries(self, places: Sequence[EntryPlace]) -> Mapping[EntryPlace, Entry]:
        """Those that still exist and can be read."""
        ...


class Searcher:
    """Searches one store. `read`: all readable entries of a session."""

    def __init__(self, read: Callable[[str], Awaitable[Sequence[Entry]]]) -> None:
        self._read = read
        self._marks: OrderedDict[tuple[str, str, int], list[Mark]] = OrderedDict()

    async def search(self, words: str, scope: Query, looking: Looking) -> list[Hit]:
        queries.check(scope)
        sought = understand(words)
        for step in steps(sought):
            lists = await looking.candidates(step, sought)
            if any(lists):
                ranked = await self._ranked(step, lists, looking)
                if ranked:
                    return await _hits(ranked, sought, scope.limit, looking)
        return []

    async def _ranked(
        self, step: Sequence[Wanted], lists: Sequence[Sequence[Candidate]], looking: Looking
    ) -> list[Ranked]:
        lowest: dict[str, int] = {}
        for candidate in (one for listed in lists for one in listed):
            lowest[candidate.session_id] = min(candidate.seq, lowest.get(candidate.session_id, candidate.seq))
        rows = await looking.rows(list(lowest))
        states = {name: await self._states(row, lowest[name]) for name, row in rows.items()}

        def state(candidate: Candidate) -> SearchState:
            return states[candidate.session_id].of(candidate.seq)

        # A session that was deleted meanwhile has no row any more.
        there = [[one for one in listed if one.session_id in states] for listed in lists]
        return rank(list(zip(step, there, strict=True)), state)

    async def _states(self, row: Session, lowest: int) -> LogStates:
        if is_known(row, lowest):
            return LogStates(row)
        asked = (row.id, row.incarnation, row.marks[-1].seq if row.marks else 0)
        if asked not in self._marks:
            try:
                self._marks[asked] = marks_of(await self._read(row.id))
            except StoreError:
                return LogStates(row)  # damaged, or deleted meanwhile: as far as the row remembers
            if len(self._marks) > MARKS_KEPT:
                self._marks.popitem(last=False)
        return LogStates(row, self._marks[asked])


async def _hits(ranked: Sequence[Ranked], sought: Sought, limit: int, looking: Looking) -> list[Hit]:
    several = len(sought.loose) > 1
    looked_at = ranked[: 2 * limit if several else limit]
    entries = await looking.entries([(one.candidate.session_id, one.candidate.seq) for one in looked_at])
    shown: list[tuple[Ranked, Entry, Excerpt]] = []
    for one in looked_at:
        entry = entries.get((one.candidate.session_id, one.candidate.seq))
        if entry is not None and (text := text_of_part(entry, one.candidate.part)):
            shown.append((one, entry, excerpt(text, sought)))
    order = closest_first([one for one, _, _ in shown], [found.scattered for _, _, found in shown])
    return [_hit(*shown[n]) for n in order[:limit]]


def is_allowed(one: Candidate, unit: SearchUnit, sought: Sought) -> bool:
    """Whether it was said when and by whom it is searched."""
    in_time = (sought.since is None or one.at >= sought.since) and (sought.until is None or one.at < sought.until)
    return in_time and all(facet in unit.facets for facet in sought.facets)


def text_of_part(entry: Entry, part: int) -> str:
    return next((unit.text for unit in units(entry, {}) if unit.part == part), "")


def _hit(one: Ranked, entry: Entry, found: Excerpt) -> Hit:
    return Hit(
        session_id=one.candidate.session_id,
        seq=one.candidate.seq,
        role=one.candidate.role,
        snippet=found.text,
        time=entry.ts,
        state=one.state,
        matches=found.matches,
    )
