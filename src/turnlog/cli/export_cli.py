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

from ..errors import UsageError
from ..exporting import FORMATS, SHAPES, export as pieces_of, losses
from ..stores.files import open_private, sync_dir, write_all
from .escaping import escape, inline
from .naming import resolve, session_argument
from .options import common, flags_now, run
from .output import warn, write_json

if TYPE_CHECKING:
    from ..library import Turnlog
    from .fronts import Front
    from .repl import Chat

IN_CHAT = {"md": "md", "jsonl": "native", "html": "html"}
"""What /export is told → the format; the name is also the file's ending."""


class Text(Struct, frozen=True):
    """A session in one format, and what that format could not hold."""

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
def export_session(session: str, form: str, shape: str, output: str | None, force: bool, mask: bool) -> None:
    """Write a session for people (md, html) or programs (json, native, v3, flat).

    native, v3 and flat hold everything, secrets included; what the others leave out is said on standard error.

    \b
    turnlog sessions export my-project > my-project.md
    turnlog sessions export my-project --format html -o my-project.html
    turnlog sessions export my-project --format json --shape openai | jq .messages
    """
    flags = flags_now()
    target = Path(output) if output not in (None, "-") else None

    async def work(t: "Turnlog") -> None:
        row = await resolve(t, flags, session)
        if target:
            check_free(target, force=force)  # before the work, where it still costs nothing
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

    run(work, flags)


async def text_of_session(
    t: "Turnlog", session_id: str, form: str, shape: str = "anthropic", *, mask: bool | None = None
) -> Text:
    loaded = await t.sessions.transcript(session_id)
    pieces = pieces_of(loaded.entries, loaded.session, form, shape=shape, mask=mask)
    damage = [f"left out, because it cannot be read: {error}" for error in loaded.damage]
    return Text(pieces, [*damage, *losses(loaded.entries, form, shape=shape)])


def _print(pieces: Iterable[str]) -> None:
    """A program gets every byte; a terminal only what cannot act on it."""
    harmless = sys.stdout.isatty()
    for piece in pieces:
        sys.stdout.write(escape(piece) if harmless else piece)


def check_free(path: Path, *, force: bool) -> None:
    try:
        there = path.lstat()
    except OSError:
        return  # writing will tell what is wrong, if anything is
    if not stat.S_ISREG(there.st_mode):
        raise UsageError(f"{path} is not a regular file", hint="Name another one.")
    if not force:
        raise UsageError(f"{path} is there already", hint="Name another file, or replace it with --force.")


def write_file(path: Path, pieces: Iterable[str], *, force: bool = False) -> None:
    """0600 from the start; at its name only when it is whole and durable."""
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
        raise UsageError(f"{path} cannot be written: {reason}", hint="Nothing was left there; name another.") from error


async def export(chat: "Chat", front: "Front", rest: str) -> None:
    """Into the directory that the chat was started in, under a name that is not taken."""
    form = IN_CHAT.get(rest.lower())
    if form is None:
        front.show(chat.words("usage", usage="/export md|jsonl|html"), "bad")
        return
    text = await text_of_session(chat.t, chat.row.id, form)
    path = _free_name(chat.row.id, rest.lower())
    write_file(path, text.pieces)
    front.show(chat.words("exported", path=inline(str(path))))
    for note in text.notes:
        front.show(f"· {inline(note)}", "quiet")


def _free_name(session_id: str, ending: str) -> Path:
    numbers = count(2)
    path = Path.cwd() / f"{session_id}.{ending}"
    while os.path.lexists(path):
        path = path.with_name(f"{session_id}-{next(numbers)}.{ending}")
    return path
