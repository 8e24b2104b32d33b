"""What one entry says: its whole text, and its pictures."""

import base64
from typing import Any, cast

from litestar import Response, get

from ...core.content import encodable
from ...core.entries import Block, Content, Received, User, text_of
from ...core.pictures import PICTURE_TYPES, form_of
from ...core.session import Session
from ...core.user_content import user_content
from ...errors import NotFound
from ...sessions import Sessions
from ..markdown import honest
from ..service import AnyRequest, reading
from .view import HEADERS, read_some, wants_json


@get("/session/{agent:str}/{sid:str}/entry/{seq:int}")
async def entry_text(request: AnyRequest, agent: str, sid: str, seq: int) -> Response[Any]:
    """The whole text of one entry: as plain text to read; exactly as it is for a script, which copies or edits it."""
    access, row = await reading(request, agent, sid)
    content = await content_of(access.sessions, row, seq)
    if wants_json(request):
        return Response({"text": encodable(text_of(content)), "pictures": len(_pictures(content))}, headers=HEADERS)
    headers = {**HEADERS, "Content-Disposition": "inline"}
    return Response(honest(text_of(content)), media_type="text/plain", headers=headers)


async def content_of(sessions: Sessions, row: Session, seq: int) -> Content:
    """What a message says, also if it is stored in `received` entries."""
    found = await read_some(sessions, row, after=seq - 1, before=seq + 1)
    entry = next((entry for entry in found if entry.seq == seq), None)
    if entry is None:
        raise NotFound(f"there is no entry {seq}", hint=f"The session has entries 1 to {row.last_seq}.")
    received = {e.seq: e for e in found if isinstance(e, Received)}
    return (
        user_content(entry, received)
        if isinstance(entry, User)
        else cast("Content", getattr(entry, "content", "") or "")
    )


@get("/session/{agent:str}/{sid:str}/entry/{seq:int}/picture/{n:int}")
async def entry_picture(request: AnyRequest, agent: str, sid: str, seq: int, n: int) -> Response[bytes]:
    """A picture of a message. Its type is read from its bytes, and only types that cannot hold a script are sent."""
    access, row = await reading(request, agent, sid)
    content = await content_of(access.sessions, row, seq)
    pictures = _pictures(content)
    source: Any = pictures[n].get("source") if n < len(pictures) else None
    try:
        data = base64.b64decode(source["data"], validate=True)
    except (TypeError, KeyError, ValueError):
        data = b""
    if (kind := form_of(data)) not in PICTURE_TYPES:
        raise NotFound("there is no such picture", hint="It may be at an address of its own, or erased.")
    return Response(data, media_type=kind, headers={**HEADERS, "Cache-Control": "private, max-age=86400"})


def _pictures(content: Content) -> list[Block]:
    return [] if isinstance(content, str) else [block for block in content if block.get("type") == "image"]
