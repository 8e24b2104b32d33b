"""Leases as locks on small files, one for each session that had a turn recently.

The operating system ends a lock with its process, so there is no expiry to wait for and no clock to trust. The file
names the holder, for people. It stays open for the next turn of its session, because creating and removing a file each
time costs more than storing the turn. A file left by a crash is unlocked and is used again.

Why a lease has an epoch, and what goes wrong without one, is drawn in `postgres/leases`. Here nothing expires, so the
lock alone keeps a second process away; the epoch only tells one holder from the next.
"""

import asyncio
import errno
import os
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from pathlib import Path
from weakref import WeakSet

import msgspec

from ...errors import Busy, Conflict, UsageError
from .. import Lease
from .files import lock, make_dir, open_private, unavailable, unlock

POLL_FIRST_S = 0.005
POLL_MAX_S = 0.1
KEPT_MAX = 256
"""The number of files that stay open while nobody holds their lease."""
MTIME_STEP_S = 0.1
"""Two changes of a file within this time may have the same time of change."""

_open_fds: dict[int, int] = {}
"""The inode of each open file, which never changes."""
_named: dict[int, tuple[int, int]] = {}
"""(second, time of change) at which an open file named this process as the holder; until it changes, it need not be
read.
"""
_everyone: "WeakSet[FileLeases]" = WeakSet()


def _forget_in_child() -> None:
    """A forked child must not keep its parent's leases alive, nor mistake its own files for them."""
    for fd in _open_fds:
        os.close(fd)
    _open_fds.clear()
    _named.clear()
    for leases in _everyone:
        leases.forget()


os.register_at_fork(after_in_child=_forget_in_child)


class FileLease:
    """Epochs rise from holder to holder: the lock orders the holders, the clock only numbers them."""

    __slots__ = ("epoch", "live", "session_id")  # so the class says what its objects have, and calls check only that

    def __init__(self, session_id: str, epoch: int) -> None:
        self.session_id = session_id
        self.epoch = epoch
        self.live = True

    async def regain(self) -> bool:
        return False


def check(lease: Lease | None, session_id: str) -> None:
    """Raises if a lease is given that is not a live one for this session."""
    if lease is None:
        return
    if lease.session_id != session_id:
        raise UsageError(f"the lease is for session {lease.session_id}, not {session_id}")
    if not lease.live:
        raise Conflict(
            "the lease has ended; another process may run the turn now", hint="Take a new lease and read again."
        )


class FileLeases:
    def __init__(self, folder: Path, store: Path | None = None) -> None:
        """`store`: the file or folder whose leases these are; without it there are none."""
        self._folder = folder
        self._store = store or folder.parent
        self._queues: dict[str, asyncio.Lock | None] = {}
        """Where the tasks of this store wait for one another, by session; None: a task holds the lease, and none waits.
        """
        self._kept: dict[str, int] = {}
        """Open files of leases that this process does not hold, by session, longest unused first."""
        self._room = KEPT_MAX
        _everyone.add(self)

    def take(self, session_id: str, wait_s: float | None) -> "TakenLease":
        """Waits while another holds it, and no longer than this; then raises Busy."""
        return TakenLease(self, session_id, wait_s)

    def enter_now(self, session_id: str) -> int | None:
        """Takes it if nobody holds it or waits for it."""
        if session_id in self._queues:
            return None
        fd = self._try(session_id)
        if fd is not None:
            self._queues[session_id] = None
        return fd

    async def enter(self, session_id: str, wait_s: float | None) -> tuple[asyncio.Lock, int]:
        """Takes it: first among the tasks of this store, then among processes."""
        deadline = None if wait_s is None else time.monotonic() + wait_s
        queue = await self._queue_of(session_id)
        try:
            if queue.locked():
                await self._wait_in(queue, deadline, session_id)
            else:
                await queue.acquire()  # at once
            try:
                fd = self._try(session_id)
                return queue, await self._acquire(session_id, deadline) if fd is None else fd
            except BaseException:
                queue.release()
                raise
        except BaseException:
            self._put_away(queue, session_id)
            raise

    async def _queue_of(self, session_id: str) -> asyncio.Lock:
        """A task that took the lease without waiting has made none: then it holds this one, too."""
        queue = self._queues.get(session_id)
        if queue is None:
            queue = asyncio.Lock()
            if session_id in self._queues:
                await queue.acquire()  # at once
            self._queues[session_id] = queue
        return queue

    def leave(self, queue: asyncio.Lock | None, fd: int, session_id: str) -> None:
        """`queue`: None if the lease was taken without waiting."""
        try:
            self._release(fd, session_id)
        finally:
            queue = queue or self._queues[session_id]
            if queue is not None:
                queue.release()
            self._put_away(queue, session_id)

    def _put_away(self, queue: asyncio.Lock | None, session_id: str) -> None:
        """A waiter still has it open; the lock on the file keeps them apart."""
        if self._queues.get(session_id) is queue and not (queue and queue.locked()):
            self._queues.pop(session_id, None)

    async def _wait_in(self, queue: asyncio.Lock, deadline: float | None, session_id: str) -> None:
        try:
            async with asyncio.timeout(None if deadline is None else max(0.0, deadline - time.monotonic())):
                await queue.acquire()
        except TimeoutError:
            raise busy(session_id, self._path(session_id)) from None

    def _path(self, session_id: str) -> str:
        """Text, because this runs in every append."""
        return f"{self._folder}{os.sep}{session_id}.lock"

    async def _acquire(self, session_id: str, deadline: float | None) -> int:
        """Asks again and again."""
        fd, pause = None, POLL_FIRST_S
        while fd is None:
            if deadline is not None and time.monotonic() + pause > deadline:
                raise busy(session_id, self._path(session_id))
            await asyncio.sleep(pause)
            fd, pause = self._try(session_id), min(pause * 2, POLL_MAX_S)
        return fd

    def _try(self, session_id: str) -> int | None:
        try:
            return self._locked(session_id)
        except OSError as error:
            raise unavailable("the lease cannot be taken", error) from error

    def _locked(self, session_id: str) -> int | None:
        path = self._path(session_id)
        while True:
            fd = self._kept.pop(session_id, None)
            fd = self._open(path) if fd is None else fd
            try:
                if not lock(fd, wait=False):
                    _close(fd)
                    return None
                if (file := _still(path, fd)) is not None:
                    _name_holder(fd, file)
                    return fd
            except OSError:
                _close(fd)
                raise
            _close(fd)  # the file was removed: this lock is worthless

    def _open(self, path: str) -> int:
        try:
            fd = open_private(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            match error.errno:
                case errno.ENOENT if self._store.exists():  # otherwise the store was removed, and must stay so
                    make_dir(self._folder)
                case errno.EMFILE | errno.ENFILE if self._kept:
                    self._remove_all()
                case _:
                    raise
            fd = open_private(path, os.O_RDWR | os.O_CREAT)
        _open_fds[fd] = os.fstat(fd).st_ino
        return fd

    def _release(self, fd: int, session_id: str) -> None:
        if fd not in _open_fds:
            return  # in a forked child: the lease belongs to its parent
        unlock(fd)
        self._kept[session_id] = fd
        while len(self._kept) > self._room:
            self._remove(next(iter(self._kept)))

    def close(self) -> None:
        self._room = 0
        self._remove_all()

    def forget(self) -> None:
        """The files are closed already."""
        self._kept.clear()

    def _remove_all(self) -> None:
        for session_id in list(self._kept):
            self._remove(session_id)

    def _remove(self, session_id: str) -> None:
        """Removes the file too, unless another process holds the lease."""
        fd, path = self._kept.pop(session_id), self._path(session_id)
        if fd not in _open_fds:
            return
        try:
            if lock(fd, wait=False) and _still(path, fd) is not None:
                os.unlink(path)
        except OSError:  # the file stays for the next holder
            pass
        finally:
            _close(fd)


class TakenLease:
    """`async with` it: the lease is held inside. A class, because a generator costs as much as the lock."""

    def __init__(self, leases: FileLeases, session_id: str, wait_s: float | None) -> None:
        self._leases = leases
        self._session_id = session_id
        self._wait_s = wait_s

    async def __aenter__(self) -> FileLease:
        fd = self._leases.enter_now(self._session_id)
        self._place = await self._leases.enter(self._session_id, self._wait_s) if fd is None else (None, fd)
        self._lease = FileLease(self._session_id, time.time_ns())
        return self._lease

    async def __aexit__(self, *_: object) -> None:
        self._lease.live = False
        self._leases.leave(*self._place, self._session_id)


def _close(fd: int) -> None:
    _open_fds.pop(fd, None)
    _named.pop(fd, None)
    os.close(fd)


def _still(path: str, fd: int) -> os.stat_result | None:
    """The open file as it is now; None if the path is no longer its name."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found if found.st_ino == _open_fds[fd] else None


def _name_holder(fd: int, file: os.stat_result) -> None:
    """Writes who holds the lease, unless the file says so already: one append after the other takes it anew."""
    now = time.time()
    named = int(now), file.st_mtime_ns
    if _named.get(fd) == named:
        return
    told = b'{"pid":%d,"host":%b,"since":%d}' % (os.getpid(), _host(), now)
    if os.pread(fd, len(told) + 1, 0) != told:
        os.ftruncate(fd, 0)
        os.pwrite(fd, told, 0)
    elif now - file.st_mtime > MTIME_STEP_S:
        _named[fd] = named


@cache
def _host() -> bytes:
    return msgspec.json.encode(socket.gethostname())


@asynccontextmanager
async def held(
    lease: Lease | None, session_id: str, own: AbstractAsyncContextManager[Lease] | None
) -> AsyncGenerator[Lease | None]:
    """Runs with the given lease; without one, with its own, if there is one."""
    check(lease, session_id)
    if lease is not None or own is None:
        yield lease
        return
    async with own as taken:
        yield taken


def busy(session_id: str, path: str) -> Busy:
    try:
        told = msgspec.json.decode(Path(path).read_bytes())
        since = time.strftime("%H:%M:%S", time.gmtime(told["since"]))
        who = f"process {told['pid']} on {told['host']}, since {since} UTC"
    except (OSError, ValueError, KeyError, TypeError):
        who = "another process"
    return Busy(f"a turn is running in session {session_id} ({who})", holder=who)
