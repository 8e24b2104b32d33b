"""Our own transcripts and exports: entries as they are, at the seqs they have, since they name one another by seq.

Only `selected` loses its effect: which session a key's messages go to is decided by the ledger of the store, and an
import never takes a key away from another session.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from ..core.entries import Entry, Opened
from .draft import EXCERPT_CHARS, Draft, Record

FILL_MAX = 10_000
"""A larger gap is a forged seq, not lost lines."""


def read(records: Iterable[Record], draft: Draft) -> Iterator[None]:
    lost = ""
    for record in records:
        entry = entry_of(record.value)
        if entry is None:
            lost = str(record.value)[:EXCERPT_CHARS]
            draft.note(f"not readable ({record.problem or 'no entry of ours'})", record.place)
        elif isinstance(entry, Opened) and entry.seq == 1 == draft.last_seq:
            pass  # the import has written it already
        elif isinstance(entry, Opened) or not draft.last_seq < entry.seq <= draft.last_seq + FILL_MAX:
            draft.note("out of order, or a second beginning; left out", record.place)
        else:
            _fill(draft, record, entry.seq, lost)
            lost = ""
            draft.add(replace(entry, seq=0), entry.ts)
        yield


def entry_of(value: Any) -> Entry | None:
    try:
        return msgspec.convert(value, Entry)
    except (msgspec.ValidationError, TypeError):
        return None


def _fill(draft: Draft, record: Record, seq: int, lost: str) -> None:
    while draft.last_seq < seq - 1:
        draft.note("entries are missing before it", record.place)
        draft.keep({"missing": draft.last_seq + 1, "unreadable": lost})
