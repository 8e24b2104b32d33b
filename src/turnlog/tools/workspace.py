"""Opens files inside one directory, with no way out of it.

A path is walked one component at a time, each opened relative to the directory before it and never through a symbolic
link. Checking a path first and opening it later would leave a moment in which a directory can be replaced by a link;
here the checked object is the one that is used. Absolute paths, "..", NUL and special files are refused, and so is
Turnlog's own data (`tools.fence`).
"""

import errno
import os
import secrets
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..errors import UsageError
from .fence import Bounds, refuse

PATH_MAX_CHARS = 4_096
"""The system's own limit, with a clear error."""

DEPTH_MAX = 64
"""The depth below the workspace. Nobody needs more."""
WHOLE_MAX_BYTES = 1 << 26
"""More of a file is never read at once."""

_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def prepare(workspace: Path) -> Path:
    """The directory, created if it is missing. Links on the way to it are followed: the operator chose it."""
    root = Path(os.path.abspath(workspace))
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{root} cannot be the workspace: {error.strerror}", hint="Name a directory.") from error
    return root


def split(path: str) -> tuple[str, ...]:
    """The components of a path that stays inside; none for the workspace itself."""
    if "\0" in path or len(path) > PATH_MAX_CHARS:
        raise UsageError("this is not a valid path", hint="Give a path relative to the workspace.")
    if path.startswith("/"):
        raise UsageError(f"{path} is outside the workspace", hint="Give a path relative to the workspace.")
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise UsageError(f"{path} is refused", hint='Give a path relative to the workspace, without "..".')
    if len(parts) > DEPTH_MAX:
        raise UsageError(f"{path[:80]}… is too deep", hint=f"Use at most {DEPTH_MAX} directories.")
    return parts


@contextmanager
def directory(root: Path, parts: Sequence[str], bounds: Bounds, *, make: bool = False) -> Generator[int]:
    """A descriptor of the directory; with `make`, missing directories are created on the way."""
    fd = os.open(root, _DIRECTORY)
    try:
        closed = bounds.closes_root(fd)
        for part in parts:
            inner, closed = _enter(fd, part, make, bounds, closed)
            os.close(fd)
            fd = inner
        if closed:
            raise refuse("/".join(parts) or "this directory")
        yield fd
    finally:
        os.close(fd)


def _enter(fd: int, part: str, make: bool, bounds: Bounds, closed: bool) -> tuple[int, bool]:
    """(the directory inside, whether it is closed); the error of a closed one says nothing else about it."""
    closed = bounds.closes(fd, part, within=closed)
    if make and not closed:
        try:
            os.mkdir(part, dir_fd=fd)
        except FileExistsError:
            pass  # opening it will show what it is
    try:
        inner = os.open(part, _DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
    except OSError as error:
        if closed:
            raise refuse(part) from error
        # Linux calls a link "not a directory" here; a precise error saves the model a guess.
        if error.errno in (errno.ENOTDIR, errno.ELOOP) and stat.S_ISLNK(_look(fd, part)):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from error
        raise
    return inner, bounds.holds(inner, closed)


def _look(fd: int, name: str) -> int:
    return os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode


@contextmanager
def regular_file(fd: int, name: str, bounds: Bounds) -> Generator[int]:
    """A descriptor for reading. Checked before opening, because opening a device may have effects, and again after."""
    if bounds.closes(fd, name, within=False):
        raise refuse(name)
    _refuse_special(_look(fd, name))
    file = os.open(name, os.O_RDONLY | _OPEN, dir_fd=fd)
    try:
        _refuse_special(os.fstat(file).st_mode)
        if bounds.closes_file(os.fstat(file)):
            raise refuse(name)
        yield file
    finally:
        os.close(file)


def _refuse_special(mode: int) -> None:
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "not a regular file")


def replace(fd: int, name: str, content: bytes, bounds: Bounds) -> bool:
    """Replaces the whole file atomically; True if it existed before, and then its permissions stay.

    A new file is moved over the old name. If a link appears there meanwhile, it is replaced and not followed.
    """
    before = mode_of(fd, name, bounds)
    temporary = f".turnlog-{secrets.token_hex(8)}.tmp"
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, 0o666, dir_fd=fd)
    try:
        with os.fdopen(file, "wb") as stream:
            if before is not None:
                os.fchmod(file, before & 0o777)
            stream.write(content)
            stream.flush()
            os.fsync(file)
        os.replace(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
    except BaseException:
        os.unlink(temporary, dir_fd=fd)
        raise
    os.fsync(fd)
    return before is not None


def whole(fd: int, name: str, bounds: Bounds) -> bytes | None:
    """The content of a file, up to a limit; None if there is none."""
    try:
        with regular_file(fd, name, bounds) as file:
            return os.read(file, min(WHOLE_MAX_BYTES, os.fstat(file).st_size))
    except FileNotFoundError:
        return None


def remove(fd: int, name: str) -> None:
    os.unlink(name, dir_fd=fd)
    os.fsync(fd)


def mode_of(fd: int, name: str, bounds: Bounds) -> int | None:
    if bounds.closes(fd, name, within=False):
        raise refuse(name)
    try:
        found = os.stat(name, dir_fd=fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    _refuse_special(found.st_mode)
    if bounds.closes_file(found):
        raise refuse(name)
    return found.st_mode


@contextmanager
def explained(path: str) -> Generator[None]:
    """Maps OSError to a UsageError that names the path as the model wrote it, and nothing else of this machine."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UsageError(f"{path} leads through a symbolic link", hint="Links are not followed.") from error
        raise UsageError(f"{path}: {error.strerror or type(error).__name__}") from error
