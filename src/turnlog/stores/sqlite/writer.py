"""One writer with group commit: all waiting changes go into one transaction, and one sync serves them all.

Changes that are not synced run on the event loop, up to a limit: a thread would have to compete for the interpreter
after every statement. Longer work, changes that are synced, and anything that finds the database busy go to the thread;
on the engine's own loop, where nothing else runs, a single synced change on a fast disk stays.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, TypeVar

import apsw
import msgspec

from ...errors import Corrupt, NotAStore, StoreError, StoreUnavailable, TurnlogError, UsageError
from ..disk.syncing import PASS_EVERY, RecentCost, Uncancellable, patience_s
from .connection import SqliteConnection

INLINE_UNSYNCED_MAX_S = 0.02
"""The limit for all waiting changes: this is processor time, which would stop the loop from a thread just as long. Only
now and then, when the write-ahead log is copied into the database, it waits for the disk.
"""
BUSY_TIMEOUT_MS = 30_000
_RESTORE = "`turnlog doctor` says what is wrong with it; restore it from a backup. Nothing was changed."
T = TypeVar("T")
Change = Callable[[SqliteConnection], Any]
Job = list[tuple[Change, Uncancellable]]
Answers = list[tuple[Any, BaseException | None]]


class SqliteWriter:
    def __init__(self, db: SqliteConnection, *, syncs: bool = True, forget: Callable[[], None] = lambda: None) -> None:
        """`forget`: called when cached values may be outdated: another process wrote, or a transaction failed."""
        self._db = db
        self._syncs = syncs
        self._forget = forget
        self._version = 0
        self._waiting: Job = []
        self._busy = False
        self._scheduled = False
        self._streak = 0
        self._cost = RecentCost()
        self._aside = False
        self._jobs: SimpleQueue[tuple[asyncio.AbstractEventLoop, Job] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False

    async def run(self, change: Callable[[SqliteConnection], T], *, aside: bool = False) -> T:
        """Runs the change in a transaction; durable when it returns. `aside`: long work, never on the loop.

        A change checks first and then writes: if it raises a TurnlogError, it must not have written yet.
        """
        if self._closed:
            raise StoreUnavailable("the store is closed", hint="Open it again.")
        loop = asyncio.get_running_loop()
        alone = self._is_alone(loop)
        if alone and not aside and self._is_short(1, loop):
            answers = self._run_here([change])
            if answers is not None:
                return _outcome(answers)
            aside = True  # the database is busy, and the thread can wait for it
        done = Uncancellable(loop=loop)
        self._waiting.append((change, done))
        self._aside = self._aside or aside
        if alone:
            self._start(loop)
        else:
            self._schedule(loop)
        return done.result() if done.done() else await done

    def is_free(self) -> bool:
        """Whether `run_now` may run a change: nothing else could go into its transaction, and the disk is fast."""
        loop = asyncio.get_running_loop()
        return not self._closed and self._has_no_other(loop) and self._is_short(1, loop)

    def run_now(self, change: Callable[[SqliteConnection], T]) -> list[T]:
        """As `run`, on the spot, if the writer is free. The list is empty, and nothing was done, if the database is
        busy.
        """
        answers = self._run_here([change])
        return [] if answers is None else [_outcome(answers)]

    def _is_alone(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether the transaction need not wait for a pass of the loop, as in `Syncer.request`."""
        self._streak += 1
        return self._has_no_other(loop) and self._streak % PASS_EVERY != 0

    def _has_no_other(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether nothing else is ready to run that could add to the transaction."""
        return not self._waiting and not self._busy and not getattr(loop, "_ready", True)

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._scheduled and not self._busy:
            self._scheduled = True
            loop.call_soon(self._start, loop)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._scheduled = False
        if self._busy or not self._waiting:
            return
        job, self._waiting = self._waiting, []
        inline, self._aside = self._is_short(len(job), loop) and not self._aside, False
        answers = self._run_here(_changes(job)) if inline else None
        if answers is None and not self._has_thread():
            answers = self._run_here(_changes(job), BUSY_TIMEOUT_MS)
        if answers is not None:
            _finish(job, answers)
            return
        self._busy = True
        self._jobs.put((loop, job))

    def _has_thread(self) -> bool:
        """False while the interpreter exits and can start no threads."""
        if self._thread is None:
            thread = threading.Thread(target=self._work, name="turnlog-sqlite", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False
            self._thread = thread
        return True

    def _run_here(self, changes: Sequence[Change], wait_ms: int = 0) -> Answers | None:
        """None: the database is busy, and the thread can wait for it."""
        start = time.perf_counter()
        try:
            self._db.wait_when_busy(wait_ms)
            answers = self._transact(changes)
        except BaseException as error:  # noqa: BLE001 - every waiting call gets the error
            if isinstance(error, apsw.BusyError) and not wait_ms:
                return None
            answers: Answers = [(None, mapped(error, self._db.path))] * len(changes)
        self._cost.add((time.perf_counter() - start) / len(changes))
        return answers

    def _is_short(self, changes: int, loop: asyncio.AbstractEventLoop) -> bool:
        if self._syncs:
            return changes == 1 and self._cost.typical_s < patience_s(loop)
        return changes * self._cost.typical_s < INLINE_UNSYNCED_MAX_S

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            loop, job = item
            start = time.perf_counter()
            try:
                self._db.wait_when_busy(BUSY_TIMEOUT_MS)
                answers = self._transact(_changes(job))
            except BaseException as error:  # noqa: BLE001 - every waiting call gets the error
                answers: Answers = [(None, mapped(error, self._db.path))] * len(job)
            spent = (time.perf_counter() - start) / len(job)
            try:
                loop.call_soon_threadsafe(self._done, loop, job, answers, spent)
            except RuntimeError:  # the loop was closed meanwhile; nobody waits any more
                return

    def _done(self, loop: asyncio.AbstractEventLoop, job: Job, answers: Answers, spent_s: float) -> None:
        self._busy = False
        self._cost.add(spent_s)
        _finish(job, answers)
        if self._waiting:
            self._schedule(loop)

    def _transact(self, changes: Sequence[Change]) -> Answers:
        """Runs one transaction for all. Raises BusyError only if it could not begin."""
        db = self._db
        answers: Answers = []
        db.run("BEGIN" if db.read_only else "BEGIN IMMEDIATE")
        try:
            check_in_place(db)
            if db.data_version != self._version:
                self._forget()
            for change in changes:
                try:
                    answers.append((change(db), None))
                except TurnlogError as error:
                    answers.append((None, error))
            db.run("COMMIT")
            self._version = db.data_version
        except BaseException as error:  # noqa: BLE001 - a transaction is rolled back, whatever ended it
            self._forget()
            if db.in_transaction:
                _roll_back(db)
            return [(None, mapped(error, self._db.path))] * len(changes)
        return answers

    def close(self) -> None:
        self._closed = True
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
            self._thread = None


def check_in_place(db: SqliteConnection) -> None:
    if not db.is_in_place:
        raise StoreUnavailable(
            f"the database {db.path} was removed or replaced while it was open",
            hint="Close the store, and open it again.",
        )


def _roll_back(db: SqliteConnection) -> None:
    try:
        db.run("ROLLBACK")
    except apsw.Error:
        # SQLite has already rolled back after errors such as a full disk.
        return


def _changes(job: Job) -> list[Change]:
    return [change for change, _ in job]


def _outcome(answers: Answers) -> Any:
    """Of the only change. The list is emptied: an error that it held would hold it too, by its traceback."""
    value, error = answers.pop()
    if error is None:
        return value
    try:
        raise error
    finally:
        error = None


def _finish(job: Job, answers: Answers) -> None:
    for (_, done), (value, error) in zip(job, answers, strict=True):
        if done.done():
            continue
        if error is None:
            done.set_result(value)
        else:
            done.set_exception(error)


@contextmanager
def driver_errors(path: str) -> Generator[None]:
    """`path`: the database in use."""
    try:
        yield
    except (apsw.Error, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise mapped(error, path) from error


def mapped(error: BaseException, path: str = "") -> BaseException:
    """Maps an exception of the driver to a TurnlogError, with the file and a hint."""
    if not isinstance(error, apsw.Error | UnicodeDecodeError | msgspec.DecodeError):
        return error
    ours = _ours(error, f"the database {path}" if path else "the database", path)
    ours.__cause__ = error
    return ours


def _ours(error: Exception, name: str, path: str) -> TurnlogError:
    match error:
        case apsw.FullError():
            return StoreUnavailable(
                f"the disk is full ({name}: {error})", hint="Free some space; then the session continues."
            )
        case apsw.NotADBError():
            return NotAStore(
                f"{path or 'the file'} is not a SQLite database, or its beginning is damaged", hint=_RESTORE
            )
        case apsw.CorruptError() | UnicodeDecodeError() | msgspec.DecodeError():
            return Corrupt(f"{name} is damaged ({error})", path=path, hint=_RESTORE)
        case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.CantOpenError() | apsw.AuthError():
            return StoreUnavailable(
                f"{name} cannot be opened for writing ({error})",
                hint="The file and its directory must be writable for the user who runs Turnlog.",
            )
        case apsw.BusyError() | apsw.LockedError():
            return StoreUnavailable(f"{name} is locked ({error})", hint="Another program uses it; try again.")
        case apsw.TooBigError():
            return UsageError(
                f"the entry is too large for the database ({error})", hint="Store it as a file, and append its path."
            )
        case apsw.IOError() | apsw.NoLFSError() | apsw.ProtocolError() | apsw.NoMemError() | apsw.InterruptError():
            return StoreUnavailable(f"{name} could not be written ({error})")
        case _:
            return StoreError(f"{name} failed ({error})")
