"""Which entries a fork takes over from its source."""

from collections.abc import Container

from msgspec import to_builtins

from .entries import Entry, Foreign, Received, Transcript, User


def inherited(past: Transcript) -> list[Entry]:
    """The entries that a fork takes over, without the session entry. Entries that concerned only the source become
    inert, but keep their place, so that seqs still match.

    A message that waits in the source is not taken over; if a turn has taken it, the fork has its content in that turn.
    """
    taken = {seq for entry in past if isinstance(entry, User) for seq in entry.from_}
    return [_inert(entry) if _is_the_sources(entry, taken) else entry for entry in past[1:]]


def _is_the_sources(entry: Entry, taken: Container[int]) -> bool:
    return not entry.inherited or (isinstance(entry, Received) and entry.seq not in taken)


def _inert(entry: Entry) -> Entry:
    return Foreign(ts=entry.ts, raw=to_builtins(entry))
