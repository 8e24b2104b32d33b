"""The `sessions.json` of other tools: what it says of a session, and how our sessions are entered into it.

It is theirs. Rows and fields that we do not know stay as they are; a file that cannot be read is put aside, never
overwritten. Only sessions we wrote to are changed, and sessions that it does not know are added, since some of those
tools show nothing else.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from ..codecs.lines import timestamp
from ..core import keys
from ..core.entries import Opened
from ..core.keys import CHAT_TYPES, SessionKey
from ..core.session import Session
from ..errors import UsageError
from .files import open_private, read_at
from .layouts import Place

INDEX_MAX_BYTES = 512 * 1024 * 1024
"""OpenClaw's rows have been seen with 120 KB each; beyond this nobody's tool still works."""
Rows = dict[str, Any]
_SOURCES = (("feishu-", "feishu"), ("telegram-", "telegram"), ("tg-", "telegram"))


class Unreadable(Exception):
    """Not an index of that tool."""


class Told(Struct, frozen=True):
    """What an index says of one session."""

    key: str = ""
    label: str | None = None


def read(place: Place, shelf: str) -> dict[str, Any] | None:
    """The whole index as it is; None if there is none. Raises Unreadable."""
    path = place.published(shelf)
    if path is None:
        return None
    try:
        fd = open_private(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    except (OSError, UsageError) as error:
        raise Unreadable(str(error)) from error
    try:
        data = read_at(fd, 0, min(os.fstat(fd).st_size, INDEX_MAX_BYTES))
        found: Any = msgspec.json.decode(data if data.strip() else b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(str(error)) from error
    finally:
        os.close(fd)
    if not isinstance(found, dict):
        raise Unreadable("not an object")
    return cast("dict[str, Any]", found)


def told(place: Place, index: Mapping[str, Any] | None) -> dict[str, Told]:
    """id → what the index says of it."""
    found: dict[str, Told] = {}
    for name, row in _rows(place, index).items():
        if not isinstance(row, dict):
            continue
        fields = cast("Rows", row)
        match place.layout.name:
            case "openclaw":
                found[_text(fields, "sessionId")] = Told(name, _text(fields, "label", "displayName") or None)
            case "claw0-keyed":
                found[_text(fields, "session_id")] = Told(name)
            case _:
                found[name] = Told(label=_text(fields, "label") or None)
    return found


def _rows(place: Place, index: Mapping[str, Any] | None) -> Rows:
    if index is None:
        return {}
    inner: Any = index.get("sessions") if place.layout.name in ("zyhive", "turnlog") else index
    return cast("Rows", inner) if isinstance(inner, dict) else {}


def _text(fields: Rows, *names: str) -> str:
    return next((value for name in names if isinstance(value := fields.get(name), str) and value), "")


def stand_in(place: Place, shelf: str, session_id: str, told: Told) -> Opened:
    """The session entry of a file that has none of ours."""
    agent = shelf if place.layout.arrangement == "agents" else "main"
    match place.layout.name:
        case "zyhive":
            channel = next((channel for start, channel in _SOURCES if session_id.startswith(start)), "web")
            key = SessionKey(agent=agent, channel=channel, kind="direct", peer=session_id)
        case "openclaw":
            key = _openclaw_key(told.key, agent, session_id)
        case "pi":
            key = SessionKey(agent=agent, channel="pi", kind="direct", peer=shelf)
        case "claw0":
            key = SessionKey(agent=agent, channel="cli", kind="direct", peer="user")
        case "claw0-keyed":
            key = _triple_key(told.key, session_id)
        case _:
            key = SessionKey(agent=agent, channel="damaged", kind="direct", peer=session_id)
    label = told.label[:200] if told.label else None
    return Opened(id=session_id, key=keys.format(key), agent=key.agent, channel=key.channel, label=label)


def _openclaw_key(text: str, agent: str, session_id: str) -> SessionKey:
    """`agent:NAME:CHANNEL:KIND:PEER…` as that tool writes it; anything else is a place of its own."""
    parts = text.split(":")
    if len(parts) >= 5 and parts[0] == "agent" and (kind := CHAT_TYPES.get(parts[3])) and all(parts):
        peer, _, thread = ":".join(parts[4:]).partition(":thread:")
        side = "direct" if kind == "direct" else "group"
        return SessionKey(agent=agent, channel=parts[2], kind=side, peer=peer, thread=thread or None)
    return SessionKey(agent=agent, channel="openclaw", kind="direct", peer=text or session_id)


def _triple_key(text: str, session_id: str) -> SessionKey:
    try:
        return keys.parse(text)
    except UsageError:
        return SessionKey(agent="main", channel="cli", kind="direct", peer=text or session_id)


def merged(
    place: Place, index: Mapping[str, Any] | None, sessions: Iterable[tuple[Session, str, bool]], gone: Iterable[str]
) -> dict[str, Any]:
    """The index with these sessions entered: (row, name of its file, whether we wrote to it)."""
    whole = dict(index or {})
    rows = dict(_rows(place, index))
    removed = set(gone)
    for name in [name for name, row in rows.items() if _id_in(place, name, row) in removed]:
        del rows[name]
    known = {_id_in(place, name, row): name for name, row in rows.items()}
    for row, file_name, ours in sessions:
        if row.id not in known or ours:
            _enter(place, rows, known.get(row.id), row, file_name)
    if place.layout.name == "zyhive":
        return {**whole, "sessions": rows}
    return rows


def _id_in(place: Place, name: str, row: Any) -> str:
    field = {"openclaw": "sessionId", "claw0-keyed": "session_id"}.get(place.layout.name)
    if field is None:
        return name
    return _text(cast("Rows", row), field) if isinstance(row, dict) else ""


def _enter(place: Place, rows: Rows, known: str | None, row: Session, file_name: str) -> None:
    name = known or _name(place, row)
    there: Any = rows.get(name)
    old = cast("Rows", there) if isinstance(there, dict) else {}
    if old and known is None and row.status != "active":
        return  # the key belongs to another session there
    if old and known is None:
        old = {field: value for field, value in old.items() if field != "sessionFile"}
    rows[name] = {**_fresh(place, row, name), **old, **_current(place, row, file_name)}


def _name(place: Place, row: Session) -> str:
    match place.layout.name:
        case "openclaw":
            return row.key
        case "claw0-keyed":
            return keys.format(keys.parse(row.key), "triple")
        case _:
            return row.id


def _fresh(place: Place, row: Session, name: str) -> Rows:
    """Fields that are only ever written once."""
    created = timestamp(row.created_at)
    match place.layout.name:
        case "openclaw":
            return {"sessionStartedAt": row.created_at, "channel": row.channel}
        case "claw0":
            return {"label": row.label or "", "created_at": created}
        case "claw0-keyed":
            return {"session_key": name, "created_at": created}
        case _:
            return {"createdAt": row.created_at}


def _current(place: Place, row: Session, file_name: str) -> Rows:
    """Fields that follow the session."""
    last = timestamp(row.last_at)
    match place.layout.name:
        case "openclaw":
            fields: Rows = {"sessionId": row.id, "updatedAt": row.last_at, "compactionCount": row.compactions}
            return {**fields, "label": row.label} if row.label else fields
        case "claw0":
            return {"last_active": last, "message_count": row.last_seq - 1}
        case "claw0-keyed":
            count = row.turn_count
            return {"session_id": row.id, "updated_at": last, "message_count": count, "transcript_file": file_name}
        case _:
            return zyhive_row(row, file_name)


def zyhive_row(row: Session, file_name: str) -> Rows:
    titled = {"titleOverridden": True} if row.title_by == "user" else {}
    return {
        "id": row.id,
        "agentId": row.agent,
        "key": row.key,
        "label": row.label,
        "title": row.title,
        "filePath": file_name,
        "messageCount": row.message_count,
        "turnCount": row.turn_count,
        "lastAt": row.last_at,
        "tokenEstimate": row.token_estimate,
        "status": row.status,
        "channel": row.channel,
        "compactions": row.compactions,
        **titled,
    }
