"""Finds out which program wrote each file of a path, and which session it is. Reads only the beginning of files.

The content of a file decides, not its name; names and neighbouring files only distinguish programs with the same
format. Symbolic links below the given path are not followed.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct

from ...core import keys
from ...errors import NotFound, TurnlogError
from . import databases, dialects, native, zeroclaw
from .indexes import Indexes, IndexRow
from .lines import decoded, head, parsed

Form: TypeAlias = Literal["lines", "document", "database"]

HEAD_BYTES = 256 * 1024
"""Enough for the first lines of every format; a header may hold a whole system prompt."""
HEAD_LINES = 20
DEPTH_MAX = 16
"""The depth of directories below the given one. The deepest known layout needs six."""

_DIALECTS = ("native", "zyhive", "pi", "claw0", "claw0-keyed")
_ENDS = (".jsonl", ".json", ".db", ".sqlite", ".zst")
_ASIDE = (
    *("sessions.json", "sessions.index.jsonl", "ledger.jsonl", "turnlog.json", "session_index.jsonl"),
    "history.jsonl",
)
"""Files of these layouts that are not transcripts."""
_ASIDE_DIRS = (".turnlog", "convlogs", "leases", "node_modules", ".git")
_UNIQUE = re.compile(r"[0-9a-fA-F]{8}|[0-9]{6}")


class Source(Struct, frozen=True, kw_only=True):
    """One conversation to import."""

    kind: str
    form: Form
    path: Path
    id: str
    """The session's id in the source; if it has none, its name or its place."""
    agent: str = ""
    row: IndexRow = IndexRow()
    """The row of the source's index."""
    opened: Any = None
    """The first entry of a native file, or the row of a database."""


class Refused(Struct, frozen=True):
    """A file that is not imported, and why."""

    path: Path
    why: str


def sources(path: Path) -> Iterator[Source | Refused]:
    """Everything under a path, in order of names."""
    if path.is_symlink():
        yield Refused(path, "is a symbolic link, which is not followed")
    elif path.is_dir():
        indexes = Indexes(path)
        for file in _walk(path, 0):
            yield from [file] if isinstance(file, Refused) else _checked(file, indexes)
    elif path.exists():
        yield from _checked(path, Indexes(path.parent.parent))
    else:
        raise NotFound(f"there is no {path}", hint="Name a file or a directory that exists.")


def _walk(folder: Path, depth: int) -> Iterator[Path | Refused]:
    try:
        with os.scandir(folder) as found:
            names = sorted(found, key=lambda entry: entry.name)
    except OSError as error:
        yield Refused(folder, f"cannot be listed: {error.strerror}")
        return
    for entry in names:
        path = folder / entry.name
        if entry.is_symlink():
            yield Refused(path, "is a symbolic link, which is not followed")
        elif entry.is_dir(follow_symlinks=False):
            if depth >= DEPTH_MAX:
                yield Refused(path, f"is deeper than {DEPTH_MAX} directories")
            elif entry.name not in _ASIDE_DIRS:
                yield from _walk(path, depth + 1)
        elif entry.name not in _ASIDE and (entry.name.endswith(_ENDS) or ".jsonl." in entry.name):
            yield path


def _checked(path: Path, indexes: Indexes) -> Iterator[Source | Refused]:
    if ".deleted." in path.name or ".checkpoint." in path.name:
        yield Refused(path, "is an old copy that its program keeps (deleted, or a checkpoint)")
        return
    try:
        yield from _recognised(path, indexes)
    except TurnlogError as error:
        yield Refused(path, str(error).removeprefix(str(path)).strip())


def _recognised(path: Path, indexes: Indexes) -> Iterator[Source | Refused]:
    data = head(path, HEAD_BYTES)
    if data.startswith(databases.MAGIC):
        yield from _database(path)
        return
    if why := _unreadable(data):
        yield Refused(path, why)
        return
    form, firsts = look(data)
    kind = kind_of(form, firsts, data)
    if kind is not None:
        yield _source(kind, form, path, firsts, indexes)
    elif path.suffix != ".json":  # all kinds of JSON files are found next to transcripts
        yield Refused(path, "is not text" if b"\0" in data else "is not a transcript of a known kind")


def _unreadable(data: bytes) -> str:
    if not data.strip():
        return "is empty"
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "is UTF-16; save it as UTF-8 first"
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        return "is compressed with zstd; unpack it first"
    if data.startswith(b"\x1f\x8b"):
        return "is compressed with gzip; unpack it first"
    return ""


def look(data: bytes) -> tuple[Form, list[dict[str, Any]]]:
    """Whether it is lines or one document, and the first objects in it."""
    text = decoded(data.removeprefix(b"\xef\xbb\xbf"))[0]
    lines = text.split("\n")
    if text.lstrip().startswith("[") or lines[0].strip() == "{":
        return "document", []
    firsts = [value for line in lines[:HEAD_LINES] if (value := _object(line)) is not None]
    if not firsts or isinstance(firsts[0].get("messages"), list):
        return "document", firsts
    return "lines", firsts


def _object(line: str) -> dict[str, Any] | None:
    try:
        value = parsed(line) if line.strip() else None
    except ValueError:
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def kind_of(form: Form, firsts: Sequence[Mapping[str, Any]], data: bytes) -> str | None:
    if form == "document":
        return _document_kind(data)
    kinds = [kind for line in firsts if (kind := _line_kind(line))]
    return "native" if "native" in kinds else next(iter(kinds), None)  # even if its first line is damaged


def _document_kind(data: bytes) -> str | None:
    start = data[:HEAD_BYTES]
    if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        return "messages" if re.search(rb'"role"\s*:', start) else None
    if not re.search(rb'"messages"\s*:', start):
        return "opencode" if re.search(rb'"info"\s*:', start) and b'"projectID"' in start else None
    if re.search(rb'"projectHash"\s*:', start):
        return "gemini"
    return "opencode" if re.search(rb'"parts"\s*:', start) and re.search(rb'"info"\s*:', start) else "messages"


def _line_kind(line: Mapping[str, Any]) -> str | None:  # noqa: PLR0911 - a table with one case a kind
    match line:
        case {"type": str(), "seq": int()} | {"type": str(), "crc32": str()}:
            return "native"
        case {"type": str(), "payload": dict()}:
            return "codex"
        case {"projectHash": _} | {"type": "gemini", "id": _} | {"$set": _} | {"$rewindTo": _}:
            return "gemini"
        case {"parentUuid": _} | {"type": "summary", "leafUuid": _} | {"type": "file-history-snapshot"}:
            return "claude-code"
        case {"sessionId": _, "type": str()} if "uuid" in line or "operation" in line:
            return "claude-code"
        case {"type": "session", "created": created} if "version" not in line:
            return "claw0-keyed" if isinstance(created, str) else "claw0"
        case {"type": "session", "agentId": _}:
            return "zyhive"
        case {"type": "session"}:
            return "pi"
        case {"type": "message", "message": dict()}:
            return "pi" if "id" in line else "zyhive"
        case {"type": "user" | "assistant" | "tool_use" | "tool_result" | "turnlog"}:
            return "claw0"
        case {"role": str(), "content": _}:
            return "messages"
        case _:
            return None


def _source(kind: str, form: Form, path: Path, firsts: Sequence[Mapping[str, Any]], indexes: Indexes) -> Source:
    first = next((line for line in firsts if line.get("type") == "session"), None) or {"type": None}
    opened = _own_beginning(kind, firsts)
    own = first.get("id") if kind in ("native", "pi", "claw0-keyed") else None
    if kind == "gemini":
        own = next((line["sessionId"] for line in firsts if "sessionId" in line), None)
    row = indexes.row(path, str(own or ""))
    if kind == "pi" and row.found and not path.parent.name.startswith("--"):
        kind = "openclaw"
    if kind == "claw0" and row.key:
        kind = "claw0-keyed"
    name = str(own) if isinstance(own, str) and own and ".reset." not in path.name else _name_of(path)
    agent = _agent_of(path)
    return Source(kind=kind, form=form, path=path, id=name, agent=agent, row=row, opened=opened)


def _own_beginning(kind: str, firsts: Sequence[Mapping[str, Any]]) -> Any:
    if not firsts or kind not in _DIALECTS:
        return None
    return native.entry_of(firsts[0]) if kind == "native" else dialects.own_header(firsts[0], kind)


def _name_of(path: Path) -> str:
    """The name of the file if it is an id; otherwise a name that includes its place."""
    name = path.name.removesuffix(".jsonl").removesuffix(".json")
    return name if _UNIQUE.search(name) else str(path.resolve())


def _agent_of(path: Path) -> str:
    parts = path.parts
    for place in range(len(parts) - 2, 0, -1):
        if parts[place - 1] == "agents" and keys.AGENT_ID.match(parts[place]):
            return parts[place]
    return ""


def _database(path: Path) -> Iterator[Source | Refused]:
    with databases.reading(path) as db:
        if not zeroclaw.is_ours(db):
            ours = "seq" in db.columns("session_messages")
            yield Refused(
                path, "is a Turnlog store; copy it" if ours else "is another program's database; export it there"
            )
            return
        for row in zeroclaw.sessions(db):
            title = row.get("title")
            told = IndexRow(title=title if isinstance(title, str) else "", key=str(row.get("session_key") or ""))
            yield Source(kind="zeroclaw", form="database", path=path, id=str(row["session_id"]), row=told, opened=row)
