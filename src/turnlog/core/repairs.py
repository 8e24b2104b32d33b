"""Describes the repairs that were needed to send a history, and remembers which were reported already.

The repairs themselves are made where the history is built (`history`, `pairing`) and where it is sent (`wires`). Each
kind is reported once per session, as long as the process remembers the session.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from .entries import Assistant, Message, ToolResult
from .pairing import pair

UNANSWERED = "calls without a result are shown as interrupted"
ORPHANS = "tool results without a call are shown as quoted text"
MALFORMED = "tool calls without an id or a name are shown as text"


def of_tail(tail: Sequence[Message]) -> list[str]:
    """The repairs that pairing made in messages of finished turns."""
    pairing = pair(tail)
    owed = [result for entry in tail if isinstance(entry, Assistant) for _, result in pairing.owed(entry)]
    found = {
        UNANSWERED: None in owed,
        ORPHANS: any(isinstance(entry, ToolResult) and pairing.is_orphan(entry) for entry in tail),
        MALFORMED: any(call is None for calls in pairing.calls.values() for call in calls),
    }
    return [words for words, is_so in found.items() if is_so]


class ReportedRepairs:
    """`sessions_max`: above this number the oldest sessions are forgotten, and their repairs may be reported again."""

    def __init__(self, sessions_max: int) -> None:
        self._sessions_max = sessions_max
        self._told: OrderedDict[str, set[str]] = OrderedDict()

    def news(self, session_id: str, repairs: Iterable[str]) -> list[str]:
        told = self._told.setdefault(session_id, set())
        self._told.move_to_end(session_id)
        fresh = [repair for repair in dict.fromkeys(repairs) if repair not in told]
        told.update(fresh)
        while len(self._told) > self._sessions_max:
            self._told.popitem(last=False)
        return fresh

    def forget(self, session_id: str) -> None:
        self._told.pop(session_id, None)
