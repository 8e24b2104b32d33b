"""Lists and searches over the shelves of the JSONL store."""

from collections.abc import Iterator

from ..core import query as queries, search
from ..core.query import Hit, Page, Query
from ..core.session import Session
from ..errors import NotFound, StoreError
from .jsonl_file import Home, SessionFile
from .jsonl_index import Kept, Shelf
from .memory import hits_in


def candidates(query: Query, shelf: Shelf) -> Iterator[Kept]:
    if query.key is not None:
        return (shelf.rows[session_id] for session_id in shelf.at_key(query.key))
    if query.ids:
        return (shelf.rows[session_id] for session_id in query.ids if session_id in shelf.rows)
    return iter(shelf.rows.values())


def newest(query: Query, shelf: Shelf) -> Page[Session]:
    """Without a look at all rows: they are kept in order of activity, and counted."""
    place = queries.place(query)
    wanted = queries.statuses(query)
    found: list[Session] = []
    for kept in reversed(shelf.rows.values()):
        row = kept.row
        if (wanted is None or row.status in wanted) and (place is None or (row.last_at, row.id) < place):
            found.append(row)
            if len(found) > query.limit:
                break
    total = len(shelf.rows) if wanted is None else sum(shelf.counts[status] for status in {*wanted})
    return queries.page(query, found, total)


def search_file(home: Home, terms: search.Terms) -> list[Hit]:
    try:
        file = SessionFile.open(home, create=False)
    except (NotFound, StoreError):
        return []
    hits: list[Hit] = []
    try:
        for scan in file.scans(0, 0):
            hits += hits_in(terms, home.opened.id, scan.entries)
    finally:
        file.close()
    return hits
