"""The routes under /v1 for clients of OpenAI's and Anthropic's protocols."""

from typing import Any

from litestar import Request, Response, post
from litestar.types import ASGIApp

from ..service import AnyRequest
from . import chat_completions, compaction_doors, conversations, errors, messages, models, reading, response_routes
from .answering import answer, api_of, count_tokens as count, relaying_of, request_id
from .chat_completions import ChatWriter
from .message_events import EventsWriter
from .reading import RequestFields

TAGS = ["compatible"]


@post("/v1/chat/completions", status_code=200, operation_id="chatCompletions", summary="OpenAI's chat", tags=TAGS)
async def post_chat_completions(request: AnyRequest) -> ASGIApp:
    api = api_of(request)
    read = chat_completions.read(await reading.body_of(request), request.headers, api)
    return await answer(request, "chat", "openai", read, ChatWriter)


@post("/v1/messages", status_code=200, operation_id="createMessage", summary="Anthropic's messages", tags=TAGS)
async def post_messages(request: AnyRequest) -> ASGIApp:
    api = api_of(request)
    fields = RequestFields(await reading.body_of(request))
    said, point = await _messages(request, fields)
    read = messages.read(fields, said, request.headers, api, point=point)
    return await answer(request, "messages", "anthropic", read, EventsWriter)


@post("/v1/messages/count_tokens", status_code=200, operation_id="countTokens", summary="Count tokens", tags=TAGS)
async def count_tokens(request: AnyRequest) -> Response[bytes]:
    api = api_of(request)
    fields = RequestFields(await reading.body_of(request))
    said, point = await _messages(request, fields)
    read = messages.read(fields, said, request.headers, api, counts=True, point=point)
    return models.answer({"input_tokens": await count(request, "messages", read)})


async def _messages(request: AnyRequest, fields: RequestFields) -> tuple[list[bytes], tuple[str, int] | None]:
    """The messages, and what stands before them: a block of compaction stands for everything up to it."""
    said = fields.messages()
    last = compaction_doors.last_block(said)
    if last is None:
        return said, None
    at, coded = last
    point = await compaction_doors.after_handle(relaying_of(request), coded, f"messages[{at}]")
    rest = compaction_doors.without_block(said[at])
    return [*([rest] if rest else []), *said[at + 1 :]], point


def answer_error(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """An error in the shape of the family."""
    family = errors.family_of(request.url.path, "anthropic-version" in request.headers)
    return Response(
        errors.encode(errors.body_of(error, family, request_id(request))),
        status_code=errors.status_of(error, family),
        media_type="application/json",
        headers=errors.headers_of(error),
    )


ROUTES = (
    post_chat_completions,
    post_messages,
    count_tokens,
    models.list_models,
    models.get_model,
    response_routes.ROUTES,
    conversations.ROUTES,
)
