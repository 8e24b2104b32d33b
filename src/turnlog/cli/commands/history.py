"""`turnlog prompt, explain, compact, undo-compact, expand, fidelity`: what the model sees, and why."""

from typing import TYPE_CHECKING

import click
from msgspec import to_builtins

from ...core.prompt import as_dict
from ...errors import UsageError
from ...texts import words_here
from ..chat.transcript_view import TEXT_COLUMN, lines_of
from ..options import Flags, common, report, with_turnlog
from ..output import stream_json, table, to_json, write_wrapped
from ..session_names import change_session, resolve, session_argument

if TYPE_CHECKING:
    from ...core.fidelity import Fidelity
    from ...library import Turnlog


@click.command()
@session_argument
@click.option("--at", type=int, metavar="SEQ", help="As it was when the log ended there.")
@with_turnlog(workspace=".")
async def prompt(t: "Turnlog", flags: Flags, session: str, at: int | None) -> None:
    """Print exactly what would be sent to the model, or was sent earlier.

    \b
    turnlog prompt my-project
    turnlog prompt my-project --at 12 --json | jq .messages
    """
    found = as_dict(await t.prompt(await resolve(t, flags, session), at=at))
    lines = [
        f"system: {found['system'] or '(none)'}",
        f"tools: {', '.join(tool['name'] for tool in found['tools']) or '(none)'}",
        *([f"parameters: {to_json(found['parameters'])}"] if "parameters" in found else []),
    ]
    for message in found["messages"]:
        content = message["content"]
        lines.append(f"{message['role']}: {content if isinstance(content, str) else to_json(content)}")
    report(found, *lines)


@click.command()
@session_argument
@click.argument("seq", type=int, required=False)
@with_turnlog()
async def explain(t: "Turnlog", flags: Flags, session: str, seq: int | None) -> None:
    """Say how the model sees each entry: in the tail, pinned, compacted, left out, rewound, or not a message.

    \b
    turnlog explain my-project
    turnlog explain my-project 7
    """
    row = await resolve(t, flags, session)
    found = [entry for entry in await t.sessions.explain(row.id) if seq in (None, entry.seq)]
    if seq is not None and not found:
        raise UsageError(f"session {row.id} has no entry {seq}", hint=f"It has entries 1 to {row.last_seq}.")
    rows = [(str(e.seq), e.type, e.state, f"by {e.by}" if e.by is not None else "") for e in found]
    report(to_builtins(found), *table(rows))


@click.command()
@session_argument
@click.option("--focus", default="", metavar="TEXT", help="What the summary should dwell on.")
@click.option("--dry-run", is_flag=True, help="Show what it would do, and change nothing.")
@with_turnlog(workspace=".")
async def compact(t: "Turnlog", flags: Flags, session: str, focus: str, dry_run: bool) -> None:
    """Replace old messages with a summary, now.

    \b
    turnlog compact my-project --dry-run
    turnlog compact my-project --focus "the open invoices"
    """
    done = await t.compact(await resolve(t, flags, session), focus=focus, dry_run=dry_run)
    verb = "Compacted" if done.applied else "Would compact"
    first, last = done.covers
    head = f"{verb} entries {first}–{last}: ~{done.tokens_before:,} → ~{done.tokens_after:,} tokens"
    report(to_builtins(done), head, done.summary)


@click.command("undo-compact")
@session_argument
@common
def undo_compact(session: str) -> None:
    """Undo the newest compaction; run it again for the one before. Later turns stay."""
    change_session(
        session,
        lambda sessions, id_: sessions.undo(id_),
        lambda row: f"Undone; {row.compactions} compactions are active in {row.id}.",
    )


@click.command()
@session_argument
@click.argument("seq", type=int, required=False)
@with_turnlog()
async def expand(t: "Turnlog", flags: Flags, session: str, seq: int | None) -> None:
    """Show the messages that a compaction replaces: the newest one, or the one at SEQ."""
    pages = t.sessions.expand_pages((await resolve(t, flags, session)).id, seq)
    if flags.json:
        await stream_json("[", (to_builtins(page) async for page in pages), "]")
        return
    async for page in pages:
        for line in lines_of(page, words_here()):
            write_wrapped(line, TEXT_COLUMN)


@click.command()
@session_argument
@with_turnlog()
async def fidelity(t: "Turnlog", flags: Flags, session: str) -> None:
    """Say what became of the identifiers that each compaction covers, and what its summary costs.

    \b
    An identifier is a path, URL, id, date, version, amount, name or quoted string. It is kept if the prompt after the
    compaction has it, and searchable if search_history finds it.
    """
    found = await t.sessions.fidelity((await resolve(t, flags, session)).id)
    head = ("compaction", "covers", "identifiers", "kept", "searchable", "lost", "summary", "price")
    lines = table([head, *map(_fidelity_row, found)]) if found else ["No compaction yet."]
    report(to_builtins(found), *lines)


def _fidelity_row(one: "Fidelity") -> tuple[str, ...]:
    first, last = one.covers
    state = "" if one.active else " (undone)"
    price = "unknown" if one.cost is None else f"~${one.cost:.4f}"
    counts = (one.identifiers, one.kept, one.searchable, one.lost)
    return f"{one.seq}{state}", f"{first}–{last}", *map("{:,}".format, counts), f"~{one.summary_tokens:,} tokens", price
