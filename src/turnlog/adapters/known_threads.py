"""What a process remembers of the LangGraph threads in one store, so that it need not read them again.

What a thread's session holds under one key never changes, except for pending writes of special channels, so a value
that was read or written once is known until it is dropped or erased. All of it can be forgotten at any time; it is
bounded by its size and by the number of threads, and the thread that was used last is forgotten last.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from ..core.session import Session
from ..core.strict_json import fields_in

KNOWN_BYTES = 64 * 1024 * 1024
THREADS_MAX = 4096
NAME_BYTES = 150
"""About what the id of a message takes in a set."""
_TEXTS = (str, bytes)


class KnownThread(Struct):
    values: dict[str, Any] = field(default_factory=dict[str, Any])
    """Serialised, by key."""
    projected: set[str] = field(default_factory=set[str])
    """The ids of messages that are in the log as entries."""
    dropped: int | None = None
    """The entry of `checkpoints.DROPPED` that `values` relies on; None: there was none."""
    looked: int | None = None
    """The entry up to which nothing in `values` was erased; None: nobody has looked."""


class KnownThreads:
    def __init__(self, most_bytes: int = KNOWN_BYTES, most: int = THREADS_MAX) -> None:
        self._threads: OrderedDict[str, KnownThread] = OrderedDict()
        """By the incarnation of their sessions."""
        self._most_bytes = most_bytes
        self._most = most
        self.size = 0
        """About the bytes in memory."""

    def __len__(self) -> int:
        return len(self._threads)

    def of(self, row: Session) -> KnownThread:
        found = self._threads.get(row.incarnation)
        if found is None:
            found = self._threads[row.incarnation] = KnownThread()
            while len(self._threads) > self._most:
                self._drop(next(iter(self._threads)))
        else:
            self._threads.move_to_end(row.incarnation)
        return found

    def forget(self, row: Session) -> None:
        self._drop(row.incarnation)

    def forget_values(self, row: Session) -> None:
        known = self.of(row)
        self.size -= _size_of(known.values.values())
        known.values = {}

    def put(self, row: Session, values: Mapping[str, Any]) -> None:
        there = self.of(row).values
        new = {key: value for key, value in values.items() if key not in there} if there else values
        there.update(new)
        self.size += _size_of(new.values())
        self._make_room()

    def project(self, row: Session, names: Iterable[str]) -> None:
        """These messages are in the log."""
        there = self.of(row).projected
        before = len(there)
        there.update(names)
        self.size += NAME_BYTES * (len(there) - before)
        self._make_room()

    def _make_room(self) -> None:
        """Of a thread that is too large by itself, the values that came first are forgotten."""
        while self.size > self._most_bytes and self._threads:
            oldest, known = next(iter(self._threads.items()))
            if len(self._threads) > 1 or not known.values:
                self._drop(oldest)
            else:
                self.size -= _size_of([known.values.pop(next(iter(known.values)))])

    def _drop(self, incarnation: str) -> None:
        known = self._threads.pop(incarnation, None)
        if known is not None:
            self.size -= _size_of(known.values.values()) + NAME_BYTES * len(known.projected)


def _size_of(values: Collection[Any]) -> int:
    """About the bytes that they take in memory."""
    parts = [part for value in values if value.__class__ is list for part in value if part.__class__ in _TEXTS]
    names = [len(fields_in(value).get("list", ())) for value in values if value.__class__ is not list]
    return 200 * len(values) + sum([len(part) for part in parts]) + 80 * sum(names)
