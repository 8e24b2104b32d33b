"""Turnlog as a library: `ask` and `send` run turns; with your own agent loop, use only the storage and the guard.

async with turnlog.open() as t:
    chat = t.session("ann")
    print(await chat.ask("My name is Ann."))
    async for event in chat.send("And what is my name?"): ...

history = await chat.history()            # what to show the model
reply = await chat.call(model)            # makes your own call fit, and stores its answer

`Turnlog` is the owner's access (`access`), plus everything that belongs to the process: settings, store and queue,
agents, the global memory, and the steps of a start and an end. Code that acts for somebody else gets
`t.acting_for(principal)`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from .access import Access, Parts, Where
from .access.conversations import OwnConversations
from .access.relaying import Relaying
from .core.principals import Principal
from .memory import Memory
from .sessions import Sessions, expiry
from .sessions.checking import checked_methods
from .sessions.erasing_text import ChannelLines, EraseReport, EraseRequest, WordEraser
from .sessions.expiry import Expired
from .stores import Ledger, facts
from .stores.spaces import LedgerSpaces
from .turns.agent import Agent
from .turns.stream import TurnStream

WRITABLE = "ready"
"""The ledger's space for the write that proves that the store can be written."""


class WriteProof(Struct, frozen=True):
    at: int


@checked_methods
class Turnlog(Access):
    def __init__(self, parts: Parts, sessions: Sessions) -> None:
        super().__init__(parts, sessions)
        self._parts = parts
        self.settings = parts.settings
        self.store = parts.store
        self.queue = parts.queue
        self._closing: Callable[[], Awaitable[object]] | None = None

    def acting_for(self, principal: Principal) -> Access:
        """The access of this principal."""
        return Access(self._parts, self.sessions.acting_for(principal))

    async def agent(self, name: str) -> Agent:
        """Opens an agent by its name."""
        return await self._parts.agents.get(name)

    def check_agent(self, name: str) -> None:
        """Raises UsageError if the settings have no such agent, or no such model for it."""
        self._parts.agents.check(name)

    async def memory(self) -> Memory:
        """The global memory; opened at first use."""
        return await self._parts.memory()

    def ledger(self, *spaces: str) -> Ledger:
        """The store's ledger, restricted to these spaces."""
        return LedgerSpaces(self.store.ledger, spaces)

    async def ping(self) -> None:
        """Writes a fact, as durable as an append; raises StoreUnavailable if that fails."""
        ledger = self.store.ledger
        old = await ledger.get(WRITABLE, WRITABLE)
        await ledger.cas(WRITABLE, WRITABLE, old, facts.write(WriteProof(self._parts.clock())))

    def stop(self, session_id: str) -> bool:
        """Stops the turn that runs in this process and keeps its text so far; returns whether there was one."""
        return self._parts.relays.stop(session_id) or self.queue.stop(session_id)

    def on_turn(self, tell: Callable[[TurnStream], object]) -> None:
        """`tell` is called with every turn that starts in this process."""
        self.queue.on_turn(tell)
        self._parts.relays.on_turn(tell)

    async def resume(self, *, rerun: bool = False) -> int:
        """After a start: answers waiting messages, and marks turns that a crash cut short.

        `rerun`: runs those turns once more instead, also those that other processes leave behind from now on.
        """
        return await self.queue.resume(rerun=rerun)

    async def adopt(self) -> None:
        """Takes over the turns of dead processes, unless another process is faster. For servers that share a store."""
        await self.queue.adopt()

    async def expire(self, *, apply: bool = False) -> list[Expired]:
        """Sessions to archive or delete by `session.ttl` and `session.trash_days`; with `apply` it is done."""
        session = self.settings.session
        return await expiry.expire(
            self.sessions,
            self.store,
            ttl_days=session.ttl,
            trash_days=session.trash_days,
            clock=self._parts.clock,
            apply=apply,
        )

    async def erase(
        self,
        where: Where | None = None,
        *,
        seqs: Sequence[int] = (),
        text: str | None = None,
        redact: bool = False,
        derived: bool = False,
        apply: bool = False,
        by: Principal | None = None,
        convlog: ChannelLines | None = None,
    ) -> EraseReport:
        """Finds the entries of a session by number or by words; with `apply` their words are erased for good.

        `redact`: also what still counts. `derived`: also summaries, titles, forks and lines of the convlog that were
        made of them; they are always listed, and those of the convlog if it is given. Without `where`: in all sessions,
        by `text` only. `by`: the principal who asks.
        """
        row = (await self.session(where)).row if where is not None else None
        sessions = self.sessions if by is None else self.sessions.acting_for(by)
        eraser = WordEraser(self.store, sessions, convlog, self._parts.runner.forget)
        return await eraser.erase(
            EraseRequest(row=row, seqs=seqs, text=text, redact=redact, derived=derived, apply=apply)
        )

    async def drain(self, within_s: float) -> bool:
        """Waits until no turn runs and no message waits in this process; False if that takes longer."""
        try:
            async with asyncio.timeout(within_s):
                await asyncio.gather(self.queue.idle(), self._parts.relays.idle())
        except TimeoutError:
            return False
        return True

    async def aclose(self) -> None:
        """Ends the running turns and closes everything. A second call does nothing."""
        closing, self._closing = self._closing, None
        await (closing() if closing is not None else self.end_turns())

    async def close(self) -> None:
        """The same as `aclose`."""
        await self.aclose()

    async def end_turns(self) -> None:
        """Ends the running turns; `aclose` calls it first."""
        await self._parts.relays.close()
        await self.queue.close()
        await asyncio.gather(*self._parts.deleting, return_exceptions=True)


def conversations_of(t: Turnlog, principal: Principal) -> OwnConversations:
    """Sessions that a client keeps by id, for the edge that speaks its protocol."""
    return OwnConversations(t._parts, principal, t.sessions.acting_for(principal))


def relaying_of(t: Turnlog, principal: Principal) -> Relaying:
    """What a client that runs its own loop may do, for the edge that speaks its protocol."""
    return Relaying(t._parts, principal)


def close_by(t: Turnlog, close: Callable[[], Awaitable[object]]) -> Turnlog:
    """Says what `aclose` has to call; for the function that opened this object."""
    t._closing = close
    return t
