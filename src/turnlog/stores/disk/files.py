"""What the stores on disk share: private files, durable replacement, file locks, and mapped errors.

Files have mode 0600 and directories 0700 from creation. Nothing here follows a symbolic link.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ...errors import StoreUnavailable, UsageError

FILE_MODE = 0o600
DIR_MODE = 0o700
OPEN_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW

_HINTS = {
    errno.ENOSPC: "The disk is full. Free some space; then the session continues.",
    errno.EDQUOT: "The disk quota is used up. Free some space; then the session continues.",
    errno.EROFS: "The disk is mounted read-only. Mount it writable, or choose another store.",
    errno.EACCES: "Permission denied. The store's files must belong to the user who runs Turnlog.",
    errno.EPERM: "Permission denied. The store's files must belong to the user who runs Turnlog.",
    errno.EMFILE: "Too many open files. Raise the limit (ulimit -n).",
    errno.EIO: "The disk reports an error. Check the disk before you continue.",
    errno.ELOOP: "The path is a symbolic link, which Turnlog does not follow.",
}


@contextmanager
def disk_errors(what: str) -> Generator[None]:
    """Maps OSError to StoreUnavailable, with a hint that says what to do."""
    try:
        yield
    except OSError as error:
        raise unavailable(what, error) from error


def unavailable(what: str, error: OSError) -> StoreUnavailable:
    reason = error.strerror or str(error)
    return StoreUnavailable(f"{what}: {reason}", hint=_HINTS.get(error.errno or 0, StoreUnavailable.hint))


def make_dir(path: Path) -> None:
    """Creates the directory and its parents, private from creation."""
    missing: list[Path] = []
    while not path.exists():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        try:
            os.mkdir(folder, DIR_MODE)
        except FileExistsError:
            continue
        sync_dir(folder.parent)
    if not path.is_dir():
        raise UsageError(f"{path} is not a directory", hint="Choose another path for the store.")


def sync_dir(path: Path) -> None:
    """Makes names in a directory durable: a new file is safe only after its directory was synced."""
    with open_dir(path) as fd:
        os.fsync(fd)


@contextmanager
def open_dir(path: Path) -> Generator[int]:
    """The entries of a directory that is read by its descriptor need no paths, which cost as much as the names."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def listing(path: Path) -> list[os.DirEntry[str]]:
    with os.scandir(path) as entries:
        return list(entries)


def open_private(path: Path | str, flags: int) -> int:
    fd = os.open(path, flags | OPEN_FLAGS, FILE_MODE)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise UsageError(f"{path} is not a regular file", hint="Remove it, or choose another path.")
    return fd


def write_all(fd: int, data: bytes) -> None:
    """Writes everything: a single write may be short on a nearly full disk or above 2 GiB."""
    written = os.write(fd, data)
    while written < len(data):
        written += os.write(fd, memoryview(data)[written:])


def replace_file(path: Path, data: bytes, *, durable: bool) -> None:
    """Replaces the whole file atomically: writes a temporary file next to it, syncs, renames, and syncs the
    directory.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    fd = open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        write_all(fd, data)
        if durable:
            os.fsync(fd)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)
    os.replace(temporary, path)
    if durable:
        sync_dir(path.parent)


def lock(fd: int, *, shared: bool = False, wait: bool = True) -> bool:
    """Takes the lock; False if another process has it and `wait` is not set."""
    how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(fd, how if wait else how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(fd: int) -> None:
    fcntl.flock(fd, fcntl.LOCK_UN)


def read_at(fd: int, start: int, end: int) -> bytes:
    """All bytes between two positions; fewer only if the file ends before."""
    data = os.pread(fd, end - start, start)
    if len(data) == end - start or not data:
        return data
    parts = [data]
    start += len(data)
    while start < end and (data := os.pread(fd, end - start, start)):
        parts.append(data)
        start += len(data)
    return b"".join(parts)
