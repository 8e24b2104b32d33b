"""`turnlog sessions import`: imports conversations of other programs, and reports on each file."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from msgspec import to_builtins

from ...errors import UsageError
from ..escaping import inline
from ..options import Flags, report, with_turnlog

if TYPE_CHECKING:
    from ...interchange.importing import Imported
    from ...library import Turnlog

LEFT_OUT = 1
"""Exit code if something was not imported."""


@click.command("import")
@click.argument("path")
@click.option("--key", metavar="KEY", help="Where the sessions are made [agent:AGENT:PROGRAM:direct:import].")
@with_turnlog(create=True)
async def import_sessions(t: "Turnlog", flags: Flags, path: str, key: str | None) -> int:
    """Read conversations of other programs, a file or a whole directory. The source is never changed.

    Known: pi, OpenClaw, ZyHive, claw0, ZeroClaw, Claude Code, Codex, OpenCode, Gemini, lists of messages, Turnlog
    itself; tables of openai-agents, LangGraph and ADK, in a SQLite file or a PostgreSQL database: their adapters
    continue those sessions. Importing again adds what is new. Exit code 1: a file was left out; the output says why.

    \b
    turnlog sessions import ~/.claude/projects
    turnlog sessions import conversation.json --key agent:main:cli:direct:user
    turnlog sessions import checkpoints.sqlite
    """
    from ...adapters.framework_tables import import_framework, is_framework
    from ...interchange.importing import import_path
    from ..progress import bar

    if not t.settings.session.enabled:
        raise UsageError("sessions are switched off", hint="Set session.enabled = true first.")
    if is_framework(path):
        found = await import_framework(t, path)
    else:
        with bar("Importing") as progress:
            found = await import_path(t, path, agent=flags.agent_name, key=key, progress=progress)
    report({"sessions": to_builtins(found)}, *outcome_lines(found))
    return 0 if all(item.id for item in found) else LEFT_OUT


def outcome_lines(found: "Sequence[Imported]") -> list[str]:
    lines: list[str] = []
    for item in found:
        lines.append(f"{inline(item.source)}: {_outcome(item)}")
        lines += [f"  {inline(note)}" for note in item.notes]
    made = [item for item in found if item.id]
    total = f"Sessions: {len(made)}, entries added: {sum(item.entries for item in made)}"
    return [*lines, f"{total}, left out: {len(found) - len(made)}"]


def _outcome(item: "Imported") -> str:
    if not item.id:
        return "left out"
    return f"{item.id}, entries added: {item.entries}" if item.entries else f"{item.id}, nothing added"
