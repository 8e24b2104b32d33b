"""`turnlog files`: lists former contents of files that an agent has replaced, and goes back to them."""

import click
from msgspec import to_builtins

from ...access.own_files import kept
from ...settings import load
from ...tools.kept import KeptFiles
from ..options import common, flags_now, report


@click.group()
@common
def files() -> None:
    """See and undo what agents wrote to files, for 30 days.

    \b
    turnlog files list
    turnlog files undo                   the newest change
    turnlog files undo notes.txt
    """


def _kept() -> KeptFiles:
    return KeptFiles(kept(load(home=flags_now().home).home))


@files.command("list")
@click.option("--session", metavar="ID", help="Only of this session.")
@common
def list_files(session: str | None) -> None:
    """The newest first."""
    found = [record for _, record in _kept().records(session)]
    shown = [{**to_builtins(one), "before": None if one.before is None else "kept"} for one in found]
    verbs = ["created" if one.before is None else "replaced" for one in found]
    lines = [f"{v} {one.path}  in {one.workspace}  by {one.session}" for v, one in zip(verbs, found, strict=True)]
    report({"files": shown}, *lines)


@files.command("undo")
@click.argument("path", required=False)
@click.option("--session", metavar="ID", help="Only of this session.")
@click.option("--force", is_flag=True, help="Also if the file has changed since.")
@common
def undo(path: str | None, session: str | None, force: bool) -> None:
    """Give a file its former content; a file that was new is removed."""
    record = _kept().undo(session, path, force=force)
    found = {"path": record.path, "workspace": record.workspace, "session": record.session}
    report(found, f"{record.path} in {record.workspace} is as it was.")
