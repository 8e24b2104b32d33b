"""Checks indexes next to transcripts: rows without a file, files without a row, unreadable indexes.

Some programs treat a damaged index as empty and overwrite it, which hides every session. If the form of an index is
known, it is rebuilt from the transcripts; existing rows keep all their fields.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from ...core.session import milliseconds
from ..importing import indexes as reading
from ..importing.detect import Source
from ..importing.lines import decoded, head, parsed
from .findings import NONE_NEEDED, Finding, Fix
from .transcripts import FileScan

_WRITTEN = ("zyhive", "claw0", "claw0-keyed")
"""Kinds whose rows can be made from transcripts alone."""


def examine(path: Path, scans: Sequence[FileScan]) -> Iterator[Finding]:
    groups: dict[Path, list[FileScan]] = {}
    for scan in scans:
        if scan.source.kind in (*_WRITTEN, "openclaw", "pi"):
            place = _place(scan, path)
            if place is not None:
                groups.setdefault(place, []).append(scan)
    for index, group in groups.items():
        yield from _compare(index, group)


def files(sources: Sequence[Source]) -> list[Path]:
    """The existing indexes, next to transcripts and one level up."""
    folders = {folder for source in sources for folder in (source.path.parent, source.path.parent.parent)}
    found = (folder / name for folder in folders for name in ("sessions.json", "sessions.index.jsonl"))
    return [path for path in found if path.is_file() and not path.is_symlink()]


def _place(scan: FileScan, root: Path) -> Path | None:
    """The place where the index of this transcript is, or should be."""
    file, kind = scan.source.path, scan.source.kind
    if kind.startswith("claw0"):
        above = file.parent.parent
        return above / "sessions.json" if root.is_dir() and above.is_relative_to(root) else None
    beside = file.parent / "sessions.json"
    return beside if kind == "zyhive" or beside.exists() else None


def _compare(index: Path, scans: list[FileScan]) -> Iterator[Finding]:
    kind = scans[0].source.kind
    found = _read(index)
    rows = {} if found is None else found
    if found is None:
        yield _finding(index, "index drift: the index cannot be read", _fix(index, kind, {}, scans))
        return
    named = {key: _files_of(key, row) for key, row in rows.items()}
    there = {scan.source.path.name for scan in scans} | {_stem(scan) for scan in scans}
    dead = [key for key, names in named.items() if not names & there and not _elsewhere(index, names)]
    listed = {name for names in named.values() for name in names}
    missing = [scan for scan in scans if not {scan.source.path.name, _stem(scan)} & listed]
    if dead or missing:
        kept = {key: row for key, row in rows.items() if key not in dead}
        parts = [f"{len(missing):,} transcripts are not in it"] * bool(missing)
        parts += [f"{len(dead):,} rows have no transcript"] * bool(dead)
        yield _finding(index, f"index drift: {' and '.join(parts)}", _fix(index, kind, kept, missing))


def _read(index: Path) -> dict[str, dict[str, Any]] | None:
    """None: it exists and cannot be read."""
    return reading.raw(index) if not index.exists() or _around(index) is not None else None


def _files_of(key: str, row: dict[str, Any]) -> set[str]:
    names = {str(row.get(name)) for name in ("sessionId", "session_id", "id") if row.get(name)} or {key}
    return names | {
        Path(str(row[name])).name for name in ("sessionFile", "filePath", "transcript_file") if row.get(name)
    }


def _elsewhere(index: Path, names: set[str]) -> bool:
    """Whether the named file is elsewhere: a row may name an empty file, or one that another program moved."""
    return any((index.parent / name).exists() or (index.parent / f"{name}.jsonl").exists() for name in names)


def _stem(scan: FileScan) -> str:
    return scan.source.path.name.removesuffix(".jsonl")


def _finding(index: Path, what: str, fix: Fix | None) -> Finding:
    repair = "rebuild it from the transcripts" if fix else NONE_NEEDED
    return Finding.of(index, what, repair, *([fix] if fix else []))


def _fix(index: Path, kind: str, rows: dict[str, dict[str, Any]], missing: Sequence[FileScan]) -> Fix | None:
    if kind not in _WRITTEN:
        return None
    for scan in missing:
        key, row = _row(kind, scan)
        rows[key] = row
    value = {**(_around(index) or {}), "sessions": rows} if kind == "zyhive" else rows
    return Fix(path=index, content=json.dumps(value, ensure_ascii=False, indent=2).encode("utf-8", "replace") + b"\n")


def _around(index: Path) -> dict[str, Any] | None:
    """The whole document; None if there is none that can be read."""
    try:
        value = parsed(decoded(head(index, reading.INDEX_MAX_BYTES))[0]) if index.exists() else None
    except ValueError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _row(kind: str, scan: FileScan) -> tuple[str, dict[str, Any]]:
    name, header = _stem(scan), scan.header
    match kind:
        case "zyhive":
            row = {"id": name, "agentId": header.get("agentId") or scan.source.agent, "filePath": f"{name}.jsonl"}
            times = {"createdAt": milliseconds(scan.first_ts), "lastAt": milliseconds(scan.last_ts)}
            return name, {**row, "title": scan.title, "messageCount": scan.messages, **times, "tokenEstimate": 0}
        case "claw0":
            times = {"created_at": scan.first_ts, "last_active": scan.last_ts}
            return name, {"label": "", **times, "message_count": scan.records}
        case _:
            key, session = str(header.get("key") or name), str(header.get("id") or name)
            times = {"created_at": scan.first_ts, "updated_at": scan.last_ts}
            row = {"session_key": key, "session_id": session, **times, "message_count": scan.turns}
            return key, {**row, "transcript_file": scan.source.path.name}
