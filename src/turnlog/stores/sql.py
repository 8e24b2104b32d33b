"""What SQLite and PostgreSQL share: the columns of `sessions`, the order of lists, and how lines become entries.

The columns are made from the row's fields (`core/rows`). Every public field has a column, so that people and other
programs find it there; a few inner fields have one because a query asks for them. `meta_json` holds the whole row.
No statement lists the columns by hand, and opening a store adds those that it does not have yet, with the default of
the field. So a new field needs no migration, and an older version continues with the columns that it knows.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from msgspec.structs import fields as fields_of, replace

from ..codecs import fact_lines, native
from ..core import facts as session_facts, query as queries
from ..core.entries import Assistant, Compaction, Entry, Opened, ToolResult, User
from ..core.facts import Fact, FactChange, fact_in, fact_of
from ..core.query import Query
from ..core.rows import FOLD, Session, SessionRow
from ..core.session import RowFold
from ..errors import Corrupt

NAMES = {"id": "session_id", "key": "session_key", "agent": "agent_id", "last_at": "updated_at"}
"""Row fields whose column has another name."""
_INNER = ("last_seq", "boundary", "selected_n", "unfinished", "last_role", "needed_approval", "peer", "fold")
_FIELDS = (*(name for name in SessionRow.__struct_fields__ if name != "file_path"), *_INNER)
_CONSTANT = frozenset(("id", "key", "agent", "channel", "label", "created_at"))
fields_in: Callable[[Session], tuple[Any, ...]] = attrgetter(*_FIELDS)
"""The values of a row in the order of `FIELD_COLUMNS`."""


def column(field: str) -> str:
    return NAMES.get(field, field)


FIELD_COLUMNS = tuple(map(column, _FIELDS))
COLUMNS = (*FIELD_COLUMNS, "meta_json")
CHANGING = (*(column(name) for name in _FIELDS if name not in _CONSTANT), "meta_json")
"""Columns that an append may change. The others, and their indexes, are left alone."""
RANKS = {sort: tuple(map(column, fields)) for sort, fields in queries.RANKS.items()}
OLDER_ROWS = f"fold < {FOLD}"
"""Rows that an older version made. An index with this condition finds them, and is empty nearly always."""

RARE = {
    ("last_role", ("failed",)): "last_role = 'failed'",
    ("waiting", (True,)): "waiting = TRUE",
    ("needed_approval", (True,)): "needed_approval = TRUE",
}
"""Values that few rows have, and the condition, word for word, of the index that holds these rows alone."""
INDEXES = {
    "sessions_by_home": "(session_key, status, agent_id, channel)",
    "sessions_by_peer": "(peer, status, agent_id, channel)",
    **{f"sessions_{name}": f"(updated_at, session_id) WHERE {asked}" for (name, _), asked in RARE.items()},
}
"""Indexes that follow no append, or only those of few sessions; made after the columns that `definitions` adds."""


def types_of(types: Mapping[type, str]) -> tuple[str, ...]:
    """The types of `COLUMNS`. `types`: of the database."""
    values = (*fields_in(Session(id="", key="", agent="", channel="")), "")
    return tuple(types[str if value is None else type(value)] for value in values)


def names_sessions(query: Query) -> bool:
    """Whether it asks only for fields that never change: then it finds the same sessions in rows of any version."""
    names = {name for name, _ in queries.compared(query)}
    return not query.unfinished and names <= _CONSTANT and not names.isdisjoint(("id", "key", "label"))


def definitions(types: Mapping[type, str]) -> dict[str, str]:
    """Column → how it is added to a table that does not have it yet. `types`: of the database."""
    found: dict[str, str] = {}
    for one in fields_of(Session):
        default: Any = one.default
        kind = types.get(default.__class__)
        if one.name in _FIELDS and kind is not None:
            literal = f"'{default}'" if isinstance(default, str) else str(default).upper()
            found[column(one.name)] = f"{column(one.name)} {kind} NOT NULL DEFAULT {literal}"
    return found


def values_of(row: Session, storable: Callable[[str], str]) -> tuple[Any, ...]:
    """The values in the order of `COLUMNS`. `storable`: what the database can hold of a text."""
    values = [storable(value) if isinstance(value, str) else value for value in fields_in(row)]
    return (*values, native.encode_plain(row).decode())


def role_of(entry: Entry, summary_role: str | None) -> str | None:
    match entry:
        case User():
            return "user"
        case Assistant():
            return "assistant"
        case ToolResult():
            return "tool"
        case Compaction():
            return summary_role
        case _:
            return None


class LogFold:
    """What a store derives from a whole log, which is added in parts: its row, and the index of its facts."""

    def __init__(self) -> None:
        self._row = RowFold(None)
        self._opened: bool | None = None
        self._facts: dict[tuple[str, str], FactChange] = {}

    def add(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if self._opened is None:
                self._opened = isinstance(entry, Opened)
            self._row.add(entry)
            for change in session_facts.changes([entry]):
                self._facts[change.app, change.key] = change

    @property
    def is_empty(self) -> bool:
        return self._opened is None

    @property
    def facts(self) -> list[FactChange]:
        """The newest change of each fact."""
        return list(self._facts.values())

    def row(self) -> Session:
        return self._row.row()

    def refolded(self, row: Session) -> Session:
        """The row of another version by the rule of this one. If the log no longer begins with its session entry, it
        stays as it is.
        """
        return replace(self._row.row(), last_seq=row.last_seq) if self._opened else row


def past(prefix: str) -> str:
    """The first text in byte order after all that begin with this prefix."""
    last = ord(prefix[-1])
    if last == sys.maxunicode:
        return past(prefix[:-1]) if len(prefix) > 1 else chr(sys.maxunicode) * 2
    return prefix[:-1] + chr(0xE000 if last == 0xD7FF else last + 1)  # between the two are halves of characters


def key_bytes(key: str) -> bytes:
    """The name of a fact as both databases keep it: any text, and in the order of Python."""
    return key.encode("utf-8", "surrogatepass")


def key_text(key: bytes) -> str:
    return bytes(key).decode("utf-8", "surrogatepass")


def past_bytes(prefix: bytes) -> bytes:
    """The first key in order after all that begin with this prefix. No byte of UTF-8 is 0xFF."""
    return prefix + b"\xff"


def facts_in(session_id: str, app: str, found: Iterable[Sequence[Any]]) -> list[Fact]:
    """The facts in rows of (key, seq, line). Several may be in one line."""
    rows = list(found)
    if (pairs := fact_lines.decode([line for _, _, line in rows])) is not None:
        return [
            fact_of(key, [pair.text, pair.packed.data], entry.seq)
            for (data, _, _), entry in zip(rows, pairs, strict=True)
            if (pair := entry.put.get(key := key_text(data))) is not None and entry.app == app
        ]
    lines = {seq: line for _, seq, line in rows}  # each is decoded once
    entries = dict(zip(lines, _decoded(session_id, lines), strict=True))
    facts = [fact_in(entries[seq], app, key_text(key)) for key, seq, _ in rows]
    return [fact for fact in facts if fact is not None]


def where(conditions: Iterable[str]) -> str:
    joined = " AND ".join(conditions)
    return f" WHERE {joined}" if joined else ""


def decode_entries(session_id: str, after: int, lines: Sequence[bytes]) -> list[Entry]:
    """The entries after `after`. Raises Corrupt, which names the entry, if one cannot be read or is missing."""
    entries = _decoded(session_id, dict(enumerate(lines, after + 1)))
    for number, entry in enumerate(entries, after + 1):
        if entry.seq != number:
            raise _gap(session_id, number - 1, entries)
    if after == 0 and entries:
        native.check_version(entries[0], f"session {session_id}")
    return entries


def _gap(session_id: str, last: int, entries: Sequence[Entry]) -> Corrupt:
    following = min((entry.seq for entry in entries if entry.seq > last + 1), default=None)
    until = "on" if following is None else f"to {following - 1}"
    return Corrupt(f"session {session_id}: entries from {last + 1} {until} are missing", after=last, before=following)


def _decoded(session_id: str, lines: Mapping[int, bytes]) -> list[Entry]:
    try:
        return native.decode_each(list(lines.values()))
    except native.Undecodable:
        return [_decode(session_id, seq, line) for seq, line in lines.items()]


def _decode(session_id: str, seq: int, line: bytes) -> Entry:
    try:
        return native.decode(line)
    except native.Undecodable as error:
        raise Corrupt(
            f"session {session_id}, entry {seq}: not a readable entry ({error})",
            path=f"session_messages of {session_id}",
            line=seq,
            after=seq - 1,
            before=seq + 1,
        ) from error
