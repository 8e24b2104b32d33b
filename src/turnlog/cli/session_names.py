"""The SESSION argument of commands: its completion, how it is resolved, and how sessions are named in output."""

import os
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import click
from click.shell_completion import CompletionItem
from msgspec import to_builtins
from msgspec.structs import replace

from ..core import keys
from ..core.rows import public_row
from ..core.session import Session
from ..errors import TurnlogError
from .options import Flags, flags_now, flags_of, report, run

if TYPE_CHECKING:
    from ..library import Turnlog
    from ..sessions import Sessions

    Change: TypeAlias = Callable[[Sessions, str], Awaitable[Session]]

COMPLETED_MAX = 50
"""Names that completion in a shell offers."""


def _complete(ctx: click.Context, param: click.Parameter, beginning: str) -> list[CompletionItem]:
    from ..core.query import Query

    flags = flags_of(ctx)
    query = Query(prefix=beginning or None, agent=flags.agent, limit=COMPLETED_MAX)
    try:
        found = run(lambda t: t.sessions.list(query), flags)
    except TurnlogError:
        return []  # completion cannot show errors
    return [CompletionItem(_name(row, beginning), help=row.title) for row in found.items]


def _name(row: Session, beginning: str) -> str:
    return row.label if row.label and row.label.startswith(beginning) else row.id


session_argument = click.argument("session", metavar="SESSION", shell_complete=_complete)


async def resolve(t: "Turnlog", flags: Flags, name: str) -> Session:
    return await t.sessions.resolve(name, agent=flags.agent)


def change_session(name: str, change: "Change", text: "Callable[[Session], str]") -> None:
    """A command that changes one session, and prints `text` of its row, or the row as JSON."""
    flags = flags_now()

    async def work(t: "Turnlog") -> None:
        row = await change(t.sessions, (await resolve(t, flags, name)).id)
        report(row_json(t, row), text(row))

    run(work, flags)


def row_json(t: "Turnlog", row: Session) -> dict[str, Any]:
    return to_builtins(replace(public_row(row, file_path=_file_path(t, row)), key=shown_key(t, row)))


def shown_key(t: "Turnlog", row: Session) -> str:
    """The key in the format of `session.key_format`."""
    return keys.shown(row.key, t.settings.session.key_format)


def _file_path(t: "Turnlog", row: Session) -> str | None:
    """The path of the transcript, if it is a file of its own."""
    scheme, _, rest = t.settings.store_url().partition(":")
    path = os.path.join(rest.partition("?")[0], "agents", row.agent, "sessions", f"{row.id}.jsonl")
    return path if scheme == "jsonl" and os.path.exists(path) else None


def called(row: Session) -> str:
    """The id, which is unique, with the label or title in brackets."""
    name = row.label or row.title
    return f"{row.id} ({name})" if name else row.id


def age(then_ms: int, now_s: float | None = None) -> str:
    """How long ago, such as `5m` or `3d`."""
    seconds = max(0, int((time.time() if now_s is None else now_s) - then_ms / 1000))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
