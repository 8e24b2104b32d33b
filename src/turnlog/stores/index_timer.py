"""Decides when words are indexed: in a pause between appends, and if there is none, at the latest after some seconds.

Indexing costs more than storing, and a search does it if it is needed, so an append never waits for it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from ..runtime.background import report

INDEX_AFTER_S = 0.5
"""The pause without appends before indexing."""
INDEX_LATEST_S = 5.0
"""The longest delay if appends do not pause: otherwise a search would have ever more to do."""


class IndexTimer:
    """`index_some`: makes the next messages searchable, and says whether there may be more. `start`: makes a task."""

    def __init__(
        self,
        index_some: Callable[[], Awaitable[bool]],
        start: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"] = asyncio.ensure_future,
    ) -> None:
        self._index_some = index_some
        self._start = start
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._written_at = 0.0
        self._closed = False

    def written(self) -> None:
        """Called after each append."""
        self._written_at = time.monotonic()
        self._later(self._written_at + INDEX_LATEST_S)

    def soon(self) -> None:
        """Called if there is something to do, and no appends to wait for."""
        self._later(time.monotonic())

    def _later(self, latest: float) -> None:
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(INDEX_AFTER_S, self._in_time, latest)

    def _in_time(self, latest: float) -> None:
        now = time.monotonic()
        if now < latest and now < self._written_at + INDEX_AFTER_S:
            self._timer = None
            self._later(latest)
        else:
            self._task = self._start(self._index(now))

    async def _index(self, since: float) -> None:
        more = False
        try:
            more = await self._index_some()
        except Exception as error:  # noqa: BLE001 - a search retries, and reports the error
            if not self._closed:
                report("search index", error)
        self._timer = None
        if more:
            self._later(since)

    def cancel(self) -> None:
        """Starts nothing any more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    async def close(self) -> None:
        """The same, and waits for what runs."""
        self.cancel()
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task])
