"""The events of one turn, for any number of listeners: each follows from any event on, and gets each once, in order."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from ..core import answers
from ..core.entries import Approval, Assistant, Entry, Failed, text_of
from ..core.events import TERMINAL, Done, ErrorEvent, Event, Snapshot, Stopped, TextDelta, ThinkingDelta
from ..core.turns import Outcome, end_of
from ..providers import Delta
from ..stores import Lease

FIRST = 1
AGAIN = 1_000_000
"""Added for each time that another process goes on with a turn: its events are not those of the first one."""


def first_of(turn: Sequence[Entry], *, is_again: bool) -> int:
    """The number of the first event of a turn that has these entries already."""
    pauses = sum(isinstance(entry, Approval) and entry.state == "resumed" for entry in turn)
    return FIRST + AGAIN * (1 + pauses) if is_again else FIRST


class TurnStream:
    def __init__(
        self, session_id: str, seq: int = 0, *, incarnation: str | None = None, lease: Lease | None = None
    ) -> None:
        self.session_id = session_id
        self.incarnation = incarnation
        self._lease = lease
        self.seq = seq
        """The seq of the user entry that began it."""
        self.first = FIRST
        """The number of its first event, where events are numbered."""
        self.fenced = False
        """Whether another process has taken over the turn: then the end reported here is not its end."""
        self.events: list[Event] = []
        self.over = False
        """Whether it has told its terminal event, which is the last one."""
        self.ended = asyncio.Event()
        self._at_end: list[Callable[[TurnStream], object]] = []
        self._listening: list[asyncio.Future[None]] = []
        self._pausing: list[asyncio.Future[None]] = []

    def hold(self, lease: Lease | None) -> None:
        """The turn goes on under this lease; None: it is paused, and nobody runs it."""
        self._lease = lease

    def leave(self) -> None:
        """Ends the listening here: the turn is paused, and goes on in another process or after the next start."""
        self.add(Stopped())
        self.fenced = True

    def add(self, event: Event) -> None:
        if self.over:  # events after the end have no listeners
            return
        # What is told as done was stored under this lease, whatever became of the lease since.
        self.fenced = self._lease is not None and not self._lease.live and not isinstance(event, Done)
        self.events.append(event)
        self.over = isinstance(event, TERMINAL)
        if self._listening:
            listening, self._listening = self._listening, []
            for news in listening:
                _finish(news)
        if self.over:
            self.ended.set()
            for call in self._at_end:
                asyncio.get_running_loop().call_soon(call, self)
            for pause in self._pausing:
                _finish(pause)

    def on_end(self, call: "Callable[[TurnStream], object]") -> None:
        """Calls it with this turn soon after its terminal event, which it has not told yet."""
        self._at_end.append(call)

    async def follow(self, after: int = 0) -> AsyncIterator[Event]:
        """Every event from that number on, once and in order, up to the terminal one."""
        while await self.reach(after):
            while after < len(self.events):
                yield self.events[after]
                after += 1

    async def pause(self, seconds: float) -> None:
        """Waits for so long, or until the turn has ended."""
        if self.over:
            return
        loop = asyncio.get_running_loop()
        over = loop.create_future()
        timer = loop.call_later(seconds, _finish, over)
        self._pausing.append(over)
        try:
            await over
        finally:
            timer.cancel()
            self._pausing.remove(over)

    async def reach(self, after: int) -> bool:
        """Waits until there are more events than that; False if there never will be."""
        while after >= len(self.events):
            if self.over:
                return False
            news = asyncio.get_running_loop().create_future()
            self._listening.append(news)
            try:
                await news
            except asyncio.CancelledError:
                if news in self._listening:
                    self._listening.remove(news)
                raise
        return True


def events_of(piece: Delta) -> list[Event]:
    """What listeners are told of a piece of an answer: its thinking and its text."""
    told: list[Event] = [ThinkingDelta(text=piece.thinking)] if piece.thinking else []
    return [*told, TextDelta(text=piece.text)] if piece.text else told


def _finish(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():  # a listener may have left
        waiting.set_result(None)


def replay(done: Done, seq: int, later: Sequence[Entry]) -> TurnStream:
    """The turn that took message `seq` in another process, from what it stored. `done`: its end, if it succeeded."""
    taken = answers.taker_of(later, seq)
    stream = TurnStream(done.session_id, taken.seq if taken else seq)
    rest = [entry for entry in later if taken is not None and entry.seq > taken.seq]
    outcome = end_of(rest)
    for entry in rest:
        if outcome is not None and entry.seq > outcome.end_seq:
            break
        if isinstance(entry, Assistant) and entry.stop != "error" and text_of(entry.content):
            stream.add(Snapshot(text=text_of(entry.content)))
    stream.add(last_event(rest, done, "the message was withdrawn"))
    return stream


def last_event(rest: Sequence[Entry], done: Done, unfinished: str) -> Event:
    """The terminal event of a turn, from what follows its user entry. `unfinished`: the error, if it has no end."""
    match end_of(rest):
        case Outcome(end="done"):
            return done
        case Outcome(end="stopped"):
            return Stopped()
        case Outcome() as outcome:
            reason = next((e.reason for e in rest if isinstance(e, Failed) and e.seq == outcome.end_seq), "")
            return ErrorEvent(error=reason, code=outcome.code)
        case _:
            return ErrorEvent(error=unfinished, code="interrupted")
