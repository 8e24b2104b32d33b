"""Searches the entries of a PostgreSQL store that its index does not have yet, so that a search need not wait for it.

To look through a few thousand entries takes a tenth of the time of indexing them, and less than a person notices. Only
if there are more, they are indexed first. What is found here is what the index would give: all of it is read before the
index is asked, so an entry that is indexed meanwhile is found twice, and none is missed.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from msgspec import Struct

from ...codecs import native
from ...core.query import Query
from ...core.rows import milliseconds
from ...core.search import Candidate, Phrase, Sought, Terms, Wanted
from ...core.searchable import SearchUnit, units
from ...core.snippets import occurs
from ...core.words import fold
from ..finding import is_allowed
from .pool import PostgresPool
from .search_index import Behind, know_tools
from .statements import conditions

ENTRIES_MAX = 4_000
BYTES_MAX = 4 * 1024 * 1024
"""What one search looks through, at about 10 µs an entry."""
ENTRIES_A_PASS = 100
"""After this many, other tasks run."""

_READ = """
SELECT s.session_id, m.seq, m.created_at,
    CASE WHEN s.indexed_to >= 0 AND sum(octet_length(m.meta_json)) OVER (ROWS UNBOUNDED PRECEDING) <= {bytes_max}
        THEN m.meta_json END
FROM (
    SELECT s.session_id, s.indexed_to FROM turnlog.sessions s
    WHERE s.indexed_to < s.last_seq{inside} ORDER BY s.session_id LIMIT {entries}
) s LEFT JOIN LATERAL (
    SELECT seq, created_at, meta_json FROM turnlog.session_messages
    WHERE session_id = s.session_id AND seq > s.indexed_to ORDER BY seq LIMIT {entries}
) m ON true
LIMIT {entries}
"""
"""Without the text of entries that are too much, and of those whose words the index may still have although they were
erased: the mark of their session is less than 0. A session without the entries that it should have is damaged.
"""


class UnindexedEntry(Struct, gc=False):
    session_id: str
    seq: int
    at: int
    """Unix milliseconds."""
    line: str
    found: tuple[tuple[SearchUnit, str], ...] | None = None
    """Its units, each with its text folded, once somebody looked at them."""

    def may_have(self, terms: Terms) -> bool:
        """False if it can be seen without decoding the entry that it does not match: the letters of a word are next to
        one another in JSON too, unless one of them is escaped. A number may be written in another way than it is
        searched.
        """
        if not self.line.isascii() or "\\u" in self.line:
            return True
        line = self.line.lower()
        for term in terms:
            for phrase in term.any_of:
                if all(token in line or token[0].isdigit() for token in phrase.tokens):
                    break
            else:
                return False
        return True

    def units(self) -> tuple[tuple[SearchUnit, str], ...]:
        if self.found is None:
            try:
                self.keep(units(native.decode(self.line.encode()), {}))
            except native.Undecodable:
                self.keep([])  # a reader of the session gets the error
        return self.found or ()

    def keep(self, found: Iterable[SearchUnit]) -> None:
        self.found = tuple((unit, fold(unit.text)) for unit in found)


class Unindexed:
    """The entries of one scope. `entries` is in the order of lists of candidates."""

    def __init__(self, entries: Sequence[UnindexedEntry]) -> None:
        self._entries = sorted(entries, key=lambda one: (-one.at, one.session_id, -one.seq))

    def __bool__(self) -> bool:
        return bool(self._entries)

    async def candidates(self, wanted: Wanted, sought: Sought, before: int | None) -> list[Candidate]:
        """The newest that match."""
        found: list[Candidate] = []
        for n, one in enumerate(self._entries):
            if n % ENTRIES_A_PASS == 0:
                await asyncio.sleep(0)
            if len(found) >= wanted.most:
                break
            if (before is None or one.seq < before) and one.may_have(wanted.terms):
                found += _matching(one, wanted, sought)
        return found[: wanted.most]


def _matching(one: UnindexedEntry, wanted: Wanted, sought: Sought) -> Iterator[Candidate]:
    for unit, folded in one.units():
        candidate = Candidate(one.session_id, one.seq, unit.part, one.at, unit.role)
        if is_allowed(candidate, unit, sought) and matches(unit.text, folded, wanted.terms, sought.without):
            yield candidate


def matches(text: str, folded: str, terms: Terms, without: Sequence[Phrase]) -> bool:
    """`folded`: the text, normalised."""
    return all(any(occurs(text, folded, phrase) for phrase in term.any_of) for term in terms) and not any(
        occurs(text, folded, phrase) for phrase in without
    )


async def read(db: PostgresPool, scope: Query) -> Unindexed | None:
    """None if there are too many, or if what the index has of them is no longer right."""
    where, values = conditions(scope)
    inside = "".join(f" AND {condition}" for condition in where)
    rows = await db.all(_READ.format(bytes_max=BYTES_MAX, entries=ENTRIES_MAX + 1, inside=inside), values)
    if len(rows) > ENTRIES_MAX or any(line is None for *_, line in rows):
        return None
    found: list[UnindexedEntry] = []
    for name, group in groupby(rows, key=itemgetter(0)):
        entries = [UnindexedEntry(name, seq, milliseconds(time), line) for _, seq, time, line in group]
        if any('"tool_result"' in one.line for one in entries):
            await _know_results(db, name, entries)
        found += entries
    return Unindexed(found)


async def _know_results(db: PostgresPool, session_id: str, entries: Sequence[UnindexedEntry]) -> None:
    """What is searched of a result depends on its call, which is in an entry before it."""
    session = Behind(session_id)
    session.add((one.seq, one.line) for one in entries)
    await know_tools(db, session)
    for one, (_, entry) in zip(entries, session.lines, strict=True):
        one.keep(session.units(entry) if entry is not None else [])
