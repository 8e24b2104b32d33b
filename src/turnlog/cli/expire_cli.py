"""The end of sessions by command: what is due, shown or done; into the trash by hand, and back."""

from typing import TYPE_CHECKING

import click
from msgspec import to_builtins

from ..errors import UsageError
from .naming import resolve, row_json, session_argument
from .options import common, flags_now, run
from .output import columns_of_screen, table, write, write_json

if TYPE_CHECKING:
    from ..core.session import StatusValue
    from ..library import Turnlog


def register(cli: click.Group, sessions: click.Group) -> None:
    for command in (expire, trash, restore):
        sessions.add_command(command)


@click.command()
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--apply", "apply_", is_flag=True, help="Do it.")
@common
def expire(dry_run: bool, apply_: bool) -> None:
    """Archive sessions that are older than [session] ttl, and delete what is long in the trash.

    \b
    turnlog sessions expire --dry-run
    turnlog sessions expire --apply
    """
    if dry_run == apply_:
        raise UsageError("say --dry-run or --apply", hint="Look with --dry-run first.")
    flags = flags_now()

    async def work(t: "Turnlog") -> None:
        from ..expiry import expire as expire_sessions
        from ..stores.stamping import now_ms

        session = t.settings.session
        due = await expire_sessions(
            t.sessions, t.store, ttl_days=session.ttl, trash_days=session.trash_days, clock=now_ms, apply=apply_
        )
        if flags.json:
            write_json({"expired": to_builtins(due), "applied": apply_})
            return
        rows = [(step.session_id, step.action, step.reason) for step in due]
        for line in table(rows, columns_of_screen()) if rows else ["Nothing is due."]:
            write(line)

    run(work, flags)


@click.command()
@session_argument
@common
def trash(session: str) -> None:
    """Put a session into the trash. A server, or `expire --apply`, deletes it after [session] trash_days."""
    _put(session, "trashed", "trashed by command")


@click.command()
@session_argument
@common
def restore(session: str) -> None:
    """Bring a session back from the trash or from the archive."""
    _put(session, "inactive", "restored by command")


def _put(session: str, status: "StatusValue", why: str) -> None:
    flags = flags_now()

    async def work(t: "Turnlog") -> None:
        row = await t.sessions.set_status((await resolve(t, flags, session)).id, status, why)
        if flags.json:
            write_json(row_json(t, row))
        else:
            write(f"{row.id}: {row.status}")

    run(work, flags)
