"""The `sessions.json` of other programs: what it says about a session, and how Turnlog's sessions are added.

The file belongs to the other program. Unknown rows and fields stay unchanged; a file that cannot be read is moved away,
never overwritten. Only sessions that Turnlog wrote to are changed, and missing sessions are added, because some of
those programs show only what is in the index.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...codecs.lines import timestamp
from ...core import keys
from ...core.entries import Opened
from ...core.keys import CHAT_TYPES, SessionKey
from ...core.session import Session, cut_title
from ...errors import UsageError
from ..disk.files import open_private, read_at
from .layouts import Place

INDEX_MAX_BYTES = 512 * 1024 * 1024
"""OpenClaw's rows have been seen with 120 KB each; no program works with a larger index."""
Rows = dict[str, Any]
_SOURCES = (("feishu-", "feishu"), ("telegram-", "telegram"), ("tg-", "telegram"))


class Unreadable(Exception):
    """It is not an index of that program."""


class ForeignIndexRow(Struct, frozen=True):
    """The data of one session in an index."""

    key: str = ""
    label: str | None = None
    title: str = ""


class IndexUpdate(Struct, frozen=True):
    """A session to be written into the index."""

    row: Session
    file_name: str
    ours: bool = True
    """Whether Turnlog wrote to it."""
    renamed: bool = False
    """Whether it was renamed in Turnlog; only then the title in the index is replaced."""


def read(place: Place, folder: str) -> dict[str, Any] | None:
    """The whole index; None if there is none. Raises Unreadable."""
    path = place.published(folder)
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


def told(place: Place, index: Mapping[str, Any] | None) -> dict[str, ForeignIndexRow]:
    """id → its data in the index."""
    found: dict[str, ForeignIndexRow] = {}
    for name, row in _rows(place, index).items():
        if not isinstance(row, dict):
            continue
        fields = cast("Rows", row)
        match place.layout.name:
            case "openclaw":
                found[_text(fields, "sessionId")] = ForeignIndexRow(
                    name, _text(fields, "label", "displayName", "subject") or None
                )
            case "claw0-keyed":
                found[_text(fields, "session_id")] = ForeignIndexRow(name)
            case _:
                found[name] = ForeignIndexRow(label=_text(fields, "label") or None, title=_text(fields, "title"))
    return found


def titled(row: Session, told: ForeignIndexRow) -> Session:
    """The row with the title of the index, unless an entry of the log sets one."""
    title = cut_title(told.title)
    if not title or title == row.title or row.title_by in ("auto", "user"):
        return row
    return replace(row, title=title, title_by="index")


def _rows(place: Place, index: Mapping[str, Any] | None) -> Rows:
    if index is None:
        return {}
    inner: Any = index.get("sessions") if place.layout.name in ("zyhive", "turnlog") else index
    return cast("Rows", inner) if isinstance(inner, dict) else {}


def _text(fields: Rows, *names: str) -> str:
    return next((value for name in names if isinstance(value := fields.get(name), str) and value), "")


def stand_in(place: Place, folder: str, session_id: str, told: ForeignIndexRow) -> Opened:
    """The session entry of a file without one."""
    agent = folder if place.layout.arrangement == "agents" else "main"
    match place.layout.name:
        case "zyhive":
            channel = next((channel for start, channel in _SOURCES if session_id.startswith(start)), "web")
            key = SessionKey(agent=agent, channel=channel, kind="direct", peer=session_id)
        case "openclaw":
            key = _openclaw_key(told.key, agent, session_id)
        case "pi":
            key = SessionKey(agent=agent, channel="pi", kind="direct", peer=folder)
        case "claw0":
            key = SessionKey(agent=agent, channel="cli", kind="direct", peer="user")
        case "claw0-keyed":
            key = _triple_key(told.key, session_id)
        case _:
            key = SessionKey(agent=agent, channel="damaged", kind="direct", peer=session_id)
    label = told.label[:200] if told.label else None
    return Opened(id=session_id, key=keys.format(key), agent=key.agent, channel=key.channel, label=label)


def _openclaw_key(text: str, agent: str, session_id: str) -> SessionKey:
    """`agent:NAME:CHANNEL:KIND:PEER…` as OpenClaw writes it; any other key gets its own place."""
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
    place: Place, index: Mapping[str, Any] | None, sessions: Iterable[IndexUpdate], gone: Iterable[str]
) -> dict[str, Any]:
    """The index with these sessions added or updated."""
    whole = dict(index or {})
    rows = dict(_rows(place, index))
    removed = set(gone)
    for name in [name for name, row in rows.items() if _id_in(place, name, row) in removed]:
        del rows[name]
    known = {_id_in(place, name, row): name for name, row in rows.items()}
    for written in sessions:
        if written.row.id not in known or written.ours:
            _enter(place, rows, known.get(written.row.id), written)
    if place.layout.name == "zyhive":
        return {**whole, "sessions": rows}
    return rows


def _id_in(place: Place, name: str, row: Any) -> str:
    field = {"openclaw": "sessionId", "claw0-keyed": "session_id"}.get(place.layout.name)
    if field is None:
        return name
    return _text(cast("Rows", row), field) if isinstance(row, dict) else ""


def _enter(place: Place, rows: Rows, known: str | None, written: IndexUpdate) -> None:
    row = written.row
    name = known or _name(place, row)
    there: Any = rows.get(name)
    old = cast("Rows", there) if isinstance(there, dict) else {}
    if old and known is None and row.status != "active":
        return  # the key belongs to another session in that index
    if old and known is None:
        old = {field: value for field, value in old.items() if field != "sessionFile"}
    current = _current(place, row, written.file_name)
    theirs = {"label"} if written.renamed or not _text(old, "title") else {"label", "title", "titleOverridden"}
    kept = {field for field in theirs if old.get(field)} | ({"titleOverridden"} & theirs)
    rows[name] = {**_fresh(place, row, name), **old, **{f: v for f, v in current.items() if f not in kept}}


def _name(place: Place, row: Session) -> str:
    match place.layout.name:
        case "openclaw":
            return row.key
        case "claw0-keyed":
            return keys.format(keys.parse(row.key), "triple")
        case _:
            return row.id


def _fresh(place: Place, row: Session, name: str) -> Rows:
    """Fields that are written once."""
    created = timestamp(row.created_at)
    match place.layout.name:
        case "openclaw":
            fields: Rows = {"sessionStartedAt": row.created_at, "channel": row.channel}
            return {**fields, "label": row.label} if row.label else fields
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
            return {"sessionId": row.id, "updatedAt": row.last_at, "compactionCount": row.compactions}
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
