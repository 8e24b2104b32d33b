"""Erases words from sessions, and from what was made of them: summaries, titles, forks and the convlog.

First everything that holds the words is found and listed, never with the words themselves; then, if it is asked for, it
is erased, session by session. What was made of the entries is erased only if that is asked for too. A place that cannot
be erased (a label, a waiting reply) is listed as kept.
"""

from collections.abc import Callable, Sequence
from typing import Protocol
from urllib.parse import unquote

from msgspec import Struct, to_builtins

from ..core import keys
from ..core.erasing import plan
from ..core.keys import SessionKey
from ..core.outline import for_erasing
from ..core.query import Query
from ..core.rows import Session
from ..errors import UsageError
from ..stores import Store
from ..stores.facts import every_fact
from ..stores.finding import every_row
from . import Sessions
from .erasing import FoundWords, SessionFinds, check_asked, entries_of, look, look_in_fork, related
from .holding import holds

SPACES = ("outbox", "pending", "sent", "unsent", "idempotency", "delivered", "attempts")
"""Spaces of the ledger in which texts may wait or be remembered for a while."""


class ChannelLines(Protocol):
    """The convlog, which only edges know: they pass it on."""

    async def holding(self, texts: Sequence[str], key: SessionKey | None = None) -> list[tuple[str, str, int]]: ...
    async def erase(self, agent: str, channel_id: str, texts: Sequence[str]) -> int: ...


class EraseReport(Struct, frozen=True, rename="camel"):
    """What holds the words. `applied`: it is erased now; without `derived`, only `entries` are."""

    entries: list[FoundWords]
    derived: list[FoundWords]
    kept: list[FoundWords]
    """Places that also hold them and cannot be erased."""
    applied: bool


class EraseRequest(Struct, frozen=True, kw_only=True):
    row: Session | None
    """None: everywhere."""
    seqs: Sequence[int] = ()
    text: str | None = None
    redact: bool = False
    derived: bool = False
    apply: bool = False


class WordEraser:
    """`forget`: drops what a process remembers of a session."""

    def __init__(
        self, store: Store, sessions: Sessions, convlog: ChannelLines | None, forget: Callable[[str], object]
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._convlog = convlog
        self._forget = forget

    async def erase(self, asked: EraseRequest) -> EraseReport:
        check_asked(self._sessions.principal, asked.seqs, asked.text, everywhere=asked.row is None)
        rows = [asked.row] if asked.row else [row async for row in every_row(self._sessions.list, Query())]
        finds = [await look(self._sessions, row, asked.seqs, asked.text) for row in rows]
        finds = [one for one in finds if one.entries or one.derived or asked.row]
        forks = await self._forks(asked, finds[0]) if asked.row and finds else []
        lines = await self._lines(asked, finds)
        derived = [one for found in finds for one in found.derived] + forks + lines
        entries = [one for found in finds for one in found.entries]
        if asked.apply:
            await self._apply(asked, entries, derived)
            if asked.derived and self._convlog is not None:
                for line in lines:
                    await self._convlog.erase(line.where, line.type, _wanted(asked, finds))
        kept = await self._kept(asked, rows)
        return EraseReport(entries, derived, kept, applied=asked.apply)

    async def _forks(self, asked: EraseRequest, source: SessionFinds) -> list[FoundWords]:
        entries = await entries_of(self._sessions, source.row, {one.seq for one in (*source.entries, *source.derived)})
        found: list[FoundWords] = []
        for row in await related(self._sessions, source.row):
            found += await look_in_fork(self._sessions, row, entries, asked.text)
        return found

    async def _lines(self, asked: EraseRequest, finds: Sequence[SessionFinds]) -> list[FoundWords]:
        """Conversations of the convlog with such lines: `where` is the agent, `type` the conversation."""
        if self._convlog is None:
            return []
        place = keys.parse(asked.row.key) if asked.row else None
        found = await self._convlog.holding(_wanted(asked, finds), place)
        theirs = self._sessions.principal.agents
        return [
            FoundWords("convlog", where=agent, type=name, count=n)
            for agent, name, n in found
            if theirs is None or agent in theirs
        ]

    async def _apply(self, asked: EraseRequest, entries: Sequence[FoundWords], derived: Sequence[FoundWords]) -> None:
        chosen: dict[str, list[int]] = {}
        for one in [*entries, *(derived if asked.derived else ())]:
            if one.session_id:
                chosen.setdefault(one.session_id, []).append(one.seq)
        if asked.derived and derived and not asked.redact:
            raise UsageError(
                "data derived from the entries still counts", hint="Ask for redaction (redact, --redact) too."
            )
        for session_id, seqs in chosen.items():  # before anything is changed
            log = [for_erasing(entry) async for page in self._sessions.pages(session_id) for entry in page]
            plan(log, seqs, redact=asked.redact)
        for session_id, seqs in chosen.items():
            await self._store.erase(session_id, seqs, redact=asked.redact, by=self._sessions.principal.name)
            self._forget(session_id)

    async def _kept(self, asked: EraseRequest, rows: Sequence[Session]) -> list[FoundWords]:
        if asked.text is None:
            return []
        text = asked.text
        found = [
            FoundWords("label", row.id, 1, "session")
            for row in rows
            if holds([row.label, row.key, unquote(row.key)], text)
        ]
        for space in SPACES if self._sessions.principal.agents is None else ():
            facts = every_fact(self._store.ledger, space)
            count = sum([holds(to_builtins(fact.value), text) async for fact in facts])
            found += [FoundWords("ledger", where=space, count=count)] if count else []
        return found


def _wanted(asked: EraseRequest, finds: Sequence[SessionFinds]) -> list[str]:
    """The texts whose copies are looked for."""
    if asked.text is not None:
        return [asked.text]
    return list(dict.fromkeys(text for found in finds for text in found.texts))
