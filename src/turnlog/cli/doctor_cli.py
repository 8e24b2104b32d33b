"""`turnlog doctor`: what is wrong in files of any known kind, and mending it with a way back. Opens no store."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
from msgspec import to_builtins

from ..errors import UsageError
from ..progress import bar
from ..stores.files import disk_errors
from .escaping import inline
from .options import common, flags_now
from .output import write, write_json

if TYPE_CHECKING:
    from ..doctor import Repaired, Report

PROBLEMS = 1
"""Exit code where there are any, so that a script need not read the report."""


def register(cli: click.Group, sessions: click.Group) -> None:
    cli.add_command(doctor)


@click.command()
@click.argument("path", type=click.Path(exists=True))
@click.option("--apply", "mend", is_flag=True, help="Carry out the safe repairs, after copying each file.")
@click.option("--revert", is_flag=True, help="Put the files back as they were before the newest --apply.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common
def doctor(path: str, mend: bool, revert: bool, yes: bool) -> int:
    """Say what is wrong in a transcript, a directory or a database of any known kind.

    Nothing is changed unless asked for. Close the program that owns the files before --apply. Exit code: 0 if there
    is nothing wrong (any more), 1 if there is.

    \b
    turnlog doctor ~/.turnlog
    turnlog doctor old-sessions --apply
    turnlog doctor old-sessions --revert
    """
    if mend and revert:
        raise UsageError("--apply and --revert exclude one another", hint="Give one of them.")
    if revert:
        return _revert(path)
    report = _examined(path)
    return _apply(path, report, yes) if mend else _tell(report)


def _examined(path: str) -> "Report":
    from ..doctor import examine

    with disk_errors(f"{path} cannot be examined"), bar("Examining") as progress:
        return examine(path, progress=progress)


def _revert(path: str) -> int:
    from ..doctor import revert

    restored = revert(path)
    if flags_now().json:
        write_json({"restored": list(restored)})
    else:
        for line in (*(f"put back: {inline(file)}" for file in restored), f"Files put back: {len(restored)}"):
            write(line)
    return 0


def _apply(path: str, report: "Report", yes: bool) -> int:
    """What is left is looked at again afterwards, not deduced from what should have helped."""
    from ..doctor import apply

    if not yes and sys.stdin.isatty() and _to_mend(report):
        for line in _lines(report):
            click.echo(line, err=True)
        if not click.confirm(f"Carry out the repairs in {inline(path)}?", err=True):
            raise UsageError("nothing was changed", hint="Say yes, or give --yes.")
    with bar("Repairing") as progress:
        repaired = apply(path, progress=progress)
    return _tell(_examined(path), repaired)


def _to_mend(report: "Report") -> bool:
    return any(problem.repair and not problem.repair.startswith("none") for problem in report.problems)


def _tell(report: "Report", repaired: "Repaired | None" = None) -> int:
    if flags_now().json:
        told: dict[str, Any] = to_builtins(report)
        if repaired:
            told |= {"changed": list(repaired.changed), "backup": repaired.backup}
        write_json(told)
    else:
        for line in (*(_mended(repaired) if repaired else ()), *_lines(report)):
            write(line)
    return PROBLEMS if report.problems else 0


def _mended(repaired: "Repaired") -> Iterator[str]:
    for file in repaired.changed:
        yield f"repaired: {inline(file)}"
    if repaired.backup:
        yield f"The files as they were: {inline(repaired.backup)} (--revert puts them back)"


def _lines(report: "Report") -> Iterator[str]:
    for problem in report.problems:
        yield f"{inline(problem.where)}: {inline(problem.what)}"
        if problem.repair:
            yield f"  repair: {inline(problem.repair)}"
    sqlite = report.sqlite
    yield f"SQLite {sqlite.library}: {sqlite.verdict}"
    for base in sqlite.databases:
        yield f"{inline(base.path)}: {base.bytes:,} bytes, {base.journal_mode}, integrity {inline(base.integrity)}"
    yield f"Problems: {len(report.problems)}" if report.problems else "No problems."
