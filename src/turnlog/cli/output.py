"""Plain output: escaped text, JSON, and tables that fit the screen."""

import json
import re
import shutil
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from typing import Any

from .escaping import cut, escape, inline, pad, width
from .wrapping import wrap

_RAW_CONTROLS = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that JSON allows but a terminal should not get; as escapes they mean the same in JSON."""


def write(text: str = "") -> None:
    sys.stdout.write(escape(text) + "\n")


def write_wrapped(text: str, hang: int) -> None:
    """On a terminal, what does not fit on a line is indented by `hang`; elsewhere the text is as it is."""
    room = columns_of_screen()
    write(wrap(escape(text), room, hang) if room else text)


def write_reply(text: str) -> None:
    """Text of a turn as it is. A closed pipe does not end the turn: the reply is in the store."""
    with suppress(BrokenPipeError, ValueError):
        sys.stdout.write(text)
        sys.stdout.flush()


def warn(text: str) -> None:
    sys.stderr.write(escape(text) + "\n")


def to_json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return _RAW_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def write_json(value: Any) -> None:
    """Writes one line and flushes it, because programs read events as they happen."""
    sys.stdout.write(to_json(value) + "\n")
    sys.stdout.flush()


async def stream_json(before: str, pages: AsyncIterator[Iterable[Any]], after: str) -> None:
    """Writes a list that is never in memory as a whole, between these texts: the same bytes as `write_json`. Nothing is
    written if reading the first page fails.
    """
    lead = before
    async for page in pages:
        for item in page:
            sys.stdout.write(lead + to_json(item))
            lead = ", "
    sys.stdout.write((before if lead == before else "") + after + "\n")
    sys.stdout.flush()


def columns_of_screen() -> int | None:
    """None if the output is no terminal: then nothing is cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(rows: Sequence[Sequence[str]], room: int | None = None) -> list[str]:
    """Columns aligned by cells; the last one takes the rest of the screen, and is cut there."""
    clean = [[inline(cell) for cell in row] for row in rows]
    widths = [max(map(width, column)) for column in zip(*clean, strict=True)]
    lines = ["  ".join([*map(pad, row[:-1], widths), row[-1]]).rstrip() for row in clean]
    return [cut(line, room) for line in lines] if room else lines
