"""Sessions as files: exporting one from its page, its entries as JSON, and importing conversations into the store."""

import asyncio
import re
import tempfile
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
from litestar import Response, get, post
from litestar.datastructures import UploadFile
from litestar.response import Stream
from msgspec import Struct, to_builtins

from ...codecs import native
from ...core.entries import Entry
from ...core.session import Session
from ...errors import NotFound, UsageError
from ...interchange import exporting
from ...interchange.exporting import FORMATS
from ...sessions import Sessions
from ..http import problems
from ..markdown import honest
from ..service import AnyRequest, principal_of, reading, service_of
from .view import HEADERS, show

JSON_CHARS = 10_000
"""Of one entry in the page; the whole entry has its own address."""
SUFFIXES = {"native": "jsonl", "v3": "v3.jsonl", "flat": "flat.jsonl", "md": "md", "json": "json", "html": "html"}
TYPES = {"md": "text/markdown", "json": "application/json", "html": "text/html"}
SQLITE = b"SQLite format 3\x00"
"""How a database begins; those are imported by the command, which reads them where they are."""


@get("/session/{agent:str}/{sid:str}/export/{form:str}")
async def export_session(request: AnyRequest, agent: str, sid: str, form: str) -> Stream:
    """The whole session as a file. Formats for reading hide secrets of known shapes."""
    access, row = await reading(request, agent, sid)
    if form not in FORMATS:
        raise NotFound("there is no such format", hint=f"Use one of {', '.join(FORMATS)}.")
    headers = {
        **HEADERS,
        "Content-Disposition": f'attachment; filename="{row.id}.{SUFFIXES[form]}"',
        "X-Content-Type-Options": "nosniff",
    }
    kind = TYPES.get(form, "application/x-ndjson")
    return Stream(_exported(access.sessions, row, form), media_type=kind, headers=headers)


async def _exported(sessions: Sessions, row: Session, form: str) -> AsyncGenerator[bytes]:
    async with aclosing(exporting.stream(lambda: sessions.pages(row), row, form)) as pieces:
        async for piece in pieces:
            yield piece.encode("utf-8", "replace")


class EntryJson(Struct, frozen=True):
    """One entry as it is stored."""

    seq: int
    type: str
    text: str
    cut: bool


def entry_json(entry: Entry) -> EntryJson:
    text = _pretty(entry)
    return EntryJson(entry.seq, str(to_builtins(entry).get("type", "")), text[:JSON_CHARS], len(text) > JSON_CHARS)


def _pretty(entry: Entry) -> str:
    return msgspec.json.format(native.encode_plain(entry), indent=2).decode("utf-8", "replace")


@get("/session/{agent:str}/{sid:str}/json/{seq:int}")
async def whole_entry(request: AnyRequest, agent: str, sid: str, seq: int) -> Response[bytes]:
    """One whole entry as JSON."""
    access, row = await reading(request, agent, sid)
    found = await access.sessions.read(row, after=seq - 1, limit=1) if seq >= 1 else []
    if not found or found[0].seq != seq:
        raise NotFound(f"there is no entry {seq}", hint=f"The session has entries 1 to {row.last_seq}.")
    headers = {**HEADERS, "Content-Disposition": "inline", "X-Content-Type-Options": "nosniff"}
    return Response(_pretty(found[0]).encode(), media_type="application/json", headers=headers)


@get("/import")
async def import_page(request: AnyRequest) -> Response[str]:
    principal_of(request, "admin")
    return await show(request, "import.html", found=None, agent="")


@post("/import", status_code=200)
async def import_file(request: AnyRequest) -> Response[str]:
    """Imports the conversations of one uploaded file. Importing it again adds what is new."""
    who, service = principal_of(request, "admin"), service_of(request)
    form: Any = await request.form()
    upload, agent = form.get("file"), str(form.get("agent") or "main")
    service.check_agent(who, agent)
    try:
        if not isinstance(upload, UploadFile) or not upload.filename:
            raise UsageError("no file was chosen", hint="Choose a file with conversations.")
        body = await upload.read()
        if body.startswith(SQLITE):
            raise UsageError("this is a database", hint="Use turnlog sessions import FILE on the machine that has it.")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / _file_name(upload.filename)
            await asyncio.to_thread(path.write_bytes, body)
            try:
                found = await service.import_path(path, agent)
            except UsageError as error:  # it names the copy, which nobody knows
                raise UsageError(str(error).replace(str(path), path.name), hint=error.hint) from error
    except UsageError as error:
        return await show(request, "import.html", problem=problems.of(error), found=None, agent=agent)
    rows = [(item, [honest(note) for note in item.notes]) for item in found]
    return await show(request, "import.html", found=rows, agent=agent)


def _file_name(given: str) -> str:
    """Its last part, of harmless characters: formats are told apart by content and by the end of the name."""
    name = Path(given.replace("\\", "/")).name.lstrip(".")
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[-100:] or "conversations.json"
