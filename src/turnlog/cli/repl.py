"""The chat loop: lines in, commands or turns out. It knows sessions and nothing of screens.

A line that begins with / is a command and never reaches the model; anything else is a turn.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING

from ..core.events import Event, Queued, UsageReport
from ..core.session import Session
from ..errors import TurnlogError
from . import commands
from .interrupts import on_interrupt, stoppable
from .messages import Words
from .opening import QUIT_WORDS, Found, again, who_waits
from .options import Flags
from .status import Gauge
from .telling import notes_of_error

if TYPE_CHECKING:
    from ..library import Turnlog
    from ..queue import Ticket
    from .fronts import Front, Steer


class Chat:
    """One sitting."""

    def __init__(self, t: "Turnlog", flags: Flags, found: Found, words: Words) -> None:
        self.t = t
        self.flags = flags
        self.row: Session = found.row
        self.created = found.created
        self.words = words
        self.gauge = Gauge(words)
        self.over = False
        self.model: str | None = None
        """Set by /model: the chat is to be opened anew with this one."""
        self.draft = ""
        """What the next prompt begins with."""
        self.later: list[str] = []
        """Commands that were typed during a turn."""
        self.steered: list[Ticket] = []
        """Messages that were typed during a turn and that it may not have taken."""
        self.interrupts = 0

    def greet(self, front: "Front") -> None:
        row = self.row
        if self.created:
            named = f" ({row.label})" if row.label else ""
            front.show(f"Created session: {row.id}{named}")
        else:
            label = f" ({row.label or row.title})" if row.label or row.title else ""
            front.show(f"Resumed session: {row.id}{label}  {row.message_count} messages")
            front.show(f"Restored: {row.turn_count} previous turns")
        if not row.message_count and speaks_offline(self.t, self.flags):
            front.show(self.words("offline"), "quiet")
            front.show(self.words("connect"), "quiet")

    async def run(self, front: "Front") -> None:
        # Between two prompts, when nobody else looks after Ctrl-C.
        with on_interrupt(lambda: self._interrupted(front)):
            await self._converse(front)
        if self.model is None:
            front.show(self.words("bye"), "quiet")

    async def _converse(self, front: "Front") -> None:
        if self.row.received:
            await self._answer_waiting(front)
        while not self.over:
            try:
                line = self.later.pop(0) if self.later else await self._ask(front)
            except KeyboardInterrupt:
                self._interrupted(front)
                continue
            if line is None:
                break
            await self.take(line, front)

    async def _ask(self, front: "Front") -> str | None:
        draft, self.draft = self.draft, ""
        line = await front.ask(draft)
        self.interrupts = 0
        return line

    def _interrupted(self, front: "Front") -> None:
        self.interrupts += 1
        if self.interrupts > 1:
            self.over = True
        else:
            front.show(self.words("again"), "quiet")

    async def take(self, line: str, front: "Front") -> None:
        """Errors are shown and the chat goes on: what was typed is stored, or was refused with a reason."""
        try:
            if line.strip().lower() in QUIT_WORDS:
                self.over = True
            elif line.startswith("/"):
                await stoppable(commands.run(self, front, line))
            elif line.strip():
                self.draft = line  # until it is stored: a full disk must not cost anybody their words
                await self._turn(line, front)
        except TurnlogError as error:
            for note in notes_of_error(str(error), error.hint, self.words):
                front.show(note.text, note.tone)
        except KeyboardInterrupt:
            front.show(f"· {self.words('stopped')}", "quiet")

    async def _turn(self, text: str, front: "Front") -> None:
        ticket = await self.t.accept(self.row, text)
        self.draft = ""
        await self._follow(self.t.queue.follow(ticket), front)
        while self.steered:
            ticket = self.steered.pop(0)
            taken = ticket.turn.done() and ticket.turn.result()[0].over
            if not taken:  # it came too late for the turn before and has one of its own
                await self._follow(self.t.queue.follow(ticket), front)
        await self.refresh()

    async def _follow(self, events: AsyncIterator[Event], front: "Front") -> None:
        await front.follow(self._told(events, front), steer=self._steer(front), stop=self.stop)

    def stop(self) -> bool:
        return self.t.stop(self.row.id)

    async def refresh(self) -> None:
        self.row = await again(self.t, self.row)
        with suppress(TurnlogError):  # a status line is not worth an error; the turn will tell
            await self.gauge.measure(self.t, self.row)

    def _steer(self, front: "Front") -> "Steer":
        async def steer(line: str) -> None:
            word = line.strip().lower()
            if word in ("/stop", "/quit", "/exit", *QUIT_WORDS):
                self.over = self.over or word != "/stop"
                self.stop()
            elif line.startswith("/"):
                self.later.append(line)
                front.show(self.words("after_turn", name=line[1:].split()[0] if line[1:].strip() else ""), "quiet")
            elif line.strip():
                self.steered.append(await self.t.accept(self.row, line))

        return steer

    async def _told(self, events: AsyncIterator[Event], front: "Front") -> AsyncIterator[Event]:
        """The events, with what they mean for the status line, and who is in the way."""
        async for event in events:
            if isinstance(event, UsageReport):
                self.gauge.add(event)
            if isinstance(event, Queued):
                front.show(f"· {await who_waits(self.t, self.row, self.words)}", "quiet")
            yield event

    async def _answer_waiting(self, front: "Front") -> None:
        """What earlier crashes left waiting is answered first."""
        front.show(f"· {self.words('answering')}", "quiet")
        await self.t.resume()
        while (live := self.t.queue.running(self.row.id)) is None:
            self.row = await again(self.t, self.row)
            if not self.row.received:
                return
            await asyncio.sleep(0.01)
        await self._follow(live.follow(), front)
        await self.refresh()


def speaks_offline(t: "Turnlog", flags: Flags) -> bool:
    """Whether the offline model answers because nothing else was set up."""
    from ..providers.choosing import choose

    own = t.settings.agents.get(flags.agent_name)
    return not t.settings.model.name and not (own and own.model) and choose(os.environ) == "offline"
