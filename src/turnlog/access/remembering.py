"""Recalls from the global memory for one principal: of each owner whose sessions they may see, the best matches.

Matches of different owners cannot be compared, because each owner's memory is ranked by itself. So the owners take
turns: first the best match of each, then the second ones.
"""

from itertools import chain, zip_longest

from msgspec.structs import replace

from ..core import keys, principals
from ..core.principals import HOMES, Principal
from ..memory import PAGE_MAX, Memo, Memory, owner_of

OWNERS_MAX = 8
"""The owners that are asked: those of the newest memos."""


async def find(memory: Memory, who: Principal, agent: str, words: str, limit: int) -> list[Memo]:
    found = [await memory.recall(agent, owner, words, limit=limit) for owner in await _owners(memory, who, agent)]
    return [memo for memo in chain.from_iterable(zip_longest(*found)) if memo is not None][:limit]


async def _owners(memory: Memory, who: Principal, agent: str) -> list[str]:
    if who.scopes.isdisjoint({"admin", "read"}):
        places = [replace(principals.home_key(who, agent), channel=channel) for channel in HOMES]
        return [owner_of(place) for place in places if principals.sees_place(who, place)]
    owners = dict.fromkeys(memo.owner for memo in await memory.list(agent=agent, limit=PAGE_MAX))
    seen = (owner for owner in owners if principals.sees_place(who, keys.parse(f"agent:{agent}:{owner}")))
    return list(seen)[:OWNERS_MAX]
