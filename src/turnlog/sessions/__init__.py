"""Everything that is not a turn: opening, switching, listing, forking, rewinding, pinning, undoing, deleting.

Every read and write of a session goes through this module, which checks the principal. A session that a principal may
not see is NotFound, not Denied, so that ids cannot be guessed.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from copy import copy
from typing import TypeAlias

from msgspec.structs import replace

from ..core import compaction, fidelity, history, keys, names, principals, query as queries, search, turns, wellformed
from ..core.compaction import Coverage
from ..core.entries import Entry, Opened, Pin, Rewind, Status, Title, Undo, Unpin
from ..core.fidelity import Fidelity
from ..core.history import History
from ..core.keys import SessionKey
from ..core.oversized import OversizedTail
from ..core.principals import OWNER, Principal
from ..core.query import PAGE_MAX, Hit, Page, Query
from ..core.session import Session, StatusValue, active, check_entry, cut_title
from ..errors import Corrupt, Denied, NotFound, UsageError
from ..stores import Clock, Lease, Store
from ..stores.stamping import now_ms
from . import forking, own_answers, pins, reading, selection
from .checking import checked_methods
from .opening import Opener, resolve
from .reading import Loaded as Loaded
from .selection import RowHere

EDIT_WAIT_S = 5.0
"""How long a change of a session's history waits for a running turn before it raises Busy."""

# Sessions has a method `list`, which hides the builtin in its annotations.
EntryList: TypeAlias = list[Entry]
DamageList: TypeAlias = list[Corrupt]
Hits: TypeAlias = list[Hit]
Fidelities: TypeAlias = list[Fidelity]
Explanation: TypeAlias = list[Coverage]
PinBudget: TypeAlias = Callable[[Session], Awaitable[int]]
"""session → the tokens that pins may fill in the window of its model."""


@checked_methods
class Sessions:
    def __init__(
        self,
        store: Store,
        *,
        principal: Principal = OWNER,
        inject: str = "user",
        pin_tokens: PinBudget | int | None = None,
        clock: Clock | None = None,
        random: Callable[[int], bytes] = os.urandom,
        on_gone: Callable[[str], object] | None = None,
        on_deleted: Callable[[str], object] | None = None,
        row_here: RowHere | None = None,
    ) -> None:
        """`on_gone` is called with the id of a session that is about to be deleted or archived: its turn must end.
        `on_deleted` is called with the id of a session that was deleted. `row_here` gives the row of a session as this
        process saw it last, which saves a look at the store.
        """
        self._store = store
        self._principal = principal
        self._inject = inject
        self._pin_tokens = pin_tokens
        self._clock = clock or now_ms
        self._random = random
        self._on_gone = on_gone
        self._on_deleted = on_deleted
        self._opener = Opener(store, self._new_id, row_here or (lambda session_id: None))

    @property
    def principal(self) -> Principal:
        return self._principal

    def acting_for(self, principal: Principal) -> "Sessions":
        """The same sessions with the rights of this principal. Only the owner's object can be restricted."""
        if self._principal != OWNER:
            raise Denied("only the owner may act for others")
        other = copy(self)
        other._principal = principal
        return other

    async def open(self, key: SessionKey | str, *, label: str | None = None) -> Session:
        """The selected session of this key; created if there is none. Racing openers get the same one."""
        place = self.own_key(key)
        row = await self._opener.selected(place, label)
        return row if row.status == "active" else await self.new(place, label=label)

    def _new_id(self) -> str:
        return keys.session_id(self._clock(), self._random(6))

    async def new(
        self, key: SessionKey | str, *, label: str | None = None, session_id: str | None = None, select: bool = True
    ) -> Session:
        """Creates another session at this key and selects it."""
        place = self.own_key(key)
        if session_id is not None:
            row = await self._opener.create(place, keys.check_session_id(session_id), label, alone=True)
        elif label is None and select:
            # Another opener may create it first; it is the same session, because it has no label.
            return await self._opener.select(place, self._new_id())
        else:
            row = await self._opener.create_somewhere(place, label)
        return await self._opener.select(place, row.id, row) if select else row

    async def select(self, session_id: str) -> Session:
        """Selects this session: messages to its key go to it from now on."""
        row = await self.writable(session_id)
        return await self._opener.select(keys.parse(row.key), row.id, row)

    async def resolve(self, text: str, *, key: SessionKey | str | None = None, agent: str | None = None) -> Session:
        """A session by id, key or label, or a unique beginning of one. `key` and `agent` narrow the search."""
        within = Query(key=keys.format(self.own_key(key)) if key else None, agent=agent, limit=PAGE_MAX)
        return await resolve(self._store, self._principal, text, within)

    async def list(self, query: Query | None = None) -> Page[Session]:
        """Newest first. A principal sees only their own sessions, and `total` counts only those.

        If no session contains the only word of `q`, it is taken for the beginning of an id.
        """
        asked = principals.narrow(self._principal, query or Query())
        page = await self._store.find(asked)
        begins = queries.as_beginning(asked) if not page.total else None
        return page if begins is None else await self._store.find(begins)

    async def get(self, session_id: str, *, incarnation: str | None = None) -> Session:
        return await self._visible(session_id, incarnation)

    async def load(
        self, session: Session | str, *, incarnation: str | None = None, may_be_partial: bool = False
    ) -> Loaded:
        """Reads what a turn needs: the tail, waiting messages, and earlier entries that the tail refers to.

        `session`: its id, or its row, which saves a lookup. `may_be_partial`: if the tail is larger than any prompt,
        only its newest part is read.
        """
        row = await self._visible(session, incarnation)
        return await reading.load(self._store, row, may_be_partial=may_be_partial)

    async def transcript(self, session_id: str, *, after: int = 0, incarnation: str | None = None) -> Loaded:
        """All entries; damaged places are left out and reported."""
        row = await self._visible(session_id, incarnation)
        entries, damage = await reading.around_damage(self._store, row, after)
        return Loaded(row, entries, damage)

    async def pages(
        self,
        session: Session | str,
        *,
        after: int = 0,
        before: int | None = None,
        named: bool = False,
        damage: DamageList | None = None,
    ) -> AsyncGenerator[EntryList]:
        """All entries, page by page, so that a log of any size can be read. Damaged places are left out, and added to
        `damage`. `named`: each page also has the earlier entries that it names.
        """
        row = await self._visible(session)
        async for page in reading.pages_around_damage(self._store, row, after, damage, before):
            yield await reading.with_named(self._store, row, page) if named else page

    async def outline(self, session: Session | str) -> EntryList:
        """All entries without their words (`core/outline`): little, however large the log is."""
        return await reading.outline(self._store, await self._visible(session))

    async def read(
        self,
        session: Session | str,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        incarnation: str | None = None,
    ) -> EntryList:
        """`session`: its id, or its row, which saves a lookup."""
        row = await self._visible(session, incarnation)
        return await reading.read(self._store, row, after=after, before=before, limit=limit)

    async def _append(self, row: Session, body: Entry, *, lease: Lease | None = None) -> Session:
        """The row after the append."""
        return (await self._store.append(row.id, [body], lease=lease, incarnation=row.incarnation)).row

    async def _now(self, row: Session) -> Session:
        return await self._store.describe(row.id, incarnation=row.incarnation)

    async def history(
        self,
        session_id: str,
        *,
        system: str = "",
        inject: str | None = None,
        note: bool = False,
        at: int | None = None,
        with_reply: bool = False,
        incarnation: str | None = None,
    ) -> History:
        """What the model would see now, or saw when the log ended at `at`.

        `note`: whether a line after the summary names the history tools, as in calls that have both of them.
        `with_reply`: user rows are written with their reply, so that a call is made while they are only `received`.
        """
        row = await self._visible(session_id, incarnation)
        if at is None:
            entries = (await self.load(row)).entries
        else:
            check_entry(row, at)
            entries = await reading.as_of(self._store, row, at, with_reply=with_reply)
        return history.build(entries, system=system, inject=inject or self._inject, note=note)

    async def oversized_tail(self, session: Session | str, at: int | None = None) -> OversizedTail | None:
        """What is known of the tail, if it is larger than any prompt, now or when the log ended at `at`."""
        row = await self._visible(session)
        return await reading.oversized_tail(self._store, row, row.last_seq if at is None else at)

    async def explain(self, session_id: str) -> Explanation:
        """How each entry is shown to the model."""
        return compaction.explain(await self.outline(session_id))

    async def expand(self, session_id: str, seq: int | None = None) -> EntryList:
        """The messages that a compaction replaces: the newest active one, or the one at `seq`.

        User entries hold their content here, even if it is stored in `received` entries.
        """
        return [entry async for page in self.expand_pages(session_id, seq) for entry in page]

    async def expand_pages(self, session_id: str, seq: int | None = None) -> AsyncGenerator[EntryList]:
        """The same, a part at a time, so that a compaction of any size can be gone through."""
        row = await self._visible(session_id)
        async for page in forking.covered(self._store, row, seq):
            yield page

    async def fidelity(self, session_id: str, seq: int | None = None) -> Fidelities:
        """What became of the identifiers of each compaction, oldest first; only of the one at `seq`, if it is given."""
        entries = [entry async for page in self.pages(session_id) for entry in page]
        return await asyncio.to_thread(fidelity.report, entries, seq)  # it reads all words, which takes long

    async def search(self, words: str, *, scope: Query | None = None, before: int | None = None) -> Hits:
        """The best hits first. `in:SESSION` in the words names sessions, unless the scope names one already: then it is
        a word like others. `before`: only entries with a smaller seq.
        """
        scope = principals.narrow(self._principal, scope or Query())
        if scope.id is None and not scope.ids:
            words, named = search.take_sessions(words)
            if named:
                scope = replace(scope, ids=tuple([(await self.resolve(name)).id for name in named]))
        return await self._store.search(words, scope=scope, before=before)

    async def rename(self, session_id: str, title: str) -> Session:
        """Sets a title; an automatic title never replaces it."""
        if not names.is_seen(cut_title(title)):
            raise UsageError("a title cannot be empty", hint="Use at least one visible character.")
        row = await self.writable(session_id)
        return await self._append(row, Title(title=cut_title(title), by="user"))

    async def set_status(
        self, session_id: str, value: StatusValue, reason: str = "", *, incarnation: str | None = None
    ) -> Session:
        """Archives, trashes or restores (as inactive). The key then has no selected session until it is opened."""
        row = await self.writable(session_id, incarnation)
        wellformed.accepted(body := Status(value=value, reason=reason))  # before the key is deselected
        if value != "active" and self._on_gone:
            self._on_gone(session_id)
        await self._deselect(row)
        return await self._append(row, body)

    async def renew(self, row: Session, reason: str) -> Session:
        """Archives this session; its key gets a new one, and never an earlier one."""
        await self._deselect(self.admit(row, write=True), forget=True)
        await self.set_status(row.id, "archived", reason, incarnation=row.incarnation)
        return await self.open(row.key)

    async def delete(self, session_id: str, *, incarnation: str | None = None) -> None:
        """Deletes at once and for good. A turn that runs in it can no longer write, even if its id is used again."""
        row = await self.writable(session_id, incarnation)
        if self._on_gone:
            self._on_gone(session_id)
        await self._deselect(row)
        await self._store.delete(session_id, incarnation=row.incarnation)
        if self._on_deleted:
            self._on_deleted(session_id)

    async def _deselect(self, row: Session, *, forget: bool = False) -> None:
        # Before the session is deleted: a crash in between leaves a session that can still be opened and deleted again.
        old = await selection.chosen(self._store.ledger, row.key)
        if old and old.id == row.id:
            rest = await selection.without(self._store, row.key, old, forget=forget)
            await selection.change(self._store.ledger, row.key, old, rest)

    async def fork(self, session_id: str, *, at: int | None = None, label: str | None = None) -> Session:
        """Creates a session at the same key with a copy of the past up to `at`. The source is not changed."""
        source = await self._visible(session_id)
        at = source.last_seq if at is None else at
        check_entry(source, at)
        key = self.own_key(source.key)
        new_id = self._new_id()
        label = names.check_label(label)
        opened = Opened(id=new_id, key=source.key, agent=key.agent, channel=key.channel, label=label)
        return await forking.write(self._store, source, at, opened)

    async def past(self, row: Session, at: int) -> EntryList:
        """Entries up to this one. Damaged places become entries without effect, so that later ones keep their seqs."""
        self.admit(row)
        return await reading.past(self._store, row, at)

    async def rewind(self, session_id: str, to: int) -> Session:
        """Continues the history from entry `to`, which must end a turn. Rewind forward to come back."""
        row = await self.writable(session_id)
        async with self._editing(session_id) as lease:
            row = await self._now(row)
            await self.check_rewind(row, to)
            return await self._append(row, Rewind(to=to), lease=lease)

    async def check_rewind(self, row: Session, to: int) -> None:
        """UsageError unless a turn ended at entry `to`."""
        self.admit(row, write=True)
        if not await reading.ends_a_turn(self._store, row, to):
            loaded = await self.transcript(row.id)  # the row may be older than the log
            check_entry(loaded.session, to)
            turns.check_end(loaded.entries, to)

    async def discard(self, session_id: str) -> Session:
        """Hides the last turn, which must have failed. Nothing is removed: rewind forward to come back."""
        row = await self.writable(session_id)
        async with self._editing(session_id) as lease:
            failed = turns.unanswered((await self.load(session_id)).entries)
            if failed is None:
                raise UsageError("the last turn did not fail", hint="Use rewind to go back before an answered turn.")
            return await self._append(row, Rewind(to=failed.start - 1), lease=lease)

    async def pin(self, session_id: str, target: int) -> Session:
        """Keeps this message in the prompt word for word, even after a compaction, within the pin budget."""
        row = await self.writable(session_id)
        await pins.check_message(self._store, row, target)
        pins.check_shown(await self.outline(row), target)
        budget = self._pin_tokens if isinstance(self._pin_tokens, int | None) else await self._pin_tokens(row)
        if budget is not None:
            await pins.check_budget(self._store, row, target, budget)
        return await self._append(row, Pin(target=target))

    async def unpin(self, session_id: str, target: int) -> Session:
        """Ends a pin."""
        row = await self.writable(session_id)
        if all(held != target for _, held in row.pins):
            raise UsageError(f"entry {target} is not pinned", hint="Name a pinned message.")
        return await self._append(row, Unpin(target=target))

    async def undo(self, session_id: str, target: int | None = None) -> Session:
        """Undoes the newest active compaction (or the shortening at `target`); later turns stay."""
        row = await self.writable(session_id)
        async with self._editing(session_id) as lease:
            row = await self._now(row)
            stack = active(row.marks, row.last_seq)
            if target is None and not stack:
                raise UsageError("no compaction is active in this session", hint="There is nothing to undo.")
            target = target if target is not None else stack[-1].seq
            if forking.is_of_source(row, target):
                bodies = await forking.undone(self._store, row)
                return (await self._store.append(row.id, bodies, lease=lease, incarnation=row.incarnation)).row
            return await self._append(row, Undo(target=target), lease=lease)

    async def reindex(self, progress: Callable[[int, int], None] | None = None) -> int:
        if "admin" not in self._principal.scopes:
            raise Denied("only an administrator may rebuild the index")
        found = await self._store.reindex(progress)
        await own_answers.rebuild(self._store)
        return found

    def _editing(self, session_id: str) -> AbstractAsyncContextManager[Lease]:
        return self._store.lease(session_id, wait_s=EDIT_WAIT_S)

    def admit(self, row: Session, *, write: bool = False) -> Session:
        """The row, if this principal may see its session, or with `write` change it. All checks are here."""
        if not principals.sees(self._principal, row):
            raise NotFound(f"there is no session {row.id}")
        if write and not principals.owns(self._principal, row):
            raise Denied("you may not change this session")
        return row

    async def _visible(self, session: Session | str, incarnation: str | None = None) -> Session:
        if isinstance(session, Session):
            return self.admit(session)
        return self.admit(await self._store.describe(session, incarnation=incarnation))

    async def writable(self, session_id: str, incarnation: str | None = None) -> Session:
        """The row, if this principal may change its session."""
        return self.admit(await self._store.describe(session_id, incarnation=incarnation), write=True)

    def own_key(self, key: SessionKey | str) -> SessionKey:
        """The key itself, if this principal may use it."""
        place = keys.parse(key) if isinstance(key, str) else key
        keys.check_agent(place.agent)
        principals.check_key(self._principal, place)
        return place
