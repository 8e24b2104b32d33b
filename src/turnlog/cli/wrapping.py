"""Breaks long lines for a terminal, which itself would break them inside a word: at blanks, or between Chinese or
Japanese characters. A line never begins with closing punctuation.
"""

import re
from collections.abc import Iterator

from ..core.graphemes import cut_before
from .escaping import fitting, width

_LETTER = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_OPENING = "（「『【《〈"
_CLOSING = "、。，．！？；：）」』】》〉"
_ENDS_OF_PIECES = (
    "(?<= )(?! )",
    rf"(?<=[{_LETTER}{_CLOSING}])(?![{_CLOSING}”’…)\].,!?;:% ])",
    rf"(?<![{_OPENING}“‘(\[ ])(?=[{_LETTER}{_OPENING}])",
)
_END = re.compile("|".join(_ENDS_OF_PIECES))


def wrap(text: str, room: int, hang: int | None = None) -> str:
    """`hang`: the indent of the lines that continue a line; by default they are indented like the line itself."""
    return "\n".join(broken for line in text.split("\n") for broken in _broken(line, room, hang))


def _broken(line: str, room: int, hang: int | None) -> Iterator[str]:
    if len(line) <= room and width(line) <= room:
        yield line
        return
    own = len(line) - len(line.lstrip(" "))
    indent = own if hang is None else hang
    indent = indent if indent <= room * 2 // 3 else 0
    begin = " " * indent
    done, used = "", 0
    for piece in _pieces(line, room - indent):
        cells = width(piece)
        if used + cells - (len(piece) - len(piece.rstrip())) > room:
            if done.strip():
                yield done.rstrip()
            done, used = begin, indent
        done, used = done + piece, used + cells
    yield done.rstrip()


def _pieces(line: str, room: int) -> Iterator[str]:
    """What stays together: a word with the blanks after it, or a part of a word that is longer than a line."""
    for piece in _END.split(line):
        rest = piece
        while (fits := fitting(rest[: 4 * room], room)) < min(len(rest), 4 * room) and rest.strip():
            fits = cut_before(rest[: 4 * room], fits) or max(fits, 1)
            yield rest[:fits]
            rest = rest[fits:]
        yield rest
