"""`turnlog sessions export` and `/export`: a session as text, on standard output or in a private file of its own.

A file is written whole or not at all, and never over another one unless that is asked for.
"""

import os
import stat
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing, contextmanager, nullcontext
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...core.entries import Entry
from ...core.session import Session
from ...errors import Corrupt, UsageError
from ...interchange.exporting import FORMATS, SHAPES, Losses, stream
from ...stores.disk.files import open_private, sync_dir, write_all
from ..escaping import escape, inline
from ..options import Flags, with_turnlog
from ..output import warn, write_json
from ..session_names import resolve, session_argument

if TYPE_CHECKING:
    from ...library import Turnlog
    from ..chat.console import Console
    from ..chat.loop import Chat

IN_CHAT = {"md": "md", "jsonl": "native", "html": "html"}
"""The argument of /export → the format; the argument is also the file's suffix."""


@click.command("export")
@session_argument
@click.option("--format", "form", type=click.Choice(FORMATS), default="md", help="What to write [md].")
@click.option("--shape", type=click.Choice(SHAPES), default="anthropic", help="Whose messages, for json [anthropic].")
@click.option("-o", "--output", metavar="FILE", help="Write there, for you alone (0600) [standard output].")
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
@click.option("--mask", is_flag=True, help="Mask secrets in native, v3 and flat too.")
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
    pieces: list[str] = []
    printing = nullcontext(pieces.append if flags.json else _print())
    with new_file(target, force=force) if target else printing as write:
        notes = await write_session(t, row, form, write, shape=shape, mask=mask or None)
    if flags.json:
        written = {"file": str(target)} if target else {"text": "".join(pieces)}
        write_json({"id": row.id, "format": form, **written, "notes": notes})
        return
    for note in notes:
        warn(f"note: {inline(note)}")


async def write_session(
    t: "Turnlog",
    row: Session,
    form: str,
    write: Callable[[str], object],
    *,
    shape: str = "anthropic",
    mask: bool | None = None,
) -> list[str]:
    """Writes it page by page. Returns notes on what the format cannot hold, and on what cannot be read."""
    damage: list[Corrupt] = []
    lost = Losses(form, shape=shape)

    async def pages() -> AsyncGenerator[list[Entry]]:
        damage.clear()
        async for page in t.sessions.pages(row, damage=damage):
            lost.look(page)
            yield page

    async with aclosing(stream(pages, row, form, shape=shape, mask=mask)) as pieces:
        async for piece in pieces:
            write(piece)
    return [*(f"left out, because it cannot be read: {error}" for error in damage), *lost.words()]


def _print() -> Callable[[str], object]:
    """Text for a terminal is escaped; a program gets every byte."""
    out = sys.stdout
    return (lambda piece: out.write(escape(piece))) if out.isatty() else out.write


def check_free(path: Path, *, force: bool) -> None:
    try:
        there = path.lstat()
    except OSError:
        return  # there is no such file, or writing raises the same error
    if not stat.S_ISREG(there.st_mode):
        raise UsageError(f"{path} is not a regular file", hint="Name another one.")
    if not force:
        raise UsageError(f"{path} exists already", hint="Name another file, or replace it with --force.")


@contextmanager
def new_file(path: Path, *, force: bool = False) -> Generator[Callable[[str], object]]:
    """Creates a file of mode 0600, which gets its name only when it is complete and durable."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        fd = open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            yield lambda piece: write_all(fd, piece.encode("utf-8", "replace"))
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
    path = _free_name(chat.row.id, rest.lower())
    with new_file(path) as write:
        notes = await write_session(chat.t, chat.row, form, write)
    console.show(chat.words("exported", path=inline(str(path))))
    for note in notes:
        console.show(f"· {inline(note)}", "quiet")


def _free_name(session_id: str, ending: str) -> Path:
    numbers = count(2)
    path = Path.cwd() / f"{session_id}.{ending}"
    while os.path.lexists(path):
        path = path.with_name(f"{session_id}-{next(numbers)}.{ending}")
    return path
