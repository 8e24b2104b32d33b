"""The page Tokens: making and revoking them, and when each was last used. For administrators of all agents: an
administrator of only some agents could otherwise create a token for the others.
"""

from datetime import UTC, datetime, timedelta

from litestar import Response, get, post

from ...errors import UsageError
from ...stores.stamping import now_ms
from ..http.auth import SCOPES, Token
from ..http.problems import Problem, Refusal, of as problem_of_error
from ..service import AnyRequest, Service, principal_of, service_of, token_of
from .signin import pairs_of
from .view import lead_to, show

LASTS_MAX_DAYS = 3_650


@get("/tokens")
async def tokens_page(request: AnyRequest) -> Response[str]:
    return await _show(request, _admitted(request))


@post("/tokens", status_code=200)
async def create_token(request: AnyRequest) -> Response[str]:
    """Shows the token's text once; nobody can show it again."""
    service = _admitted(request)
    pairs = [(name, value.strip()) for name, value in await pairs_of(request)]
    fields = dict(pairs)
    try:
        agents = [value for name, value in pairs if name == "agent" and value]
        for agent in agents:
            service.check_agent(principal_of(request), agent)
        made, text = await service.tokens.create(
            fields.get("name", ""),
            [value for name, value in pairs if name == "scope"],
            agents=agents or None,
            expires_at=_expiry(fields.get("days", "")),
        )
    except UsageError as error:
        return await _show(request, service, fields=fields, problem=problem_of_error(error))
    service.log.info("token created", token=made.id, name=made.name, by=principal_of(request).name)
    return await _show(request, service, made=made, text=text)


@post("/tokens/{token_id:str}/revoke", status_code=200)
async def revoke_token(request: AnyRequest, token_id: str) -> Response[str]:
    service = _admitted(request)
    if token_id == token_of(request).id:
        raise UsageError("this is the token that you are signed in with", hint="Sign in with another one first.")
    await service.tokens.revoke(token_id)
    service.log.info("token revoked", token=token_id, by=principal_of(request).name)
    return lead_to("/tokens")


def _admitted(request: AnyRequest) -> Service:
    if principal_of(request, "admin").agents is not None:
        raise Refusal("this needs a token for all agents", status=403, code="scope", hint="Use another token.")
    return service_of(request)


def _expiry(days: str) -> int | None:
    if not days:
        return None
    if not (days.isascii() and days.isdecimal() and 1 <= int(days[:9]) <= LASTS_MAX_DAYS):
        raise UsageError(f"a token lasts 1 to {LASTS_MAX_DAYS} days", hint="Leave it empty for one without an end.")
    return int((datetime.now(UTC) + timedelta(days=int(days))).timestamp() * 1000)


async def _show(
    request: AnyRequest,
    service: Service,
    *,
    made: Token | None = None,
    text: str = "",
    fields: dict[str, str] | None = None,
    problem: Problem | None = None,
) -> Response[str]:
    found = await service.tokens.list()
    return await show(
        request,
        "tokens.html",
        problem=problem,
        tokens=found[::-1],
        used=await service.tokens.last_used(),
        own=token_of(request).id,
        now=now_ms(),
        scopes=SCOPES,
        made=made,
        text=text,
        fields=fields or {},
    )
