"""Everything that is not a turn: opening, switching, listing, forking, rewinding, pinning, undoing, deleting.

This is also the gate: every read and write of a session goes through it, and it checks the principal. What one may
not see does not exist for one (NotFound, not Denied), so that ids cannot be guessed.
"""

import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from copy import copy
from typing import Any, TypeAlias

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from .core import compaction, history, keys, principals, tokens, turns
from .core.compaction import Coverage
from .core.entries import (
    MESSAGES,
    Compaction,
    Entry,
    Foreign,
    Opened,
    Origin,
    Pin,
    Received,
    Rewind,
    Selected,
    Status,
    Title,
    Undo,
    Unpin,
    User,
    with_words,
)
from .core.history import History
from .core.keys import SessionKey
from .core.principals import OWNER, Principal
from .core.query import PAGE_MAX, Hit, Page, Query
from .core.session import Session, StatusValue, active, cut_title
from .errors import Ambiguous, Conflict, Corrupt, Denied, NotFound, UsageError
from .stores import Clock, Lease, Store
from .stores.stamping import now_ms

SELECTED = "selected"
"""The ledger's space for: which session a key's messages go to."""
RACES_MAX = 20
"""Attempts when others change the same key; each failure means that somebody else succeeded."""
LABEL_MAX_CHARS = 200
EDIT_WAIT_S = 5.0
"""How long an edit of a session's history waits for a running turn before it says Busy."""


# Sessions has a method `list`, which hides the builtin in its annotations.
Entries: TypeAlias = list[Entry]
Hits: TypeAlias = list[Hit]
Explanation: TypeAlias = list[Coverage]
PinBudget: TypeAlias = Callable[[str], Awaitable[int]]
"""agent → tokens that pins may take in the window of its model."""


class Loaded(Struct, frozen=True):
    """What a turn needs of a session: its row and its tail, not its past."""

    session: Session
    entries: list[Entry]
    damage: tuple[Corrupt, ...] = ()
    """Places that could not be read; the entries around them are here."""


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
    ) -> None:
        self._store = store
        self._principal = principal
        self._inject = inject
        self._pin_tokens = pin_tokens
        self._clock = clock or now_ms
        self._random = random
        self._gone: list[Callable[[str], object]] = []

    def acting_for(self, principal: Principal) -> "Sessions":
        other = copy(self)
        other._principal = principal
        return other

    def on_gone(self, tell: Callable[[str], object]) -> None:
        """Called with the id of a session that is about to be deleted or put away: its turn has no future."""
        self._gone.append(tell)

    async def open(self, key: SessionKey | str, *, label: str | None = None) -> Session:
        """The session that this key's messages go to; made if there is none. Racing openers get the same one."""
        place = self._own_key(key)
        row = await self._selected(place, label)
        return row if row.status == "active" else await self.new(place, label=label)

    async def _selected(self, key: SessionKey, label: str | None = None) -> Session:
        """What the ledger has decided, and the log made to say so. Whoever comes after a crash finishes it."""
        text = keys.format(key)
        for _ in range(RACES_MAX):
            fact = await self._store.ledger.get(SELECTED, text) or await self._choose(text)
            row = await self._ensure(key, fact["id"], label)
            if row.selected_n >= fact["n"] and row.status != "inactive":
                return row
            for other in (await self._store.find(Query(key=text, status="active", limit=PAGE_MAX))).items:
                if other.id != row.id:
                    await self._store.append(other.id, [Status(value="inactive", reason="another was selected")])
            await self._store.append(row.id, [Selected(n=fact["n"])])
            now = await self._store.ledger.get(SELECTED, text)
            if now and now["id"] != row.id:
                # Overtaken: whoever was chosen since may have looked for active ones before we wrote.
                await self._store.append(row.id, [Status(value="inactive", reason="another was selected")])
        raise Conflict(f"too many changes of {text} at once")

    async def _choose(self, key: str) -> dict[str, Any]:
        """Rebuilds a lost selection from the log; or settles on the id of a new session before it exists."""
        rows = (await self._store.find(Query(key=key, limit=PAGE_MAX))).items
        usable = [row for row in rows if row.status in ("active", "inactive")]
        # Sessions of another tool were never selected; the one used last is gone on with.
        best = max(usable, key=lambda row: (row.selected_n, row.last_at, row.id), default=None)
        fact = {"id": best.id if best else self._new_id(), "n": (best and best.selected_n) or _next_n(rows)}
        return await self._store.ledger.put_if_absent(SELECTED, key, fact) or fact

    async def _ensure(self, key: SessionKey, session_id: str, label: str | None) -> Session:
        try:
            return await self._store.describe(session_id)
        except NotFound:
            return await self._create(key, session_id, label)

    async def _create(self, key: SessionKey, session_id: str, label: str | None, *, alone: bool = False) -> Session:
        """`alone`: the id must be new. Otherwise another opener of the key may have been faster, with the same."""
        body = Opened(
            id=session_id, key=keys.format(key), agent=key.agent, channel=key.channel, label=_checked_label(label)
        )
        try:
            await self._store.append(session_id, [body], expect=0)
        except Conflict:
            if alone:
                raise
        return await self._store.describe(session_id)

    def _new_id(self) -> str:
        return keys.session_id(self._clock(), self._random(6))

    async def new(
        self, key: SessionKey | str, *, label: str | None = None, session_id: str | None = None, select: bool = True
    ) -> Session:
        """One more session at this key; its messages go there from now on."""
        place = self._own_key(key)
        if session_id is not None:
            row = await self._create(place, keys.check_session_id(session_id), label, alone=True)
        else:
            row = await self._create_somewhere(place, label)
        return await self._select(row) if select else row

    async def _create_somewhere(self, key: SessionKey, label: str | None) -> Session:
        for _ in range(RACES_MAX):
            try:
                return await self._create(key, self._new_id(), label, alone=True)
            except Conflict:
                continue
        raise Conflict("no free session id was found")

    async def select(self, session_id: str) -> Session:
        """Messages for this session's key go to it from now on."""
        return await self._select(await self._writable(session_id))

    async def _select(self, row: Session) -> Session:
        key = keys.parse(row.key)
        for _ in range(RACES_MAX):
            old = await self._store.ledger.get(SELECTED, row.key)
            rows = (await self._store.find(Query(key=row.key, limit=PAGE_MAX))).items
            fact = {"id": row.id, "n": max(_next_n(rows), (old["n"] if old else 0) + 1)}
            if await self._store.ledger.cas(SELECTED, row.key, old, fact):
                await self._selected(key)
                return await self._store.describe(row.id)
        raise Conflict(f"too many changes of {row.key} at once")

    async def resolve(self, text: str, *, key: SessionKey | str | None = None, agent: str | None = None) -> Session:
        """A session by id, key or label; whole, or a beginning that fits only one. `key` and `agent` narrow it."""
        within = Query(key=keys.format(self._own_key(key)) if key else None, agent=agent, limit=PAGE_MAX)
        for query in _readings(text, within):
            rows = [row for row in (await self._store.find(query)).items if self._sees(row)]
            if query.key is not None and query == Query(key=query.key, agent=agent, limit=PAGE_MAX):
                rows = [row for row in rows if row.status == "active"] or rows[:1]
            if len(rows) == 1:
                return rows[0]
            if rows:
                names = [f"{row.id} ({row.label})" if row.label else row.id for row in rows[:20]]
                raise Ambiguous(f"{text!r} fits {len(rows)} sessions: {', '.join(names)}", matches=[r.id for r in rows])
        raise NotFound(f"no session fits {text[:80]!r}")

    async def list(self, query: Query | None = None) -> Page[Session]:
        """Newest first. A principal sees what is theirs, and `total` counts only that."""
        return await self._store.find(principals.narrow(self._principal, query or Query()))

    async def get(self, session_id: str) -> Session:
        return await self._visible(session_id)

    async def load(self, session_id: str) -> Loaded:
        """What a turn needs: the tail, what is pinned before it, what waits, and what user entries were made from."""
        row = await self._visible(session_id)
        entries, damage = await self._read_around(session_id, row.read_from - 1)
        named = [*row.pins, *((seq, seq) for seq in row.received)]
        return Loaded(row, await self._with_named(session_id, entries, named), damage)

    async def _with_named(self, session_id: str, entries: Entries, pins: Sequence[tuple[int, int]] = ()) -> Entries:
        """Together with the entries that these name, as far as they can be read."""
        while wanted := history.missing(entries, pins):
            found: Entries = []
            for seq in wanted:
                with suppress(Corrupt):
                    found += await self._store.read(session_id, after=seq - 1, limit=1)
            if not any(entry.seq in wanted for entry in found):
                break  # named, but damaged or never there
            entries = sorted([*found, *entries], key=lambda entry: entry.seq)
        return entries

    async def transcript(self, session_id: str, *, after: int = 0) -> Loaded:
        """All entries, damaged places left out and named."""
        row = await self._visible(session_id)
        entries, damage = await self._read_around(session_id, after)
        return Loaded(row, entries, damage)

    async def read(
        self, session_id: str, *, after: int = 0, before: int | None = None, limit: int | None = None
    ) -> Entries:
        await self._visible(session_id)
        return await self._store.read(session_id, after=after, before=before, limit=limit)

    async def _read_around(self, session_id: str, after: int) -> tuple[Entries, tuple[Corrupt, ...]]:
        found: Entries = []
        damage: list[Corrupt] = []
        while True:
            try:
                found += await self._store.read(session_id, after=after)
                return found, tuple(damage)
            except Corrupt as error:
                damage.append(error)
                if error.after > after:
                    found += await self._store.read(session_id, after=after, before=error.after + 1)
                if error.before is None:
                    return found, tuple(damage)
                after = error.before - 1

    async def history(
        self, session_id: str, *, system: str = "", inject: str | None = None, at: int | None = None
    ) -> History:
        """What the model would be shown now, or was shown when the log ended at `at`."""
        inject = inject or self._inject
        if at is None:
            loaded = await self.load(session_id)
            return history.build(loaded.entries, system=system, inject=inject)
        loaded = await self.transcript(session_id)
        past = [entry for entry in loaded.entries if entry.seq <= at]
        return history.build(past, system=system, inject=inject)

    async def explain(self, session_id: str) -> Explanation:
        """What became of each entry."""
        return compaction.explain((await self.transcript(session_id)).entries)

    async def expand(self, session_id: str, seq: int | None = None) -> Entries:
        """The messages that a compaction stands for: the newest active one, or the one at `seq`.

        User entries hold their words here, also those that leave them to `received` ones.
        """
        row = await self._visible(session_id)
        stack = active(row.marks, row.last_seq)
        seq = seq or (stack[-1].seq if stack else None)
        if seq is None:
            raise UsageError("no compaction is active in this session")
        found = await self._store.read(session_id, after=seq - 1, limit=1)
        match found:
            case [Compaction() as entry]:
                covered = await self._store.read(session_id, after=entry.covers[0] - 1, before=entry.first_kept)
                whole = with_words(await self._with_named(session_id, covered))
                return [item for item in whole if isinstance(item, MESSAGES)]
            case _:
                raise UsageError(f"entry {seq} is not a compaction")

    async def search(self, words: str, *, scope: Query | None = None) -> Hits:
        return await self._store.search(words, scope=principals.narrow(self._principal, scope or Query()))

    async def rename(self, session_id: str, title: str) -> Session:
        """A title given by hand is never overwritten by an automatic one."""
        if not any(char.isprintable() and not char.isspace() for char in cut_title(title)):
            raise UsageError("a title cannot be empty", hint="Give it at least one character that can be seen.")
        await self._writable(session_id)
        await self._store.append(session_id, [Title(title=cut_title(title), by="user")])
        return await self._store.describe(session_id)

    async def set_status(self, session_id: str, value: StatusValue, reason: str = "") -> Session:
        """Archive, trash, or restore (as inactive). The key then has no selected session until it is opened."""
        row = await self._writable(session_id)
        if value != "active":
            self._tell_gone(session_id)
        await self._deselect(row)
        await self._store.append(session_id, [Status(value=value, reason=reason)])
        return await self._store.describe(session_id)

    async def delete(self, session_id: str) -> None:
        """At once and for good. A turn that runs in it can write no more."""
        row = await self._writable(session_id)
        self._tell_gone(session_id)
        await self._deselect(row)
        await self._store.delete(session_id)

    def _tell_gone(self, session_id: str) -> None:
        for tell in self._gone:
            tell(session_id)

    async def _deselect(self, row: Session) -> None:
        # Before the session goes: dying in between leaves a session that can still be opened and deleted again.
        fact = await self._store.ledger.get(SELECTED, row.key)
        if fact and fact["id"] == row.id:
            await self._store.ledger.cas(SELECTED, row.key, fact, None)

    async def fork(self, session_id: str, *, at: int | None = None, label: str | None = None) -> Session:
        """A new session at the same key that shares the past up to `at`. The source is not touched."""
        source = await self._visible(session_id)
        at = source.last_seq if at is None else at
        if not 1 <= at <= source.last_seq:
            raise UsageError(f"session {session_id} has no entry {at}", hint=f"It has entries 1 to {source.last_seq}.")
        key = self._own_key(source.key)
        past = await self._store.read(session_id, before=at + 1)
        new_id = self._new_id()
        opened = Opened(
            id=new_id,
            key=source.key,
            agent=key.agent,
            channel=key.channel,
            label=_checked_label(label),
            forked_from=Origin(id=session_id, seq=at),
        )
        async with self._store.lease(new_id) as lease:
            taken = {seq for entry in past if isinstance(entry, User) for seq in entry.from_}
            inherited = [_inherited(entry, taken) for entry in past[1:]]
            await self._store.append(new_id, [opened, *inherited], expect=0, lease=lease)
        return await self._store.describe(new_id)

    async def rewind(self, session_id: str, to: int) -> Session:
        """History goes on from entry `to`, which must end a turn. Nothing is removed: rewind forward to come back."""
        await self._writable(session_id)
        async with self._editing(session_id) as lease:
            ends = turns.ends((await self.transcript(session_id)).entries)
            if to not in ends:
                near = sorted(ends, key=lambda seq: abs(seq - to))[:3]
                raise UsageError(
                    f"entry {to} does not end a turn", hint=f"Turns end at entries {', '.join(map(str, sorted(near)))}."
                )
            await self._store.append(session_id, [Rewind(to=to)], lease=lease)
        return await self._store.describe(session_id)

    async def pin(self, session_id: str, target: int) -> Session:
        """This message stays in the prompt word for word, also when its place is folded; within the pin budget."""
        row = await self._writable(session_id)
        found = await self._store.read(session_id, after=target - 1, limit=1) if target > 0 else []
        if not found or not isinstance(found[0], MESSAGES):
            raise UsageError(f"entry {target} is not a message", hint="Pin a user, assistant or tool_result entry.")
        await self._check_pins(row, target)
        await self._store.append(session_id, [Pin(target=target)])
        return await self._store.describe(session_id)

    async def _check_pins(self, row: Session, target: int) -> None:
        budget = self._pin_tokens if isinstance(self._pin_tokens, int | None) else await self._pin_tokens(row.agent)
        if budget is None:
            return
        entries: Entries = []
        while missing := history.missing(entries, [*row.pins, (target, target)]):
            for seq in missing:
                entries += await self._store.read(row.id, after=seq - 1, limit=1)
        view = history.survey(sorted(entries, key=lambda entry: entry.seq))
        messages = (entry for entry in entries if isinstance(entry, MESSAGES))
        size = sum(tokens.of_text(history.as_text(history.whole_content(entry, view))) for entry in messages)
        if size > budget:
            raise UsageError(
                f"the pins would take about {size:,} tokens; the budget is {budget:,}",
                hint="Unpin something first, or raise compaction.pin_budget.",
            )

    async def unpin(self, session_id: str, target: int) -> Session:
        row = await self._writable(session_id)
        if all(held != target for _, held in row.pins):
            raise UsageError(f"entry {target} is not pinned")
        await self._store.append(session_id, [Unpin(target=target)])
        return await self._store.describe(session_id)

    async def undo(self, session_id: str, target: int | None = None) -> Session:
        """Takes back the newest active compaction (or the shortening at `target`); later turns stay."""
        await self._writable(session_id)
        async with self._editing(session_id) as lease:
            row = await self._store.describe(session_id)
            stack = active(row.marks, row.last_seq)
            if target is None and not stack:
                raise UsageError("no compaction is active in this session", hint="There is nothing to undo.")
            await self._store.append(
                session_id, [Undo(target=target if target is not None else stack[-1].seq)], lease=lease
            )
        return await self._store.describe(session_id)

    async def reindex(self, progress: Callable[[int, int], None] | None = None) -> int:
        if "admin" not in self._principal.scopes:
            raise Denied("only an administrator may rebuild the index")
        return await self._store.reindex(progress)

    def _editing(self, session_id: str) -> AbstractAsyncContextManager[Lease]:
        return self._store.lease(session_id, wait_s=EDIT_WAIT_S)

    async def _visible(self, session_id: str) -> Session:
        row = await self._store.describe(session_id)
        if not self._sees(row):
            raise NotFound(f"there is no session {session_id}")
        return row

    async def writable(self, session_id: str) -> Session:
        """The row, if this principal may write to it and not only look."""
        return await self._writable(session_id)

    async def _writable(self, session_id: str) -> Session:
        row = await self._visible(session_id)
        if not principals.owns(self._principal, row):
            raise Denied("this session is not yours to change")
        return row

    def _sees(self, row: Session) -> bool:
        return principals.sees(self._principal, row)

    def _own_key(self, key: SessionKey | str) -> SessionKey:
        """The key itself, if this principal may use it."""
        place = keys.parse(key) if isinstance(key, str) else key
        keys.check_agent(place.agent)
        principals.check_key(self._principal, place)
        return place


def _readings(text: str, within: Query) -> list[Query]:
    """What a person may have meant, from the exact to the vague."""
    readings: list[Query] = []
    if keys.SESSION_ID.match(text):
        readings.append(replace(within, ids=(text,)))
    with suppress(UsageError):
        readings.append(Query(key=keys.format(keys.parse(text)), agent=within.agent, limit=PAGE_MAX))
    if text:
        readings += [replace(within, label=text), replace(within, prefix=text)]
    return readings


def _next_n(rows: Sequence[Session]) -> int:
    return max((row.selected_n for row in rows), default=0) + 1


def _checked_label(label: str | None) -> str | None:
    if label is None:
        return None
    clean = " ".join(label.encode("utf-8", "replace").decode().split())
    if not clean or len(clean) > LABEL_MAX_CHARS or not clean.isprintable():
        raise UsageError(f"a label has 1 to {LABEL_MAX_CHARS} printable characters")
    return clean


def _inherited(entry: Entry, taken: Collection[int]) -> Entry:
    """An entry in a fork. What concerned only the source keeps its place, so that seqs still fit, but is inert.

    A message that waits in the source waits there alone; one that a turn has taken holds that turn's words.
    """
    if isinstance(entry, Selected | Status) or (isinstance(entry, Received) and entry.seq not in taken):
        return Foreign(ts=entry.ts, raw=to_builtins(entry))
    return entry
