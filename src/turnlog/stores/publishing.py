"""What other programs read of a JSONL store: `sessions.json`, and the marker that says what a directory is."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ..core.session import Session
from ..errors import StoreError, UsageError
from . import Notice, foreign_index
from .files import listing, lock, make_dir, open_private, replace_file, unlock
from .layouts import Place

MARKER = "turnlog.json"
LAYOUT_VERSION = 1
PUBLISHED_NAME = "sessions.json"
LARGE = 5_000
PUBLISH_EVERY_S = 60
"""Above so many sessions, the published copy is replaced at most this often."""
_OURS = {"agents", "leases", "ledger.jsonl", "config.toml", "memory"}

Named = Sequence[tuple[Session, str]]
"""Rows, and the names of their files."""


def publish_own(folder: Path, rows: Named, *, changed: bool, always: bool) -> bool:
    """A copy, never read back by us; whether it is up to date now."""
    path = folder / PUBLISHED_NAME
    large = len(rows) > LARGE and path.exists() and not always
    if large and (not changed or time.time() - path.stat().st_mtime < PUBLISH_EVERY_S):
        return False
    data = msgspec.json.encode({"sessions": {row.id: _published(row, name) for row, name in rows}})
    if not path.exists() or path.read_bytes() != data:
        replace_file(path, data, durable=False)
    return True


def _published(row: Session, file_name: str) -> dict[str, object]:
    """The fields of a row that are promised to others."""
    return {
        "id": row.id,
        "agentId": row.agent,
        "key": row.key,
        "label": row.label,
        "title": row.title,
        "filePath": file_name,
        "messageCount": row.message_count,
        "turnCount": row.turn_count,
        "createdAt": row.created_at,
        "lastAt": row.last_at,
        "tokenEstimate": row.token_estimate,
        "status": row.status,
        "channel": row.channel,
        "compactions": row.compactions,
    }


def publish_foreign(
    place: Place, shelf: str, rows: Named, wrote: set[str], gone: set[str], notice: Callable[[Notice], None]
) -> None:
    """Enters what we did into the other tool's own index; nothing if we did nothing."""
    path = place.published(shelf)
    if path is None or not (wrote or gone):
        return
    fd = open_private(place.own / MARKER, os.O_RDWR)
    lock(fd)
    try:
        index = _read_or_put_aside(place, shelf, path, notice)
        entered = [(row, name, row.id in wrote) for row, name in rows]
        data = msgspec.json.format(msgspec.json.encode(foreign_index.merged(place, index, entered, gone)), indent=2)
        if not path.exists() or path.read_bytes() != data:
            replace_file(path, data, durable=False)
    finally:
        unlock(fd)
        os.close(fd)
    wrote.clear()
    gone.clear()


def _read_or_put_aside(place: Place, shelf: str, path: Path, notice: Callable[[Notice], None]) -> dict[str, Any] | None:
    try:
        return foreign_index.read(place, shelf)
    except foreign_index.Unreadable as error:
        aside = place.own / f"{PUBLISHED_NAME}.{shelf}.{time.time_ns()}"
        os.replace(path, aside)
        notice(Notice(what=f"an unreadable index ({error}) was moved to {aside} and made anew", where=str(path)))
        return None


def mark(place: Place, *, durable: bool) -> None:
    """Says what our files in another tool's directory are; made with the first of them."""
    make_dir(place.own)
    if not (place.own / MARKER).exists():
        made = {"turnlog": LAYOUT_VERSION, "store": "jsonl", "layout": place.layout.name}
        replace_file(place.own / MARKER, msgspec.json.encode(made) + b"\n", durable=durable)


def check_ours(place: Place, root: Path, *, durable: bool) -> None:
    """Refuses a directory of another kind, before anything is written into it."""
    marker = place.own / MARKER
    try:
        made: Any = msgspec.json.decode(marker.read_bytes())
        version = made["turnlog"]
    except FileNotFoundError:
        _check_unmarked(place, root)
        if not place.layout.foreign:
            made = {"turnlog": LAYOUT_VERSION, "store": "jsonl"}
            replace_file(marker, msgspec.json.encode(made) + b"\n", durable=durable)
        return
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{marker} is not readable: {error}", hint="Restore it, or remove it to have it made anew."
        ) from error
    if not isinstance(version, int) or version > LAYOUT_VERSION:
        raise StoreError(
            f"{root} was made by a newer Turnlog (layout {version}; this one knows {LAYOUT_VERSION})",
            hint="Upgrade Turnlog. Nothing was changed.",
        )


def _check_unmarked(place: Place, root: Path) -> None:
    if place.base != root or any(True for _ in place.shelves()):
        return
    # A marker that another process is just writing, died writing, or has written since we looked, is ours too.
    names = {entry.name for entry in listing(root) if not entry.name.startswith(f".{MARKER}.")}
    others = names - _OURS - {MARKER}
    if others and not (root / "agents").is_dir() and not (root / "config.toml").is_file():
        raise UsageError(
            f"{root} holds other things ({min(others)!r} for one) and is not a Turnlog store",
            hint="Choose an empty or a new directory.",
        )
