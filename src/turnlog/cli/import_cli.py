"""`turnlog sessions import`: conversations of other programs into the store, and what became of each, file by file."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from msgspec import to_builtins

from ..errors import UsageError
from .escaping import inline
from .options import common, flags_now, run
from .output import write, write_json

if TYPE_CHECKING:
    from ..importing import Imported
    from ..library import Turnlog

LEFT_OUT = 1
"""Exit code where something of what was named is not in the store."""


def register(cli: click.Group, sessions: click.Group) -> None:
    sessions.add_command(import_sessions)


@click.command("import")
@click.argument("path", type=click.Path(exists=True))
@click.option("--key", metavar="KEY", help="Where the sessions are made [agent:AGENT:PROGRAM:direct:import].")
@common
def import_sessions(path: str, key: str | None) -> int:
    """Read conversations of other programs, a file or a whole directory. The source is never written to.

    Known: pi, OpenClaw, ZyHive, claw0, ZeroClaw, Claude Code, Codex, OpenCode, Gemini, lists of messages, Turnlog
    itself. Importing again adds what is new. Exit code 1: a file was left out, and it is said which and why.

    \b
    turnlog sessions import ~/.claude/projects
    turnlog sessions import conversation.json --key agent:main:cli:direct:user
    """
    flags = flags_now()

    async def work(t: "Turnlog") -> "list[Imported]":
        from ..importing import import_path
        from ..progress import bar

        if not t.settings.session.enabled:
            raise UsageError("no sessions are kept here", hint="Set session.enabled = true first.")
        with bar("Importing") as progress:
            return await import_path(t.store, path, agent=flags.agent_name, key=key, progress=progress)

    found = run(work, flags)
    if flags.json:
        write_json({"sessions": to_builtins(found)})
    else:
        for line in report(found):
            write(line)
    return 0 if all(item.id for item in found) else LEFT_OUT


def report(found: "Sequence[Imported]") -> list[str]:
    lines: list[str] = []
    for item in found:
        lines.append(f"{inline(item.source)}: {_outcome(item)}")
        lines += [f"  {inline(note)}" for note in item.notes]
    made = [item for item in found if item.id]
    told = f"Sessions: {len(made)}, entries added: {sum(item.entries for item in made)}"
    return [*lines, f"{told}, left out: {len(found) - len(made)}"]


def _outcome(item: "Imported") -> str:
    if not item.id:
        return "left out"
    return f"{item.id}, entries added: {item.entries}" if item.entries else f"{item.id}, nothing added"
