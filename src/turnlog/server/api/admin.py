"""The convlog, for administrators; and signing in to the page and out of it."""

from typing import Annotated, Any, cast
from urllib.parse import unquote

from litestar import Controller, Response, delete, get, post
from litestar.datastructures import Cookie
from litestar.params import JSONBody, PathParameter, QueryParameter
from msgspec.structs import replace

from ...access.auditing import AuditFilter, AuditPage, AuditState, audit
from ...convlog import Filter
from ...errors import NotFound
from ...sessions.erasing_text import EraseRequest
from ..http.auth import COOKIE, COOKIE_TTL_S
from ..http.bodies import AgentId, ConversationList, EraseEverywhereBody, EraseReport, MessageList, SignInBody
from ..http.problems import Refusal
from ..service import AnyRequest, Service, acting, principal_of, service_of
from .sessions import Cursor as SessionCursor, Limit, erase_asked

Cursor = Annotated[
    str | None,
    QueryParameter(
        description="`next` of the page before.",
        pattern=r"^[0-9]{1,15}\.[a-z0-9][a-z0-9_-]{0,63}\.[\s\S]+$",
        max_length=2_000,
    ),
]
Place = Annotated[str | None, QueryParameter(description="`next` of the page before.", pattern=r"^[0-9]{1,15}$")]
Piece = Annotated[str | None, QueryParameter(max_length=1_000)]
ChannelType = Annotated[str | None, QueryParameter(name="channelType", max_length=200)]
SomeAgent = Annotated[
    str | None, QueryParameter(name="agentId", pattern="^[a-z0-9][a-z0-9_-]{0,63}$", description="Of this agent only.")
]
ChannelId = Annotated[str, PathParameter(min_length=1, description="A conversation.")]
"""Of any length: a conversation with an impossible id has no messages."""


class ConversationsController(Controller):
    path = "/api"
    tags = ("convlog",)

    @get("/conversations", operation_id="conversations", summary="Conversations on all channels, newest first")
    async def everywhere(
        self,
        request: AnyRequest,
        agent: SomeAgent = None,
        channel_type: ChannelType = None,
        sender: Piece = None,
        q: Piece = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> ConversationList:
        wanted = Filter(channel_type=channel_type, sender=sender, q=q or None)
        return await _list(request, agent, wanted, limit, cursor)

    @get("/agents/{agent:str}/conversations", operation_id="agentConversations", summary="Those of one agent")
    async def of_agent(
        self,
        request: AnyRequest,
        agent: AgentId,
        channel_type: ChannelType = None,
        sender: Piece = None,
        q: Piece = None,
        limit: Limit = 50,
        cursor: Cursor = None,
    ) -> ConversationList:
        wanted = Filter(channel_type=channel_type, sender=sender, q=q or None)
        return await _list(request, agent, wanted, limit, cursor)

    @get("/agents/{agent:str}/conversations/{channel:path}", operation_id="messages", summary="One conversation")
    async def messages(
        self,
        request: AnyRequest,
        agent: AgentId,
        channel: ChannelId,
        sender: Piece = None,
        q: Piece = None,
        limit: Limit = 50,
        cursor: Place = None,
    ) -> MessageList:
        service, who = service_of(request), principal_of(request, "admin")
        service.check_agent(who, agent)
        wanted = Filter(sender=sender, q=q or None)
        whole = _whole(request, channel)
        page = await service.convlog.messages(agent, whole, wanted, limit=limit, cursor=cursor)
        if not page.total and not (await service.convlog.messages(agent, whole, limit=1)).total:
            raise NotFound("there is no such conversation", hint="GET /api/conversations lists them.")
        return MessageList(page.items, page.next, page.total)


@post(
    "/api/erase",
    operation_id="eraseWords",
    tags=("sessions",),
    status_code=200,
    summary="Erase words in all sessions; without `apply`, list what holds them",
)
async def erase_everywhere(request: AnyRequest, data: JSONBody[EraseEverywhereBody]) -> EraseReport:
    asked = EraseRequest(row=None, text=data.text, redact=data.redact, derived=data.derived, apply=data.apply)
    return await erase_asked(request, asked)


def _whole(request: AnyRequest, channel: str) -> str:
    """The id as the client sent it: it may contain slashes, encoded or not, and routing drops some of them."""
    raw = cast("bytes", cast("dict[str, Any]", request.scope).get("raw_path") or b"")
    written = raw.decode("latin-1").partition("/conversations/")[2]
    return unquote(written, errors="replace") or channel.removeprefix("/")


async def _list(
    request: AnyRequest, agent: str | None, wanted: Filter, limit: int, cursor: str | None
) -> ConversationList:
    service, who = service_of(request), principal_of(request, "admin")
    if agent is not None:
        service.check_agent(who, agent)
    agents = frozenset({agent}) if agent is not None else who.agents
    page = await service.convlog.list(replace(wanted, agents=agents), limit=limit, cursor=cursor)
    return ConversationList(page.items, page.next, page.total)


@get("/api/approvals", tags=("sessions",), operation_id="approvalAudit", summary="Every call that needed approval")
async def approval_audit(
    request: AnyRequest,
    agent: SomeAgent = None,
    outcome: AuditState = "",
    tool: Piece = None,
    by: Piece = None,
    q: Piece = None,
    limit: Limit = 50,
    cursor: SessionCursor = None,
) -> AuditPage:
    """Who approved what, when, and what ran; sessions newest first. An empty page may have a `next`."""
    wanted = AuditFilter(agent=agent, state=outcome, tool=tool or "", by=by or "", q=q or "")
    return await audit(acting(request, "admin", agent=agent).sessions, wanted, limit=limit, cursor=cursor)


class SignIn(Controller):
    path = "/api/signin"
    tags = ("page",)

    @post("/", status_code=204, operation_id="signIn", summary="A cookie for a one-time code or a token")
    async def sign_in(self, request: AnyRequest, data: JSONBody[SignInBody]) -> Response[None]:
        service = service_of(request)
        cookie = await cookie_for(service, code=data.code, token=data.token)
        if cookie is None:
            raise Refusal("this code or token is not valid", status=401, code="unauthorized", hint=_HINT)
        return Response(None, status_code=204, cookies=[cookie_header(request, cookie)])

    @delete("/", operation_id="signOut", summary="End the page's session")
    async def sign_out(self, request: AnyRequest) -> Response[None]:
        if value := request.cookies.get(COOKIE):
            await service_of(request).tokens.drop_cookie(value)
        return Response(None, status_code=204, cookies=[cookie_header(request, "")])


_HINT = "A link works once. Use turnlog token create, or the token in admin.token in the data directory."


async def cookie_for(service: Service, *, code: str | None = None, token: str | None = None) -> str | None:
    """The value of a new cookie; None if the code or token is not valid."""
    if code:
        return await service.tokens.redeem(code)
    found = await service.tokens.of_bearer(token) if token else None
    return await service.tokens.make_cookie(found) if found else None


def cookie_header(request: AnyRequest, value: str) -> Cookie:
    """An empty value deletes the cookie."""
    return Cookie(
        key=COOKIE,
        value=value,
        path="/",
        max_age=int(COOKIE_TTL_S) if value else 0,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
