"""The places in a workspace that the file tools may not reach: Turnlog's own data.

A place is recognised by its inode, so that links and other spellings change nothing, and by its name in its directory,
so that a missing file of Turnlog cannot be created. For a directory, the nearest listed directory above it decides. It
is evaluated again for every call, because files come and go.
"""

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from glob import escape
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from ..errors import UsageError

Inode: TypeAlias = tuple[int, int]
"""Device and number."""

CLOSED_NOTE = "closed: Turnlog's own data"
ASCENT_MAX = 1_024
"""The most directories above a workspace; the system's own limit for a path is lower."""


class Fence(Struct, frozen=True):
    closed: tuple[Path, ...] = ()
    """Files, and directories with everything in them, whether they exist yet or not."""
    patterns: tuple[Path, ...] = ()
    """The same for all names in a directory that match the last part."""
    open: tuple[Path, ...] = ()
    """Directories inside closed ones that are not closed."""
    linked: tuple[tuple[Path, str], ...] = ()
    """(directory, glob in it): names that may be symbolic links, to where the data really is. That is closed too."""

    def look(self) -> "Bounds":
        closed = [spelling for path in self.closed for spelling in (path, Path(os.path.realpath(path)))]
        closed += self._targets()
        names = [path.with_name(escape(path.name)) for path in map(_first_missing, closed)]
        named = [path for path in (*names, *self.patterns) if path.name]
        return Bounds(
            closed=frozenset(filter(None, map(_inode_at, closed))),
            open=frozenset(filter(None, map(_inode_at, self.open))),
            named=[(inode, path.name.casefold()) for path in named if (inode := _inode_at(path.parent))],
            paths=named,
        )

    def _targets(self) -> list[Path]:
        """What the links lead to. A link to a workspace that is open changes nothing."""
        links = [path for top, pattern in self.linked for path in top.glob(pattern) if path.is_symlink()]
        kept = frozenset(filter(None, map(_inode_at, self.open)))
        return [Path(os.path.realpath(link)) for link in links if _inode_at(link) not in kept]


def companions(path: Path, tail: str) -> Path:
    """All files whose names begin with the name of `path` and end with `tail`."""
    return path.with_name(escape(path.name) + tail)


def _first_missing(path: Path) -> Path:
    """The first missing component of the path, which could be created; the path itself if its directory exists."""
    while not path.parent.is_dir():
        path = path.parent
    return path


def _inode_at(path: Path) -> Inode | None:
    try:
        return _inode_of(os.stat(path))
    except (OSError, ValueError):
        return None


def _inode_of(found: os.stat_result) -> Inode:
    return found.st_dev, found.st_ino


class Bounds(Struct, frozen=True):
    """The closed places as they are now."""

    closed: frozenset[Inode]
    open: frozenset[Inode]
    named: list[tuple[Inode, str]]
    paths: Sequence[Path]

    def closes_root(self, fd: int) -> bool:
        """Whether a directory is inside a closed one, judged by the directories above it, however it was reached."""
        seen: Inode | None = None
        for step in range(ASCENT_MAX):
            here = _inode_of(os.stat("/".join(["."] + [".."] * step), dir_fd=fd))
            if here in self.closed:
                return True
            if here in self.open or here == seen:
                return False
            seen = here
        return True

    def closes(self, fd: int, name: str, *, within: bool) -> bool:
        """Whether a name in a directory is closed. `within`: whether the directory is."""
        parent = _inode_of(os.fstat(fd))
        wanted = name.casefold()
        if any(inode == parent and fnmatchcase(wanted, known) for inode, known in self.named):
            return True
        try:
            return self._says(os.stat(name, dir_fd=fd, follow_symlinks=False), within)
        except OSError:
            return within

    def holds(self, fd: int, within: bool) -> bool:
        """The same for a directory that is already open: the checked name may have been another one."""
        return self._says(os.fstat(fd), within)

    def _says(self, found: os.stat_result, within: bool) -> bool:
        inode = _inode_of(found)
        return inode in self.closed or (within and inode not in self.open)

    def closes_file(self, found: os.stat_result) -> bool:
        """Whether a file is one of the closed ones under another name."""
        inode = _inode_of(found)
        return inode in self.closed or (found.st_nlink > 1 and inode in self._inodes())

    def _inodes(self) -> Iterator[Inode]:
        """The inodes of all closed files. Needed only if a file has a second name."""
        for path in self.paths:
            for place in path.parent.glob(path.name) if path.parent.is_dir() else ():
                yield from self._inodes_in(str(place))

    def _inodes_in(self, place: str) -> Iterator[Inode]:
        try:
            found = os.stat(place, follow_symlinks=False)
            if _inode_of(found) in self.open:
                return
            yield _inode_of(found)
            with os.scandir(place) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        yield from self._inodes_in(entry.path)
                    else:
                        yield found.st_dev, entry.inode()
        except OSError:  # a file, or gone in the meantime
            return


def refuse(path: str) -> UsageError:
    return UsageError(f"{path} is {CLOSED_NOTE}", hint="File tools cannot reach it. Work on other files.")
