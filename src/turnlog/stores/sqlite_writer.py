"""One writer, group commit: everything that waits goes into one transaction, and one sync pays for all of it.

What takes no longer than a hop to a thread and back runs right on the event loop: a lone change on a disk that
answers quickly, and where it is not waited for, several. A thread would have to win the interpreter back after
every statement. Longer jobs, several that are synced, and whatever meets a busy database go to the thread.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

import apsw

from ..errors import Corrupt, StoreError, StoreUnavailable, TurnlogError, UsageError
from .sqlite_db import Database
from .syncing import Outcome

INLINE_MAX_S = 0.002
"""For a change that is synced, and that waits for the disk with the loop."""
INLINE_UNSYNCED_MAX_S = 0.02
"""For all that waits: it is work for the processor, and would stop the loop from a thread just as long. Only now and
then, when the log of changes is copied into the database, it waits for the disk."""
BUSY_TIMEOUT_MS = 30_000
T = TypeVar("T")
Change = Callable[[Database], Any]
Job = list[tuple[Change, Outcome]]
Answers = list[tuple[Any, BaseException | None]]


class Writer:
    def __init__(self, db: Database, *, syncs: bool = True, forget: Callable[[], None] = lambda: None) -> None:
        """`forget`: called when what was read before may be out of date: others wrote, or a transaction failed."""
        self._db = db
        self._syncs = syncs
        self._forget = forget
        self._version = 0
        self._waiting: Job = []
        self._busy = False
        self._scheduled = False
        self._cost_s = 0.0
        self._aside = False
        self._jobs: SimpleQueue[tuple[asyncio.AbstractEventLoop, Job] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    async def run(self, change: Callable[[Database], T], *, aside: bool = False) -> T:
        """Runs the change in a transaction; durable when it returns. `aside`: long work, never on the loop.

        A change checks first and writes then: if it raises one of our errors, it must not have written yet.
        """
        if self._closed:
            raise StoreUnavailable("the store is closed", hint="Open it again.")
        loop = asyncio.get_running_loop()
        done = Outcome(loop=loop)
        self._waiting.append((change, done))
        self._aside = self._aside or aside
        self._schedule(loop)
        return await done

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._scheduled and not self._busy:
            self._scheduled = True
            loop.call_soon(self._start, loop)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._scheduled = False
        if self._busy or not self._waiting:
            return
        job, self._waiting = self._waiting, []
        inline, self._aside = self._is_short(len(job)) and not self._aside, False
        if inline and self._run_here(job):
            return
        self._busy = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="turnlog-sqlite", daemon=True)
            self._thread.start()
        self._jobs.put((loop, job))

    def _run_here(self, job: Job) -> bool:
        """False: the database is busy."""
        start = time.perf_counter()
        try:
            self._db.wait_when_busy(0)
            answers = self._transact(job)
        except apsw.BusyError:
            return False
        except BaseException as error:  # there is nobody else to tell those who wait
            answers: Answers = [(None, mapped(error))] * len(job)
        self._learn((time.perf_counter() - start) / len(job))
        _finish(job, answers)
        return True

    def _is_short(self, changes: int) -> bool:
        if self._syncs:
            return changes == 1 and self._cost_s < INLINE_MAX_S
        return changes * self._cost_s < INLINE_UNSYNCED_MAX_S

    def _learn(self, spent_s: float) -> None:
        self._cost_s = 0.8 * self._cost_s + 0.2 * spent_s

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            loop, job = item
            start = time.perf_counter()
            try:
                self._db.wait_when_busy(BUSY_TIMEOUT_MS)
                answers = self._transact(job)
            except BaseException as error:
                answers: Answers = [(None, mapped(error))] * len(job)
            spent = (time.perf_counter() - start) / len(job)
            try:
                loop.call_soon_threadsafe(self._done, loop, job, answers, spent)
            except RuntimeError:  # the loop was closed under us; nobody waits any more
                return

    def _done(self, loop: asyncio.AbstractEventLoop, job: Job, answers: Answers, spent_s: float) -> None:
        self._busy = False
        self._learn(spent_s)
        _finish(job, answers)
        if self._waiting:
            self._schedule(loop)

    def _transact(self, job: Job) -> Answers:
        """One transaction for all. Raises BusyError only if it could not begin."""
        db = self._db
        answers: Answers = []
        db.run("BEGIN IMMEDIATE")
        try:
            if (version := db.one("PRAGMA data_version")) != self._version:
                self._version = version
                self._forget()
            for change, _ in job:
                try:
                    answers.append((change(db), None))
                except TurnlogError as error:
                    answers.append((None, error))
            db.run("COMMIT")
        except BaseException as error:
            self._forget()
            if db.in_transaction:
                _roll_back(db)
            return [(None, mapped(error))] * len(job)
        return answers

    def close(self) -> None:
        self._closed = True
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None


def _roll_back(db: Database) -> None:
    try:
        db.run("ROLLBACK")
    except apsw.Error:
        # SQLite has rolled back by itself after errors such as a full disk.
        return


def _finish(job: Job, answers: Answers) -> None:
    for (_, done), (value, error) in zip(job, answers, strict=True):
        if done.done():
            continue
        if error is None:
            done.set_result(value)
        else:
            done.set_exception(error)


def mapped(error: BaseException) -> BaseException:
    """A driver's exception → ours, with a hint."""
    if isinstance(error, TurnlogError) or not isinstance(error, apsw.Error):
        return error
    ours = _ours(error)
    ours.__cause__ = error
    return ours


def _ours(error: apsw.Error) -> TurnlogError:
    match error:
        case apsw.FullError():
            return StoreUnavailable(
                f"the disk is full ({error})", hint="Free some space; the session goes on from where it was."
            )
        case apsw.NotADBError():
            return UsageError("the file is not a SQLite database", hint="Choose another path for the store.")
        case apsw.CorruptError():
            return Corrupt(f"the database is damaged ({error})", hint="Run PRAGMA integrity_check; restore a backup.")
        case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.CantOpenError() | apsw.AuthError():
            return StoreUnavailable(
                f"the database cannot be opened for writing ({error})",
                hint="The file and its directory must be writable for the user who runs Turnlog.",
            )
        case apsw.BusyError() | apsw.LockedError():
            return StoreUnavailable(f"the database is locked ({error})", hint="Another program holds it; try again.")
        case apsw.TooBigError():
            return UsageError(f"the entry is too large for the database ({error})", hint="Store it as a file.")
        case apsw.IOError() | apsw.NoLFSError() | apsw.ProtocolError() | apsw.NoMemError() | apsw.InterruptError():
            return StoreUnavailable(f"the database could not be written ({error})")
        case _:
            return StoreError(f"the database failed ({error})")
