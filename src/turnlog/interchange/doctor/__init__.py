"""Finds what is wrong in a directory or database of any known kind, and repairs it reversibly.

`examine` only reads. `apply` makes the repairs that are safe for the program that owns the files, after copying every
file it changes, byte for byte, to a directory next to them. `revert` restores those copies. Problems that need a
person's judgement are reported and left alone. Turnlog itself can read everything without a repair.
"""

import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from ...errors import UsageError
from ...stores import Progress
from ...stores.disk.files import DIR_MODE, FILE_MODE
from ..importing.detect import Refused, Source, sources
from . import databases, indexes, repairs, transcripts
from .findings import AS_ABOVE, Finding, Fix, ProblemKind
from .repairs import Repaired

PROBLEMS_MAX = 10_000
"""A person reads the report; after this many problems it would only repeat itself."""
_OTHERS = 0o077
"""Mode bits of everybody but the owner: conversations hold secrets."""


class Report(Struct, frozen=True):
    problems: tuple[ProblemKind, ...]
    sqlite: databases.Sqlite


def examine(path: str | Path, *, progress: Progress | None = None) -> Report:
    findings, sqlite = _findings(Path(path), progress)
    problems = [finding.problem for finding in findings]
    if len(problems) > PROBLEMS_MAX:
        more = ProblemKind(str(path), f"{len(problems) - PROBLEMS_MAX:,} more problems", AS_ABOVE)
        problems.sort(key=lambda problem: not problem.needs_repair)
        problems = [*problems[:PROBLEMS_MAX], more]
    return Report(tuple(problems), sqlite)


def apply(path: str | Path, *, progress: Progress | None = None) -> Repaired:
    """Do not call it while the program that owns the files runs: that program would not notice the replacement."""
    findings, _ = _findings(Path(path), progress)
    return repairs.apply(Path(path), findings)


def revert(path: str | Path) -> tuple[str, ...]:
    """Restores the files from before the newest `apply`, all or none: a file that has changed since prevents it."""
    return repairs.revert(Path(path))


def _findings(path: Path, progress: Progress | None) -> tuple[list[Finding], databases.Sqlite]:
    found = list(sources(path))
    known = [source for source in found if isinstance(source, Source)]
    stores = databases.files(path)
    if not known and not stores:
        first = found[0] if found else None
        why = f"{first.path} {first.why}" if isinstance(first, Refused) else f"nothing of a known kind is in {path}"
        raise UsageError(why, hint="Name a directory, a transcript or a database that one of the known programs wrote.")
    refused = [item for item in found if isinstance(item, Refused) and item.path not in stores]
    findings = [Finding.of(it.path, f"it {it.why}", "none: look at it yourself") for it in refused]
    scans = list(_scanned(known, progress))
    findings += [finding for scan in scans for finding in scan.findings]
    findings += indexes.examine(path, scans)
    checked, sqlite = databases.examine(stores)
    files = [*(source.path for source in known), *indexes.files(known), *databases.with_logs(stores)]
    return [*findings, *checked, *_permissions(path, files)], sqlite


def _scanned(known: list[Source], progress: Progress | None) -> Iterator[transcripts.FileScan]:
    texts = [source for source in known if source.form != "database"]
    for number, source in enumerate(texts, 1):
        yield transcripts.scan(source)
        if progress:
            progress(number, len(texts))


def _permissions(root: Path, files: Iterable[Path]) -> Iterator[Finding]:
    """Transcripts, indexes and databases below `root`, and the directories that lead to them; nothing else."""
    known = sorted({file for file in files if file.is_relative_to(root)})
    folders = sorted({folder for file in known for folder in _way(root, file)})
    shown = [path for path in known if _open_to_others(path)]
    listed = [path for path in folders if _open_to_others(path)]
    if shown or listed:
        what = f"permissions: others may read {len(shown):,} files and list {len(listed):,} directories"
        repair = f"set modes {FILE_MODE:o} and {DIR_MODE:o}"
        fixes = [Fix(path=path, mode=FILE_MODE) for path in shown] + [Fix(path=path, mode=DIR_MODE) for path in listed]
        yield Finding.of(root, what, repair, *fixes)


def _way(root: Path, file: Path) -> Iterator[Path]:
    if root.is_dir():
        yield from (folder for folder in file.parents if folder.is_relative_to(root))


def _open_to_others(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return not stat.S_ISLNK(mode) and bool(mode & _OTHERS)


__all__ = ["Fix", "ProblemKind", "Repaired", "Report", "apply", "examine", "revert"]
