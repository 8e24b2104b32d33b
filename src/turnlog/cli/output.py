"""Plain output: text made harmless, JSON, and columns that fit the screen."""

import json
import re
import shutil
import sys
from collections.abc import Sequence
from typing import Any

from .escaping import cut, escape, inline, pad, width

_RAW_CONTROLS = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What JSON may hold as it is and a terminal should not see; escaped, it means the same to who reads JSON."""


def write(text: str = "") -> None:
    sys.stdout.write(escape(text) + "\n")


def warn(text: str) -> None:
    sys.stderr.write(escape(text) + "\n")


def to_json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return _RAW_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def write_json(value: Any) -> None:
    """One line, at once: who reads events wants them as they happen."""
    sys.stdout.write(to_json(value) + "\n")
    sys.stdout.flush()


def columns_of_screen() -> int | None:
    """None where nobody looks: then nothing needs to be cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(rows: Sequence[Sequence[str]], room: int | None = None) -> list[str]:
    """Columns aligned by cells; the last one takes what is left of the screen, and is cut there."""
    clean = [[inline(cell) for cell in row] for row in rows]
    widths = [max(map(width, column)) for column in zip(*clean, strict=True)]
    lines = ["  ".join([*map(pad, row[:-1], widths), row[-1]]).rstrip() for row in clean]
    return [cut(line, room) for line in lines] if room else lines


def warn_json(value: Any) -> None:
    sys.stderr.write(to_json(value) + "\n")
