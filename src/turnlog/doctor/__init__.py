"""What is wrong in a directory or a database of any known kind, what could be done, and doing it with a way back.

`examine` only reads. `apply` carries out the repairs that are safe for the program the files belong to, after copying
every file it changes, byte for byte, to a directory beside them. `revert` puts those copies back. Whatever needs a
person's judgement is named and left alone; and nothing needs repair for Turnlog itself to read it.
"""

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from ..errors import UsageError
from ..importing.detect import Refused, Source, sources
from ..stores import Progress
from . import databases, indexes, permissions, repairs, transcripts
from .findings import Finding, Fix, Problem
from .repairs import Repaired

PROBLEMS_MAX = 10_000
"""A report is read by a person; after this many the same would be said again."""


class Report(Struct, frozen=True):
    problems: tuple[Problem, ...]
    sqlite: databases.Sqlite


def examine(path: str | Path, *, progress: Progress | None = None) -> Report:
    findings, sqlite = _findings(Path(path), progress)
    problems = [finding.problem for finding in findings]
    if len(problems) > PROBLEMS_MAX:
        more = Problem(str(path), f"{len(problems) - PROBLEMS_MAX:,} more problems", "")
        problems = [*problems[:PROBLEMS_MAX], more]
    return Report(tuple(problems), sqlite)


def apply(path: str | Path, *, progress: Progress | None = None) -> Repaired:
    """Not while the program that owns the files is running: it would not see that they were replaced."""
    findings, _ = _findings(Path(path), progress)
    return repairs.apply(Path(path), findings)


def revert(path: str | Path) -> tuple[str, ...]:
    """The files put back as they were before the newest `apply`. All or none: one that has changed since stops it."""
    return repairs.revert(Path(path))


def _findings(path: Path, progress: Progress | None) -> tuple[list[Finding], databases.Sqlite]:
    found = list(sources(path))
    known = [source for source in found if isinstance(source, Source)]
    stores = databases.files(path)
    if not known and not stores:
        first = found[0] if found else None
        why = f"{first.path} {first.why}" if isinstance(first, Refused) else f"nothing of a known kind is in {path}"
        raise UsageError(why, hint="Name a directory, a transcript or a database that one of the known programs wrote.")
    findings = [_refused(item) for item in found if isinstance(item, Refused) and item.path not in stores]
    scans = list(_scanned(known, progress))
    findings += [finding for scan in scans for finding in scan.findings]
    findings += indexes.examine(path, scans)
    checked, sqlite = databases.examine(stores)
    files = [*(source.path for source in known), *indexes.files(known), *databases.with_logs(stores)]
    return [*findings, *checked, *permissions.examine(path, files)], sqlite


def _scanned(known: list[Source], progress: Progress | None) -> Iterator[transcripts.Scan]:
    texts = [source for source in known if source.form != "database"]
    for number, source in enumerate(texts, 1):
        yield transcripts.scan(source)
        if progress:
            progress(number, len(texts))


def _refused(item: Refused) -> Finding:
    return Finding(Problem(str(item.path), f"it {item.why}", "none: look at it yourself"))


__all__ = ["Fix", "Problem", "Repaired", "Report", "apply", "examine", "revert"]
