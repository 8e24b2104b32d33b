"""Which sessions are meant, in which order, page by page.

Every order is total, the id decides last; so a cursor names a place between two rows, whatever has changed since. The
order of another query's cursor is not guessed at: it is refused.
"""

from collections.abc import Sequence
from typing import Any, Generic, Literal, TypeAlias, TypeVar, get_args

from msgspec import Struct

from ..errors import UsageError
from . import keys
from .session import Session, StatusValue

PAGE_MAX = 200
NUMBER_MAX_CHARS = 15
"""Of a number in a cursor: more than any clock says, and still a number to every database."""
UNTRASHED: tuple[StatusValue, ...] = ("active", "inactive", "archived")
"""What people mean by their sessions, unless they ask for the trash."""

Sort: TypeAlias = Literal["newest", "messages", "tokens"]
"""Newest first; or the most messages or tokens first, and then the newest."""
T = TypeVar("T")
_STATUSES = frozenset(get_args(StatusValue))
_SORTS = get_args(Sort)


class Query(Struct, frozen=True, kw_only=True):
    """All that is given must hold. Unset fields do not restrict."""

    id: str | None = None
    ids: tuple[str, ...] = ()
    """Any of these."""
    key: str | None = None
    agent: str | tuple[str, ...] | None = None
    """This one, or any of these."""
    channel: str | None = None
    label: str | None = None
    status: str | tuple[str, ...] | None = None
    """This one, or any of these."""
    prefix: str | None = None
    """Begins the id, the key or the label."""
    q: str | None = None
    """Words, each somewhere in title, label, key or id."""
    unfinished: bool = False
    """Only where messages wait or a turn is under way: what a restart has to look after."""
    sort: Sort = "newest"
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
    wanted = statuses(query)
    if wanted is not None and not (wanted and _STATUSES.issuperset(wanted)):
        raise UsageError(
            f"unknown status {query.status!r}", hint="Use active, inactive, archived or trashed, or none for all."
        )
    if query.sort not in _SORTS:
        raise UsageError(f"unknown order {query.sort!r}", hint=f"Use one of {', '.join(_SORTS)}.")
    place(query)
    return query


def named_status(name: str) -> str | tuple[str, ...] | None:
    """`status` of a query, by the name that people give it: a status, `untrashed` or `all`."""
    return {"untrashed": UNTRASHED, "all": None}.get(name, name)


def agents(query: Query) -> tuple[str, ...] | None:
    """Any of these; None for all."""
    return (query.agent,) if isinstance(query.agent, str) else query.agent


def statuses(query: Query) -> tuple[str, ...] | None:
    """Any of these; None for all."""
    return (query.status,) if isinstance(query.status, str) else query.status


def matches(query: Query, row: Session) -> bool:
    return (
        (query.id is None or row.id == query.id)
        and (not query.ids or row.id in query.ids)
        and (query.key is None or row.key == query.key)
        and (query.agent is None or row.agent in (agents(query) or ()))
        and (query.channel is None or row.channel == query.channel)
        and (query.label is None or row.label == query.label)
        and (query.status is None or row.status in (statuses(query) or ()))
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


def rank(sort: Sort, row: Session) -> tuple[Any, ...]:
    """What rows are ordered by, the largest first."""
    if sort == "newest":
        return row.last_at, row.id
    return row.message_count if sort == "messages" else row.token_estimate, row.last_at, row.id


_MARKS: dict[Sort, str] = {"newest": "", "messages": "m", "tokens": "t"}


def cursor_after(row: Session, sort: Sort = "newest") -> str:
    return _MARKS[sort] + ".".join(map(str, rank(sort, row)))


def page(query: Query, found: Sequence[Session], total: int) -> Page[Session]:
    """Of the rows from the cursor on: one more than the page holds, if there are so many."""
    items = [*found[: query.limit]]
    return Page(items, cursor_after(items[-1], query.sort) if len(found) > query.limit else None, total)


def place(query: Query) -> tuple[Any, ...] | None:
    """The rank of the last row of the page before; None on the first page."""
    if query.cursor is None:
        return None
    mark = _MARKS[query.sort]
    *numbers, session_id = query.cursor.removeprefix(mark).split(".")
    if (
        not query.cursor.startswith(mark)
        or len(numbers) != (1 if query.sort == "newest" else 2)
        or not all(map(_is_number, numbers))
        or not keys.SESSION_ID.match(session_id)
    ):
        raise UsageError(
            f"{query.cursor[:80]!r} is not a cursor of this list",
            hint="Pass `next` of the page before, unchanged, with the same order.",
        )
    return (*map(int, numbers), session_id)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= NUMBER_MAX_CHARS
