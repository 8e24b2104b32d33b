"""Stopping a turn that runs in another process: the wish is a fact in the ledger, and whoever runs the turn heeds it.

A wish names how far the log went when it was made, so it never meets a turn that began later. It is kept for a while
also if nobody heeds it: the turn of a process that died is begun again elsewhere, and is then stopped there.
"""

import asyncio
import time
from typing import Any

from .errors import NotFound
from .queue import Queue
from .stores import Ledger, Store

WISHES = "stops"
"""The ledger's space; the key is the session's id."""
WISH_TTL_S = 30.0
"""Longer than a takeover takes."""
HEEDED_S = 2.0
"""How long who asks waits to see it heeded: servers look every second."""
LOOK_S = 0.1


async def stop_anywhere(store: Store, queue: Queue, session_id: str) -> bool:
    """Whether there was a turn to stop, in this process or in another that heeds such wishes, as servers do."""
    if queue.stop(session_id):
        return True
    if queue.running(session_id):
        return False  # it is stopping already
    try:
        row = await store.describe(session_id)
    except NotFound:
        return False
    return row.under_way and await _is_heeded(store.ledger, session_id, {"seq": row.last_seq})


async def _is_heeded(ledger: Ledger, session_id: str, wish: Any) -> bool:
    earlier = await ledger.get(WISHES, session_id)
    await ledger.cas(WISHES, session_id, earlier, wish, ttl_s=WISH_TTL_S)  # if not, somebody wishes the same just now
    end = time.monotonic() + HEEDED_S
    while time.monotonic() < end:
        await asyncio.sleep(LOOK_S)
        if await ledger.get(WISHES, session_id) is None:
            return True
    return False


async def heed(store: Store, queue: Queue) -> None:
    """Stops those turns of this process that others want stopped. Asks nobody while none runs here."""
    running = {live.session_id: live.seq for live in queue.under_way()}
    for fact in await store.ledger.list(WISHES) if running else ():
        if running.get(fact.key, fact.value["seq"] + 1) > fact.value["seq"]:
            continue
        if queue.stop(fact.key):
            await store.ledger.cas(WISHES, fact.key, fact.value, None)
