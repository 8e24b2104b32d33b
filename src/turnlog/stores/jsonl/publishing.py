"""The files that other programs read in a JSONL store: `sessions.json`, and the marker that identifies a directory."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...core.rows import Session, public_row
from ...errors import NotAStore, StoreError, UsageError
from .. import Notice
from ..disk.files import listing, lock, make_dir, open_private, replace_file, unlock
from . import foreign_index
from .foreign_index import IndexUpdate
from .layouts import Place

MARKER = "turnlog.json"
LAYOUT_VERSION = 1
PUBLISHED_NAME = "sessions.json"
LARGE = 5_000
PUBLISH_EVERY_S = 60
"""With many sessions, the published copy is replaced at most this often."""
_OURS = {"agents", "leases", "ledger.jsonl", "config.toml", "memory", "search"}

Named = Sequence[tuple[Session, str]]
"""Rows, and the names of their files."""


class Publisher:
    """Keeps what has changed in one folder since its index for others was written."""

    def __init__(self, place: Place, name: str, notice: Callable[[Notice], None]) -> None:
        self._place = place
        self._name = name
        self._notice = notice
        self._foreign = place.layout.foreign
        self.changed = False
        self.wrote: set[str] = set()
        """In another program's folder: sessions that we appended to, that we gave a title, and that we deleted."""
        self._renamed: set[str] = set()
        self._gone: set[str] = set()

    def updated(self, row: Session, before: Session | None) -> None:
        self.changed = True
        if self._foreign:
            if row.title_by in ("auto", "user") and (before is None or before.title != row.title):
                self._renamed.add(row.id)
            self.wrote.add(row.id)
            self._gone.discard(row.id)

    def deleted(self, session_id: str) -> None:
        if self._foreign:
            self._gone.add(session_id)
            self.wrote.discard(session_id)

    def is_due(self, count: int) -> bool:
        """Whether a copy of this many rows would be written now: making the rows alone takes long with many of them."""
        return self._foreign or _is_due(self._place.folder(self._name), count, changed=self.changed)

    def publish(self, rows: Named) -> None:
        if self._foreign:
            sessions = [IndexUpdate(row, name, row.id in self.wrote, row.id in self._renamed) for row, name in rows]
            _publish_foreign(self._place, self._name, sessions, self._gone, self._notice)
            for done in (self.wrote, self._renamed, self._gone):
                done.clear()
        else:
            _publish_own(self._place.folder(self._name), rows)
            self.changed = False


def _is_due(folder: Path, count: int, *, changed: bool) -> bool:
    path = folder / PUBLISHED_NAME
    if count <= LARGE or not path.exists():
        return True
    return changed and time.time() - path.stat().st_mtime >= PUBLISH_EVERY_S


def _publish_own(folder: Path, rows: Named) -> None:
    """Writes a copy that Turnlog never reads."""
    path = folder / PUBLISHED_NAME
    data = msgspec.json.encode({"sessions": {row.id: public_row(row, file_path=name) for row, name in rows}})
    if not path.exists() or path.read_bytes() != data:
        replace_file(path, data, durable=False)


def _publish_foreign(
    place: Place, folder: str, sessions: Sequence[IndexUpdate], gone: set[str], notice: Callable[[Notice], None]
) -> None:
    """Writes Turnlog's changes into the other program's own index; nothing if there are none."""
    path = place.published(folder)
    if path is None or not (gone or any(written.ours for written in sessions)):
        return
    fd = open_private(place.own / MARKER, os.O_RDWR)
    lock(fd)
    try:
        index = _read_or_put_aside(place, folder, path, notice)
        data = msgspec.json.format(msgspec.json.encode(foreign_index.merged(place, index, sessions, gone)), indent=2)
        if not path.exists() or path.read_bytes() != data:
            replace_file(path, data, durable=False)
    finally:
        unlock(fd)
        os.close(fd)


def _read_or_put_aside(
    place: Place, folder: str, path: Path, notice: Callable[[Notice], None]
) -> dict[str, Any] | None:
    try:
        return foreign_index.read(place, folder)
    except foreign_index.Unreadable as error:
        aside = place.own / f"{PUBLISHED_NAME}.{folder}.{time.time_ns()}"
        os.replace(path, aside)
        notice(Notice(what=f"an unreadable index ({error}) was moved to {aside} and rebuilt", where=str(path)))
        return None


def mark(place: Place, *, durable: bool) -> None:
    """Marks Turnlog's files in another program's directory; written with the first of them."""
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
            f"{marker} is not readable: {error}", hint="Restore it, or remove it so that it is created again."
        ) from error
    if not isinstance(version, int) or version > LAYOUT_VERSION:
        raise StoreError(
            f"{root} was made by a newer Turnlog (layout {version}; this one knows {LAYOUT_VERSION})",
            hint="Upgrade Turnlog. Nothing was changed.",
        )


def _check_unmarked(place: Place, root: Path) -> None:
    if place.base != root or any(True for _ in place.folders()):
        return
    # A marker that another process is writing, died writing, or has written since the check, is valid too.
    names = {entry.name for entry in listing(root) if not entry.name.startswith(f".{MARKER}.")}
    others = names - _OURS - {MARKER}
    if others and not (root / "agents").is_dir() and not (root / "config.toml").is_file():
        raise NotAStore(
            f"{root} contains other files (such as {min(others)!r}) and is not a Turnlog store",
            hint="Choose an empty or a new directory.",
        )
