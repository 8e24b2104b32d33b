"""A turn on the screen: final lines for the scrollback, and lines that may still change."""

import os
import time

from ...core.events import Event, Snapshot, TextDelta, ThinkingDelta
from ...texts import Texts
from ..escaping import cut, escape
from ..wrapping import wrap
from .markdown import StreamedReply
from .notes import Tone, TurnNotes

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_CODES: dict[Tone, str] = {"plain": "", "quiet": "2", "good": "32", "bad": "31", "strong": "1"}


def painted(text: str, tone: Tone, columns: int, hang: int | None = None) -> str:
    safe = wrap(escape(text).replace("\t", "    "), columns, hang)
    code = _CODES[tone]
    if os.environ.get("NO_COLOR") and tone in ("good", "bad"):
        code = ""
    return "\n".join(f"\x1b[{code}m{line}\x1b[0m" for line in safe.split("\n")) if code else safe


class TurnView:
    def __init__(self, words: Texts, columns: int) -> None:
        self._words = words
        self._columns = columns
        self._notes = TurnNotes(words)
        self._reply = StreamedReply(columns)
        self._lines: list[str] = []
        self._is_thinking = False

    def add(self, line: str) -> None:
        """Adds a line that does not come from the turn."""
        self._lines.append(line)

    def take(self, event: Event) -> None:
        self._is_thinking = isinstance(event, ThinkingDelta)
        match event:
            case TextDelta():
                self._reply.feed(event.text)
            case Snapshot():
                # This text replaces the streamed one. Lines in the scrollback stay; the others are replaced.
                self._reply = StreamedReply(self._columns)
                self._reply.feed(event.text)
            case _:
                for note in self._notes.of(event):
                    self.finish()
                    self.add(painted(note.text, note.tone, self._columns))

    def resize(self, columns: int) -> None:
        self._columns = columns
        self._reply.resize(columns)

    def settle(self) -> None:
        self._lines += self._reply.settled()

    def finish(self) -> None:
        """The current message is complete."""
        self._lines += self._reply.finish()
        self._reply = StreamedReply(self._columns)

    def take_lines(self) -> list[str]:
        lines, self._lines = self._lines, []
        return lines

    def changing(self) -> str:
        """The lines that may still change, and the prompt below them."""
        mark = SPINNER[int(time.monotonic() * 10) % len(SPINNER)]
        calls = [f"{mark} {call} …" for call in self._notes.under_way]
        state = self._words("thinking" if self._is_thinking else "working")
        below = [cut(line, self._columns - 1) for line in (*calls, f"{mark} {state}")]
        return "\n".join([*self._reply.changing(), *(painted(line, "quiet", self._columns) for line in below), "› "])
