"""Keeps what was built of the beginning of a tail, so that a longer tail costs only its end: its entries by what they
are (`survey.sort`), and the messages that were written for them.

A tail is cut before a user message that follows an answer: there the writer has nothing pending, because the roles
change and no result is owed. What comes later cannot change what is before the cut, as long as

- the entries before the cut and the user message after it are the same, and are shown in the same way (`shape`): after
  a rewind an answer may come there instead, which would join the one before the cut, and
- no tool call of one side shares its id with the other side: ids decide which result belongs to which call.

If either does not hold, the whole tail is written again. `history.build` gives the same messages with and without a
cache; `tests/core/test_tail_cache.py` compares them on random logs.
"""

from collections.abc import Hashable, Iterator, Sequence

from msgspec import Struct

from .entries import Assistant, Message, ToolResult, Transcript, clean
from .message_writer import ApiMessage
from .survey import SortedEntries, View, sort, survey


class WrittenTail(Struct, frozen=True):
    """The beginning of a tail, and its messages."""

    shape: Hashable
    entries: list[Message]
    messages: list[ApiMessage]
    next: Message
    """The user message after the cut."""
    ids: frozenset[str]
    """Of the calls and results among the entries, as they were written and as they are shown."""

    def begins(self, tail: Sequence[Message], shape: Hashable) -> bool:
        size = len(self.entries)
        if shape != self.shape or len(tail) <= size or tail[size] != self.next or tail[:size] != self.entries:
            return False
        later = _ids_after(tail[size:])
        return later is not None and later.isdisjoint(self.ids)


class TailCache:
    """Of one session."""

    def __init__(self) -> None:
        self._written: WrittenTail | None = None
        self._sorted: SortedEntries | None = None

    def survey(self, transcript: Transcript) -> View:
        """The same as `survey.survey`."""
        self._sorted = sort(transcript, self._sorted) if self._sorted else sort(transcript)
        return survey(transcript, self._sorted)

    def written(self, tail: Sequence[Message], shape: Hashable) -> WrittenTail | None:
        """The part of this tail that need not be written again."""
        kept = self._written
        return kept if kept is not None and kept.begins(tail, shape) else None

    def keep(
        self,
        tail: Sequence[Message],
        shape: Hashable,
        cut: int,
        messages: list[ApiMessage],
        before: WrittenTail | None,
    ) -> None:
        """`cut`: the entries before it gave exactly these messages. `before`: the part that was not written again."""
        begin = len(before.entries) if before else 0
        ids = settled_ids(tail[begin:cut])
        if ids is None:
            self._written = before
        else:
            known = before.ids if before else frozenset[str]()
            self._written = WrittenTail(shape, list(tail[:cut]), messages, tail[cut], known | ids if ids else known)


def settled_ids(entries: Sequence[Message]) -> frozenset[str] | None:
    """The ids of calls and results. None unless every call has an id of its own and its result right after it:
    otherwise a later entry may still be its result.
    """
    found: set[str] = set()
    waiting: set[str] = set()
    for entry in entries:
        if isinstance(entry, ToolResult):
            if entry.tool_use_id not in waiting:
                return None
            waiting.discard(entry.tool_use_id)
        elif waiting:
            return None
        elif isinstance(entry, Assistant):
            for call_id in _calls(entry):
                if not call_id or call_id in found:
                    return None
                found.update((call_id, clean(call_id)))
                waiting.add(call_id)
    return None if waiting else frozenset(found)


def _ids_after(entries: Sequence[Message]) -> set[str] | None:
    """The same for entries that are paired by themselves. None if an id is used twice: the second one is shown with
    another id, which must differ from all ids of the tail.
    """
    calls: set[str] = set()
    results: set[str] = set()
    for entry in entries:
        if isinstance(entry, ToolResult):
            results.update((entry.tool_use_id, clean(entry.tool_use_id)))
        elif isinstance(entry, Assistant):
            for call_id in _calls(entry):
                if call_id in calls:
                    return None
                calls.update((call_id, clean(call_id)) if call_id else ())
    return calls | results


def _calls(entry: Assistant) -> Iterator[str]:
    """The ids of the entry's calls; "" for a call without id or name."""
    if isinstance(entry.content, str) or entry.stop == "error":
        return
    for block in entry.content:
        if block.get("type") == "tool_use":
            call_id, name = block.get("id"), block.get("name")
            yield call_id if isinstance(call_id, str) and isinstance(name, str) and name else ""
