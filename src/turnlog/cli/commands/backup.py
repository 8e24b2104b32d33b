"""`turnlog backup` and `turnlog restore`."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import to_builtins

from ..options import common, flags_now, report, settings_of

if TYPE_CHECKING:
    from ...interchange.backup import BackupSummary


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@common
def backup(file: Path) -> None:
    """Write everything that the store keeps to one file, while it is in use.

    Sessions, tokens, channel logs and memory are in it; the configuration and workspaces are plain files and are not.

    \b
    turnlog backup monday.backup
    """
    from ...interchange import backup as backups
    from ..progress import bar

    with bar("Backing up sessions") as progress:
        summary = asyncio.run(backups.backup(_store_url(), file, progress=progress))
    report(to_builtins(summary), f"{file}: {_told(summary)}")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--check", "only_check", is_flag=True, help="Only prove that the backup is whole and unchanged.")
@common
def restore(file: Path, only_check: bool) -> None:
    """Add what a backup holds to the store; nothing that is there is overwritten.

    \b
    turnlog restore monday.backup --check
    turnlog restore monday.backup --store sqlite:restored.db
    """
    from ...interchange import backup as backups
    from ..progress import bar

    if only_check:
        summary = backups.check(file)
        report(to_builtins(summary), f"{file} is whole: {_told(summary)}")
        return
    with bar("Restoring sessions") as progress:
        done = asyncio.run(backups.restore(file, _store_url(), progress=progress))
    new = f"{done.entries} entries, {done.facts} facts, {done.said} channel messages, {done.memos} memos"
    report(to_builtins(done), f"{done.sessions} sessions; added {new}")


def _store_url() -> str:
    from ...settings import load

    flags = flags_now()
    return load(home=flags.home, flags=settings_of(flags)).store_url()


def _told(summary: "BackupSummary") -> str:
    counts = summary.counts
    return (
        f"{counts.sessions} sessions, {counts.entries} entries, {counts.facts} facts, {counts.said} channel messages, "
        f"{counts.memos} memos, digest {summary.digest}"
    )
