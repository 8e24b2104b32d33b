"""What was said on each channel, for administrators: written on arrival and on delivery, apart from all transcripts.

A namespace of its own, beside the sessions and never inside them: the runner, tools and providers are not handed it,
and deleting a session leaves it. The page of one conversation is oldest first, the list of conversations newest first.
"""

import asyncio
import hashlib
import heapq
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from .core import masking
from .core.keys import SessionKey
from .errors import UsageError
from .stores import parse_url, postgres_driver

PAGE_MAX = 200
SENDER_MAX_CHARS = 200
MASKED_INLINE_CHARS = 10_000
"""Looking for secrets in more than this takes a while: turns go on meanwhile."""


class Record(Struct, frozen=True, kw_only=True, rename="camel"):
    """One message as people saw it."""

    ts: str
    role: str
    content: str
    channel_id: str
    channel_type: str
    sender: str = ""


class Conversation(Struct, frozen=True, kw_only=True, rename="camel"):
    """One chat or thread of one channel."""

    channel_id: str
    channel_type: str
    agent_id: str
    message_count: int
    first_at: int
    """Unix ms, as `last_at`."""
    last_at: int


class Filter(Struct, frozen=True, kw_only=True):
    """All that is given must hold."""

    agents: frozenset[str] | None = None
    channel_id: str | None = None
    channel_type: str | None = None
    sender: str | None = None
    q: str | None = None
    """A piece of a message, a sender or a channel id, in any case."""


class ConversationPage(Struct, frozen=True):
    items: "list[Conversation]"
    next: str | None
    total: int


class MessagePage(Struct, frozen=True):
    items: "list[Record]"
    next: str | None
    total: int


Sort: TypeAlias = Literal["newest", "messages"]
Conversations: TypeAlias = list[Conversation]
Records: TypeAlias = list[Record]


class Shelf(Protocol):
    """Where records are kept. Blocking is kept short, or inside."""

    async def append(self, agent: str, record: Record) -> None: ...
    async def conversations(self, wanted: Filter) -> Conversations:
        """All that match, in any order."""
        ...

    async def records(self, agent: str, wanted: Filter, start: int, limit: int) -> tuple[Records, int]:
        """Matching ones of one conversation, oldest first, from the `start`-th on, and how many match in all."""
        ...

    async def close(self) -> None: ...


class ConvLog:
    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    async def write(self, agent: str, channel_id: str, record: Record) -> None:
        """Durable enough to be read by the next process; not synced, for no promise rests on it."""
        if len(record.content) <= MASKED_INLINE_CHARS:
            masked = _masked(channel_id, record)
        else:
            masked = await asyncio.to_thread(_masked, channel_id, record)
        await self._shelf.append(agent, masked)

    async def list(
        self,
        wanted: Filter | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
        sort: Sort = "newest",
    ) -> ConversationPage:
        """Newest first; or the most messages first, and then the newest."""
        place = None if cursor is None else _place(sort, cursor)
        found = await self._shelf.conversations(wanted or Filter())
        left = found if place is None else [row for row in found if _order(sort, row) > place]
        page = heapq.nsmallest(_checked(limit), left, key=lambda row: _order(sort, row))
        return ConversationPage(page, cursor_after(page[-1], sort) if len(left) > len(page) else None, len(found))

    async def messages(
        self, agent: str, channel_id: str, wanted: Filter | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> MessagePage:
        """Oldest first. What was never written has no messages."""
        start = _number(cursor) if cursor is not None else 0
        narrowed = replace(wanted or Filter(), channel_id=channel_id)
        items, total = await self._shelf.records(agent, narrowed, start, _checked(limit))
        end = start + len(items)
        return MessagePage(items, str(end) if items and end < total else None, total)


def _masked(channel_id: str, record: Record) -> Record:
    return replace(
        record,
        channel_id=channel_id,
        content=masking.mask(_stored(record.content)),
        sender=masking.mask(_stored(record.sender)[:SENDER_MAX_CHARS]),
    )


@asynccontextmanager
async def open_convlog(store_url: str) -> AsyncGenerator[ConvLog]:
    """Beside the store of that URL: files of their own, a database of its own, or a schema of its own."""
    shelf = await _open_shelf(store_url)
    try:
        yield ConvLog(shelf)
    finally:
        await shelf.close()


async def _open_shelf(store_url: str) -> Shelf:
    scheme, path, _ = parse_url(store_url)
    match scheme:
        case "jsonl":
            from .convlog_files import FileShelf

            return FileShelf(Path(path).expanduser())
        case "sqlite":
            from .convlog_tables import TableShelf

            return TableShelf(Path(path).expanduser().with_name("convlog.db"))
        case "memory":
            from .convlog_tables import TableShelf

            return TableShelf(None)
        case _:
            with postgres_driver():
                from .convlog_postgres import PostgresShelf

            return await PostgresShelf.open(store_url)


def channel_of(key: SessionKey) -> str:
    """The conversation that a place is: `channel[@account]-peer[~thread]`. Two places never share one."""
    account = f"@{_quoted(key.account, '@-~')}" if key.account else ""
    thread = f"~{_quoted(key.thread, '~')}" if key.thread else ""
    return f"{_quoted(key.channel, '@-~')}{account}-{_quoted(key.peer, '~')}{thread}"


def _quoted(part: str, special: str) -> str:
    return "".join(_escaped(char) if char in special or char == "%" else char for char in part)


def record_ts() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def matches(wanted: Filter, record: Record) -> bool:
    if wanted.sender is not None and record.sender != wanted.sender:
        return False
    if wanted.q is None:
        return True
    piece = wanted.q.casefold()
    return any(piece in text.casefold() for text in (record.content, record.sender, record.channel_id))


def milliseconds(ts: str) -> int:
    return round(datetime.fromisoformat(ts).timestamp() * 1000)


_PLAIN = re.compile(r"[A-Za-z0-9_@+=,~-][A-Za-z0-9._@+=,~-]*\Z")
NAME_MAX_BYTES = 200
"""Of a file's name, so that every file system takes it with its ending."""


def file_name(channel_id: str) -> str:
    """A name that no other channel has: everything unusual as %XX, and a digest where it would be too long."""
    name = channel_id
    if not _PLAIN.match(name):
        name = "".join(c if _PLAIN.match(c) else _escaped(c) for c in channel_id)
    if len(name) > NAME_MAX_BYTES:
        digest = hashlib.sha256(channel_id.encode("utf-8", "surrogatepass")).hexdigest()
        return f"{name[: NAME_MAX_BYTES - 70]}%%{digest}"  # an escaped name has no two in a row
    return name


def _escaped(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))


def _stored(text: str) -> str:
    """Lone surrogates have no place in UTF-8."""
    return text.encode("utf-8", "replace").decode()


def _checked(limit: int) -> int:
    if not 1 <= limit <= PAGE_MAX:
        raise UsageError(f"a page holds 1 to {PAGE_MAX}, not {limit}", hint="Use the cursor for more.")
    return limit


def _order(sort: Sort, row: Conversation) -> tuple[int, int, str, str]:
    return -row.message_count if sort == "messages" else 0, -row.last_at, row.agent_id, row.channel_id


def cursor_after(row: Conversation, sort: Sort = "newest") -> str:
    mark = f"m{row.message_count}." if sort == "messages" else ""
    return f"{mark}{row.last_at}.{row.agent_id}.{row.channel_id}"


def _place(sort: Sort, cursor: str) -> tuple[int, int, str, str]:
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
    return UsageError("that is not a cursor", hint="Pass `next` of the page before, unchanged.")
