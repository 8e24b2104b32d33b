"""Searches a JSONL store: the index of words gives candidates, the folders' indexes rows, and the files entries."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from ...core import query as queries
from ...core.entries import Entry
from ...core.query import Query
from ...core.rows import Session
from ...core.search import Candidate, Sought, Wanted
from ...runtime.background import report
from .. import word_index
from ..disk.syncing import aside
from ..finding import EntryPlace
from ..sqlite.connection import SqliteConnection
from ..word_index import Within
from .folder_index import FolderIndex, IndexedRow
from .listing import candidates
from .word_file import KnownFile, WordFile, entries_at

INDEX_AFTER_S = 2.0
"""How long words may wait after an append until they are indexed; a search does not wait."""
FEW_SESSIONS = 200
"""So few are named in the query of the index; a scope with more is checked match by match."""

T = TypeVar("T")


class JsonlSearching:
    """One question at a time; each in a thread. `holder`: the index of the folder that has a session."""

    def __init__(self, words: WordFile, holder: Callable[[str], FolderIndex | None]) -> None:
        self._words = words
        self._holder = holder
        self._one = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Future[None] | None = None
        self._changed: set[str] = set()
        """Sessions with appends that are not indexed yet."""

    def index_later(self, session_id: str) -> None:
        """A search would do it too, but then it takes longer the more was said since the last one."""
        self._changed.add(session_id)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(INDEX_AFTER_S, self._index_now)

    def _index_now(self) -> None:
        self._task = asyncio.ensure_future(self._index_changed())

    async def _index_changed(self) -> None:
        names, self._changed = self._changed, set()
        try:
            await self.index(names)
        except Exception as error:  # noqa: BLE001 - a search retries, and reports the error
            report("index of words", error)
        self._timer = None
        for name in self._changed:
            self.index_later(name)
            break

    async def ask(self, question: Callable[[SqliteConnection], T], rows: Callable[[], Sequence[KnownFile]]) -> T:
        async with self._one:
            return await aside(lambda: self._words.ask(question, rows))

    def behind(self, rows: Iterable[IndexedRow]) -> list[str]:
        """The sessions that the index does not know to their end. In the thread of a question."""
        return [kept.row.id for kept in rows if self._words.is_behind(kept)]

    async def index(self, session_ids: Iterable[str]) -> None:
        found = ((self._holder(name), name) for name in session_ids)
        rows = [(index.rows[name], index.files.home(name)) for index, name in found if index and name in index.rows]
        await self.ask(lambda db: None, lambda: rows)

    async def drop(self, session_id: str) -> None:
        """Removes the words of a deleted session from the index."""
        async with self._one:
            await aside(lambda: self._words.drop(session_id))

    async def drop_entries(self, session_id: str, seqs: Sequence[int]) -> None:
        """Removes the words of these entries from the index."""
        async with self._one:
            await aside(lambda: self._words.drop_entries(session_id, seqs))

    async def forget_all(self) -> None:
        async with self._one:
            await aside(self._words.begin_anew)

    async def forget_gone(self, is_there: Callable[[str], bool]) -> None:
        await self.ask(lambda db: self._words.forget_gone(db, is_there), list[KnownFile])

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._words.is_closing = True
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task])
        async with self._one:
            await aside(self._words.close)


class JsonlLooking:
    def __init__(
        self,
        searching: JsonlSearching,
        indexes: Sequence[FolderIndex],
        scope: Query,
        before: int | None,
        *,
        is_all: bool,
    ) -> None:
        """`is_all`: whether these are all folders of the store."""
        self._searching = searching
        self._before = before
        matches = queries.matcher(scope)
        self._found: dict[str, tuple[FolderIndex, IndexedRow]] = {}
        self._others: list[str] = []
        for index in indexes:
            for kept in candidates(scope, index):
                if matches(kept.row):
                    self._found[kept.row.id] = index, kept
                else:
                    self._others.append(kept.row.id)
        self._is_whole = is_all and not (scope.key is not None or scope.ids or scope.id is not None)
        """Whether `others` are all that are not found."""

    def _known(self, session_ids: Sequence[str]) -> dict[str, KnownFile]:
        return {
            name: (self._found[name][1], self._found[name][0].files.home(name))
            for name in session_ids
            if name in self._found
        }

    def _behind(self) -> list[KnownFile]:
        behind = self._searching.behind(kept for _, kept in self._found.values())
        return list(self._known(behind).values())

    async def candidates(self, step: Sequence[Wanted], sought: Sought) -> list[list[Candidate]]:
        def question(db: SqliteConnection) -> list[list[Candidate]]:
            within = self._within(db)
            return [word_index.find(db, wanted, sought, within) for wanted in step]

        return await self._searching.ask(question, self._behind)

    def _within(self, db: SqliteConnection) -> Within:
        """A small part of the sessions is named to the index; otherwise matches are checked until there are enough."""
        here = len(self._found)
        total = here + len(self._others) if self._is_whole else db.one("SELECT count(*) FROM search_sessions")
        if here <= FEW_SESSIONS and word_index.is_small_part(here, total):
            return Within(sessions=word_index.numbers_of(db, list(self._found)), before=self._before)
        if self._is_whole and not self._others:
            return Within(before=self._before)
        if self._is_whole and len(self._others) < here:
            return Within(
                before=self._before, condition=word_index.NOT_AMONG, values=(word_index.listed(self._others),)
            )
        among = word_index.listed(list(self._found))
        return Within(before=self._before, condition=word_index.AMONG, values=(among,))

    async def rows(self, session_ids: Sequence[str]) -> Mapping[str, Session]:
        return {name: self._found[name][1].row for name in session_ids if name in self._found}

    async def entries(self, places: Sequence[EntryPlace]) -> Mapping[EntryPlace, Entry]:
        known = self._known([name for name, _ in places])
        return await aside(partial(entries_at, known, places))
