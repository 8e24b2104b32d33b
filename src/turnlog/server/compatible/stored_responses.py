"""Stored responses and items: found by their ids, and written as their wire writes them."""

from collections.abc import Sequence
from typing import Any

from ...access.relaying import Relaying
from ...core.entries import MESSAGES, Assistant, Compaction, Entry
from ...core.path import REQUEST, note_of, said_until
from ...core.session import Session
from ...core.strict_json import fields_in
from ...core.user_content import with_words
from ...errors import NotFound
from ...turns.relay_call import RelayCall
from ...turns.stored_calls import StoredCall
from . import errors, response_ids as ids, response_items as items, response_objects as objects
from .errors import not_found
from .response_events import ResponseWriter
from .response_items import ResponseItem
from .response_objects import ECHO, ResponseFacts


async def find(relaying: Relaying, response_id: str) -> StoredCall:
    """404 for one that is unknown, deleted, another's, or was not to be stored."""
    place, missing = ids.response_place(response_id), not_found("Response", response_id)
    if place is None:
        raise missing
    try:
        call = await relaying.stored(*place)
    except NotFound as error:
        raise missing from error
    if echo_of(call).get("store") is False or await relaying.is_deleted(call):
        raise missing
    return call


def echo_of(call: StoredCall) -> dict[str, Any]:
    return fields_in(call.note.get(ECHO))


async def writer_of(
    relaying: Relaying, stored: StoredCall, call: RelayCall, *, after: int = -1, seals: bool = False
) -> ResponseWriter:
    system, tools = await relaying.head(stored)
    facts = ResponseFacts(
        session=stored.row.id,
        turn=stored.turn,
        created_at=call.began_ms // 1000,
        model=str(stored.note.get("model")),
        system=system,
        tools=tools,
        parameters=fields_in(stored.note.get("parameters")),
        echo=echo_of(stored),
    )
    return ResponseWriter(call, facts, shows_thinking=not stored.is_agents, seals=seals, after=after)


async def told(relaying: Relaying, stored: StoredCall, *, seals: bool = False) -> dict[str, Any]:
    """The response object as it is now. `seals`: its items can be sent back."""
    call = await relaying.told(stored)
    writer = await writer_of(relaying, stored, call, seals=seals)
    return writer.now()


async def item(relaying: Relaying, item_id: str) -> ResponseItem | None:
    """An item of a session of this principal."""
    place = ids.item_place(item_id)
    row = await relaying.own_session(place.session) if place is not None else None
    entry = await relaying.entry(row, place.seq) if place is not None and row is not None else None
    found = await _items_at(relaying, row, entry) if row is not None and entry is not None else []
    return next((one for one in found if one["id"] == item_id), None)


async def _items_at(relaying: Relaying, row: Session, entry: Entry) -> list[ResponseItem]:
    """The items that are named after this entry."""
    if isinstance(entry, Compaction):
        return [items.compaction_item(row.id, entry.seq, row.incarnation)]
    if isinstance(entry, MESSAGES):
        return items.items_of(entry, row.id)
    try:
        stored = await relaying.stored(row.id, entry.seq)
    except NotFound:
        return []
    return (await told(relaying, stored, seals=True))["output"] if stored.answer is not None else []


def log_items(row: Session, entries: Sequence[Entry]) -> list[ResponseItem]:
    """The items of a log, each with the id that finds it again. `entries`: in order, with the calls' own entries.

    A compaction is not an item here, because everything that it covers is listed.
    """
    found: list[ResponseItem] = []
    turn, last_word, told = 0, 0, 0
    for entry in with_words(entries):
        if (note := note_of(entry, REQUEST)) is not None:
            turn = 0 if note.get("agent") else entry.seq
            last_word, told = said_until(note, entry.seq), 0
        elif isinstance(entry, Assistant) and turn and entry.seq > last_word:
            made = items.answer_items(entry.content, row.id, turn, first=told)
            told += len(made)
            found += made
        elif isinstance(entry, MESSAGES):
            found += items.items_of(entry, row.id)
    return found


async def compacted(relaying: Relaying, call: RelayCall) -> bytes:
    """The object of a compaction: the user's messages that it keeps, and the item that stands for everything."""
    stored = await relaying.stored(call.session_id, call.turn)
    assert call.compaction is not None
    assert call.reply is not None
    first = stored.compaction.first_kept if stored.compaction else 0
    kept = [entry for entry in await relaying.live_entries(stored.row) if entry.seq >= first]
    said = [item for item in log_items(stored.row, kept) if item.get("role") == "user"]
    made = items.compaction_item(call.session_id, call.compaction.seq, stored.row.incarnation)
    body = {
        "id": ids.response(call.session_id, call.turn),
        "object": "response.compaction",
        "created_at": call.began_ms // 1000,
        "output": [*said, made],
        "usage": objects.usage_of(call.reply),
    }
    return errors.encode(body)
