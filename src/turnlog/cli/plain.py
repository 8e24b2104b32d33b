"""The chat without a terminal's powers: a pipe, TERM=dumb, output into a file. Lines in, text out, nothing moves."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ..core.events import Done, Event, Snapshot, TextDelta
from .escaping import escape
from .fronts import Steer, Stop
from .interrupts import on_interrupt
from .messages import Words
from .output import columns_of_screen
from .telling import Teller, Tone

if TYPE_CHECKING:
    from .repl import Chat

PROMPT = "You > "
GUTTER = "  "
"""Before each line of an answer, so that no answer can draw a prompt."""
YES = ("y", "yes", "是", "好")


class PlainFront:
    """`lines`: what was read of standard input already; the rest follows line by line."""

    def __init__(self, words: Words, lines: Sequence[str] = ()) -> None:
        self._words = words
        self._lines = list(lines)

    def attend(self, chat: "Chat") -> None:
        """Nothing is shown of it here."""

    @property
    def columns(self) -> int:
        return columns_of_screen() or 120

    def show(self, text: str, tone: Tone = "plain") -> None:
        _write(escape(text) + "\n")

    async def ask(self, default: str = "") -> str | None:
        return await self._read(PROMPT)

    async def confirm(self, question: str) -> bool:
        answer = await self._read(f"{escape(question)} [y/N] ")
        return (answer or "").strip().lower() in YES

    async def _read(self, prompt: str) -> str | None:
        _write(prompt)
        line = self._lines.pop(0) if self._lines else await _line_from_thread()
        if line is None or not sys.stdin.isatty():
            _write("\n")  # nobody pressed Enter
        return line

    async def follow(self, events: AsyncIterator[Event], *, steer: Steer, stop: Stop) -> Event:
        teller = Teller(self._words)
        text = _Text()
        end: Event = Done(session_id="", token_estimate=0)
        with on_interrupt(stop):
            async for event in events:
                end = event
                match event:
                    case TextDelta():
                        text.add(event.text)
                    case Snapshot():
                        text.end()
                        text.add(event.text)
                    case _:
                        for note in teller.notes(event):
                            text.end()
                            self.show(note.text, note.tone)
        text.end()
        return end


class _Text:
    """An answer as it streams, each line behind the gutter."""

    def __init__(self) -> None:
        self._open = False

    def add(self, piece: str) -> None:
        if not piece:
            return
        begin = "" if self._open else GUTTER
        self._open = True
        _write(begin + escape(piece).replace("\n", f"\n{GUTTER}"))

    def end(self) -> None:
        if self._open:
            _write("\n")
        self._open = False


def _write(text: str) -> None:
    """A reader who has gone does not end the turn: what was said is in the store."""
    with suppress(BrokenPipeError, ValueError):
        sys.stdout.write(text)
        sys.stdout.flush()


async def _line_from_thread() -> str | None:
    """In a thread that nobody waits for at the end: a blocked read cannot be called off."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[str | None] = loop.create_future()

    def deliver(line: str) -> None:
        if not found.done():
            found.set_result(line.rstrip("\n") if line else None)

    def read() -> None:
        line = sys.stdin.readline()
        with suppress(RuntimeError):  # the loop is closed: the chat has ended without this line
            loop.call_soon_threadsafe(deliver, line)

    threading.Thread(target=read, daemon=True).start()
    with on_interrupt(lambda: found.done() or found.set_exception(KeyboardInterrupt())):
        return await found
