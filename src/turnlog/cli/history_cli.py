"""`turnlog prompt, explain, compact, undo-compact, expand`: what the model sees, and why."""

from typing import TYPE_CHECKING

import click
from msgspec import to_builtins

from ..core.prompt import as_dict
from ..errors import UsageError
from .naming import resolve, row_json, session_argument
from .options import common, flags_now, run
from .output import table, to_json, write, write_json
from .spoken import lines_of

if TYPE_CHECKING:
    from ..library import Turnlog


@click.command()
@session_argument
@click.option("--at", type=int, metavar="SEQ", help="As it was when the log ended there.")
@common
def prompt(session: str, at: int | None) -> None:
    """Print exactly what would be sent to the model, or was.

    \b
    turnlog prompt my-project
    turnlog prompt my-project --at 12 --json | jq .messages
    """
    flags = flags_now()

    async def work(t: "Turnlog") -> None:
        found = as_dict(await t.prompt(await resolve(t, flags, session), at=at))
        if flags.json:
            write_json(found)
            return
        write(f"system: {found['system'] or '(none)'}")
        write(f"tools: {', '.join(tool['name'] for tool in found['tools']) or '(none)'}")
        for message in found["messages"]:
            content = message["content"]
            write(f"{message['role']}: {content if isinstance(content, str) else to_json(content)}")

    run(work, flags, workspace=".")


@click.command()
@session_argument
@click.argument("seq", type=int, required=False)
@common
def explain(session: str, seq: int | None) -> None:
    """Say what became of each entry: in the tail, pinned, compacted, rewound, or never part of the prompt.

    \b
    turnlog explain my-project
    turnlog explain my-project 7
    """
    flags = flags_now()

    async def work(t: "Turnlog") -> None:
        row = await resolve(t, flags, session)
        found = [entry for entry in await t.sessions.explain(row.id) if seq in (None, entry.seq)]
        if seq is not None and not found:
            raise UsageError(f"session {row.id} has no entry {seq}", hint=f"It has entries 1 to {row.last_seq}.")
        if flags.json:
            write_json(to_builtins(found))
            return
        rows = [(str(e.seq), e.type, e.state, f"by {e.by}" if e.by is not None else "") for e in found]
        for line in table(rows):
            write(line)

    run(work, flags)


@click.command()
@session_argument
@click.option("--focus", default="", metavar="TEXT", help="What the summary should dwell on.")
@click.option("--dry-run", is_flag=True, help="Show what it would do, and change nothing.")
@common
def compact(session: str, focus: str, dry_run: bool) -> None:
    """Fold what is old under a summary, now.

    \b
    turnlog compact my-project --dry-run
    turnlog compact my-project --focus "the open invoices"
    """
    flags = flags_now()

    async def work(t: "Turnlog") -> None:
        report = await t.compact(await resolve(t, flags, session), focus=focus, dry_run=dry_run)
        if flags.json:
            write_json(to_builtins(report))
            return
        verb = "Compacted" if report.applied else "Would compact"
        first, last = report.covers
        write(f"{verb} entries {first}–{last}: ~{report.tokens_before:,} → ~{report.tokens_after:,} tokens")
        write(report.summary)

    run(work, flags, workspace=".")


@click.command("undo-compact")
@session_argument
@common
def undo_compact(session: str) -> None:
    """Take back the newest compaction; again for the one before. Later turns stay."""
    flags = flags_now()

    async def work(t: "Turnlog") -> None:
        row = await t.sessions.undo((await resolve(t, flags, session)).id)
        if flags.json:
            write_json(row_json(t, row))
        else:
            write(f"Undone; {row.compactions} compactions are active in {row.id}.")

    run(work, flags)


@click.command()
@session_argument
@click.argument("seq", type=int, required=False)
@common
def expand(session: str, seq: int | None) -> None:
    """Show the messages that a compaction stands for: the newest one, or the one at SEQ."""
    flags = flags_now()

    async def work(t: "Turnlog") -> None:
        entries = await t.sessions.expand((await resolve(t, flags, session)).id, seq)
        if flags.json:
            write_json(to_builtins(entries))
            return
        for line in lines_of(entries):
            write(line)

    run(work, flags)
