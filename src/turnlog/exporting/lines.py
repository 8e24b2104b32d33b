"""The exact formats: one line an entry, written by the codecs of the dialects."""

from collections.abc import Iterator, Sequence

from ..codecs import native
from ..codecs.dialects import CODECS
from ..codecs.lines import Known, Reading
from ..core.entries import Entry, Foreign, Opened, Received

STYLES = {"v3": "pi", "flat": "claw0-keyed"}
"""Whose variant is written: the one that keeps ids, and times that people can read."""
_STRANGER = Opened(id="-", key="agent:main:export:direct:export", agent="main", channel="export")
"""The header is written for a reader who knows nothing, so that it says everything itself."""


def write(entries: Sequence[Entry], dialect: str) -> Iterator[str]:
    whole = _without_gaps(entries)
    if dialect == "native":
        return (native.encode(entry).decode() + "\n" for entry in whole)
    return _Dialect(dialect).lines(whole)


def _without_gaps(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Entries name one another by seq, and lines count: what is damaged keeps its place."""
    last = 0
    for entry in entries:
        while last < entry.seq - 1:
            last += 1
            yield Foreign(seq=last, ts=entry.ts, raw={"missing": last})
        last = entry.seq
        yield entry


class _Dialect:
    def __init__(self, dialect: str) -> None:
        self._encode = CODECS[dialect].encode_append
        self._lines: dict[int, bytes] = {}
        """What later lines look up in earlier ones: ids, and words that a user entry was made from."""
        self._reading = Reading(_STRANGER, Known(line_at=self._lines.get), STYLES[dialect])

    def lines(self, entries: Iterator[Entry]) -> Iterator[str]:
        for entry in entries:
            line, last_id = self._encode([entry], self._reading)
            self._reading.last_id = last_id
            keeps_words = isinstance(entry, Received)
            self._lines[entry.seq] = line if keeps_words else b'{"type":"","id":"%s"}' % (last_id or "").encode()
            yield line.decode()
