"""Sessions by name on a command line: the SESSION argument, its completion, and rows as lists show them."""

import os
import time
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from ..core.rows import row_of
from ..core.session import Session
from ..errors import TurnlogError
from .options import Flags, flags_of, opened

if TYPE_CHECKING:
    from ..library import Turnlog

COMPLETED_MAX = 50
"""Names offered at a shell's Tab."""


def _complete(ctx: click.Context, param: click.Parameter, beginning: str) -> list[CompletionItem]:
    import asyncio

    from ..core.query import Query

    flags = flags_of(ctx)

    async def rows() -> list[Session]:
        async with opened(flags) as t:
            query = Query(prefix=beginning or None, agent=flags.agent, limit=COMPLETED_MAX)
            return (await t.sessions.list(query)).items

    try:
        found = asyncio.run(rows())
    except TurnlogError:
        return []  # a shell asks at every Tab; it has no place for errors
    return [CompletionItem(_name(row, beginning), help=row.title) for row in found]


def _name(row: Session, beginning: str) -> str:
    return row.label if row.label and row.label.startswith(beginning) else row.id


session_argument = click.argument("session", metavar="SESSION", shell_complete=_complete)


async def resolve(t: "Turnlog", flags: Flags, name: str) -> Session:
    return await t.sessions.resolve(name, agent=flags.agent)


def row_json(t: "Turnlog", row: Session) -> dict[str, Any]:
    return row_of(row, file_path=_file_path(t, row))


def _file_path(t: "Turnlog", row: Session) -> str | None:
    """Where the transcript is a file of its own."""
    scheme, _, rest = t.settings.store_url().partition(":")
    path = os.path.join(rest.partition("?")[0], "agents", row.agent, "sessions", f"{row.id}.jsonl")
    return path if scheme == "jsonl" and os.path.exists(path) else None


def called(row: Session) -> str:
    """What a person would call it: label or title, beside the id, which is never ambiguous."""
    name = row.label or row.title
    return f"{row.id} ({name})" if name else row.id


def age(then_ms: int, now_s: float | None = None) -> str:
    """How long ago, in one short word."""
    seconds = max(0, int((time.time() if now_s is None else now_s) - then_ms / 1000))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
