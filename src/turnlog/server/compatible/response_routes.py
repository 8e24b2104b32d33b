"""The routes under /v1/responses."""

from functools import partial

from litestar import Response, Router, delete, get, post
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp

from ...access.relaying import Relaying
from ...turns.stored_calls import StoredCall
from ..service import AnyRequest, service_of, token_of
from . import errors, models, paging, reading, response_input, responses, stored_responses
from .answering import Answering, answer, api_of, asked_of, relaying_of, request_id
from .errors import InvalidField
from .reading import RequestFields
from .response_events import writer_of


@post("/", status_code=200, operation_id="createResponse", summary="OpenAI's responses")
async def post_responses(request: AnyRequest) -> ASGIApp:
    api = api_of(request)
    fields = RequestFields(await reading.body_of(request))
    found = await response_input.found(relaying_of(request), fields)
    read = responses.read(fields, found, request.headers, api)
    answering = await answer(request, "responses", "openai", read, writer_of)
    if read.echo.get("background") and not read.is_stream:
        answering.leave_at_once()
    return answering


@post("/compact", status_code=200, operation_id="compactResponse", summary="Compact now")
async def compact(request: AnyRequest) -> ASGIApp:
    api = api_of(request)
    fields = RequestFields(await reading.body_of(request))
    relaying = relaying_of(request)
    read = responses.read_compaction(fields, await response_input.found(relaying, fields), request.headers, api)
    answering = await answer(request, "responses", "openai", read, writer_of)
    answering.tell_whole(partial(stored_responses.compacted, relaying))
    return answering


@post("/input_tokens", status_code=200, operation_id="countInputTokens", summary="Count")
async def count_input_tokens(request: AnyRequest) -> Response[bytes]:
    api, relaying = api_of(request), relaying_of(request)
    fields = RequestFields(await reading.body_of(request))
    found = await response_input.found(relaying, fields)
    read = responses.read(fields, found, request.headers, api)
    target = models.target_of(service_of(request).settings, read.model, relaying.principal)
    counted = await relaying.count_tokens(
        asked_of(request, "responses", read, target, relaying.principal), target.model
    )
    return models.answer({"object": "response.input_tokens", "input_tokens": max(1, counted)})


async def _found(request: AnyRequest, response_id: str) -> tuple[Relaying, StoredCall]:
    api_of(request)
    relaying = relaying_of(request)
    return relaying, await stored_responses.find(relaying, response_id)


@get("/{response_id:str}", operation_id="getResponse", summary="A stored response")
async def get_response(request: AnyRequest, response_id: str) -> ASGIApp:
    api, relaying = api_of(request), relaying_of(request)
    stored = await stored_responses.find(relaying, response_id)
    if request.query_params.get("stream", "").lower() not in ("true", "1"):
        body = errors.encode(await stored_responses.told(relaying, stored))
        return ASGIResponse(body=body, media_type="application/json")
    after = paging.number_of(request, "starting_after", -1)
    service = service_of(request)
    service.hold_stream(request, of_client=True)
    call = await relaying.told(stored, listens=True)
    return Answering(
        call,
        await stored_responses.writer_of(relaying, stored, call, after=after),
        service=service,
        is_stream=True,
        may_listen=service.may_listen(token_of(request), stored.row.id),
        family="openai",
        request_id=request_id(request),
        ignored="",
        announces=api.announce,
        refuses=False,
    )


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
