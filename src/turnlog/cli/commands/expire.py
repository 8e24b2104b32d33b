"""`turnlog sessions expire`, `trash` and `restore`."""

from typing import TYPE_CHECKING

import click
from msgspec import to_builtins

from ...errors import UsageError
from ..options import Flags, common, report, with_turnlog
from ..output import columns_of_screen, table
from ..session_names import change_session, session_argument

if TYPE_CHECKING:
    from ...core.session import StatusValue
    from ...library import Turnlog


@click.command()
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--apply", "apply_", is_flag=True, help="Do it.")
@with_turnlog()
async def expire(t: "Turnlog", flags: Flags, dry_run: bool, apply_: bool) -> None:
    """Archive sessions older than [session] ttl, and delete those that were trashed long ago.

    \b
    turnlog sessions expire --dry-run
    turnlog sessions expire --apply
    """
    if dry_run == apply_:
        raise UsageError("give --dry-run or --apply", hint="Try --dry-run first.")
    due = await t.expire(apply=apply_)
    rows = [(step.session_id, step.action, step.reason) for step in due]
    lines = table(rows, columns_of_screen()) or ["Nothing is due."]
    report({"expired": to_builtins(due), "applied": apply_}, *lines)


@click.command()
@session_argument
@common
def trash(session: str) -> None:
    """Put a session into the trash. A server, or `expire --apply`, deletes it after [session] trash_days."""
    _set_status(session, "trashed", "trashed by command")


@click.command()
@session_argument
@common
def restore(session: str) -> None:
    """Bring a session back from the trash or from the archive."""
    _set_status(session, "inactive", "restored by command")


def _set_status(session: str, status: "StatusValue", why: str) -> None:
    change_session(session, lambda s, id_: s.set_status(id_, status, why), lambda row: f"{row.id}: {row.status}")
