"""Selects sessions, in an order, page by page.

Every order is total, because the id decides last. So a cursor names a place between two rows, whatever has changed
since. A cursor of another order is refused.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast, get_args

from msgspec import Struct
from msgspec.structs import replace

from ..errors import UsageError
from . import keys
from .arguments import Named, Typed
from .rows import Session, StatusValue

PAGE_MAX = 200
NUMBER_MAX_CHARS = 15
"""The digits of a number in a cursor: more than any clock has, and still a number for every database."""
UNTRASHED: tuple[StatusValue, ...] = ("active", "inactive", "archived")
"""The sessions that people mean unless they ask for the trash."""

Sort: TypeAlias = Literal["newest", "messages", "tokens", "id"]
"""Newest first; or most messages or tokens first, and among equals the newest; or by id, the largest first: no session
moves in this order, so its pages hold every session, whatever is written meanwhile.
"""
T = TypeVar("T")
_STATUSES = frozenset(get_args(StatusValue))
_SORTS = get_args(Sort)


class Query(Struct, metaclass=Typed, frozen=True, kw_only=True):
    """All given fields must match. Unset fields do not restrict.

    A field that the row has too is compared with it, on every store, without being named anywhere else.
    """

    id: str | None = None
    ids: tuple[str, ...] = ()
    """Any of these."""
    key: str | None = None
    agent: str | tuple[str, ...] | None = None
    """This one, or any of these."""
    channel: str | tuple[str, ...] | None = None
    """This one, or any of these."""
    label: str | None = None
    status: str | tuple[str, ...] | None = None
    """This one, or any of these."""
    prefix: str | None = None
    """The beginning of the id, the key or the label."""
    key_prefix: str | None = None
    """The beginning of the key."""
    homes: tuple[str, ...] = ()
    """Any of these keys, or a thread at one of them."""
    q: str | None = None
    """Words, each of which must occur in title, label or key."""
    unfinished: bool = False
    """Only sessions with waiting messages or a running turn: those that a restart has to handle."""
    waiting: bool | None = None
    """Whether a call waits for a person's approval."""
    needed_approval: bool | None = None
    """Whether any call has ever needed a person's approval."""
    last_role: str | None = None
    """How the last turn stands; `failed`: without an answer."""
    peer: str | None = None
    """Who or what the agent talks with."""
    sort: Sort = "newest"
    limit: int = 50
    cursor: str | None = None


_COMPARED = tuple(name for name in Query.__struct_fields__ if name in Session.__struct_fields__)


class Page(Struct, Generic[T], metaclass=Named, frozen=True):
    items: list[T]
    next: str | None
    total: int
    """The number of all matches, not only on this page."""


class Hit(Struct, metaclass=Named, frozen=True, kw_only=True, rename="camel"):
    session_id: str
    seq: int
    role: str
    """user, assistant, tool, summary or title."""
    snippet: str
    """One line of text around the match."""
    time: str = ""
    state: Literal["tail", "compacted", "rewound"] = "tail"
    matches: tuple[tuple[int, int], ...] = ()
    """(start, end) of each match in the snippet, in characters."""


def check(query: Query) -> Query:
    if not 1 <= query.limit <= PAGE_MAX:
        raise UsageError(f"a page holds 1 to {PAGE_MAX} sessions, not {query.limit}", hint="Use the cursor for more.")
    wanted = any_of(query.status)
    if wanted is not None and not (wanted and _STATUSES.issuperset(wanted)):
        raise UsageError(
            f"unknown status {query.status!r}", hint="Use active, inactive, archived or trashed, or none for all."
        )
    if query.sort not in _SORTS:
        raise UsageError(f"unknown order {query.sort!r}", hint=f"Use one of {', '.join(_SORTS)}.")
    place(query)
    return query


def named_status(name: str) -> str | tuple[str, ...] | None:
    """The `status` of a query by the name that people use: a status, `untrashed` or `all`."""
    return {"untrashed": UNTRASHED, "all": None}.get(name, name)


def any_of(value: str | tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The values that a field of a query allows: any of these; None for all."""
    return (value,) if isinstance(value, str) else value


def compared(query: Query) -> list[tuple[str, tuple[Any, ...]]]:
    """(field of the row, the values that it may have), for each field that restricts."""
    found: list[tuple[str, tuple[Any, ...]]] = [("id", query.ids)] if query.ids else []
    for name in _COMPARED:
        value: Any = getattr(query, name)
        if value is not None:
            found.append((name, cast("tuple[Any, ...]", value) if isinstance(value, tuple) else (value,)))
    return found


def matcher(query: Query) -> Callable[[Session], bool]:
    """Tells whether a row matches. Made once for a list, because the list may be long."""
    fields = compared(query)

    def matches(row: Session) -> bool:
        for name, values in fields:
            if getattr(row, name) not in values:
                return False
        return (
            (query.prefix is None or _begins(row, query.prefix))
            and (query.key_prefix is None or row.key.startswith(query.key_prefix))
            and (not query.homes or row.key in query.homes or row.key.startswith(threads_at(query.homes)))
            and (query.q is None or _mentions(row, query.q))
            and (not query.unfinished or row.unfinished)
        )

    return matches


def threads_at(homes: Sequence[str]) -> tuple[str, ...]:
    """The beginnings of the keys of their threads."""
    return tuple(f"{key}:thread:" for key in homes)


def _begins(row: Session, prefix: str) -> bool:
    return row.id.startswith(prefix) or row.key.startswith(prefix) or (row.label or "").startswith(prefix)


def _mentions(row: Session, words: str) -> bool:
    text = haystack(row)
    return all(word in text for word in words.casefold().split())


def haystack(row: Session) -> str:
    """The text that `q` is searched in. Not the id: the time in it would match nearly every number."""
    return "\n".join(haystack_of(row)).casefold()


def haystack_of(row: Session) -> tuple[str, str, str]:
    """What that text is made of."""
    return row.title, row.label or "", row.key


def as_beginning(query: Query) -> Query | None:
    """The same query, with its only word as the beginning of an id, a key or a label; None if it has several words."""
    word = (query.q or "").strip()
    return replace(query, q=None, prefix=word) if word and len(word.split()) == 1 and query.prefix is None else None


def is_plain(query: Query) -> bool:
    """Whether only agent and status restrict it: such totals can be kept instead of counted."""
    return (
        not query.unfinished
        and query.prefix is None
        and query.key_prefix is None
        and not query.homes
        and query.q is None
        and all(name in ("agent", "status") for name, _ in compared(query))
    )


def readings(text: str, within: Query) -> list[Query]:
    """The queries that a person may have meant, from exact to vague."""
    readings: list[Query] = []
    if keys.SESSION_ID.match(text):
        readings.append(replace(within, ids=(text,)))
    with suppress(UsageError):
        readings.append(Query(key=keys.format(keys.parse(text)), agent=within.agent, limit=PAGE_MAX))
    if text:
        readings += [replace(within, label=text), replace(within, prefix=text)]
    return readings


def rank(sort: Sort, row: Session) -> tuple[Any, ...]:
    """The sort key of a row, the largest first."""
    return (row.id,) if sort == "id" else _ranked[sort](row)


RANKS: dict[Sort, tuple[str, ...]] = {
    "newest": ("last_at", "id"),
    "messages": ("message_count", "last_at", "id"),
    "tokens": ("token_estimate", "last_at", "id"),
    "id": ("id",),
}
"""The fields that each order compares."""
_ranked = {sort: attrgetter(*fields) for sort, fields in RANKS.items()}


_MARKS: dict[Sort, str] = {"newest": "", "messages": "m", "tokens": "t", "id": "i."}


def cursor_after(row: Session, sort: Sort = "newest") -> str:
    return _MARKS[sort] + ".".join(map(str, rank(sort, row)))


def page(query: Query, found: Sequence[Session], total: int) -> Page[Session]:
    """The page from the rows after the cursor; `found` has one row more than the page if there are that many."""
    items = [*found[: query.limit]]
    return Page(items, cursor_after(items[-1], query.sort) if len(found) > query.limit else None, total)


def place(query: Query) -> tuple[Any, ...] | None:
    """The rank of the last row of the previous page; None on the first page."""
    if query.cursor is None:
        return None
    mark = _MARKS[query.sort]
    *numbers, session_id = query.cursor.removeprefix(mark).split(".")
    if (
        not query.cursor.startswith(mark)
        or len(numbers) != len(RANKS[query.sort]) - 1
        or not all(map(_is_number, numbers))
        or not keys.SESSION_ID.match(session_id)
    ):
        raise UsageError(
            f"{query.cursor[:80]!r} is not a cursor of this list",
            hint="Pass `next` of the previous page unchanged, with the same order.",
        )
    return (*map(int, numbers), session_id)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= NUMBER_MAX_CHARS
