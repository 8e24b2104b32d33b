"""The live stream, which the tabs of a browser share, and the way in which the page sends a message."""

import re
from typing import Annotated

from litestar import get, post
from litestar.params import JSONBody, Parameter
from litestar.types import ASGIApp

from ...access import Access
from ...errors import UsageError
from ..api.chat import accept_message, stream
from ..http.bodies import ChatBody
from ..service import AnyRequest, acting, service_of
from .feed import Feed
from .view import frame_of

WATCHED_MAX = 30
"""Sessions that one browser watches at once; more tabs than that are not looked at."""
_IDS = re.compile(r"[A-Za-z0-9_-]{1,64}(,[A-Za-z0-9_-]{1,64})*")


@get("/live")
async def live(request: AnyRequest, watch: Annotated[str, Parameter(max_length=4_000)] = "") -> ASGIApp:
    """`watch`: ids of sessions, with commas between."""
    service, access = service_of(request), acting(request, "chat", "read")
    if watch and not _IDS.fullmatch(watch):
        raise UsageError("those are not ids of sessions", hint="Separate them by commas.")
    watched = list(dict.fromkeys(watch.split(",")))[:WATCHED_MAX] if watch else []
    service.hold_stream(request)
    return stream(request, None, _feed(request, access).frames(watched))


@post("/chat/{agent:str}/say", status_code=200)
async def say(request: AnyRequest, agent: str, data: JSONBody[ChatBody]) -> ASGIApp:
    """Like a message over the API, but with the frames of the live stream, up to the end of the turn.

    Its headers are sent when the message is stored. A browser whose live stream shows the turn needs no more.
    """
    access, _, ticket = await accept_message(request, agent, data)
    return stream(request, None, _feed(request, access).frames_of(ticket))


def _feed(request: AnyRequest, access: Access) -> Feed:
    service = service_of(request)
    return Feed(access, service.changes, service.turns, frame_of(request))
