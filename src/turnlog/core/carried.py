"""What stays in effect when a session goes back: pins, compactions and shortenings that concern only what is kept.

A client that rewrites its last question goes back with every request. Without this it would lose what was pinned since,
and would pay for the same summary each time.
"""

from collections.abc import Container, Iterable

from msgspec.structs import replace

from .entries import Compaction, Entry, Pin, Shortened, Undo, Unpin
from .matching import Decision


def carried(dropped: Iterable[Entry], to: int, by_client: Container[int] = ()) -> list[Entry]:
    """The bodies to append after a rewind to `to`. `dropped`: the entries of the live path after it, in order.

    Results that the client sent pruned are not among them: its request says anew how long each is. `by_client`: the
    shortenings of such results.
    """
    entries = list(dropped)
    undone = {entry.target for entry in entries if isinstance(entry, Undo)}
    kept: list[Entry] = []
    for entry in entries:
        match entry:
            case Compaction() if entry.first_kept <= to and entry.seq not in undone:
                kept.append(replace(entry, seq=0, ts=""))
            case Shortened() if entry.seq not in undone and not entry.by_client:
                if targets := tuple(target for target in entry.targets if target <= to):
                    kept.append(replace(entry, seq=0, ts="", targets=targets))
            case Pin() | Unpin() | Undo() if entry.target <= to and entry.target not in by_client:
                kept.append(replace(entry, seq=0, ts=""))
            case _:
                pass
    return kept


def pruned(decision: Decision) -> list[Entry]:
    """The bodies after which each result is shown as long as the client sends it."""
    cut = [Shortened(targets=(seq,), limit=limit, by_client=True) for seq, limit in decision.shortened]
    return [*(Undo(target=seq) for seq in decision.restored), *cut]
