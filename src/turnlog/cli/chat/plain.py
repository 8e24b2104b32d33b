"""The chat without a terminal: on a pipe, with TERM=dumb, or with output to a file. Reads lines and prints text."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ...core.events import Done, Event, Snapshot, TextDelta
from ...texts import Texts
from ..escaping import escape
from ..output import columns_of_screen, write_reply
from ..wrapping import wrap
from .console import PROMPT, YES, Steer, Stop
from .interrupts import on_interrupt
from .notes import Tone, TurnNotes

if TYPE_CHECKING:
    from .loop import Chat

GUTTER = "  "
"""Before each line of a reply, so that no reply can imitate a prompt."""


class PlainConsole:
    """`lines`: lines of standard input that were read already; the rest is read line by line."""

    def __init__(self, words: Texts, lines: Sequence[str] = ()) -> None:
        self._words = words
        self._lines = list(lines)

    def attach(self, chat: "Chat") -> None:
        """A plain console has no status line and no completion."""

    shows_others = False
    """The output of a pipe belongs to its own lines only."""

    async def show_other(self, text: str) -> None:
        self.show(text)

    async def show_other_answer(self, text: str) -> None:
        self.show(text)

    @property
    def columns(self) -> int:
        return columns_of_screen() or 120

    def show(self, text: str, tone: Tone = "plain", hang: int | None = None) -> None:
        room = columns_of_screen()
        write_reply((wrap(escape(text), room, hang) if room else escape(text)) + "\n")

    async def ask(self, default: str = "") -> str | None:
        return await self._read(PROMPT)

    async def confirm(self, question: str) -> bool:
        answer = await self._read(f"{escape(question)} [y/N] ")
        return (answer or "").strip().lower() in YES

    async def _read(self, prompt: str) -> str | None:
        write_reply(prompt)
        line = self._lines.pop(0) if self._lines else await _line_from_thread()
        if line is None or not sys.stdin.isatty():
            write_reply("\n")  # there is no echo of Enter
        return line

    async def follow(self, events: AsyncIterator[Event], *, steer: Steer, stop: Stop) -> Event:
        notes = TurnNotes(self._words)
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
                        for note in notes.of(event):
                            text.end()
                            self.show(note.text, note.tone)
        text.end()
        return end


class _Text:
    """A reply as it streams, with each line indented."""

    def __init__(self) -> None:
        self._open = False

    def add(self, piece: str) -> None:
        if not piece:
            return
        begin = "" if self._open else GUTTER
        self._open = True
        write_reply(begin + escape(piece).replace("\n", f"\n{GUTTER}"))

    def end(self) -> None:
        if self._open:
            write_reply("\n")
        self._open = False


async def _line_from_thread() -> str | None:
    """Reads in a daemon thread, because a blocked read cannot be cancelled."""
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
