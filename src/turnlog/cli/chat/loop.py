"""The chat loop: reads lines, and runs commands or turns. It knows sessions, and no terminal.

A line that begins with / is a command and never reaches the model; any other line is a message.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from ...core.events import Event, Queued, UsageReport
from ...core.session import Session
from ...errors import TurnlogError
from ...texts import Texts
from ..options import Flags
from . import slash
from .approving import Questions, open_requests
from .interrupts import on_interrupt, stoppable
from .notes import notes_of_error, question
from .other_turns import OtherTurns
from .session_choice import QUIT_WORDS, Found, current, waiting_note
from .status import Gauge

if TYPE_CHECKING:
    from ...library import Turnlog
    from ...turns.queue import Ticket
    from .console import Console, Steer


class Chat:
    def __init__(self, t: "Turnlog", flags: Flags, found: Found, words: Texts, *, by_key: bool = True) -> None:
        self.t = t
        self.flags = flags
        self.row: Session = found.row
        self.created = found.created
        self.by_key = by_key
        """Whether this chat goes to a new session of its key when the old one has expired."""
        self.words = words
        self.gauge = Gauge(words)
        self.over = False
        self.model: str | None = None
        """Set by /model: the chat ends, and another one starts with this model."""
        self.draft = ""
        """The text that the next prompt starts with."""
        self.later: list[str] = []
        """Commands that were typed during a turn."""
        self.steered: list[Ticket] = []
        """Messages that were typed during a turn and that it may not have taken."""
        self.questions = Questions(self)
        self.interrupts = 0
        self._asking: asyncio.Task[tuple[str | None, bool]] | None = None

    def greet(self, console: "Console") -> None:
        row = self.row
        if self.created:
            named = f" ({row.label})" if row.label else ""
            console.show(f"Created session: {row.id}{named}")
        else:
            label = f" ({row.label or row.title})" if row.label or row.title else ""
            console.show(f"Resumed session: {row.id}{label}  {row.message_count} messages")
            console.show(f"Restored: {row.turn_count} previous turns")
        if not row.message_count and speaks_offline(self.t, self.flags):
            console.show(self.words("offline"), "quiet")
            console.show(self.words("connect"), "quiet")

    async def run(self, console: "Console") -> None:
        self.other_turns = OtherTurns(self, console)
        # For Ctrl-C between two prompts; a prompt and a turn handle it themselves.
        try:
            with on_interrupt(lambda: self._interrupted(console)):
                await self._converse(console)
        finally:
            self.other_turns.close()
        if self.model is None:
            console.show(self.words("bye"), "quiet")

    async def _converse(self, console: "Console") -> None:
        if self.row.waiting:
            await self.show_questions(console)
        if self.row.received:
            await self._answer_waiting(console)
        while not self.over:
            try:
                line = self.later.pop(0) if self.later else await self._ask(console)
            except KeyboardInterrupt:
                self._interrupted(console)
                continue
            if line is None:
                break
            await self.take(line, console)

    async def _ask(self, console: "Console") -> str | None:
        self.other_turns.watch(self.row)
        draft, self.draft = self.draft, ""
        self._asking = asyncio.create_task(_asked(console, draft))
        try:
            line, interrupted = await self._asking
        except asyncio.CancelledError:
            if self.over:
                return None
            raise
        finally:
            self._asking = None
        if interrupted:
            raise KeyboardInterrupt
        self.interrupts = 0
        return line

    def _interrupted(self, console: "Console") -> None:
        self.interrupts += 1
        if self.interrupts > 1:
            self.over = True
            if self._asking:  # pressed just before a prompt, which must not wait for a line
                self._asking.cancel()
        else:
            console.show(self.words("again"), "quiet")

    async def take(self, line: str, console: "Console") -> None:
        """Shows errors and goes on: the line is stored, or it was refused with a reason."""
        try:
            if line.strip().lower() in QUIT_WORDS:
                self.over = True
            elif line.startswith("/"):
                await stoppable(slash.run(self, console, line))
            elif line.strip():
                self.draft = line  # until it is stored: it must not be lost to a full disk
                await self._turn(line, console)
        except TurnlogError as error:
            for note in notes_of_error(str(error), error.hint, self.words):
                console.show(note.text, note.tone)
        except KeyboardInterrupt:
            console.show(f"· {self.words('stopped')}", "quiet")

    async def _turn(self, text: str, console: "Console") -> None:
        await self._renew(console)
        ticket = self.other_turns.own(await self._accept(text, console))
        self.draft = ""
        await self._follow(ticket.follow(), console)
        while self.steered:
            ticket = self.steered.pop(0)
            taken = ticket.turn.done() and ticket.turn.result()[0].over
            if not taken:  # it came too late for the turn before, and has a turn of its own
                await self._follow(ticket.follow(), console)
        await self.refresh()

    async def show_questions(self, console: "Console") -> bool:
        """Shows the calls that wait for a word, such as those of an earlier start; whether there are any."""
        waiting = await open_requests(self)
        for request in waiting:
            for note in question(request, self.words):
                console.show(note.text, note.tone)
        return bool(waiting)

    async def go_on(self, console: "Console") -> None:
        """Follows the turn that goes on after an answer."""
        await self._follow_next(console, lambda row: row.paused)

    async def _follow_next(self, console: "Console", comes: Callable[[Session], object]) -> None:
        """Follows the next turn of this session; returns at once where the row says that none comes."""
        while (turn := self.t.running(self.row)) is None:
            self.row = await current(self.t, self.row)
            if not comes(self.row):
                return
            await asyncio.sleep(0.01)
        self.other_turns.own_turn(turn.seq)
        await self._follow(turn.follow(), console)
        await self.refresh()

    async def _renew(self, console: "Console") -> None:
        """An expired session is left when the next message comes, not before."""
        if not self.by_key:
            return
        before, self.row = self.row.id, await self.t.renewed(await current(self.t, self.row))
        if self.row.id != before:
            reset = self.t.settings.session.reset
            console.show(f"· {self.words('reset', reset=reset, old=before, id=self.row.id)}", "quiet")

    async def retry(self, console: "Console") -> None:
        """Sends the message of the last turn again, if that turn failed."""
        ticket = self.other_turns.own(await self.t.accept_retry(self.row))
        await self._follow(ticket.follow(), console)
        await self.refresh()

    async def _accept(self, text: str, console: "Console") -> "Ticket":
        """On a pipe nobody can be asked for approval while a turn runs."""
        stamp = self.other_turns.stamp()
        return await self.t.accept(self.row, text, message_id=stamp, asks=console.shows_others)

    async def _follow(self, events: AsyncIterator[Event], console: "Console") -> None:
        await console.follow(self._observed(events, console), steer=self._steer(console), stop=self.stop)

    def stop(self) -> bool:
        return self.t.stop(self.row.id)

    async def refresh(self) -> None:
        before = self.row
        found = await current(self.t, before)
        if self.row is before:  # the chat may have switched to another session meanwhile
            self.row = found
        with suppress(TurnlogError):  # the next turn shows the same error
            await self.gauge.measure(self.t, self.row)

    def _steer(self, console: "Console") -> "Steer":
        async def steer(line: str) -> None:
            word = line.strip().lower()
            if await self.questions.answer(line, console):
                return
            if word == "/stop":
                await self.t.stop_anywhere(self.row.id)  # also a turn of another terminal, or of a server
            elif word in ("/quit", "/exit", *QUIT_WORDS):
                self.over = True
                self.stop()
            elif line.startswith("/"):
                self.later.append(line)
                console.show(self.words("after_turn", name=line[1:].split()[0] if line[1:].strip() else ""), "quiet")
            elif line.strip():
                self.steered.append(self.other_turns.own(await self._accept(line, console)))

        return steer

    async def _observed(self, events: AsyncIterator[Event], console: "Console") -> AsyncIterator[Event]:
        """The events. Updates the status line, and says who runs a turn where a message has to wait."""
        self.questions.clear()
        async for event in events:
            self.questions.take(event)
            if isinstance(event, UsageReport):
                self.gauge.add(event)
            if isinstance(event, Queued):
                console.show(f"· {await waiting_note(self.t, self.row, self.words)}", "quiet")
            yield event

    async def _answer_waiting(self, console: "Console") -> None:
        """Messages that a crash left waiting are answered first."""
        console.show(f"· {self.words('answering')}", "quiet")
        await self.t.resume()
        await self._follow_next(console, lambda row: row.received)


async def _asked(console: "Console", draft: str) -> tuple[str | None, bool]:
    """(the line, whether Ctrl-C was pressed instead): a task that raises KeyboardInterrupt would end the event loop."""
    try:
        return await console.ask(draft), False
    except KeyboardInterrupt:
        return None, True


def speaks_offline(t: "Turnlog", flags: Flags) -> bool:
    """Whether the offline model answers because no other model was set up."""
    from ...providers.opening import choose

    own = t.settings.agents.get(flags.agent_name)
    return not t.settings.model.name and not (own and own.model) and choose(os.environ) == "offline"
