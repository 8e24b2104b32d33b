"""Platforms deliver messages here: `POST /channels/{kind}[/{account}]`. It needs no token, but a signature.

It answers when everything is stored, within the time that the most impatient platforms allow. If the server is too
slow, is closing or cannot reach its store, it says so, and the platform delivers the request again. It keeps nothing of
a request that is not signed.
"""

import asyncio
import time

from litestar import Response, post

from ...channels import Answer, Hook
from ...channels.gateway import Gateway
from ...errors import Denied, NotFound
from ..http.limits import too_large
from ..http.problems import Refusal, later
from ..service import AnyRequest, service_of

ACKNOWLEDGED_S = 2.5
"""Slack, Feishu and Discord wait three seconds."""
BODY_MAX_BYTES = 2 * 1024 * 1024
"""Of a platform's request; none of them sends as much."""


@post(["/channels/{kind:str}", "/channels/{kind:str}/{account:str}"], status_code=200, include_in_schema=False)
async def arrive(request: AnyRequest, kind: str, account: str | None = None) -> Response[bytes]:
    service = service_of(request)
    service.check_open()
    if service.gateway is None:
        raise NotFound("there is no such channel", hint="Write it into [channels] of config.toml.")
    body = await request.body()
    if len(body) > BODY_MAX_BYTES:
        raise too_large("the body", BODY_MAX_BYTES)
    hook = Hook(headers={name.lower(): value for name, value in request.headers.items()}, body=body, now_s=time.time())
    answer = await _answer(service.gateway, kind, account, hook)
    return Response(answer.body, status_code=answer.status, media_type=answer.media_type)


async def _answer(gateway: Gateway, kind: str, name: str | None, hook: Hook) -> Answer:
    account = gateway.find(kind, name)
    taking = asyncio.ensure_future(gateway.receive(account, hook))
    try:
        async with asyncio.timeout(ACKNOWLEDGED_S):
            reception = await asyncio.shield(taking)
    except Denied as error:
        raise Refusal(str(error), status=401, code="signature", hint=error.hint) from error
    except TimeoutError as error:
        taking.add_done_callback(lambda done: done.cancelled() or done.exception())  # retrieved; it is delivered again
        raise later("storing takes too long", "Deliver it again.", status=503, code="late", after_s=2) from error
    return reception.answer
