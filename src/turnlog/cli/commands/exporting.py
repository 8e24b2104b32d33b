"""`turnlog sessions export` and `/export`: a session as text, on standard output or in a private file of its own.

A file is written whole or not at all, and never over another one unless that is asked for.
"""

import os
import stat
import sys
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from ...errors import UsageError
from ...interchange.exporting import FORMATS, SHAPES, export as pieces_of, losses
from ...stores.disk.files import open_private, sync_dir, write_all
from ..escaping import escape, inline
from ..options import Flags, common, with_turnlog
from ..output import warn, write_json
from ..session_names import resolve, session_argument

if TYPE_CHECKING:
    from ...library import Turnlog
    from ..chat.console import Console
    from ..chat.loop import Chat

IN_CHAT = {"md": "md", "jsonl": "native", "html": "html"}
"""The argument of /export → the format; the argument is also the file's suffix."""


class TextFormat(Struct, frozen=True):
    """A session in one format, and notes on what the format cannot hold."""

    pieces: Iterable[str]
    notes: list[str]


def register(cli: click.Group, sessions: click.Group) -> None:
    sessions.add_command(export_session)


@click.command("export")
@session_argument
@click.option("--format", "form", type=click.Choice(FORMATS), default="md", help="What to write [md].")
@click.option("--shape", type=click.Choice(SHAPES), default="anthropic", help="Whose messages, for json [anthropic].")
@click.option("-o", "--output", metavar="FILE", help="Write there, for you alone (0600) [standard output].")
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
@click.option("--mask", is_flag=True, help="Mask secrets in native, v3 and flat too.")
@common
@with_turnlog()
async def export_session(
    t: "Turnlog", flags: Flags, session: str, form: str, shape: str, output: str | None, force: bool, mask: bool
) -> None:
    """Write a session for people (md, html) or programs (json, native, v3, flat).

    native, v3 and flat hold everything, including secrets; standard error says what the others leave out.

    \b
    turnlog sessions export my-project > my-project.md
    turnlog sessions export my-project --format html -o my-project.html
    turnlog sessions export my-project --format json --shape openai | jq .messages
    """
    target = Path(output) if output not in (None, "-") else None
    row = await resolve(t, flags, session)
    if target:
        check_free(target, force=force)  # before the work is done
    text = await text_of_session(t, row.id, form, shape, mask=mask or None)
    if target:
        write_file(target, text.pieces, force=force)
    if flags.json:
        where = {"file": str(target)} if target else {"text": "".join(text.pieces)}
        write_json({"id": row.id, "format": form, **where, "notes": text.notes})
        return
    if not target:
        _print(text.pieces)
    for note in text.notes:
        warn(f"note: {inline(note)}")


async def text_of_session(
    t: "Turnlog", session_id: str, form: str, shape: str = "anthropic", *, mask: bool | None = None
) -> TextFormat:
    loaded = await t.sessions.transcript(session_id)
    pieces = pieces_of(loaded.entries, loaded.session, form, shape=shape, mask=mask)
    damage = [f"left out, because it cannot be read: {error}" for error in loaded.damage]
    return TextFormat(pieces, [*damage, *losses(loaded.entries, form, shape=shape)])


def _print(pieces: Iterable[str]) -> None:
    """Text for a terminal is escaped; a program gets every byte."""
    harmless = sys.stdout.isatty()
    for piece in pieces:
        sys.stdout.write(escape(piece) if harmless else piece)


def check_free(path: Path, *, force: bool) -> None:
    try:
        there = path.lstat()
    except OSError:
        return  # there is no such file, or writing raises the same error
    if not stat.S_ISREG(there.st_mode):
        raise UsageError(f"{path} is not a regular file", hint="Name another one.")
    if not force:
        raise UsageError(f"{path} exists already", hint="Name another file, or replace it with --force.")


def write_file(path: Path, pieces: Iterable[str], *, force: bool = False) -> None:
    """Creates a file of mode 0600, which gets its name only when it is complete and durable."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        fd = open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            for piece in pieces:
                write_all(fd, piece.encode("utf-8", "replace"))
            os.fsync(fd)
            check_free(path, force=force)
            os.replace(temporary, path)
        finally:
            os.close(fd)
            temporary.unlink(missing_ok=True)
        sync_dir(path.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"{path} cannot be written: {reason}", hint="Name another file.") from error


async def export(chat: "Chat", console: "Console", rest: str) -> None:
    """Writes into the directory of the chat, under a free name."""
    form = IN_CHAT.get(rest.lower())
    if form is None:
        console.show(chat.words("usage", usage="/export md|jsonl|html"), "bad")
        return
    text = await text_of_session(chat.t, chat.row.id, form)
    path = _free_name(chat.row.id, rest.lower())
    write_file(path, text.pieces)
    console.show(chat.words("exported", path=inline(str(path))))
    for note in text.notes:
        console.show(f"· {inline(note)}", "quiet")


def _free_name(session_id: str, ending: str) -> Path:
    numbers = count(2)
    path = Path.cwd() / f"{session_id}.{ending}"
    while os.path.lexists(path):
        path = path.with_name(f"{session_id}-{next(numbers)}.{ending}")
    return path
