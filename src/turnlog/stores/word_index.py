"""The index of words in an SQLite database: that of the SQLite store, or a file next to a JSONL store.

It is derived. A unit (`core/searchable`) has a number that begins with its time, so that the newest matches are read
first without sorting. Its words are the tokens of its text, and marks that no text contains: for who said it, and for
its session. So a search in one session costs what that session's matches cost, however large the store is.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from ..core.entries import Entry
from ..core.rows import milliseconds
from ..core.search import Candidate, Phrase, Sought, Term, Wanted
from ..core.searchable import SearchUnit, calls_in, results_in, units
from ..core.words import BORDER, SINGLE, indexed
from .sqlite.connection import SqliteConnection

INDEX_VERSION = 2
"""Rises when the same text gives other words: then the index is built anew."""
AT_BITS = 20
"""The bits that number the units of one millisecond. Further units take numbers of the next millisecond."""
NEVER = 1 << 62

TABLES = ("search_facts", "search_sessions", "search_units", "search_words")
_SCHEMA = """
CREATE TABLE search_facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE search_sessions (
    no          INTEGER PRIMARY KEY,
    session_id  TEXT NOT NULL UNIQUE,
    incarnation TEXT NOT NULL DEFAULT '',
    ino         INTEGER NOT NULL DEFAULT 0,
    size        INTEGER NOT NULL DEFAULT 0,
    done        INTEGER NOT NULL DEFAULT 0,
    tail        TEXT NOT NULL DEFAULT ''
);
CREATE TABLE search_units (
    id INTEGER PRIMARY KEY, session INTEGER NOT NULL, seq INTEGER NOT NULL, part INTEGER NOT NULL, role TEXT NOT NULL
);
CREATE INDEX search_units_by_entry ON search_units (session, seq);
CREATE VIRTUAL TABLE search_words USING fts5 (words, content = '', contentless_delete = 1, tokenize = 'ascii');
"""


class Within(Struct, frozen=True, kw_only=True):
    """Which units are looked at."""

    sessions: Sequence[int] | None = None
    """Any of these; None for all."""
    before: int | None = None
    """Only entries before this seq."""
    condition: str = ""
    """On `search_sessions s`, with its values."""
    values: Sequence[object] = ()


AMONG = "s.session_id IN (SELECT value FROM json_each(?))"
NOT_AMONG = "s.session_id NOT IN (SELECT value FROM json_each(?))"
"""Conditions with a value that `listed` makes."""


def listed(session_ids: Sequence[str]) -> str:
    return msgspec.json.encode(session_ids).decode()


def is_small_part(sessions: int, of: int) -> bool:
    """Whether naming them to the index is faster than reading matches of all sessions until enough are theirs."""
    return sessions * 4 <= of or sessions == 0


def prepare(db: SqliteConnection) -> None:
    """Makes the tables, if this version did not. In a transaction of the caller."""
    if is_ready(db):
        return
    forget_all(db)


def is_ready(db: SqliteConnection) -> bool:
    if db.one("SELECT 1 FROM sqlite_schema WHERE name = 'search_facts'") is None:
        return False
    return db.one("SELECT value FROM search_facts WHERE name = 'version'") == INDEX_VERSION


def forget_all(db: SqliteConnection) -> None:
    """Begins an empty index."""
    for table in TABLES:
        db.run(f"DROP TABLE IF EXISTS {table}")
    db.run(_SCHEMA)
    db.run("INSERT INTO search_facts VALUES ('version', ?), ('indexed_to', 0)", (INDEX_VERSION,))


def number_of(db: SqliteConnection, session_id: str) -> int:
    db.run("INSERT OR IGNORE INTO search_sessions (session_id) VALUES (?)", (session_id,))
    return db.one("SELECT no FROM search_sessions WHERE session_id = ?", (session_id,))


def numbers_of(db: SqliteConnection, session_ids: Sequence[str]) -> list[int]:
    """The numbers of those sessions that are indexed."""
    found = db.all(f"SELECT no FROM search_sessions s WHERE {AMONG}", (listed(session_ids),))
    return [no for (no,) in found]


class Indexer:
    """Adds entries of one session, in order. `earlier`: the tool of a call that was made before these entries."""

    def __init__(self, db: SqliteConnection, no: int, earlier: Callable[[str, int], str]) -> None:
        self._db = db
        self._no = no
        self._tools: dict[str, str] = {}
        self._earlier = earlier

    def note(self, entry: Entry) -> None:
        """Remembers the calls in it, and does not index it."""
        self._tools.update(calls_in(entry))

    def add(self, entry: Entry) -> None:
        self.note(entry)
        named: Mapping[str, str] = {}
        if wanted := results_in(entry):
            named = {call: self._tools.get(call) or self._earlier(call, entry.seq) for call in wanted}
        at = milliseconds(entry.ts) if entry.ts else 0
        for unit in reversed(units(entry, named)):  # the last one has the highest number, and is listed first
            self._add(entry.seq, at, unit)

    def _add(self, seq: int, at: int, unit: SearchUnit) -> None:
        number = _free_number(self._db, at)
        self._db.run("INSERT INTO search_units VALUES (?, ?, ?, ?, ?)", (number, self._no, seq, unit.part, unit.role))
        tokens = indexed(unit.text)
        stream = tokens if unit.text.isascii() else _stream(tokens)
        words = " ".join([*stream, BORDER, *unit.facets, _session_mark(self._no)])
        self._db.run("INSERT INTO search_words (rowid, words) VALUES (?, ?)", (number, words))


def _free_number(db: SqliteConnection, at: int) -> int:
    """The next number of this millisecond."""
    while True:
        first = max(0, at) << AT_BITS
        last = db.one("SELECT max(id) FROM search_units WHERE id >= ? AND id < ?", (first, first + (1 << AT_BITS)))
        if last is None:
            return first or 1
        if last + 1 < first + (1 << AT_BITS):
            return last + 1
        at += 1


def drop(db: SqliteConnection, session_id: str, seq: int | None = None) -> None:
    """Removes the words of a session, or of one entry of it. `erase_some` then removes them from the file."""
    no = db.one("SELECT no FROM search_sessions WHERE session_id = ?", (session_id,))
    if no is None:
        return
    which, values = ("session = ?", (no,)) if seq is None else ("session = ? AND seq = ?", (no, seq))
    db.run(f"DELETE FROM search_words WHERE rowid IN (SELECT id FROM search_units WHERE {which})", values)
    db.run(f"DELETE FROM search_units WHERE {which}", values)
    if seq is None:
        db.run("DELETE FROM search_sessions WHERE no = ?", (no,))


def drop_entries(db: SqliteConnection, session_id: str, seqs: Sequence[int]) -> bool:
    """The same for some entries; returns whether any of them had words."""
    before = db.changes
    for seq in seqs:
        drop(db, session_id, seq)
    return db.changes > before


def erase_some(db: SqliteConnection) -> bool:
    """Merges the index, which removes deleted words only then; returns whether there may be more to do."""
    before = db.changes
    db.run("INSERT INTO search_words (search_words, rank) VALUES ('merge', -500)")
    return db.changes - before >= 2


def find(db: SqliteConnection, wanted: Wanted, sought: Sought, within: Within) -> list[Candidate]:
    first = 0 if sought.since is None else max(0, sought.since) << AT_BITS
    after = NEVER if sought.until is None else max(0, sought.until) << AT_BITS
    conditions = [f" AND ({within.condition})" if within.condition else ""]
    values = [_expression(wanted, sought, within), first, after, *within.values]
    if within.before is not None:
        conditions.append(" AND u.seq < ?")
        values.append(within.before)
    found = db.all(
        "SELECT u.id, s.session_id, u.seq, u.part, u.role FROM search_words w"
        " CROSS JOIN search_units u ON u.id = w.rowid CROSS JOIN search_sessions s ON s.no = u.session"
        f" WHERE w.words MATCH ? AND w.rowid >= ? AND w.rowid < ?{''.join(conditions)} ORDER BY w.rowid DESC LIMIT ?",
        (*values, wanted.most),
    )
    return [Candidate(name, seq, part, number >> AT_BITS, role) for number, name, seq, part, role in found]


def _expression(wanted: Wanted, sought: Sought, within: Within) -> str:
    """A query in the language of FTS5. Tokens and marks hold nothing that has to be escaped."""
    needed = [_any(map(_phrase, term.any_of)) for term in _rarest_first(wanted.terms)]
    needed += [f'"{facet}"' for facet in sought.facets]
    if within.sessions is not None:
        needed.append(_any(f'"{_session_mark(no)}"' for no in within.sessions or (0,)))
    text = " AND ".join(needed)
    return f"({text}) NOT {_any(map(_phrase, sought.without))}" if sought.without else text


def _rarest_first(terms: Sequence[Term]) -> list[Term]:
    """Longer phrases are rarer, as a rule; the first one is read first."""
    return sorted(terms, key=lambda term: -max(len("".join(phrase.tokens)) for phrase in term.any_of))


def _any(phrases: Iterable[str]) -> str:
    return f"({' OR '.join(phrases)})"


def _phrase(phrase: Phrase) -> str:
    tokens, open_ended = _stream(phrase.tokens), phrase.open_ended
    if SINGLE.match(phrase.tokens[-1]):
        # In the index it may be the beginning of a pair; after a pair that ends with it, it is there anyway.
        covered = len(tokens) > 1 and SINGLE.match(phrase.tokens[-2]) is not None
        tokens, open_ended = (tokens[:-1], False) if covered else (tokens, True)
    return f'"{" ".join(tokens)}"' + ("*" if open_ended else "")


def _stream(tokens: Sequence[str]) -> list[str]:
    """The tokens as they are indexed: a character of a script without blanks together with the next one. Alone, such a
    character is in every text, and a phrase of them would be slow to find.
    """
    singles = [SINGLE.match(token) is not None for token in tokens]
    after = zip(singles, [*singles[1:], False], tokens, [*tokens[1:], ""], strict=False)  # there may be no tokens
    return [token + following if single and also else token for single, also, token, following in after]


def _session_mark(no: int) -> str:
    return f"¶{no}"
