"""The log of one framework session: found by its key, read along its live path, appended to.

A framework's ids are any text, so a session is found by a key made of them. The row is remembered between calls; it is
looked up again when its session was deleted, archived or replaced by another one of its key.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress

from msgspec.structs import replace

from ..core import keys
from ..core.entries import NEEDS_LEASE, Compaction, Entry, Pin, Rewind, User
from ..core.facts import ExpectedFact
from ..core.keys import SessionKey
from ..core.query import Query
from ..core.session import Interval, Session, active, live_path, marks_of, on_path
from ..core.user_content import with_words
from ..errors import Conflict, NotFound, UsageError
from ..library import Turnlog
from ..sessions import selection
from ..stores import OWN_LEASE_WAIT_S, Appended, GivenLease
from ..stores.at_once import append_at_once
from .checkpoints import digest
from .kept_entries import kept_entries

ID_MAX_CHARS = 900
"""A key holds the id and a few words more, within `keys.KEY_MAX_CHARS`."""
FACT_NAME_MAX_CHARS = 400
"""With its prefix it stays within `facts.KEY_MAX_CHARS`."""
AGENT = "main"
FIRST_READ = 64
TAKEN_BACK = 4
"""The entries that are read to take back one item: a few marks, the item, and the one before it."""
READ_MAX = 1024


def key_of(channel: str, peer: str, *, account: str | None = None, thread: str | None = None) -> SessionKey:
    """The key of a framework's session; UsageError for an id that no key can hold."""
    for name, value in (("session id", peer), ("account", account), ("thread", thread)):
        if value is not None:
            check_id(name, value)
    key = SessionKey(agent=AGENT, channel=channel, kind="direct", peer=peer, account=account, thread=thread)
    keys.parse(keys.format(key))  # too long when encoded?
    return key


def check_id(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise UsageError(f"the {name} is {type(value).__name__}, not text", hint="Give a text.")
    if not value:
        raise UsageError(f"the {name} is empty", hint="Give an id of at least one character.")
    if "\0" in value:
        raise UsageError(f"the {name} contains a zero byte", hint="Leave it out.")
    if len(value) > ID_MAX_CHARS:
        raise UsageError(f"the {name} has more than {ID_MAX_CHARS} characters", hint="Use a shorter id.")


def fact_name(name: str) -> str:
    """A name of a framework's as part of a fact's key; if it is long or not printable, its digest."""
    if len(name) <= FACT_NAME_MAX_CHARS and name.isprintable() and not name.startswith("#"):
        return name
    return f"#{digest(name.encode('utf-8', 'surrogatepass'))}"


class SessionLog:
    def __init__(self, key: SessionKey) -> None:
        self.key = key
        self._row: Session | None = None

    async def find(self, t: Turnlog) -> Session | None:
        """The row as it is now; None if there is no such session yet."""
        if self._row is not None:
            with suppress(NotFound):
                row = await t.store.describe(self._row.id, incarnation=self._row.incarnation)
                if row.status == "active":
                    self._row = row
                    return row
        self._row = await self._selected(t)
        return self._row

    async def _selected(self, t: Turnlog) -> Session | None:
        """The key's selected session, without creating one."""
        key = keys.format(self.key)
        chosen = await selection.chosen(t.store.ledger, key)
        if chosen is not None and chosen.id:
            with suppress(NotFound):
                row = await t.store.describe(chosen.id)
                return row if row.status == "active" and row.key == key else None
        found = await t.store.find(Query(key=key, status="active", limit=1))
        return found.items[0] if found.items else None

    async def open(self, t: Turnlog) -> Session:
        """The row, perhaps one of the last call; the session is created if there is none."""
        if self._row is None or self._row.status != "active":
            self._row = await t.sessions.open(self.key)
        return self._row

    async def known(self, t: Turnlog) -> Session | None:
        """The row of an earlier call, for reads that need only the session's id; NotFound then may mean that it was
        deleted since (`forget`).
        """
        return self._row if self._row is not None and self._row.status == "active" else await self.find(t)

    def forget(self) -> None:
        self._row = None

    @asynccontextmanager
    async def alone(self, t: Turnlog, row: Session | None) -> AsyncGenerator[GivenLease]:
        """Keeps everybody else from writing messages to the session of this row; Busy if somebody does so for long.

        For a change that depends on what was read, once it has lost a race: a process that need not read would win
        each race against one that must. Without a row nobody is kept away, and the append takes the lease by itself.
        """
        if row is None:
            yield "own"
            return
        async with t.store.lease(row.id, wait_s=OWN_LEASE_WAIT_S) as lease:
            yield lease

    async def append_to(
        self,
        t: Turnlog,
        row: Session,
        bodies: Sequence[Entry],
        *,
        expect: int | None = None,
        expect_fact: ExpectedFact | None = None,
        lease: GivenLease | None = None,
    ) -> Appended:
        """One append to the session of this row; NotFound if it is gone, or is this key's no more. Without a `lease`,
        only messages take one.
        """
        if lease is None and any(isinstance(body, NEEDS_LEASE) for body in bodies):
            lease = "own"
        elif lease is not None and lease != "own" and lease.session_id != row.id:
            raise Conflict("another session has taken the place of this one")
        appended = await t.store.append(
            row.id, bodies, expect=expect, expect_fact=expect_fact, lease=lease, incarnation=row.incarnation
        )
        if not _is_current(self._appended(t, appended)):
            raise NotFound(f"the session {row.id} was put away")
        return appended

    async def append(
        self, t: Turnlog, bodies: Sequence[Entry], *, row: Session | None = None, lease: GivenLease = "own"
    ) -> Appended:
        """One append, all or none. Waits while a turn runs, then raises Busy.

        `row`: Conflict unless the log still ends as this row says. `lease`: of the session of this row.
        """
        if row is not None:
            return await self.append_to(t, row, bodies, expect=row.last_seq, lease=lease)
        now = await self.open(t)
        with suppress(NotFound):
            appended = await t.store.append(now.id, bodies, lease="own", incarnation=now.incarnation)
            if _is_current(self._appended(t, appended)):
                return appended
        self._row = None  # deleted or put away since the last call
        now = await self.open(t)
        return self._appended(t, await t.store.append(now.id, bodies, lease="own", incarnation=now.incarnation))

    def append_at_once(
        self, t: Turnlog, bodies: Sequence[Entry], *, after: tuple[str, int] | None = None
    ) -> Appended | None:
        """The same without waiting (`stores.at_once`); None if that is not possible: nothing that counts is stored.

        `after`: the incarnation, and the seq at which the log must end.
        """
        row, append = self._row, append_at_once(t.store)
        if row is None or row.status != "active" or append is None:
            return None
        if after is not None and after != (row.incarnation, row.last_seq):
            return None
        try:
            appended = append(row.id, bodies, after and after[1], row.incarnation)
        except (NotFound, Conflict):  # deleted or written to since the last call
            return None
        return appended if appended is not None and _is_current(self._appended(t, appended)) else None

    def _appended(self, t: Turnlog, appended: Appended) -> Appended:
        self._row = appended.row
        kept_entries(t).written(appended)
        return appended

    async def delete(self, t: Turnlog) -> None:
        """Deletes the session for good. An earlier session of the same key does not come back in its place."""
        while (row := await self.find(t)) is not None:
            self._row = None
            with suppress(NotFound):
                await t.sessions.delete(row.id, incarnation=row.incarnation)
            if await self._selected(t) is not None:
                self._row = await t.sessions.new(self.key)
                return


def _is_current(appended: Appended) -> bool:
    """Whether readers of the key will find what was appended. Otherwise somebody has archived or replaced the session
    since its row was looked up: to look before each append would cost more than to append once more.
    """
    return appended.row.status == "active"


class LiveEntries:
    """The entries that count, newest first, read as far as somebody asks for them, and kept (`kept_entries`)."""

    def __init__(self, t: Turnlog, row: Session, *, expected: int = FIRST_READ) -> None:
        """`expected`: how many the caller probably needs. They are read first, then others in growing pieces."""
        self._known: list[Entry] = []
        self._t, self._row = t, row
        self._path = live_path(row.marks, row.last_seq)[::-1]
        self._floor = row.pruned_to
        self._size = max(2, min(expected, READ_MAX))
        self._kept = kept_entries(t)

    async def __aiter__(self) -> AsyncGenerator[Entry]:
        index = 0
        while index < len(self._known) or await self._more():
            yield self._known[index]
            index += 1

    async def _more(self) -> bool:
        """Adds some more; False if there are none."""
        before = len(self._known)
        while self._path and self._path[-1][1] > self._floor and (rest := self._size + before - len(self._known)) > 0:
            first, last = self._path.pop()
            low = max(first, self._floor + 1, last + 1 - rest)
            if low > first:
                self._path.append((first, low - 1))
            self._known += (await self._kept.read(self._t, self._row, low, last))[::-1]
        if len(self._known) == before and self._floor:
            await self._add_pruned()
        self._size = min(max(self._size, FIRST_READ) * 4, READ_MAX)
        return len(self._known) > before

    async def _add_pruned(self) -> None:
        """The row does not know the path there."""
        row, self._path, self._floor = self._row, list[Interval](), 0
        entries = await self._t.store.read(row.id, before=row.last_seq + 1, incarnation=row.incarnation)
        path = live_path(marks_of(entries), row.last_seq)
        self._known += [one for one in reversed(entries) if one.seq <= row.pruned_to and on_path(one.seq, path)]


def lacks_words(entry: Entry) -> bool:
    """Whether its words are in the `received` entries that it was made from."""
    return isinstance(entry, User) and entry.content is None


async def worded(t: Turnlog, row: Session, entry: Entry) -> Entry:
    """The entry with its words, wherever they are."""
    if not isinstance(entry, User) or not lacks_words(entry):
        return entry
    received: list[Entry] = []
    for seq in entry.from_:
        received += await t.store.read(row.id, after=seq - 1, limit=1, incarnation=row.incarnation)
    return with_words([*received, entry])[-1]


async def taken_back(row: Session, live: LiveEntries, first: int) -> list[Entry]:
    """What to append so that the entries from `first` on do not count any more.

    Compactions and pins that were written after `first`, and concern what stays, are written again.
    """
    marked = {mark.seq for mark in active(row.marks, row.last_seq)} | {seq for seq, _ in row.pins}
    again: list[Entry] = []
    async for entry in live:
        if entry.seq < first and not isinstance(entry, Rewind):
            return [Rewind(to=entry.seq), *(replace(one, seq=0, ts="") for one in reversed(again))]
        if entry.seq in marked and _concerns(entry, first):
            again.append(entry)
    return [Rewind(to=1)]


def _concerns(entry: Entry, first: int) -> bool:
    """Whether a compaction or a pin still says something about what is before `first`."""
    return isinstance(entry, Compaction) or (isinstance(entry, Pin) and entry.target < first)
