"""Finds clients that rewrite more than they add, request after request: everything would be stored again each time."""

from collections.abc import Sequence

from ..core.matching import Decision, PlacedSession
from ..core.path import Path
from ..core.request_messages import RequestMessages

RESTLESS_AFTER = 50
"""After this many requests in a row that rewrite more than they add, rewritten messages are not stored again."""
PLACES_KEPT = 10_000
"""Places that are counted, those used last."""


class RewritingClients:
    def __init__(self) -> None:
        self._rewrites: dict[str, int] = {}

    def is_due(self, key: str, found: Sequence[PlacedSession], decision: Decision, said: RequestMessages) -> bool:
        """Counts this request. Whether it is to be answered without being stored."""
        if decision.kind in ("forked", "joined"):
            return False
        before = decision.path or _rewritten(found, said)
        if before is None:
            return False  # another conversation at the same place
        abandoned = len(before.keys) - decision.kept
        added = len(said.keys) + 1 - len(before.keys)  # with its answer
        if abandoned <= max(0, added):
            self._rewrites.pop(key, None)
            return False
        count = self._rewrites.pop(key, 0) + 1
        self._rewrites[key] = count
        if len(self._rewrites) > PLACES_KEPT:
            self._rewrites.pop(next(iter(self._rewrites)))
        return count > RESTLESS_AFTER


def _rewritten(found: Sequence[PlacedSession], said: RequestMessages) -> Path | None:
    """The session whose answers this request brings along, though its first words differ."""
    keys = set(said.keys)
    for one in found:
        if any(key in keys and key not in one.path.told for key in one.path.own):
            return one.path
    return None
