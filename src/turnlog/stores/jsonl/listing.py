"""Lists the folders of the JSONL store."""

from collections.abc import Iterator
from itertools import groupby

from ...core import query as queries
from ...core.query import Page, Query
from ...core.session import Session
from .folder_index import FolderIndex, IndexedRow


def candidates(query: Query, index: FolderIndex) -> Iterator[IndexedRow]:
    if query.id is not None:
        return (index.rows[session_id] for session_id in (query.id,) if session_id in index.rows)
    if query.key is not None:
        return (index.rows[session_id] for session_id in index.at_key(query.key))
    if query.ids:
        return (index.rows[session_id] for session_id in query.ids if session_id in index.rows)
    return iter(index.rows.values())


def newest(query: Query, index: FolderIndex) -> Page[Session]:
    """The newest rows without reading all of them: rows are kept in order of activity, and counted."""
    place = queries.place(query)
    wanted = queries.any_of(query.status)
    found: list[Session] = []
    for row in _latest_first(index):
        if (wanted is None or row.status in wanted) and (place is None or (row.last_at, row.id) < place):
            found.append(row)
            if len(found) > query.limit:
                break
    total = len(index.rows) if wanted is None else sum(index.counts[status] for status in {*wanted})
    return queries.page(query, found, total)


def _latest_first(index: FolderIndex) -> Iterator[Session]:
    """Rows with the same time are kept in any order; a page's cursor uses their ids then."""
    for _, several in groupby(reversed(index.rows.values()), key=lambda kept: kept.row.last_at):
        yield from sorted((kept.row for kept in several), key=lambda row: row.id, reverse=True)
