"""The routes under /v1 for clients of OpenAI's and Anthropic's protocols."""

from typing import Any

from litestar import Request, Response, post
from litestar.types import ASGIApp

from ..service import AnyRequest
from . import chat_completions, compaction_fields, conversations, errors, messages, models, reading, response_routes
from .answering import answer, api_of, count_tokens as count, relaying_of, request_id
from .chat_completions import ChatWriter
from .message_events import EventsWriter
from .reading import RequestFields, WireRequest

TAGS = ["compatible"]


@post("/v1/chat/completions", status_code=200, operation_id="chatCompletions", summary="OpenAI's chat", tags=TAGS)
async def post_chat_completions(request: AnyRequest) -> ASGIApp:
    api = api_of(request)
    read = chat_completions.read(await reading.body_of(request), request.headers, api)
    return await answer(request, "chat", "openai", read, ChatWriter)


@post("/v1/messages", status_code=200, operation_id="createMessage", summary="Anthropic's messages", tags=TAGS)
async def post_messages(request: AnyRequest) -> ASGIApp:
    return await answer(request, "messages", "anthropic", await _messages(request), EventsWriter)


@post("/v1/messages/count_tokens", status_code=200, operation_id="countTokens", summary="Count tokens", tags=TAGS)
async def count_tokens(request: AnyRequest) -> Response[bytes]:
    return models.answer({"input_tokens": await count(request, "messages", await _messages(request, counts=True))})


async def _messages(request: AnyRequest, *, counts: bool = False) -> WireRequest:
    """A block of compaction stands for everything up to it."""
    api = api_of(request)
    fields = RequestFields(await reading.body_of(request))
    said, point = fields.messages(), None
    if last := compaction_fields.last_block(said):
        at, coded = last
        point = await compaction_fields.after_handle(relaying_of(request), coded, f"messages[{at}]")
        rest = compaction_fields.without_block(said[at])
        said = [*([rest] if rest else []), *said[at + 1 :]]
    return messages.read(fields, said, request.headers, api, counts=counts, point=point)


def answer_error(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """An error in the shape of the family."""
    family = errors.family_of(request.url.path, "anthropic-version" in request.headers)
    status, headers, body = errors.answer_of(error, family, request_id(request))
    return Response(body, status_code=status, media_type="application/json", headers=headers)


ROUTES = (
    post_chat_completions,
    post_messages,
    count_tokens,
    models.list_models,
    models.get_model,
    response_routes.ROUTES,
    conversations.ROUTES,
)
