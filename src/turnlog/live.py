"""A turn as it happens: its events, for any number of listeners, each from any point on, once and in order."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from .core.answers import Outcome, end_of
from .core.entries import Assistant, Entry, Failed, User, text_of
from .core.events import TERMINAL, Done, ErrorEvent, Event, Snapshot, Stopped

FIRST = 1
FIRST_AGAIN = 1_000_001
"""A turn that is begun again after a crash counts from here: who heard the first attempt is not its listener."""


class Live:
    """A turn as it happens, for any number of listeners, from any point on."""

    def __init__(self, session_id: str, seq: int = 0) -> None:
        self.session_id = session_id
        self.seq = seq
        """Of the user entry that began it."""
        self.first = FIRST
        """The number of its first event, where events are numbered."""
        self.fenced = False
        """Whether another process has taken the turn over: its end here is not its end."""
        self.events: list[Event] = []
        self.ended = asyncio.Event()
        self._news = asyncio.Event()

    @property
    def over(self) -> bool:
        return bool(self.events) and isinstance(self.events[-1], TERMINAL)

    def add(self, event: Event) -> None:
        if not self.over:  # what comes after the end is told to nobody
            self.events.append(event)
            self._news.set()
            self._news = asyncio.Event()
            if self.over:
                self.ended.set()

    async def follow(self, after: int = 0) -> AsyncIterator[Event]:
        """Every event from that number on, once and in order, up to the terminal one."""
        while await self.reach(after):
            while after < len(self.events):
                yield self.events[after]
                after += 1

    async def reach(self, after: int) -> bool:
        """Waits until there are more events than that; False if there never will be."""
        while after >= len(self.events):
            if self.over:
                return False
            await self._news.wait()
        return True


def replay(done: Done, seq: int, later: Sequence[Entry]) -> Live:
    """A turn that ran elsewhere, from what it stored: the one that took message `seq`. `done`: how it ends if well."""
    taken = next((e for e in later if isinstance(e, User) and seq in e.from_), None)
    live = Live(done.session_id, taken.seq if taken else seq)
    rest = [entry for entry in later if taken is not None and entry.seq > taken.seq]
    outcome = end_of(rest)
    for entry in rest:
        if outcome is not None and entry.seq > outcome.end_seq:
            break
        if isinstance(entry, Assistant) and entry.stop != "error" and text_of(entry.content):
            live.add(Snapshot(text=text_of(entry.content)))
    match outcome:
        case Outcome(end="done"):
            live.add(done)
        case Outcome(end="stopped"):
            live.add(Stopped())
        case Outcome():
            reason = next((e.reason for e in rest if isinstance(e, Failed) and e.seq == outcome.end_seq), "")
            live.add(ErrorEvent(error=reason, code=outcome.code))
        case _:
            live.add(ErrorEvent(error="the message was withdrawn", code="interrupted"))
    return live
