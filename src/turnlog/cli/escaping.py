"""Escapes text from outside for a terminal. This module alone decides which characters reach the terminal.

Models, tools, files, channels and titles may contain escape sequences, carriage returns and bidirectional overrides,
which move the cursor, set the window's title or change how a line reads. Sequences are not parsed: each such character
is replaced by a visible symbol, so a sequence has no effect and nothing is hidden.
"""

import re
import unicodedata

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and newline, DEL, C1
    "\u2028\u2029\u202a-\u202e\u2066-\u2069"  # unusual line separators, bidirectional overrides
    "\ud800-\udfff]"  # lone surrogates, which cannot be encoded
)


def escape(text: str) -> str:
    """Keeps tabs and newlines; every other character that could act on a terminal becomes a symbol."""
    if text.isprintable():
        return text
    return _UNSAFE.sub(_symbol, text.replace("\r\n", "\n"))


def _symbol(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return "\ufffd" if 0xD800 <= code <= 0xDFFF else f"<U+{code:04X}>"


def inline(text: str, room: int | None = None) -> str:
    """On one line, and not wider than `room` cells."""
    line = " ".join(escape(text).split())
    return line if room is None else cut(line, room)


def width(text: str) -> int:
    """Cells on a screen: two for Chinese, Japanese, Korean and most emoji, none for combining characters."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def _cells(char: str) -> int:
    if unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def fitting(text: str, room: int) -> int:
    """How many of its first characters fit into `room` cells."""
    used = 0
    for count, char in enumerate(text):
        used += _cells(char)
        if used > room:
            return count
    return len(text)


def cut(text: str, room: int) -> str:
    """Looks at no more of the text than fits."""
    if text.isascii() and len(text) <= room:
        return text
    used = kept = 0
    for end, char in enumerate(text, 1):
        used += _cells(char)
        if used > room:
            return text[:kept] + "…" if room > 0 else ""
        if used < room:
            kept = end
    return text


def pad(text: str, room: int) -> str:
    return text + " " * (room - width(text))
