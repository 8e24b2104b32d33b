"""The convlog: what was said on each channel, for administrators, written on arrival and delivery, apart from
transcripts.

It has its own storage next to the sessions: the runner, tools and providers have no access to it, and deleting a
session does not change it. The messages of a conversation are listed oldest first, conversations newest first.
"""

import asyncio
import hashlib
import heapq
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ..core import masking, names
from ..core.entries import ERASED, clean
from ..core.keys import SessionKey, encode_char
from ..core.query import Page
from ..errors import UsageError
from ..stores import parse_url, postgres_driver
from ..stores.stamping import now_ms, timestamp

PAGE_MAX = 200
SENDER_MAX_CHARS = 200
MASKED_INLINE_CHARS = 10_000
"""Searching a longer text for secrets takes a while, so it runs in a thread."""


class Record(Struct, frozen=True, rename="camel"):
    """One message as people saw it."""

    ts: str
    role: str
    content: str
    channel_id: str
    channel_type: str
    sender: str = ""


class Conversation(Struct, frozen=True, rename="camel"):
    """One chat or thread of one channel."""

    channel_id: str
    channel_type: str
    agent_id: str
    message_count: int
    first_at: int
    """Unix ms, as `last_at`."""
    last_at: int


class Filter(Struct, frozen=True, kw_only=True):
    """All given fields must match."""

    agents: frozenset[str] | None = None
    channel_id: str | None = None
    channel_type: str | None = None
    sender: str | None = None
    q: str | None = None
    """A part of a message, a sender or a channel id; case does not matter."""


ConversationOrder: TypeAlias = Literal["newest", "messages"]
Conversations: TypeAlias = list[Conversation]
Records: TypeAlias = list[Record]
AgentRecord: TypeAlias = tuple[str, Record]
"""A record and the agent that it belongs to."""
ConvlogLine: TypeAlias = tuple[str, str, Record]
"""(agent, channel id, record)."""


class Backend(Protocol):
    """The storage of records. Blocking calls are short, or run in threads inside."""

    async def append(self, records: Sequence[AgentRecord]) -> None:
        """In this order. An error says that some of them, perhaps all, were not written."""
        ...

    async def conversations(self, wanted: Filter) -> Conversations:
        """All that match, in any order."""
        ...

    async def records(self, agent: str, wanted: Filter, start: int, limit: int) -> tuple[Records, int]:
        """The matching records of one conversation, oldest first, from the `start`-th on, and the number of all
        matches.
        """
        ...

    async def erase(self, agent: str, channel_id: str, texts: Sequence[str]) -> int:
        """Replaces the content of each record that contains one of these texts, for good; returns how many."""
        ...

    async def close(self) -> None: ...


class ConvLog:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def write(self, agent: str, channel_id: str, record: Record) -> None:
        """Readable by the next process, but not synced, because no promise depends on it."""
        await self.write_all([(agent, channel_id, record)])

    async def write_all(self, lines: Sequence[ConvlogLine]) -> None:
        """The same for several lines."""
        masked: list[AgentRecord] = []
        for agent, channel_id, record in lines:
            if len(record.content) <= MASKED_INLINE_CHARS:
                masked.append((agent, _masked(channel_id, record)))
            else:
                masked.append((agent, await asyncio.to_thread(_masked, channel_id, record)))
        await self._backend.append(masked)

    async def list(
        self,
        wanted: Filter | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
        sort: ConversationOrder = "newest",
    ) -> Page[Conversation]:
        """Newest first; or most messages first, and among equals the newest."""
        place = None if cursor is None else _place(sort, cursor)
        found = await self._backend.conversations(wanted or Filter())
        left = found if place is None else [row for row in found if _order(sort, row) > place]
        page = heapq.nsmallest(_checked(limit), left, key=lambda row: _order(sort, row))
        return Page(page, cursor_after(page[-1], sort) if len(left) > len(page) else None, len(found))

    async def all(self) -> "list[Conversation]":
        """In any order. In pages of `list`, a conversation that is written to meanwhile can be missed."""
        return await self._backend.conversations(Filter())

    async def messages(
        self, agent: str, channel_id: str, wanted: Filter | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[Record]:
        """Oldest first; an unknown conversation has no messages."""
        start = _number(cursor) if cursor is not None else 0
        narrowed = replace(wanted or Filter(), channel_id=names.escaped(channel_id))
        items, total = await self._backend.records(agent, narrowed, start, _checked(limit))
        end = start + len(items)
        return Page(items, str(end) if items and end < total else None, total)

    async def holding(self, texts: Sequence[str], key: SessionKey | None = None) -> "list[tuple[str, str, int]]":
        """(agent, conversation, messages) that contain one of these texts; `key`: only the conversation of this
        place.
        """
        counts: dict[tuple[str, str], int] = {}
        for text in texts:
            for place in [(key.agent, channel_of(key))] if key else await self._said_in(text):
                if total := (await self.messages(*place, Filter(q=text), limit=1)).total:
                    counts[place] = counts.get(place, 0) + total
        return [(*place, count) for place, count in counts.items()]

    async def _said_in(self, text: str) -> "list[tuple[str, str]]":
        found = await self._backend.conversations(Filter(q=text))
        return [(one.agent_id, one.channel_id) for one in found]

    async def erase(self, agent: str, channel_id: str, texts: Sequence[str]) -> int:
        """Erases the words and the sender of every message of a conversation that contains one of these texts."""
        wanted = [text for text in texts if text.strip()]
        return await self._backend.erase(agent, names.escaped(channel_id), wanted) if wanted else 0


def erased_record(record: Record, texts: Sequence[str]) -> Record | None:
    """The record without its words; None if it contains none of these texts."""
    if not any(matches(Filter(q=text), replace(record, channel_id="")) for text in texts):
        return None
    return replace(record, content=ERASED, sender="")


def _masked(channel_id: str, record: Record) -> Record:
    return replace(
        record,
        channel_id=names.escaped(channel_id),
        content=masking.mask(clean(record.content)),
        sender=masking.mask(clean(record.sender)[:SENDER_MAX_CHARS]),
    )


@asynccontextmanager
async def open_convlog(store_url: str) -> AsyncGenerator[ConvLog]:
    """The convlog of the store with that URL: its own files, database or schema."""
    backend = await _open_backend(store_url)
    try:
        yield ConvLog(backend)
    finally:
        await backend.close()


def has_convlog(store_url: str) -> bool:
    """Whether anything was written to it; a database on a server counts as written."""
    scheme, path, _ = parse_url(store_url)
    place = Path(path).expanduser()
    match scheme:
        case "jsonl":
            return any(place.glob("agents/*/convlogs"))
        case "sqlite":
            return place.with_name("convlog.db").exists()
        case _:
            return scheme != "memory"


async def _open_backend(store_url: str) -> Backend:
    scheme, path, _ = parse_url(store_url)
    match scheme:
        case "jsonl":
            from .files import FileBackend

            return FileBackend(Path(path).expanduser())
        case "sqlite":
            from .sqlite import SqliteBackend

            return SqliteBackend(Path(path).expanduser().with_name("convlog.db"))
        case "memory":
            from .sqlite import SqliteBackend

            return SqliteBackend(None)
        case _:
            with postgres_driver():
                from .postgres import PostgresBackend

            return await PostgresBackend.open(store_url)


ONE_ID_A_CHAT = frozenset({"telegram", "slack", "discord", "feishu", "web", "cli"})
"""Channels on which an id names one chat, private or group."""


@lru_cache(4_096)
def channel_of(key: SessionKey) -> str:
    """The conversation of a place: `channel[@account]-peer[~thread]`. Two places never share one.

    If another program chooses the ids, a private chat and a group may have the same id: there a group is
    `channel[@account]~group-peer[~thread]`.
    """
    group = "~group" if key.kind == "group" and key.channel not in ONE_ID_A_CHAT else ""
    account = f"@{_quoted(key.account, '@-~')}" if key.account else ""
    thread = f"~{_quoted(key.thread, '~')}" if key.thread else ""
    return f"{_quoted(key.channel, '@-~')}{account}{group}-{_quoted(key.peer, '~')}{thread}"


def _quoted(part: str, special: str) -> str:
    return "".join(encode_char(char) if char in special or char == "%" else char for char in part)


def record_ts() -> str:
    return timestamp(now_ms())


def matches(wanted: Filter, record: Record) -> bool:
    if wanted.sender is not None and record.sender != wanted.sender:
        return False
    if wanted.q is None:
        return True
    piece = wanted.q.casefold()
    return any(piece in text.casefold() for text in (record.content, record.sender, record.channel_id))


_PLAIN = re.compile(r"[A-Za-z0-9_@+=,~-][A-Za-z0-9._@+=,~-]*\Z")
NAME_MAX_BYTES = 200
"""The length of a file's name, so that every file system accepts it with its ending."""


def file_name(channel_id: str) -> str:
    """A file name that no other channel has: unusual characters as %XX, and a digest if it would be too long."""
    name = channel_id
    if not _PLAIN.match(name):
        name = "".join(c if _PLAIN.match(c) else encode_char(c) for c in channel_id)
    if len(name) > NAME_MAX_BYTES:
        digest = hashlib.sha256(channel_id.encode("utf-8", "surrogatepass")).hexdigest()
        return f"{name[: NAME_MAX_BYTES - 70]}%%{digest}"  # an escaped name never has two in a row
    return name


def _checked(limit: int) -> int:
    if not 1 <= limit <= PAGE_MAX:
        raise UsageError(f"a page holds 1 to {PAGE_MAX}, not {limit}", hint="Use the cursor for more.")
    return limit


def _order(sort: ConversationOrder, row: Conversation) -> tuple[int, int, str, str]:
    return -row.message_count if sort == "messages" else 0, -row.last_at, row.agent_id, row.channel_id


def cursor_after(row: Conversation, sort: ConversationOrder = "newest") -> str:
    mark = f"m{row.message_count}." if sort == "messages" else ""
    return f"{mark}{row.last_at}.{row.agent_id}.{row.channel_id}"


def _place(sort: ConversationOrder, cursor: str) -> tuple[int, int, str, str]:
    count = "0"
    if sort == "messages":
        mark, _, cursor = cursor.partition(".")
        count = mark.removeprefix("m") if mark.startswith("m") else ""
    moment, _, rest = cursor.partition(".")
    agent, dot, channel = rest.partition(".")
    if not dot:
        raise _not_a_cursor()
    return -_number(count), -_number(moment), agent, channel


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 15:
        raise _not_a_cursor()
    return int(text)


def _not_a_cursor() -> UsageError:
    return UsageError("the cursor is not valid", hint="Pass `next` of the previous page unchanged.")
