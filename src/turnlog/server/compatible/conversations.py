"""The routes under /v1/conversations: any session of the principal, by its id."""

from typing import Any

from litestar import Response, Router, delete, get, post
from msgspec.structs import replace

from ...access.conversations import OwnConversations
from ...core.entries import Assistant, Entry, Message
from ...core.session import Session
from ...errors import NotFound, UsageError
from ..service import AnyRequest, service_of
from . import models, paging, reading, response_ids as ids, response_items as items, responses, stored_responses
from .answering import api_of, relaying_of
from .errors import InvalidField, not_found
from .reading import RequestFields
from .stored_responses import log_items

ITEMS_MAX = 20
"""Items of one request."""


def _of(request: AnyRequest) -> OwnConversations:
    api_of(request)
    return service_of(request).conversations_for(relaying_of(request).principal)


async def _found(request: AnyRequest, conversation_id: str) -> tuple[OwnConversations, Session]:
    conversations = _of(request)
    session = ids.conversation_session(conversation_id)
    if session is None:
        raise not_found("Conversation", conversation_id)
    try:
        return conversations, await conversations.get(session)
    except NotFound as error:
        raise not_found("Conversation", conversation_id) from error


def _read(fields: RequestFields, *, is_needed: bool) -> list[Message]:
    raws = fields.messages("items", may_be_empty=True)
    if is_needed and not raws:
        raise InvalidField("there are no items", param="items", code="missing_required_parameter")
    if len(raws) > ITEMS_MAX:
        raise InvalidField(f"items holds at most {ITEMS_MAX} items", hint="Send the rest later.", param="items")
    found: list[Message] = []
    for number, raw in enumerate(raws):
        with reading.located(f"items[{number}]"):
            found += items.read_message(raw)
    return found


async def _told(conversations: OwnConversations, row: Session) -> Response[bytes]:
    return models.answer(_object(row, await conversations.metadata(row)))


def _object(row: Session, metadata: dict[str, str]) -> dict[str, Any]:
    created = row.created_at // 1000
    return {"id": ids.conversation(row.id), "object": "conversation", "created_at": created, "metadata": metadata}


@post("/", status_code=200, operation_id="createConversation", summary="A new session")
async def create(request: AnyRequest) -> Response[bytes]:
    conversations = _of(request)
    fields = RequestFields(await reading.body_of(request) or b"{}")
    metadata = responses.metadata_of(fields)
    made = await conversations.create(_read(fields, is_needed=False), metadata)
    return models.answer(_object(made.row, metadata))


@get("/{conversation_id:str}", operation_id="getConversation", summary="A session")
async def retrieve(request: AnyRequest, conversation_id: str) -> Response[bytes]:
    return await _told(*await _found(request, conversation_id))


@post("/{conversation_id:str}", status_code=200, operation_id="updateConversation", summary="Set its metadata")
async def update(request: AnyRequest, conversation_id: str) -> Response[bytes]:
    conversations, row = await _found(request, conversation_id)
    fields = RequestFields(await reading.body_of(request))
    fields.needed("metadata", dict[str, Any])
    await conversations.update(row, responses.metadata_of(fields))
    return await _told(conversations, row)


@delete("/{conversation_id:str}", status_code=200, operation_id="deleteConversation", summary="Erase the session")
async def erase(request: AnyRequest, conversation_id: str) -> Response[bytes]:
    conversations, row = await _found(request, conversation_id)
    await conversations.delete(row)
    return models.answer({"id": conversation_id, "object": "conversation.deleted", "deleted": True})


@post("/{conversation_id:str}/items", status_code=200, operation_id="createItems", summary="Add items")
async def add_items(request: AnyRequest, conversation_id: str) -> Response[bytes]:
    conversations, row = await _found(request, conversation_id)
    messages = _read(RequestFields(await reading.body_of(request)), is_needed=True)
    added = await conversations.add(row, messages)
    return models.answer(paging.listed(log_items(row, added)))


@get("/{conversation_id:str}/items", operation_id="listItems", summary="The items")
async def list_items(request: AnyRequest, conversation_id: str) -> Response[bytes]:
    conversations, row = await _found(request, conversation_id)
    return models.answer(paging.page(request, log_items(row, await conversations.entries(row))))


@get("/{conversation_id:str}/items/{item_id:str}", operation_id="getItem", summary="An item")
async def get_item(request: AnyRequest, conversation_id: str, item_id: str) -> Response[bytes]:
    _, row = await _found(request, conversation_id)
    place = ids.item_place(item_id)
    found = await stored_responses.item(relaying_of(request), item_id) if place and place.session == row.id else None
    if found is None:
        raise not_found("Item", item_id)
    return models.answer(found)


@delete(
    "/{conversation_id:str}/items/{item_id:str}",
    status_code=200,
    operation_id="deleteItem",
    summary="Take back the last item",
)
async def delete_item(request: AnyRequest, conversation_id: str, item_id: str) -> Response[bytes]:
    conversations, row = await _found(request, conversation_id)
    entries = await conversations.entries(row)
    told = log_items(row, entries)
    if not any(item["id"] == item_id for item in told):
        raise not_found("Item", item_id)
    if told[-1]["id"] != item_id:
        raise _append_only()
    last = next(entry for entry in reversed(entries) if log_items(row, [entry]))
    try:
        await conversations.take_back(row, last.seq, _without_last(last))
    except UsageError as error:
        raise _append_only() from error
    return await _told(conversations, await conversations.get(row.id))


def _append_only() -> InvalidField:
    return InvalidField(
        "only the last item can be deleted", hint="A log is never edited: delete from its end.", code="append_only"
    )


def _without_last(entry: Entry) -> Assistant | None:
    """What stays of an answer of several items."""
    parts = items.parted(entry.content) if isinstance(entry, Assistant) else []
    if not isinstance(entry, Assistant) or len(parts) < 2:
        return None
    kept = [block for part in parts[:-1] for block in part.blocks]
    return replace(entry, seq=0, ts="", content=kept, usage=None, stop=None)


ROUTES = Router(
    "/v1/conversations",
    route_handlers=[create, retrieve, update, erase, add_items, list_items, get_item, delete_item],
    tags=["compatible"],
)
