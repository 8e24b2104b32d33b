"""Turnlog's own transcripts and exports: unchanged entries with their seqs, because they refer to each other by seq.

Only `selected` loses its effect: the ledger of the store decides which session a key has selected, and an import never
deselects another session.
"""

from collections.abc import Iterable, Iterator
from typing import Any, cast

from msgspec.structs import replace

from ...codecs.native import Undecodable, from_values
from ...core.entries import Entry, Opened
from .draft import EXCERPT_CHARS, Draft, RecordReader, SourceRecord

FILL_MAX = 10_000
"""A larger gap means a forged seq, not lost lines."""


class NativeReader(RecordReader):
    def read(self, records: Iterable[SourceRecord]) -> Iterator[None]:
        draft, lost = self.draft, ""
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
        return from_values(cast("dict[str, Any]", value)) if isinstance(value, dict) else None
    except Undecodable:
        return None


def _fill(draft: Draft, record: SourceRecord, seq: int, lost: str) -> None:
    while draft.last_seq < seq - 1:
        draft.note("entries are missing before it", record.place)
        draft.keep({"missing": draft.last_seq + 1, "unreadable": lost})
