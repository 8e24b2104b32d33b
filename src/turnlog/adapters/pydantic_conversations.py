"""The conversations of pydantic-ai in a store: one session each.

    r           the record: where the history ends, usage, scope, revision
    m|<id>      the entry of pydantic-ai with this id: [how many entries of the log before this fact, its parent]

A save is one append: the new messages, then the facts. It expects the record that it replaces, so of two writers one
gets a conflict. A history that branches off an earlier message begins with a rewind, so that what Turnlog shows is the
conversation as it is now; reading follows the parents, and never the rewinds.

A fork copies the messages that it shares, so each session is whole, and deleting another one takes nothing from it. A
record that is being deleted is marked first: a conversation of the same id that is created meanwhile gets a session of
its own. Everything here runs in the store's loop, with records and messages as JSON.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeAlias

from msgspec import Struct

from ..core import keys as session_keys
from ..core.entries import ERASED, Assistant, Entry, Facts, Rewind
from ..core.facts import Fact
from ..core.query import Query
from ..core.session import Session
from ..errors import Conflict, NotFound
from ..library import Turnlog
from ..stores.finding import every_row
from . import pydantic_messages
from .session_log import AGENT, READ_MAX, SessionLog, fact_name, key_of

CHANNEL = "pydantic_ai"
APP = "pydantic-ai"
RECORD = "r"
ITEM = "m|"
DELETED = {"deleted": True}
LOGS_MAX = 4096
PLACES_MAX = 65_536
"""The ends of histories whose conversation is remembered; any other one is looked for in all conversations."""
RACES_MAX = 20

Json: TypeAlias = dict[str, Any]


class FoundItem(Struct, frozen=True):
    """One message of a conversation, with its place."""

    seq: int
    held: Json
    """`id`, `parent`, `kind`, `message`."""


class RevisionConflict(Conflict):
    """The conversation was saved or deleted since it was loaded, or exists already."""


def _log_of(conversation: str) -> SessionLog:
    return SessionLog(key_of(CHANNEL, conversation))


class PydanticConversations:
    def __init__(self) -> None:
        self.log_of: Callable[[str], SessionLog] = lru_cache(LOGS_MAX)(_log_of)
        self._places: OrderedDict[str, str] = OrderedDict()
        """Id of an entry → id of its conversation."""

    async def record(self, t: Turnlog, conversation: str) -> Json | None:
        _, fact = await self._found(t, conversation)
        if fact is None or fact.value == DELETED:
            return None
        self._remember(conversation, fact.value)
        return fact.value

    async def records(self, t: Turnlog) -> list[Json]:
        """Of all conversations, in the order in which they were created."""
        found: list[Json] = []
        for row in await _rows(t):
            with suppress(NotFound):
                facts = await t.store.facts(row.id, APP, keys=[RECORD], incarnation=row.incarnation)
                if facts and facts[0].value != DELETED:
                    self._remember(session_keys.parse(row.key).peer, facts[0].value)
                    found.append(facts[0].value)
        return found

    async def write(self, t: Turnlog, record: Json, items: Sequence[Json], expected: str | None) -> None:
        """RevisionConflict unless the stored record has the expected revision."""
        conversation = record["conversation_id"]
        log = self.log_of(conversation)
        for _ in range(RACES_MAX):
            row, fact = await self._found(t, conversation)
            if row is not None and fact is not None and fact.value == DELETED:
                await self._drop(t, log, row)
                continue
            if (fact.value["revision"] if fact else None) != expected:
                raise RevisionConflict
            bodies = await self._bodies(t, row, fact.value if fact else None, record, items)
            try:
                row = row or await log.open(t)
                await log.append_to(t, row, bodies, expect_fact=(APP, RECORD, fact.seq if fact else None))
            except (Conflict, NotFound):
                log.forget()
                continue
            self._remember(conversation, record)
            return
        raise RevisionConflict

    async def _bodies(
        self, t: Turnlog, row: Session | None, old: Json | None, record: Json, items: Sequence[Json]
    ) -> list[Entry]:
        """What a save appends: perhaps a rewind, the messages that a fork shares, the new ones, and the facts."""
        names = {item["id"] for item in items}
        after = items[0]["parent"] if items else record["head_id"]
        shared: list[Json] = []
        base: FoundItem | None = None
        if after is not None:
            base = await self._item(t, row, after) if row else None
            if base is None:
                shared, base = await self._shared(t, row, after)
        head = record["head_id"]
        if head not in (None, after, *names) and (row is None or await self._item(t, row, head) is None):
            raise RevisionConflict
        bodies: list[Entry] = []
        now = old["head_id"] if old else None
        if (base.held["id"] if base else None) != now:
            bodies.append(Rewind(to=base.seq if base else 1))
        all_items = [*shared, *items]
        bodies += [pydantic_messages.entry_of(one["message"], _plain(one), one.get("size", 0)) for one in all_items]
        places = {ITEM + fact_name(one["id"]): [len(all_items) - n, one["parent"]] for n, one in enumerate(all_items)}
        return [*bodies, Facts(app=APP, put={**places, RECORD: record})]

    async def _shared(self, t: Turnlog, row: Session | None, last: str) -> tuple[list[Json], FoundItem | None]:
        """The messages up to this one that another conversation has, and the one before them that this one has."""
        try:
            chain = await self.history(t, last)
        except NotFound as error:
            raise RevisionConflict from error
        for place in range(len(chain) - 1, -1, -1):
            own = await self._item(t, row, chain[place].held["id"]) if row else None
            if own is not None:
                return [one.held for one in chain[place + 1 :]], own
        return [one.held for one in chain], None

    async def delete(self, t: Turnlog, conversation: str, expected: str) -> None:
        log = self.log_of(conversation)
        row, fact = await self._found(t, conversation)
        if row is None or fact is None or fact.value == DELETED or fact.value["revision"] != expected:
            raise RevisionConflict
        mark = Facts(app=APP, put={RECORD: DELETED})
        try:
            await log.append_to(t, row, [mark], expect_fact=(APP, RECORD, fact.seq))
        except (Conflict, NotFound) as error:
            raise RevisionConflict from error
        await self._drop(t, log, row)

    async def _drop(self, t: Turnlog, log: SessionLog, row: Session) -> None:
        with suppress(NotFound):
            await t.sessions.delete(row.id, incarnation=row.incarnation)
        log.forget()

    async def entry(self, t: Turnlog, entry_id: str) -> Json:
        return (await self._located(t, entry_id))[1].held

    async def history(self, t: Turnlog, head: str, limit: int | None = None) -> list[FoundItem]:
        """The messages up to `head`, oldest first; with `limit`, only this many of the newest."""
        row, last = await self._located(t, head)
        found: list[FoundItem] = []
        wanted: str | None = head
        end, size = last.seq + 1, max(64, 2 * limit) if limit else None
        while wanted is not None and end > 1 and (limit is None or len(found) < limit):
            entries = await t.store.read(row.id, before=end, limit=size, incarnation=row.incarnation)
            for entry in reversed(entries):
                if wanted is None:
                    break
                held = pydantic_messages.held_in(entry) or await self._erased(t, row, entry, wanted)
                if held is not None and held["id"] == wanted and (limit is None or len(found) < limit):
                    found.append(FoundItem(entry.seq, held))
                    wanted = held["parent"]
            end = entries[0].seq if entries else 1
            size = min(size * 4, READ_MAX) if size else None
        if wanted is not None and (limit is None or len(found) < limit):
            raise NotFound(f"the entry {wanted[:80]!r} is gone")
        return found[::-1]

    async def _located(self, t: Turnlog, entry_id: str) -> tuple[Session, FoundItem]:
        known = self._places.get(entry_id)
        if known is not None:
            row = await self.log_of(known).find(t)
            found = await self._item(t, row, entry_id) if row else None
            if row is not None and found is not None:
                return row, found
        for row in await _rows(t):
            found = await self._item(t, row, entry_id)
            if found is not None:
                self._place(entry_id, session_keys.parse(row.key).peer)
                return row, found
        raise NotFound(f"there is no entry {entry_id[:80]!r}")

    async def _item(self, t: Turnlog, row: Session, entry_id: str) -> FoundItem | None:
        with suppress(NotFound):
            key = ITEM + fact_name(entry_id)
            facts = await t.store.facts(row.id, APP, keys=[key, RECORD], incarnation=row.incarnation)
            by_key = {fact.key: fact for fact in facts}
            if len(by_key) < 2 or by_key[RECORD].value == DELETED:
                return None
            seq = by_key[key].seq - by_key[key].value[0]
            entries = await t.store.read(row.id, after=seq - 1, limit=1, incarnation=row.incarnation)
            held = pydantic_messages.held_in(entries[0]) if entries else None
            if held is None and entries and entries[0].erased:
                held = _without_words(entries[0], entry_id, by_key[key].value[1])
            return FoundItem(seq, held) if held else None
        return None

    async def _erased(self, t: Turnlog, row: Session, entry: Entry, wanted: str) -> Json | None:
        """The wanted message, if this is where it was before its words were erased."""
        found = await self._item(t, row, wanted) if entry.erased else None
        return found.held if found is not None and found.seq == entry.seq else None

    async def _found(self, t: Turnlog, conversation: str) -> tuple[Session | None, Fact | None]:
        log = self.log_of(conversation)
        for _ in range(RACES_MAX):
            row = await log.known(t)
            if row is None:
                return None, None
            with suppress(NotFound):
                facts = await t.store.facts(row.id, APP, keys=[RECORD], incarnation=row.incarnation)
                return row, facts[0] if facts else None
            log.forget()
        return None, None

    def _remember(self, conversation: str, record: Json) -> None:
        for entry_id in (record["head_id"], *record["branches"]):
            if entry_id is not None:
                self._place(entry_id, conversation)

    def _place(self, entry_id: str, conversation: str) -> None:
        self._places[entry_id] = conversation
        self._places.move_to_end(entry_id)
        if len(self._places) > PLACES_MAX:
            self._places.popitem(last=False)


def _without_words(entry: Entry, entry_id: str, parent: str | None) -> Json:
    """A message whose words were erased: it keeps its place in the conversation."""
    is_answer = isinstance(entry, Assistant)
    part = {"content": ERASED, "part_kind": "text"} if is_answer else {"content": ERASED, "part_kind": "user-prompt"}
    if not is_answer:
        part["timestamp"] = entry.ts
    message = {"parts": [part], "kind": "response" if is_answer else "request", "timestamp": entry.ts}
    return {"id": entry_id, "parent": parent, "kind": "message", "message": message}


def _plain(item: Json) -> Json:
    return {name: item[name] for name in ("id", "parent", "kind", "message")}


async def _rows(t: Turnlog) -> list[Session]:
    prefix = f"agent:{AGENT}:{CHANNEL}:direct:"
    found = [row async for row in every_row(t.store.find, Query(key_prefix=prefix, status="active"))]
    return sorted(found, key=lambda row: (row.created_at, row.id))
