"""Leases as locks on small files: one per running turn, gone with it.

The operating system ends a lock with its process, so there is no expiry to wait for and no clock to trust. The file
says who holds it, for people. A file left by a crash is unlocked and simply used again.
"""

import asyncio
import os
import socket
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from ..errors import Busy, Conflict, UsageError
from . import Lease
from .files import disk_errors, lock, make_dir, open_private

POLL_FIRST_S = 0.005
POLL_MAX_S = 0.1

_held_fds: set[int] = set()


def _forget_in_child() -> None:
    """A forked child must not keep its parent's leases alive."""
    for fd in _held_fds:
        os.close(fd)
    _held_fds.clear()


os.register_at_fork(after_in_child=_forget_in_child)


class FileLease:
    """Epochs rise from holder to holder: the lock orders them, the clock only numbers them."""

    def __init__(self, session_id: str, epoch: int) -> None:
        self.session_id = session_id
        self.epoch = epoch
        self.live = True


def check(lease: Lease | None, session_id: str) -> bool:
    """Whether there is a lease at all; raises if it is not a live one for this session."""
    if lease is None:
        return False
    if lease.session_id != session_id:
        raise UsageError(f"the lease is for session {lease.session_id}, not {session_id}")
    if not lease.live:
        raise Conflict(
            "the lease has ended; somebody else may have the turn now", hint="Take a new lease and read again."
        )
    return True


class FileLeases:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._queues: dict[str, asyncio.Lock] = {}

    @asynccontextmanager
    async def take(self, session_id: str, wait_s: float | None) -> AsyncGenerator[FileLease]:
        deadline = None if wait_s is None else time.monotonic() + wait_s
        queue = self._queues.setdefault(session_id, asyncio.Lock())
        try:
            async with _within(queue, deadline, session_id, self._path(session_id)):
                fd = await self._acquire(session_id, deadline)
                lease = FileLease(session_id, time.time_ns())
                try:
                    yield lease
                finally:
                    lease.live = False
                    self._release(fd, session_id)
        finally:
            if not queue.locked():  # who still waits has it in hand; the file's lock keeps them apart all the same
                self._queues.pop(session_id, None)

    def _path(self, session_id: str) -> Path:
        return self._folder / f"{session_id}.lock"

    async def _acquire(self, session_id: str, deadline: float | None) -> int:
        pause = POLL_FIRST_S
        while (fd := self._try(session_id)) is None:
            if deadline is not None and time.monotonic() + pause > deadline:
                raise busy(session_id, self._path(session_id))
            await asyncio.sleep(pause)
            pause = min(pause * 2, POLL_MAX_S)
        return fd

    def _try(self, session_id: str) -> int | None:
        path = self._path(session_id)
        with disk_errors("the lease cannot be taken"):
            fd = self._open(path)
            try:
                # Its last holder removes the file: then this lock is on nothing, and must be tried anew.
                if lock(fd, wait=False) and _is_still(path, fd):
                    os.ftruncate(fd, 0)
                    os.pwrite(fd, _holder(), 0)
                    _held_fds.add(fd)
                    return fd
            except OSError:
                os.close(fd)
                raise
            os.close(fd)
            return None

    def _open(self, path: Path) -> int:
        try:
            return open_private(path, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:
            make_dir(self._folder)
            return open_private(path, os.O_RDWR | os.O_CREAT)

    def _release(self, fd: int, session_id: str) -> None:
        _held_fds.discard(fd)
        self._path(session_id).unlink(missing_ok=True)
        os.close(fd)


@asynccontextmanager
async def _within(queue: asyncio.Lock, deadline: float | None, session_id: str, path: Path) -> AsyncGenerator[None]:
    try:
        async with asyncio.timeout(None if deadline is None else max(0.0, deadline - time.monotonic())):
            await queue.acquire()
    except TimeoutError:
        raise busy(session_id, path) from None
    try:
        yield
    finally:
        queue.release()


def _is_still(path: Path, fd: int) -> bool:
    try:
        return os.stat(path, follow_symlinks=False).st_ino == os.fstat(fd).st_ino
    except FileNotFoundError:
        return False


def _holder() -> bytes:
    return msgspec.json.encode({"pid": os.getpid(), "host": socket.gethostname(), "since": int(time.time())})


def busy(session_id: str, path: Path) -> Busy:
    try:
        told = msgspec.json.decode(path.read_bytes())
        since = time.strftime("%H:%M:%S", time.gmtime(told["since"]))
        who = f"process {told['pid']} on {told['host']}, since {since} UTC"
    except (OSError, ValueError, KeyError, TypeError):
        who = "another process"
    return Busy(f"a turn is running in session {session_id} ({who})", holder=who)
