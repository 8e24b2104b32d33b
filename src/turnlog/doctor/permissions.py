"""Who else may read it: conversations hold secrets, and several of the programs write them readable by everybody."""

import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..stores.files import DIR_MODE, FILE_MODE
from .findings import Finding, Fix, Problem

_OTHERS = 0o077


def examine(root: Path, files: Iterable[Path]) -> Iterator[Finding]:
    """Transcripts, indexes and databases below `root`, and the directories that lead to them; nothing else."""
    known = sorted({file for file in files if file.is_relative_to(root)})
    folders = sorted({folder for file in known for folder in _way(root, file)})
    shown = [path for path in known if open_to_others(path)]
    listed = [path for path in folders if open_to_others(path)]
    if shown or listed:
        what = f"permissions: others may read {len(shown):,} files and list {len(listed):,} directories"
        repair = f"set modes {FILE_MODE:o} and {DIR_MODE:o}"
        fixes = [Fix(path=path, mode=FILE_MODE) for path in shown] + [Fix(path=path, mode=DIR_MODE) for path in listed]
        yield Finding(Problem(str(root), what, repair), tuple(fixes))


def _way(root: Path, file: Path) -> Iterator[Path]:
    if root.is_dir():
        yield from (folder for folder in file.parents if folder.is_relative_to(root))


def open_to_others(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return not stat.S_ISLNK(mode) and bool(mode & _OTHERS)
