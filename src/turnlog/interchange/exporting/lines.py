"""The exact formats: one line per entry, written by the codecs of the dialects."""

from collections.abc import Iterator, Sequence

from ...codecs import native
from ...codecs.dialects import CODECS
from ...codecs.lines import FileContext, Reading
from ...core.entries import Entry, Foreign, Opened, Received
from .writing import ExportWriter

STYLES = {"v3": "pi", "flat": "claw0-keyed"}
"""The variant of each dialect: the one with ids and human-readable times."""
_STRANGER = Opened(id="-", key="agent:main:export:direct:export", agent="main", channel="export")
"""The header is written for a reader without context, so that it contains everything."""


class LineWriter(ExportWriter):
    def __init__(self, dialect: str) -> None:
        self._dialect = None if dialect == "native" else _Dialect(dialect)
        self._last = 0

    def write(self, page: Sequence[Entry]) -> Iterator[str]:
        whole = self._without_gaps(page)
        if self._dialect is None:
            return (_native(entry).decode() + "\n" for entry in whole)
        return self._dialect.lines(whole)

    def _without_gaps(self, entries: Sequence[Entry]) -> Iterator[Entry]:
        """Fills gaps: entries refer to each other by seq, and lines count, so a damaged entry keeps its place."""
        for entry in entries:
            while self._last < entry.seq - 1:
                self._last += 1
                yield Foreign(seq=self._last, ts=entry.ts, raw={"missing": self._last})
            self._last = entry.seq
            yield entry


def _native(entry: Entry) -> bytes:
    """Fields that are not known here count only where a checksum covers them."""
    return native.encode(entry) if entry.unknown is None else native.encode_stored(entry)


class _Dialect:
    def __init__(self, dialect: str) -> None:
        self._encode = CODECS[dialect].encode_append
        self._lines: dict[int, bytes] = {}
        """Earlier lines that later lines refer to: for ids, and for the `received` entries of user entries."""
        self._reading = Reading(_STRANGER, FileContext(line_at=self._lines.get), STYLES[dialect])

    def lines(self, entries: Iterator[Entry]) -> Iterator[str]:
        for entry in entries:
            line, last_id = self._encode([entry], self._reading)
            self._reading.last_id = last_id
            keeps_words = isinstance(entry, Received)
            self._lines[entry.seq] = line if keeps_words else b'{"type":"","id":"%s"}' % (last_id or "").encode()
            yield line.decode()
