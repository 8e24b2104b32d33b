"""A long reply in pieces that a platform takes, each of them readable on its own.

Sizes are counted in the platform's own unit. Cuts fall at lines, then at spaces, then anywhere but inside a sign that
is made of several. A piece that ends inside a code fence closes it, and the next one opens it again; nothing else is
added, and nothing but the white space at a cut is left out.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from msgspec import Struct

from ..errors import UsageError

Unit: TypeAlias = Literal["chars", "utf16", "bytes"]
LIMIT_MIN = 32
"""Below this a fence, its closing and a word no longer fit together."""
JOINED_MAX = 16
"""Signs that are looked back over so that a cut does not part a letter from what combines with it."""

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^`]*)\Z")
_JOINERS = ("\u200d", "\ufe0f")


def _utf16(text: str) -> int:
    return len(text) + sum(char > "\uffff" for char in text)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


_SIZES: Mapping[Unit, Callable[[str], int]] = MappingProxyType({"chars": len, "utf16": _utf16, "bytes": _bytes})


class Fence(Struct, frozen=True):
    marks: str
    opening: str
    """The line that opened it, to open it again."""


def split(text: str, limit: int, unit: Unit = "chars") -> list[str]:
    """Pieces of at most `limit` units, in order; none if there is nothing to read."""
    if limit < LIMIT_MIN:
        raise UsageError(f"a piece needs room for {LIMIT_MIN} signs, not {limit}", hint="Use a larger limit.")
    if not text.strip():
        return []
    if _SIZES[unit](text) <= limit:
        return [text]
    cutter = _Cutter(limit, _SIZES[unit])
    for line in text.split("\n"):
        cutter.add(line)
    return cutter.finish()


class _Cutter:
    def __init__(self, limit: int, size: Callable[[str], int]) -> None:
        self._limit = limit
        self._size = size
        self._pieces: list[str] = []
        self._lines: list[str] = []
        self._used = 0
        self._fence: Fence | None = None
        self._is_new = True
        """Nothing is in the piece yet but the fence that was opened again."""

    def add(self, line: str) -> None:
        after = self._after(line)
        if not self._fits(line, after) and self._fence and after is None:
            line = self._fence.marks  # the longer form of a closing line; room for this one was kept
        if not self._fits(line, after) and not self._is_new:
            self._cut()
        while not self._fits(line, after):
            head = self._head(line, after)
            self._put(line[:head])
            self._cut()
            line = line[head:].lstrip(" ") if self._fence is None else line[head:]
        self._put(line)
        self._fence = after

    def finish(self) -> list[str]:
        self._close()
        return self._pieces

    def _after(self, line: str) -> Fence | None:
        """The fence that is open once this line is written."""
        found = _FENCE.match(line)
        if self._fence is not None:
            closes = found and found[1].startswith(self._fence.marks) and not found[2].strip()
            return None if closes else self._fence
        if found is None or self._size(line) * 4 > self._limit:
            return None  # a "fence" that long is no fence, and could not be opened again
        return Fence(found[1], line)

    def _room(self, after: Fence | None) -> int:
        closing = 1 + len(after.marks) if after else 0
        return self._limit - self._used - bool(self._lines) - closing

    def _fits(self, line: str, after: Fence | None) -> bool:
        return self._size(line) <= self._room(after)

    def _put(self, line: str) -> None:
        self._used += self._size(line) + bool(self._lines)
        self._lines.append(line)
        self._is_new = False

    def _head(self, line: str, after: Fence | None) -> int:
        room = self._room(after)
        end = min(len(line), room)
        while self._size(line[:end]) > room:
            end -= max(1, (self._size(line[:end]) - room) // 4)
        space = line.rfind(" ", end * 2 // 3, end + 1)
        return space if space > 0 and after is None else _between_signs(line, end)

    def _cut(self) -> None:
        fence = self._fence
        self._close()
        if fence is not None:
            self._put(fence.opening)
        self._is_new = True

    def _close(self) -> None:
        if self._fence is not None:
            self._lines.append(self._fence.marks)
        piece = "\n".join(self._lines).rstrip()
        if piece.strip():
            self._pieces.append(piece if self._fence is not None else piece.lstrip("\n"))
        self._lines, self._used = [], 0


def _between_signs(line: str, end: int) -> int:
    for place in range(end, max(1, end - JOINED_MAX), -1):
        if not _joins(line[place]) and line[place - 1] != "\u200d":
            return place
    return end


def _joins(char: str) -> bool:
    return char in _JOINERS or unicodedata.category(char) in ("Mn", "Me") or "\U0001f3fb" <= char <= "\U0001f3ff"
