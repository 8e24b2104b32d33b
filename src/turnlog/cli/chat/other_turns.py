"""Turns of others in the session of a chat: of another terminal, a server, a channel. They are shown as they happen.

The chat watches the log for as long as it is open. It leaves out its own messages, which it knows by their ids, and the
turns that it shows already, which it knows by the seq of their first entry.
"""

import asyncio
import secrets
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

from ...core.entries import Assistant, Entry, Failed, Received, User, text_of, tool_uses
from ...core.session import Session
from ...errors import TurnlogError
from ..escaping import inline

if TYPE_CHECKING:
    from ...turns.queue import Ticket
    from .console import Console
    from .loop import Chat

AGAIN_S = 2.0
"""The pause after the store could not be watched."""
SENDER_MAX_CELLS = 40


class OtherTurns:
    def __init__(self, chat: "Chat", console: "Console") -> None:
        self._chat = chat
        self._console = console
        self._prefix = f"terminal-{secrets.token_hex(6)}"
        self._numbers = count(1)
        self._own_turns: set[int] = set()
        self._is_own = False
        """Whether the chat itself shows the newest turn of the log."""
        self._task: asyncio.Task[None] | None = None
        self._followed = ""

    def stamp(self) -> str:
        """An id for the next message of this chat."""
        return f"{self._prefix}-{next(self._numbers)}"

    def own(self, ticket: "Ticket") -> "Ticket":
        """The chat itself shows the turn of this message."""
        ticket.turn.add_done_callback(
            lambda turn: None if turn.cancelled() or turn.exception() else self._own_turns.add(turn.result()[0].seq)
        )
        return ticket

    def own_turn(self, seq: int) -> None:
        self._own_turns.add(seq)

    def watch(self, row: Session) -> None:
        """Watches this session from now on, instead of the one before."""
        if self._console.shows_others and row.id != self._followed:
            self.close()
            self._followed = row.id
            self._task = asyncio.create_task(self._follow(row), name="turns of others")

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._task, self._followed = None, ""

    async def _follow(self, row: Session) -> None:
        after, self._is_own = row.last_seq, False
        while True:
            with suppress(TurnlogError):
                async for entry in self._chat.t.watch(row, after=after):
                    after = entry.seq
                    await self._take(row, entry)
                return  # the session was deleted
            await asyncio.sleep(AGAIN_S)

    async def _take(self, row: Session, entry: Entry) -> None:
        match entry:
            case User():
                await self._take_message(row, entry)
            case Assistant() if not self._is_own and text_of(entry.content).strip():
                await self._console.show_other_answer(text_of(entry.content))
            case Failed() if not self._is_own:
                await self._console.show_other(f"· {inline(entry.reason)}")
            case _:
                return
        is_over = isinstance(entry, Failed) or (isinstance(entry, Assistant) and not tool_uses(entry))
        if is_over and not self._is_own:
            await self._chat.refresh()

    async def _take_message(self, row: Session, entry: User) -> None:
        messages = [await self._received(row, seq) for seq in entry.from_] or [entry]
        theirs = [one for one in messages if one and not (one.message_id or "").startswith(self._prefix)]
        running = self._chat.t.running(row)
        shown = {entry.seq, *entry.from_} & {*self._own_turns, *([running.seq] if running else [])}
        self._is_own = bool(shown) or len(theirs) < len(messages)
        if shown and not entry.from_:
            return  # this chat runs the turn again
        for message in theirs:
            who = inline(message.sender, SENDER_MAX_CELLS) if message.sender else self._chat.words("elsewhere")
            await self._console.show_other(f"{who} > {text_of(message.content or '')}")

    async def _received(self, row: Session, seq: int) -> Received | None:
        found = await self._chat.t.sessions.read(row, after=seq - 1, limit=1)
        return found[0] if found and isinstance(found[0], Received) else None
