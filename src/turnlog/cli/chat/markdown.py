"""Markdown of a reply as it streams in: final lines go to the scrollback once; lines that may change are shown below.

The lines of a block (paragraph, list, table, fenced code) are final when the next block begins. In a long block all but
the last lines are final already: later text rarely changes how earlier lines look, except in a table, which waits for
its end. Each block is rendered alone, so a piece of a long reply costs no more than a piece of a short one.
"""

import re
from io import StringIO
from typing import TYPE_CHECKING

from ..escaping import escape

if TYPE_CHECKING:
    from rich.segment import Segment

LIVE_LINES = 12
"""Lines that may change, shown below the scrollback: few enough for any screen."""
GUTTER = "  "
"""Before each line of a reply. The prompt has no indent, so no reply can imitate it."""
WIDTH_MAX = 100
"""Longer lines of prose are hard to read."""

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


class StreamedReply:
    """A reply that is being streamed."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._text = ""
        self._printed = 0
        """Lines of the current block that are in the scrollback already."""
        self._begun = False
        self._rendered: tuple[str, list[str]] = ("", [])

    def feed(self, text: str) -> None:
        self._text += text

    def settled(self) -> list[str]:
        """New final lines, for the scrollback."""
        blocks, self._text = split_blocks(self._text)
        lines: list[str] = []
        for block in blocks:
            lines += self._close(block)
        pending = self._lines(self._text)
        if len(pending) - self._printed > LIVE_LINES and not self._text.lstrip().startswith("|"):
            end = len(pending) - LIVE_LINES // 2
            lines += self._open(pending[self._printed : end])
            self._printed = end
        return lines

    def changing(self) -> list[str]:
        """The lines that may change: the last of them, if there are many."""
        return self._lines(self._text)[self._printed :][-LIVE_LINES:]

    def finish(self) -> list[str]:
        blocks, rest = split_blocks(self._text)
        self._text = ""
        return [line for block in (*blocks, rest) for line in self._close(block)]

    def _close(self, block: str) -> list[str]:
        lines = self._open(self._lines(block)[self._printed :])
        self._printed = 0
        return lines

    def _open(self, lines: list[str]) -> list[str]:
        """The lines of a block, after an empty line unless it is the first block."""
        if not lines:
            return []
        gap = [""] if self._begun and not self._printed else []
        self._begun = True
        return gap + lines

    def _lines(self, text: str) -> list[str]:
        if self._rendered[0] != text:
            self._rendered = (text, render(text, self._columns))
        return self._rendered[1]

    def resize(self, columns: int) -> None:
        """Takes effect at the next block: printed lines of this one stay as they are."""
        if not self._printed and columns != self._columns:
            self._columns = columns
            self._rendered = ("", [])


def split_blocks(text: str) -> tuple[list[str], str]:
    """(complete blocks, the current one)."""
    blocks: list[str] = []
    start, at, fence, gap = 0, 0, "", False
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if gap and not fence and not line[0].isspace():
            blocks.append(text[start:at])
            start, gap = at, False
        at += len(line)
        if fence:
            closes = mark is not None and mark[1].startswith(fence) and not line.strip(" `~\n")
            if closes and line.endswith("\n"):
                blocks.append(text[start:at])
                start, fence = at, ""
        elif mark:
            fence = mark[1]
        else:
            gap = gap or not line.strip()
    return [block for block in blocks if block.strip()], text[start:]


def render(text: str, columns: int) -> list[str]:
    """One block as terminal lines. Escaped before, for its width, and after, for character references."""
    if not text.strip():
        return []
    from rich.console import Console
    from rich.markdown import Markdown
    from rich.segment import Segments

    room = max(10, min(columns - len(GUTTER) - 1, WIDTH_MAX))
    console = Console(file=StringIO(), width=room, force_terminal=True, legacy_windows=False)
    words = f"#{text}" if text.startswith("# ") else text  # rich centres headings of the first level
    source = Markdown(escape(words), hyperlinks=False, code_theme="ansi_dark")
    lines: list[str] = []
    for segments in console.render_lines(source, pad=False, new_lines=False):
        with console.capture() as captured:
            safe = [segment._replace(text=escape(segment.text).replace("\n", " ")) for segment in segments]
            console.print(Segments(_without_trailing_blanks(safe)), end="")
        lines.append(GUTTER + captured.get() if captured.get() else "")
    while lines and not lines[0].strip():
        del lines[0]
    while lines and not lines[-1].strip():
        del lines[-1]
    return lines


def _without_trailing_blanks(segments: "list[Segment]") -> "list[Segment]":
    """So that text copied from the scrollback has no extra blanks."""
    kept = list(segments)
    while kept and not kept[-1].text.strip():
        kept.pop()
    if kept:
        kept[-1] = kept[-1]._replace(text=kept[-1].text.rstrip())
    return kept
