"""Splits a long reply into pieces that a platform accepts, each readable on its own.

Sizes are counted in the platform's own unit. Cuts are at line ends, then at spaces, then anywhere but inside a
character of several code points. A piece that ends inside a code fence closes it, and the next piece opens it again.
Nothing else is added, and only white space at a cut is dropped.
"""

import re
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from ..errors import UsageError
from .graphemes import cut_before

Unit: TypeAlias = Literal["chars", "utf16", "bytes"]
LIMIT_MIN = 32
"""Below this, a fence, its end and a word do not fit together."""

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^`]*)\Z")


_SIZES: Mapping[Unit, Callable[[str], int]] = {
    "chars": len,
    "utf16": lambda text: len(text) + sum(char > "\uffff" for char in text),
    "bytes": lambda text: len(text.encode("utf-8", "surrogatepass")),
}


class CodeFence(Struct, frozen=True):
    marks: str
    opening: str
    """The line that opened it, to open it again."""


def split(text: str, limit: int, unit: Unit = "chars") -> list[str]:
    """Pieces of at most `limit` units, in order; none if the text is blank."""
    if limit < LIMIT_MIN:
        raise UsageError(f"a piece needs room for {LIMIT_MIN} characters, not {limit}", hint="Use a larger limit.")
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
        self._fence: CodeFence | None = None
        self._is_new = True
        """The piece is empty except for the fence that was opened again."""

    def add(self, line: str) -> None:
        after = self._after(line)
        if not self._fits(line, after) and self._fence and after is None:
            line = self._fence.marks  # the longer form of a closing line; room for it was reserved
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

    def _after(self, line: str) -> CodeFence | None:
        """The fence that is open after this line."""
        found = _FENCE.match(line)
        if self._fence is not None:
            closes = found and found[1].startswith(self._fence.marks) and not found[2].strip()
            return None if closes else self._fence
        if found is None or self._size(line) * 4 > self._limit:
            return None  # a fence of that length could not be opened again, so it is text
        return CodeFence(found[1], line)

    def _room(self, after: CodeFence | None) -> int:
        closing = 1 + len(after.marks) if after else 0
        return self._limit - self._used - bool(self._lines) - closing

    def _fits(self, line: str, after: CodeFence | None) -> bool:
        return self._size(line) <= self._room(after)

    def _put(self, line: str) -> None:
        self._used += self._size(line) + bool(self._lines)
        self._lines.append(line)
        self._is_new = False

    def _head(self, line: str, after: CodeFence | None) -> int:
        room = self._room(after)
        end = min(len(line), room)
        while self._size(line[:end]) > room:
            end -= max(1, (self._size(line[:end]) - room) // 4)
        space = line.rfind(" ", end * 2 // 3, end + 1)
        return space if space > 0 and after is None else cut_before(line, end) or end

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
