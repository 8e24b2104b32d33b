"""Reads the events of a session of Google's ADK from its log (`adk_sessions`)."""

from collections.abc import Iterable, Sequence

from ..core.entries import Compaction, Entry
from ..core.facts import Fact
from ..core.session import Session, active, live_path, marks_of, on_path
from ..library import Turnlog
from .adk_events import event_of
from .adk_state import StoredEvent
from .kept_entries import kept_entries
from .session_log import LiveEntries


async def unlisted(t: Turnlog, row: Session, listed: int) -> list[StoredEvent]:
    """The events whose ids are no facts yet, rewound ones too."""
    if row.last_seq <= listed:
        return []
    entries = await t.store.read(row.id, after=listed, before=row.last_seq + 1, incarnation=row.incarnation)
    events = [(entry.seq, event_of(entry)) for entry in entries]
    return [StoredEvent(event, seq) for seq, event in events if event is not None]


async def updated_at(t: Turnlog, row: Session, head: Fact, events: Sequence[StoredEvent] = ()) -> float:
    """The time of the last event, which may be among these."""
    last = events[-1] if events else None
    if last is None or last.compaction is not None or last.seq <= head.seq:
        last = next(reversed(await unlisted(t, row, head.seq)), None)
    return head.value[0] if last is None else last.event["timestamp"]


async def shown_events(t: Turnlog, row: Session, recent: int | None, since: float | None) -> list[StoredEvent]:
    if recent == 0:
        return []
    if recent is None and not row.pruned_to and since is None:
        entries = await kept_entries(t).read(t, row, 1, row.last_seq)
        if any(mark.kind == "rewind" for mark in row.marks):
            path = live_path(marks_of(entries), row.last_seq)
            entries = [entry for entry in entries if on_path(entry.seq, path)]
        return _shown(entries, row)
    count = 0
    newest: list[Entry] = []
    async for entry in LiveEntries(t, row, expected=recent * 2 if recent else 64):
        event = event_of(entry)
        if event is not None:
            if since is not None and event["timestamp"] < since:
                break
            count += 1
        newest.append(entry)
        if recent is not None and count >= recent:
            break
    return _shown(newest[::-1], row)


def _shown(entries: Iterable[Entry], row: Session) -> list[StoredEvent]:
    """Events, and the compactions in effect."""
    summaries = {mark.seq for mark in active(row.marks, row.last_seq)}
    found: list[StoredEvent] = []
    for entry in entries:
        if isinstance(entry, Compaction) and entry.seq in summaries:
            found.append(StoredEvent({}, entry.seq, entry))
        elif (event := event_of(entry)) is not None:
            found.append(StoredEvent(event, entry.seq))
    return found
