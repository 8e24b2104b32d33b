"""Looks up what the input of a request names: an earlier response, a conversation, items, a compaction.

Everything is looked up as the principal: what another has stored does not exist.
"""

from ...access.relaying import Relaying
from ...errors import NotFound
from . import compaction_fields, reading, response_ids as ids, responses, stored_responses
from .errors import InvalidField, not_found
from .reading import RequestFields
from .responses import InputItems, ReadInput


async def found(relaying: Relaying, fields: RequestFields) -> ReadInput:
    previous, tip = responses.previous_of(fields), responses.conversation_of(fields)
    if previous is not None and tip is not None:
        raise InvalidField(
            "previous_response_id and conversation exclude each other",
            hint="Leave out one of them.",
            param="previous_response_id",
        )
    if previous is not None:
        await _check_previous(relaying, previous)
    if tip is not None and await relaying.own_session(tip) is None:
        raise not_found("Conversation", ids.conversation(tip))
    given = await _with_references(relaying, responses.input_of(fields))
    point, given = await _after_compaction(relaying, given)
    if point is not None and previous is None and tip is None:
        return ReadInput(given=given, point=point)
    return ReadInput(given=given, after=previous, tip=tip)


async def _check_previous(relaying: Relaying, place: tuple[str, int]) -> None:
    missing = not_found("Previous response", ids.response(*place), "previous_response_id")
    try:
        call = await stored_responses.find(relaying, ids.response(*place))
    except NotFound as error:
        raise missing from error
    if call.answer is None:
        raise missing


async def _with_references(relaying: Relaying, given: InputItems) -> InputItems:
    found: dict[int, bytes] = {}
    for number, item_id in given.references:
        item = await stored_responses.item(relaying, item_id)
        if item is None:
            raise not_found("Item", item_id, f"input[{number}]")
        found[number] = reading.encoded(item)
    return responses.of_raws([found.get(n, raw) for n, raw in enumerate(given.raws)]) if found else given


async def _after_compaction(relaying: Relaying, given: InputItems) -> tuple[tuple[str, int] | None, InputItems]:
    """(the session and the entry that the last compaction stands for, the items after it)"""
    last = given.compaction
    if last is None:
        return None, given
    at, coded = last
    point = await compaction_fields.after_handle(relaying, coded, f"input[{at}]")
    return point, responses.of_raws(given.raws[at + 1 :])
