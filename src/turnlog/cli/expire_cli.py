"""`turnlog sessions expire`: what is due for sessions nobody comes back to, shown or done."""

from typing import TYPE_CHECKING

import click
from msgspec import to_builtins

from ..errors import UsageError
from .options import common, flags_now, run
from .output import columns_of_screen, table, write, write_json

if TYPE_CHECKING:
    from ..library import Turnlog


def register(cli: click.Group, sessions: click.Group) -> None:
    sessions.add_command(expire)


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
