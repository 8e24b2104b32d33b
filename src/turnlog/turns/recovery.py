"""Turns that another process, or an earlier start of this one, left unfinished: marks them, answers what waits.

A log whose newest turn is under way while nobody holds its lease was cut short, unless the turn is paused because it
waits for a person (`core/approvals`). The next holder writes `failed` with the code `interrupted`. With `rerun` such a
turn then runs once more, if it had not called any tool yet. Turns of agent frameworks, and of
clients that run their own loop (channel `api`), are not Turnlog's to finish: their sessions are left alone.
"""

from collections.abc import Callable
from contextlib import suppress

from ..core.entries import Assistant, Failed, User
from ..core.keys import API, FRAMEWORKS
from ..core.query import Query
from ..core.session import Session
from ..errors import NotFound
from ..stores import Store
from ..stores.finding import every_row
from .journal import Journal
from .tickets import Lane

NOT_OURS = FRAMEWORKS | {API}
RERUNS_MAX = 1
"""A turn that a crash cut short runs once more, not for ever: it may be the cause of the crash."""


class Recovery:
    def __init__(self, store: Store, lane_of: Callable[[Session], Lane], start_worker: Callable[[Lane], None]) -> None:
        self._store = store
        self._lane_of = lane_of
        self._start_worker = start_worker
        self._reruns = False

    async def resume(self, *, rerun: bool = False) -> int:
        """After a start: starts a worker for each session with something unfinished, and gives their number.

        `rerun` also holds for turns that other processes leave unfinished from now on.
        """
        self._reruns = rerun
        found = 0
        async for row in every_row(self._store.find, Query(unfinished=True)):
            if row.channel in NOT_OURS:
                continue
            lane = self._lane_of(row)
            lane.resumed = True
            found += lane.worker is None
            self._start_worker(lane)
        return found

    async def adopt(self) -> None:
        """Looks after turns whose process fell silent, unless another process is faster. For servers at one store."""
        for session_id in await self._store.abandoned():
            with suppress(NotFound):  # deleted meanwhile, or a lease on something that is no session (`outbox`)
                row = await self._store.describe(session_id)
                if row.channel not in NOT_OURS and not row.lacks_copies:
                    self._start_worker(self._lane_of(row))

    async def is_rerun_due(self, lane: Lane, journal: Journal) -> bool:
        """Marks the newest turn if it was cut short. Whether it is to run once more."""
        was_cut = await mark_cut_short(journal)
        return self._reruns and (was_cut or lane.resumed) and may_rerun(journal)


async def mark_cut_short(journal: Journal) -> bool:
    """Whether there was a turn to mark."""
    if not journal.row.under_way or journal.row.paused:
        return False
    await journal.append(Failed(code="interrupted", reason="the turn was cut short"))
    return True


def may_rerun(journal: Journal) -> bool:
    """Whether the newest turn was cut short before any tool had started, and has not run again already."""
    turn = journal.turn()
    cuts = [entry for entry in turn if isinstance(entry, Failed)]
    if not turn or not isinstance(turn[0], User) or not cuts:
        return False
    if any(entry.code != "interrupted" for entry in cuts) or len(cuts) > RERUNS_MAX:
        return False
    return not any(isinstance(entry, Assistant) for entry in turn)
