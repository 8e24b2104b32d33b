"""Names inside one directory, and no way out of it.

A path is walked one component at a time, each opened relative to the directory before it and never through a symbolic
link. Checking a path first and opening it afterwards would leave a moment in which a directory can be swapped for a
link; here what was checked is what is used. Absolute paths, "..", NUL and special files are refused.
"""

import errno
import os
import secrets
import stat
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..errors import UsageError

PATH_MAX_CHARS = 4_096
"""What the system takes, said clearly."""

DEPTH_MAX = 64
"""Directories below the workspace. More are not asked for by accident."""

_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def prepare(workspace: Path) -> Path:
    """The directory, made if it is missing. It may itself be reached through links: the operator chose it."""
    root = Path(os.path.abspath(workspace))
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{root} cannot be the workspace: {error.strerror}", hint="Name a directory.") from error
    return root


def split(path: str) -> tuple[str, ...]:
    """The components of a path that stays inside; none of them for the workspace itself."""
    if "\0" in path or len(path) > PATH_MAX_CHARS:
        raise UsageError("this cannot be a path", hint="Give a path relative to the workspace.")
    if path.startswith("/"):
        raise UsageError(f"{path} is outside the workspace", hint="Give a path relative to the workspace.")
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise UsageError(f"{path} is refused", hint='Give a path relative to the workspace, without "..".')
    if len(parts) > DEPTH_MAX:
        raise UsageError(f"{path[:80]}… is too deep", hint=f"There may be {DEPTH_MAX} directories at most.")
    return parts


@contextmanager
def directory(root: Path, parts: Sequence[str], *, make: bool = False) -> Generator[int]:
    """A descriptor of the directory; `make`: those that are missing are made on the way."""
    fd = os.open(root, _DIRECTORY)
    try:
        for part in parts:
            inner = _enter(fd, part, make)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def _enter(fd: int, part: str, make: bool) -> int:
    if make:
        try:
            os.mkdir(part, dir_fd=fd)
        except FileExistsError:
            pass  # whatever it is: opening it tells
    try:
        return os.open(part, _DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
    except OSError as error:
        # Linux calls a link "not a directory" here; saying what it is saves the model a guess.
        if error.errno in (errno.ENOTDIR, errno.ELOOP) and stat.S_ISLNK(_look(fd, part)):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from error
        raise


def _look(fd: int, name: str) -> int:
    return os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode


@contextmanager
def regular_file(fd: int, name: str) -> Generator[int]:
    """A descriptor for reading. Looked at before opening, as opening a device may do something; and after, for sure."""
    _refuse_special(_look(fd, name))
    file = os.open(name, os.O_RDONLY | _OPEN, dir_fd=fd)
    try:
        _refuse_special(os.fstat(file).st_mode)
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


def replace(fd: int, name: str, content: bytes) -> bool:
    """The whole file at once or not at all; True if there was one before, whose permissions it keeps.

    A new name is moved over the old one, which replaces a link instead of following it, should one appear meanwhile.
    """
    before = _mode_of(fd, name)
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


def _mode_of(fd: int, name: str) -> int | None:
    try:
        mode = _look(fd, name)
    except FileNotFoundError:
        return None
    _refuse_special(mode)
    return mode


@contextmanager
def explained(path: str) -> Generator[None]:
    """OSError → UsageError that names the path as the model wrote it, and nothing of this machine."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UsageError(f"{path} leads through a symbolic link", hint="Links are not followed.") from error
        raise UsageError(f"{path}: {error.strerror or type(error).__name__}") from error
