"""A turn on the screen: which of its lines are settled, and which are still shown below and may change."""

import os
import time

from ..core.events import Event, Snapshot, TextDelta, ThinkingDelta
from .escaping import cut, escape
from .markdown import Reply
from .messages import Words
from .telling import Teller, Tone

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_CODES: dict[Tone, str] = {"plain": "", "quiet": "2", "good": "32", "bad": "31", "strong": "1"}


def painted(text: str, tone: Tone) -> str:
    safe = escape(text).replace("\t", "    ")
    code = _CODES[tone]
    if os.environ.get("NO_COLOR") and tone in ("good", "bad"):
        code = ""
    return "\n".join(f"\x1b[{code}m{line}\x1b[0m" for line in safe.split("\n")) if code else safe


class Running:
    def __init__(self, words: Words, columns: int) -> None:
        self._words = words
        self._columns = columns
        self._teller = Teller(words)
        self._reply = Reply(columns)
        self._lines: list[str] = []
        self._is_thinking = False

    def add(self, line: str) -> None:
        """A line of somebody else's, in its place."""
        self._lines.append(line)

    def take(self, event: Event) -> None:
        self._is_thinking = isinstance(event, ThinkingDelta)
        match event:
            case TextDelta():
                self._reply.feed(event.text)
            case Snapshot():
                # What was streamed is not the answer. What is in the scrollback cannot be taken back; the rest can.
                self._reply = Reply(self._columns)
                self._reply.feed(event.text)
            case _:
                for note in self._teller.notes(event):
                    self.finish()
                    self.add(painted(note.text, note.tone))

    def resize(self, columns: int) -> None:
        self._columns = columns
        self._reply.resize(columns)

    def settle(self) -> None:
        self._lines += self._reply.settled()

    def finish(self) -> None:
        """What was said so far is all there is of it."""
        self._lines += self._reply.finish()
        self._reply = Reply(self._columns)

    def take_lines(self) -> list[str]:
        lines, self._lines = self._lines, []
        return lines

    def live(self) -> str:
        """The lines that may still change, and the prompt below them."""
        mark = SPINNER[int(time.monotonic() * 10) % len(SPINNER)]
        calls = [f"{mark} {call} …" for call in self._teller.under_way]
        told = self._words("thinking" if self._is_thinking else "working")
        below = [cut(line, self._columns - 1) for line in (*calls, f"{mark} {told}")]
        return "\n".join([*self._reply.live(), *(painted(line, "quiet") for line in below), "› "])
