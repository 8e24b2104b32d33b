"""What the page Sessions does with many sessions at once: archiving, deleting and restoring them, and CSV.

Each session is changed by itself, and the answer says how many were. Undo restores the state that each one had.
"""

import csv
import io
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any, get_args

from litestar import Response, get, post
from litestar.response import Stream

from ...access import Access
from ...core.query import PAGE_MAX, Query
from ...core.rows import Session, StatusValue
from ...core.usage import cost_of
from ...errors import TurnlogError, UsageError
from ..service import AnyRequest, Service, acting, service_of
from .chats import ChatFilter, filter_of, query_of, state_of
from .signin import pairs_of
from .view import HEADERS, lead_to, local_path, wants_json

CHANGED_MAX = 200
"""Sessions in one request."""
CSV_MAX = 10_000
"""Rows of one file."""
COLUMNS = (
    *("id", "agent", "channel", "who", "title", "status", "state", "messages", "turns"),
    *("context_tokens", "used_tokens", "cost_usd", "created", "last_active"),
)
_BECOMES: dict[str, StatusValue] = {"archive": "archived", "trash": "trashed"}


@post("/chats/many", status_code=200)
async def change_many(request: AnyRequest) -> Response[Any]:
    """Fields: `do` (archive, trash or restore), and any number of `id`; to restore a state, `ID:STATUS`."""
    told = await _change(request)
    return Response(told, headers=HEADERS) if wants_json(request) else lead_to(told["to"])


async def _change(request: AnyRequest) -> dict[str, Any]:
    access = acting(request, "chat", "read")
    pairs = await pairs_of(request)
    fields = dict(pairs)
    ids = list(dict.fromkeys(value for name, value in pairs if name == "id"))
    do = fields.get("do", "")
    if do not in (*_BECOMES, "restore"):
        raise UsageError("there is no such action", hint="Use the buttons of the page.")
    if not 1 <= len(ids) <= CHANGED_MAX:
        raise UsageError(f"choose 1 to {CHANGED_MAX} sessions, not {len(ids)}", hint="Tick the boxes of the table.")
    undo: list[str] = []
    failed = 0
    for one in ids:
        try:
            undo.append(await _change_one(access, one, do))
        except TurnlogError:
            failed += 1
    back = local_path(fields.get("next", "") or "/chats")
    return {"to": back, "did": do, "done": len(undo), "failed": failed, "undo": undo}


async def _change_one(access: Access, named: str, do: str) -> str:
    """What takes it back: the session's id, and the state it had."""
    session_id, _, was = named.partition(":")
    before = await access.sessions.writable(session_id)
    if do == "restore":
        await _restore(access, before, was)
    elif before.status != _BECOMES[do]:
        await access.sessions.set_status(session_id, _BECOMES[do], f"{do} on the page", incarnation=before.incarnation)
    return f"{session_id}:{before.status}"


async def _restore(access: Access, row: Session, was: str) -> None:
    wanted: Any = was if was in get_args(StatusValue) else "inactive"
    if wanted == "active":
        if not (await access.sessions.list(Query(key=row.key, status="active", limit=1))).total:
            await access.sessions.select(row.id)
            return
        wanted = "inactive"  # its key has gone on with another session
    await access.sessions.set_status(row.id, wanted, "restored on the page", incarnation=row.incarnation)


@get("/chats/sessions.csv")
async def sessions_csv(request: AnyRequest) -> Stream:
    """The sessions of the table, with the same filters. Channel logs are not in it."""
    wanted = filter_of(request)
    service, access = service_of(request), acting(request, "read", agent=wanted.agent or None)
    headers = {**HEADERS, "Content-Disposition": 'attachment; filename="sessions.csv"'}
    return Stream(_lines_of(service, access, wanted), media_type="text/csv", headers=headers)


async def _lines_of(service: Service, access: Access, wanted: ChatFilter) -> AsyncGenerator[bytes]:
    yield b"\xef\xbb\xbf" + _line(COLUMNS)  # without this mark, spreadsheets read UTF-8 as something else
    cursor, left = None, CSV_MAX
    while left > 0:
        page = await access.sessions.list(query_of(service, access.principal, wanted, limit=PAGE_MAX, cursor=cursor))
        for row in page.items[:left]:
            yield _line(_cells(row))
        cursor, left = page.next, left - len(page.items)
        if cursor is None:
            return


def _cells(row: Session) -> tuple[object, ...]:
    cost = cost_of(row.used)
    return (
        *(row.id, row.agent, row.channel, row.peer, row.label or row.title, row.status, state_of(row)),
        *(row.message_count, row.turn_count, row.token_estimate, sum(use.tokens for use in row.used)),
        f"{cost.dollars:.6f}" if cost and cost.whole else "",
        _time(row.created_at),
        _time(row.last_at),
    )


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds") if ms else ""


def _line(cells: tuple[object, ...]) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerow([_harmless(cell) if isinstance(cell, str) else cell for cell in cells])
    return out.getvalue().encode("utf-8", "replace")


def _harmless(text: str) -> str:
    """Spreadsheets take a text that begins like this for a formula, and run it."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else text
