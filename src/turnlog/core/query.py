"""Which sessions are meant, in which order, page by page. The order is: newest first, then by id."""

from typing import Generic, TypeVar

from msgspec import Struct

from ..errors import UsageError
from .session import Session

PAGE_MAX = 200
T = TypeVar("T")


class Query(Struct, frozen=True, kw_only=True):
    """All that is given must hold. Unset fields do not restrict."""

    id: str | None = None
    ids: tuple[str, ...] = ()
    """Any of these."""
    key: str | None = None
    agent: str | None = None
    channel: str | None = None
    label: str | None = None
    status: str | None = None
    prefix: str | None = None
    """Begins the id, the key or the label."""
    q: str | None = None
    """Words, each somewhere in title, label, key or id."""
    unfinished: bool = False
    """Only where messages wait or a turn is under way: what a restart has to look after."""
    limit: int = 50
    cursor: str | None = None


class Page(Struct, Generic[T], frozen=True):
    items: list[T]
    next: str | None
    total: int
    """How many match in all, not only on this page."""


class Hit(Struct, frozen=True, kw_only=True, rename="camel"):
    session_id: str
    seq: int
    role: str
    snippet: str


def check(query: Query) -> Query:
    if not 1 <= query.limit <= PAGE_MAX:
        raise UsageError(f"a page holds 1 to {PAGE_MAX} sessions, not {query.limit}", hint="Use the cursor for more.")
    if query.status not in (None, "active", "inactive", "archived", "trashed"):
        raise UsageError(
            f"unknown status {query.status!r}", hint="Use active, inactive, archived or trashed, or none for all."
        )
    return query


def matches(query: Query, row: Session) -> bool:
    return (
        (query.id is None or row.id == query.id)
        and (not query.ids or row.id in query.ids)
        and (query.key is None or row.key == query.key)
        and (query.agent is None or row.agent == query.agent)
        and (query.channel is None or row.channel == query.channel)
        and (query.label is None or row.label == query.label)
        and (query.status is None or row.status == query.status)
        and (query.prefix is None or _begins(row, query.prefix))
        and (query.q is None or _mentions(row, query.q))
        and (not query.unfinished or row.under_way or bool(row.received))
    )


def _begins(row: Session, prefix: str) -> bool:
    return row.id.startswith(prefix) or row.key.startswith(prefix) or (row.label or "").startswith(prefix)


def _mentions(row: Session, words: str) -> bool:
    text = haystack(row)
    return all(word in text for word in words.casefold().split())


def haystack(row: Session) -> str:
    """What `q` looks through."""
    return "\n".join((row.title, row.label or "", row.key, row.id)).casefold()


def is_plain(query: Query) -> bool:
    """Only agent and status restrict: their numbers can be kept instead of counted."""
    return (
        not query.ids
        and not query.unfinished
        and all(value is None for value in (query.id, query.key, query.channel, query.label, query.prefix, query.q))
    )


def cursor_after(row: Session) -> str:
    return f"{row.last_at}.{row.id}"


def place(cursor: str) -> tuple[int, str]:
    """(last_at, id) of the last row of the page before."""
    moment, dot, session_id = cursor.partition(".")
    if not dot or not moment.isdecimal() or not session_id:
        raise UsageError(f"{cursor[:80]!r} is not a cursor", hint="Pass `next` of the page before, unchanged.")
    return int(moment), session_id
