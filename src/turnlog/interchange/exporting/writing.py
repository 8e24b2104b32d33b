"""What the formats of an export have in common: a transcript is looked at and written page by page."""

from collections.abc import Iterator, Sequence

from ...core.entries import Entry, Received
from ...core.session import Interval, Mark, active, live_path, marks_of


class ExportWriter:
    """Writes one session in one format. Every page of the transcript is given to `look`, `looks` times, and then to
    `write`, always in order.
    """

    looks: int = 0
    looks_at_messages: bool = False
    """Whether `look` needs more of them than that they are there."""

    def look(self, number: int, page: Sequence[Entry]) -> None:
        """`number`: 0 at the first time that the transcript is gone through."""

    def begin(self) -> Iterator[str]:
        return iter(())

    def write(self, page: Sequence[Entry]) -> Iterator[str]:
        raise NotImplementedError

    def end(self) -> Iterator[str]:
        return iter(())


class LogOutline:
    """What has to be known of a whole log before its first entry can be written: which entries count, and what was
    received for later ones.
    """

    def __init__(self) -> None:
        self.marks: list[Mark] = []
        self.received: dict[int, Received] = {}
        self._last = 0
        self._path: list[Interval] | None = None

    def look(self, page: Sequence[Entry]) -> None:
        self.marks += marks_of(page)
        self.received.update((entry.seq, entry) for entry in page if isinstance(entry, Received))
        self._last, self._path = max(self._last, page[-1].seq if page else 0), None

    @property
    def path(self) -> list[Interval]:
        if self._path is None:
            self._path = live_path(self.marks, self._last)
        return self._path

    def compactions(self) -> list[Mark]:
        return active(self.marks, self._last)
