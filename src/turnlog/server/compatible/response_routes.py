"""The routes under /v1/responses."""

from collections.abc import Callable, Mapping
from functools import partial

from litestar import Response, Router, delete, get, post
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp

from ...access.relaying import Relaying
from ...settings import ApiSettings
from ...turns.stored_calls import StoredCall
from ..service import AnyRequest, service_of
from . import errors, models, paging, reading, response_input, responses, stored_responses
from .answering import Answering, answer, api_of, count_tokens, relaying_of
from .errors import InvalidField
from .reading import RequestFields, WireRequest
from .response_events import writer_of
from .responses import ReadInput


@post("/", status_code=200, operation_id="createResponse", summary="OpenAI's responses")
async def post_responses(request: AnyRequest) -> ASGIApp:
    return await answer(request, "responses", "openai", await _read(request, responses.read), writer_of)


@post("/compact", status_code=200, operation_id="compactResponse", summary="Compact now")
async def compact(request: AnyRequest) -> ASGIApp:
    read = await _read(request, responses.read_compaction)
    answering = await answer(request, "responses", "openai", read, writer_of)
    answering.tell_whole = partial(stored_responses.compacted, relaying_of(request))
    return answering


@post("/input_tokens", status_code=200, operation_id="countInputTokens", summary="Count")
async def count_input_tokens(request: AnyRequest) -> Response[bytes]:
    counted = await count_tokens(request, "responses", await _read(request, responses.read))
    return models.answer({"object": "response.input_tokens", "input_tokens": counted})


async def _read(
    request: AnyRequest, read: Callable[[RequestFields, ReadInput, Mapping[str, str], ApiSettings], WireRequest]
) -> WireRequest:
    api = api_of(request)
    fields = RequestFields(await reading.body_of(request))
    return read(fields, await response_input.found(relaying_of(request), fields), request.headers, api)


async def _found(request: AnyRequest, response_id: str) -> tuple[Relaying, StoredCall]:
    api_of(request)
    relaying = relaying_of(request)
    return relaying, await stored_responses.find(relaying, response_id)


@get("/{response_id:str}", operation_id="getResponse", summary="A stored response")
async def get_response(request: AnyRequest, response_id: str) -> ASGIApp:
    relaying, stored = await _found(request, response_id)
    if request.query_params.get("stream", "").lower() not in ("true", "1"):
        body = errors.encode(await stored_responses.told(relaying, stored))
        return ASGIResponse(body=body, media_type="application/json")
    after = paging.number_of(request, "starting_after", -1)
    service_of(request).hold_stream(request, of_client=True)
    call = await relaying.told(stored, listens=True)
    writer = await stored_responses.writer_of(relaying, stored, call, after=after)
    return Answering(request, call, writer, "openai", is_stream=True, refuses=False)


@delete("/{response_id:str}", status_code=200, operation_id="deleteResponse", summary="Hide")
async def delete_response(request: AnyRequest, response_id: str) -> Response[bytes]:
    relaying, stored = await _found(request, response_id)
    await relaying.delete(stored)
    note = {"session": stored.row.id, "entries": "kept"}
    return models.answer({"id": response_id, "object": "response", "deleted": True, "turnlog": note})


@post("/{response_id:str}/cancel", status_code=200, operation_id="cancelResponse", summary="Stop a background response")
async def cancel_response(request: AnyRequest, response_id: str) -> Response[bytes]:
    relaying, stored = await _found(request, response_id)
    if not stored_responses.echo_of(stored).get("background"):
        raise InvalidField("only background responses can be cancelled", code="not_background")
    await relaying.stop(stored)
    again = await stored_responses.find(relaying, response_id)
    return models.answer(await stored_responses.told(relaying, again))


@get("/{response_id:str}/input_items", operation_id="listInputItems", summary="The items of a response's input")
async def list_input_items(request: AnyRequest, response_id: str) -> Response[bytes]:
    relaying, stored = await _found(request, response_id)
    found = stored_responses.log_items(stored.row, await relaying.input_of(stored))
    return models.answer(paging.page(request, found))


ROUTES = Router(
    "/v1/responses",
    route_handlers=[
        post_responses,
        compact,
        count_input_tokens,
        get_response,
        delete_response,
        cancel_response,
        list_input_items,
    ],
    tags=["compatible"],
)
