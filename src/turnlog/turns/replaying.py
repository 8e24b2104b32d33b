"""Replays a call: from this process while it runs here, otherwise from the log, piece by piece as it came."""

import asyncio

from ..core import events
from ..core.entries import Assistant
from ..core.events import ErrorEvent
from ..core.rows import milliseconds
from ..errors import Busy, ProviderBusy
from ..stores import Store
from . import answer_pieces, stored_calls
from .context_edits import COMPACTED, answer_of
from .relay_call import CompactionNote, RelayCall, stopped
from .stored_calls import StoredCall
from .stream import TurnStream

LOOK_S = 0.5
"""How often the log is read while a call runs in another process."""
CUT_SHORT = "the server was stopped in the middle of this call"


async def from_log(store: Store, stored: StoredCall) -> RelayCall:
    """The call without its end, if it runs in another process."""
    call = _begun(stored)
    if is_over(stored) or await is_free(store, stored.row.id):
        fill(call, stored)
    return call


async def follow(store: Store, call: RelayCall, stored: StoredCall) -> None:
    """Ends the call when it is over in the process that runs it."""
    while not call.over:
        await asyncio.sleep(LOOK_S)
        is_unused = await is_free(store, stored.row.id)
        later = await stored_calls.read(store, stored.row, stored.turn)
        if later is not None and (is_over(later) or is_unused):
            fill(call, later)


def is_over(stored: StoredCall) -> bool:
    if stored.failed is not None or (stored.compacts and stored.compaction is not None):
        return True
    return stored.answer is not None and not (stored.is_agents and stored.answer.stop == "tool_use")


def fill(call: RelayCall, stored: StoredCall) -> None:
    answer = stored.answer
    if stored.compaction is not None:
        call.note_compaction(stored.compaction)
    if answer is not None:
        for piece in answer_pieces.read(stored.pieces, answer):
            call.add(piece)
    if stored.compacts and stored.failed is None:
        _fill_compaction(call, stored)
    elif answer is not None and answer.stop not in ("error", "interrupted"):
        call.end(answer)
    elif stored.failed is not None and stored.failed.code != "stopped":
        reason = stored.failed.reason or "the call failed"
        call.end(None, events.error_of(ErrorEvent(error=reason, code=stored.failed.code)))
    elif answer is None and stored.failed is None:
        call.end(None, ProviderBusy(CUT_SHORT))
    else:
        call.stopping = True
        call.end(None, stopped())


def _fill_compaction(call: RelayCall, stored: StoredCall) -> None:
    """Without a compaction nothing would have been gained, and the answer stands for everything up to the words."""
    if stored.compaction is None:
        call.compaction = CompactionNote(stored.turn + len(stored.words), 0, 0)
        call.end(Assistant(content=[], stop=COMPACTED))
    else:
        call.end(answer_of(stored.compaction))


def _begun(stored: StoredCall) -> RelayCall:
    call = RelayCall(linger_s=None)
    call.session_id, call.turn, call.match = stored.row.id, stored.turn, "replayed"
    call.began_ms, call.is_turn = milliseconds(stored.ts), stored.is_agents
    call.stream = TurnStream(stored.row.id, stored.turn, incarnation=stored.row.incarnation)
    return call


async def is_free(store: Store, session_id: str) -> bool:
    """Whether no process runs a call in this session."""
    try:
        async with store.lease(session_id, wait_s=0):
            return True
    except Busy:
        return False
