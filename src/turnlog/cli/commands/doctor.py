"""`turnlog doctor`: finds damage in files of any known kind, repairs it, and reverts repairs. Opens no store."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
from msgspec import to_builtins

from ...errors import UsageError
from ...stores.disk.files import disk_errors
from ..escaping import inline
from ..options import common, report
from ..progress import bar

if TYPE_CHECKING:
    from ...interchange.doctor import Repaired, Report

PROBLEMS = 1
"""Exit code if something needs a repair, so that a script need not read the report."""


@click.command()
@click.argument("path", type=click.Path(exists=True))
@click.option("--apply", "repair_now", is_flag=True, help="Carry out the safe repairs, after copying each file.")
@click.option("--revert", is_flag=True, help="Put the files back as they were before the newest --apply.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common
def doctor(path: str, repair_now: bool, revert: bool, yes: bool) -> int:
    """Report what is wrong in a transcript, a directory or a database of any known kind.

    Nothing is changed unless asked for. Close the program that owns the files before --apply. Exit code: 1 if
    something needs a repair, otherwise 0.

    \b
    turnlog doctor ~/.turnlog
    turnlog doctor old-sessions --apply
    turnlog doctor old-sessions --revert
    """
    if repair_now and revert:
        raise UsageError("--apply and --revert exclude one another", hint="Give one of them.")
    if revert:
        return _revert(path)
    found = _examined(path)
    return _apply(path, found, yes) if repair_now else _tell(found)


def _examined(path: str) -> "Report":
    from ...interchange.doctor import examine

    with disk_errors(f"{path} cannot be examined"), bar("Examining") as progress:
        return examine(path, progress=progress)


def _revert(path: str) -> int:
    from ...interchange.doctor import revert

    restored = revert(path)
    lines = [*(f"put back: {inline(file)}" for file in restored), f"Files put back: {len(restored)}"]
    report({"restored": list(restored)}, *lines)
    return 0


def _apply(path: str, found: "Report", yes: bool) -> int:
    """Examines the files again after the repairs, and reports what is left."""
    from ...interchange.doctor import apply

    repairs = [problem.repair for problem in found.problems if problem.repair]
    if not yes and sys.stdin.isatty() and not all(repair.startswith("none") for repair in repairs):
        for line in _lines(found):
            click.echo(line, err=True)
        if not click.confirm(f"Carry out the repairs in {inline(path)}?", err=True):
            raise UsageError("nothing was changed", hint="Say yes, or give --yes.")
    with bar("Repairing") as progress:
        repaired = apply(path, progress=progress)
    return _tell(_examined(path), repaired)


def _tell(found: "Report", repaired: "Repaired | None" = None) -> int:
    more = {"changed": list(repaired.changed), "backup": repaired.backup} if repaired else {}
    report({**to_builtins(found), **more}, *(_repaired_lines(repaired) if repaired else ()), *_lines(found))
    return PROBLEMS if any(problem.needs_repair for problem in found.problems) else 0


def _repaired_lines(repaired: "Repaired") -> Iterator[str]:
    for file in repaired.changed:
        yield f"repaired: {inline(file)}"
    if repaired.backup:
        yield f"The files as they were: {inline(repaired.backup)} (--revert puts them back)"


def _lines(found: "Report") -> Iterator[str]:
    for problem in found.problems:
        yield f"{inline(problem.where)}: {inline(problem.what)}"
        if problem.repair:
            yield f"  repair: {inline(problem.repair)}"
    sqlite = found.sqlite
    yield f"SQLite {sqlite.library}: {sqlite.verdict}"
    for base in sqlite.databases:
        yield f"{inline(base.path)}: {base.bytes:,} bytes, {base.journal_mode}, integrity {inline(base.integrity)}"
    if not found.problems:
        yield "No problems."
    elif any(problem.needs_repair for problem in found.problems):
        yield f"Problems: {len(found.problems)}"
    else:
        yield f"Problems: {len(found.problems)} (none needs a repair)"
