"""Reads the indexes of other programs: `sessions.json` next to the transcripts, or one level up.

An index gives titles, labels and keys and is never required: a damaged, too large or missing index costs only these.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from ...errors import TurnlogError
from .lines import decoded, head, parsed

INDEX_MAX_BYTES = 256 * 1024 * 1024
"""One program keeps up to 120 KB per session in its index; this is room for thousands of sessions."""
_BULKY = ("skillsSnapshot", "systemPromptReport")
"""Copies of prompts and skills, which are not part of the conversation."""
_TITLES = ("title", "displayName", "subject")


class IndexRow(Struct, frozen=True):
    title: str = ""
    label: str = ""
    key: str = ""
    fields: Any = None
    found: bool = False


class Indexes:
    """The indexes found so far, each read once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._read: dict[Path, dict[str, IndexRow]] = {}

    def row(self, path: Path, own_id: str) -> IndexRow:
        stem = path.name.partition(".jsonl")[0]
        for folder in (path.parent, path.parent.parent):
            if not folder.is_relative_to(self._root) and folder != path.parent:
                break
            rows = self._rows(folder / "sessions.json")
            found = rows.get(path.name) or rows.get(stem) or rows.get(own_id)
            if found:
                return found
        return IndexRow()

    def _rows(self, path: Path) -> dict[str, IndexRow]:
        if path not in self._read:
            self._read[path] = read(path)
        return self._read[path]


def read(path: Path) -> dict[str, IndexRow]:
    """Rows by session id, and by the name of the transcript's file if the index names it."""
    found: dict[str, IndexRow] = {}
    for key, fields in raw(path).items():
        row, names = _row(key, fields)
        for name in names:
            found[name] = row
    return found


def raw(path: Path) -> dict[str, dict[str, Any]]:
    """The whole index; empty if there is none that can be read."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > INDEX_MAX_BYTES:
        return {}
    try:
        value = parsed(decoded(head(path, INDEX_MAX_BYTES))[0])
    except (ValueError, TurnlogError):
        return {}
    if not isinstance(value, dict):
        return {}
    outer = cast("dict[str, Any]", value)
    inner = outer["sessions"] if isinstance(outer.get("sessions"), dict) else outer
    return {key: fields for key, fields in cast("dict[str, Any]", inner).items() if isinstance(fields, dict)}


def _row(key: str, fields: Mapping[str, Any]) -> tuple[IndexRow, list[str]]:
    own = fields.get("sessionId") or fields.get("session_id") or fields.get("id") or key
    files = [fields.get(name) for name in ("sessionFile", "filePath", "transcript_file")]
    names = [Path(name).name for name in files if isinstance(name, str) and name]
    is_key = isinstance(own, str) and own != key
    row = IndexRow(
        title=next((fields[name] for name in _TITLES if isinstance(fields.get(name), str)), ""),
        label=fields["label"] if isinstance(fields.get("label"), str) else "",
        key=key if is_key else "",
        fields={name: value for name, value in fields.items() if name not in _BULKY},
        found=True,
    )
    return row, [str(own), *names]
