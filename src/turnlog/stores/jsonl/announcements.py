"""The sessions of a folder for which a writer has announced an append, and has not written the row yet."""

import os
import time
from collections.abc import Sequence

from ..disk.machine import is_alive
from .index_lines import IndexLine


class Announcements:
    def __init__(self) -> None:
        self.writer = f"{os.getpid()}.{time.time_ns()}.{id(self)}"
        self.ours: set[str] = set()
        """Sessions that we have announced and whose row we have not written since."""
        self._under_way: set[str] = set()
        """Those of them with an append under way."""
        self.theirs: dict[str, set[str]] = {}
        """Session → the other writers that have announced it."""

    def begin(self, session_id: str) -> None:
        self.ours.add(session_id)
        self._under_way.add(session_id)

    def over(self, session_id: str) -> None:
        """The append has succeeded or failed."""
        self._under_way.discard(session_id)

    def settled(self) -> set[str]:
        """Ours without an append under way."""
        return self.ours - self._under_way

    def hear(self, line: IndexLine) -> None:
        if line.dirty is not None:
            if line.by != self.writer:
                self.theirs.setdefault(line.dirty, set()).add(line.by)
        elif line.row is not None and (writers := self.theirs.get(line.row.id)) is not None:
            writers.discard(line.by)
            if not writers:
                del self.theirs[line.row.id]

    def hear_all(self, lines: Sequence[IndexLine]) -> None:
        """The lines of a whole log from the first announcement or deletion on: nothing before can take one back."""
        for line in lines:
            self.hear(line)

    def gone_writers(self) -> set[str]:
        return {writer for writers in self.theirs.values() for writer in writers if not is_alive(writer)}

    def announced_by(self, writers: set[str]) -> list[str]:
        return [session_id for session_id, announced in self.theirs.items() if announced & writers]

    def drop(self, writers: set[str]) -> None:
        kept = {name: announced - writers for name, announced in self.theirs.items()}
        self.theirs = {name: announced for name, announced in kept.items() if announced}

    def lines(self) -> list[IndexLine]:
        """All that stand, for a rewritten index."""
        found = [(name, by) for name, writers in self.theirs.items() for by in sorted(writers)]
        found += [(name, self.writer) for name in sorted(self.ours)]
        return [IndexLine(dirty=name, by=by) for name, by in found]
