"""OPTIONS and HEAD, which the framework does not answer for every route, become methods that it does answer."""

import asyncio
from typing import Any, cast

from litestar.types import Receive, Send

SIGN_IN = ("/signin", "/api/signin")
"""Paths that accept codes and tokens, and so could be used to guess them."""


def adapted(method: str, path: str, receive: Receive, send: Send) -> tuple[str, Receive, Send]:
    """The method that the framework gets, and how its answer is changed."""
    match method:
        case "OPTIONS":
            # The framework's own answer to OPTIONS names one method of a path; its refusal of TRACE names all.
            return "TRACE", receive, _as_options(send)
        case "HEAD" if path.rstrip("/") not in SIGN_IN:  # a GET there would use up the code
            return "GET", *_as_head(send)
        case _:
            return method, receive, send


def _as_head(send: Send) -> tuple[Receive, Send]:
    """Like GET, without a body; a stream gets a disconnect as soon as its headers are sent."""
    begun = asyncio.Event()

    async def hear() -> Any:
        await begun.wait()
        return {"type": "http.disconnect"}

    async def answer(message: Any) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            begun.set()

    return cast("Receive", hear), cast("Send", answer)


def _as_options(send: Send) -> Send:
    """Turns 405 with `Allow` into an answer without a body. There are no CORS headers for other sites."""
    allowed = False

    async def answer(message: Any) -> None:
        nonlocal allowed
        if message["type"] == "http.response.start":
            allowed = message["status"] == 405
        if allowed and message["type"] == "http.response.start":
            kept = [header for header in message["headers"] if not header[0].lower().startswith(b"content-")]
            message = {**message, "status": 204, "headers": kept}
        elif allowed:
            message = {**message, "body": b""}
        await send(message)

    return cast("Send", answer)
