"""What a new session of a client begins with: nothing, or the past of the session that it was forked from.

A client that resends its whole conversation needs no copy of it. Where a summary stands for most of it, the fork takes
over the summary and what follows; a request that names the place where it goes on gets a whole copy.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from ..core import keys, path as paths
from ..core.atoms import Atom
from ..core.entries import Entry, Opened
from ..core.matching import Decision
from ..sessions import forking
from ..stores import Store
from .asked import Asked
from .candidates import ClientPlace


class NewSession(Struct, frozen=True):
    log: list[Entry]
    decision: Decision
    """With the seqs of the new log."""
    said: Sequence[Atom] | None = None
    """What was said before the log begins, and left in the source."""


async def begin(store: Store, asked: Asked, place: ClientPlace, decision: Decision, new_id: str) -> NewSession:
    key = keys.parse(place.key)
    opened = Opened(id=new_id, key=place.key, agent=key.agent, channel=key.channel)
    path = decision.path
    if path is None or decision.to is None:
        return NewSession([opened], decision)
    source = await store.describe(path.session_id)
    resends = place.row is None and asked.kind == "relay" and not any(path.branches)
    past = await forking.counting(store, source, decision.to) if resends else None
    said = paths.said_before(path, past.compaction.first_kept) if past else None
    if past is None or said is None:
        return NewSession(await forking.whole(store, source, decision.to, opened), decision)
    return NewSession(forking.begin(opened, source, decision.to, past), _renumbered(decision, past.numbers), said)


def _renumbered(decision: Decision, numbers: dict[int, int]) -> Decision:
    return replace(
        decision,
        shortened=tuple((numbers[seq], limit) for seq, limit in decision.shortened if seq in numbers),
        restored=tuple(numbers[seq] for seq in decision.restored if seq in numbers),
    )
