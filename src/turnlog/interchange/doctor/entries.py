"""Checks the entries of a native transcript: checksums, required fields, types, seqs without gaps.

It treats the lines of a file and the rows of a database alike. Only lost entries need a repair, which is impossible
here; Turnlog can read everything else that is reported.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ...codecs.native import CHECKSUM, Undecodable, from_values
from ...core.entries import FORMAT_VERSION, Foreign, Opened
from .findings import NONE_NEEDED

LOST = "none: restore it from a backup; the entries before and after it are readable"
KEPT = "none needed: it is kept and has no effect; a newer Turnlog may have written it"
Found = Callable[[str, str, str], None]
"""(place, what, repair)."""


class EntryChecks:
    """Gets every entry of one session in order."""

    def __init__(self, found: Found) -> None:
        self._found = found
        self._last = 0
        self._unchecked = 0

    def add(self, values: Mapping[str, Any], place: str) -> None:
        try:
            entry = from_values(values)
        except Undecodable as error:
            self._found(place, f"damaged entry: {error}", LOST)
            self._last += 1
            return
        if isinstance(entry, Opened) and entry.version > FORMAT_VERSION:
            self._found(place, f"newer format: version {entry.version}", "none: upgrade Turnlog to read it")
        self._unchecked += CHECKSUM not in values
        self._order(entry.seq, place)
        if isinstance(entry, Foreign) and "type" in (entry.unknown or {}):
            self._found(place, f"unknown type: {values['type']}", KEPT)
        elif entry.unknown:
            self._found(place, f"unknown field: {', '.join(sorted(entry.unknown))}", KEPT)

    def skip(self) -> None:
        """Skips a line that is not a JSON object and was reported already."""
        self._last += 1

    def _order(self, seq: int, place: str) -> None:
        if seq > self._last + 1:
            self._found(place, f"missing entries: {self._last + 1} to {seq - 1} are not there", LOST)
        elif seq <= self._last:
            self._found(place, f"wrong order: entry {seq} after entry {self._last}", LOST)
        self._last = max(seq, self._last)

    def finish(self, last_seq: int = 0) -> None:
        """`last_seq`: the number of entries according to an index, if it says so."""
        if last_seq > self._last:
            self._found("", f"missing entries: {self._last + 1} to {last_seq} are not there", LOST)
        if self._unchecked:
            self._found("", f"no checksum: {self._unchecked:,} entries", NONE_NEEDED)
