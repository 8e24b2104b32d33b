"""Where the transcripts of each tool lie, what they are called, and which tool a directory belongs to.

Files of our own go where that tool does not look: into `.turnlog` beside its files. Nothing here writes, and nothing
follows a symbolic link.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from ..codecs.dialects import HEAD_BYTES, NATIVE, Written, detect as detect_dialect
from ..core import keys
from ..core.entries import Opened
from ..errors import UsageError
from .files import listing, open_private

OWN = ".turnlog"
NAME_MAX_BYTES = 200
"""Of a file's name that is made from a key; file systems allow 255."""
LOOKED_AT = 20
"""Transcripts looked at to tell whose directory this is."""


class Layout(Struct, frozen=True):
    name: str
    written: Written
    arrangement: Literal["agents", "folders", "keyed"] = "agents"
    """`agents/AGENT/sessions/ID.jsonl`, or `--CWD--/TIME_ID.jsonl`, or `transcripts/KEY_ID.jsonl`."""
    base: str = ""
    """The directory below the given one that holds all of it."""

    @property
    def foreign(self) -> bool:
        return self.name != "turnlog"


LAYOUTS = MappingProxyType(
    {
        layout.name: layout
        for layout in (
            Layout("turnlog", NATIVE),
            Layout("zyhive", Written("v3", "zyhive")),
            Layout("openclaw", Written("v3", "pi")),
            Layout("pi", Written("v3", "pi"), "folders"),
            Layout("claw0", Written("flat", "claw0"), base=".sessions"),
            Layout("claw0-keyed", Written("flat", "claw0-keyed"), "keyed", base=".sessions"),
        )
    }
)
_STYLES = MappingProxyType({"native": "", "v3": "pi", "flat": "claw0"})
_PI_FOLDER = re.compile(r"--.*--\Z", re.DOTALL)
_PI_FILE = re.compile(r"(\d{4}-\d\d-\d\dT[0-9-]+Z)_(.+)\.jsonl\Z")


class Place(Struct, frozen=True):
    """A directory, and how it is laid out."""

    layout: Layout
    base: Path
    written: Written
    """How new sessions are written here."""

    @property
    def own(self) -> Path:
        """Where files go that no other tool must see."""
        return self.base / OWN if self.layout.foreign else self.base

    def shelves(self) -> Iterator[str]:
        """Names of the folders with transcripts."""
        match self.layout.arrangement:
            case "agents":
                for entry in _folders(self.base / "agents"):
                    if keys.AGENT_ID.match(entry.name) and _is_folder(Path(entry.path) / "sessions"):
                        yield entry.name
            case "keyed":
                if _is_folder(self.base / "transcripts"):
                    yield "transcripts"
            case _:
                if _PI_FOLDER.match(self.base.name):
                    yield "."
                else:
                    yield from (entry.name for entry in _folders(self.base) if _PI_FOLDER.match(entry.name))

    def folder(self, shelf: str) -> Path:
        return self.base / "agents" / shelf / "sessions" if self.layout.arrangement == "agents" else self.base / shelf

    def shelf_for(self, opened: Opened) -> str:
        match self.layout.arrangement:
            case "agents":
                return keys.check_agent(opened.agent)
            case "keyed":
                return "transcripts"
            case _:
                return "." if _PI_FOLDER.match(self.base.name) else _pi_folder(opened)

    def index(self, shelf: str) -> Path:
        """Our own index of that folder."""
        if not self.layout.foreign:
            return self.folder(shelf) / "sessions.index.jsonl"
        name = "here" if shelf == "." else _bounded(shelf)
        return self.own / "index" / f"{name}.jsonl"

    def published(self, shelf: str) -> Path | None:
        """The index that other programs read, if this layout has one."""
        match self.layout.name:
            case "pi":
                return None
            case "claw0":
                return self.base / "agents" / shelf / "sessions.json"
            case "claw0-keyed":
                return self.base / "sessions.json"
            case _:
                return self.folder(shelf) / "sessions.json"

    def file_name(self, opened: Opened) -> str:
        match self.layout.arrangement:
            case "agents":
                return f"{opened.id}.jsonl"
            case "keyed":
                return f"{_bounded(_triple(opened.key).replace(':', '_'))}_{opened.id}.jsonl"
            case _:
                return f"{re.sub('[:.]', '-', opened.ts)}_{opened.id}.jsonl"

    def id_in(self, name: str, folder: Path) -> str | None:
        """The id of the session in a file of this name; None if that is no transcript."""
        if not name.endswith(".jsonl"):
            return None
        found = name[:-6]
        if self.layout.arrangement == "keyed":
            found = _keyed_id(found, folder / name)
        elif self.layout.arrangement == "folders" and (parts := _PI_FILE.match(name)):
            found = parts[2]
        return found if keys.SESSION_ID.match(found) else None


def _keyed_id(stem: str, path: Path) -> str:
    """After the last `_`, unless the file itself says that there is one in its id."""
    found = re.match(rb'\{"type": ?"session", ?"id": ?"([A-Za-z0-9_-]+)"', _head(path)[:256])
    if found and stem.endswith("_" + found[1].decode()):
        return found[1].decode()
    return stem.rpartition("_")[2]


def _triple(key: str) -> str:
    return keys.format(keys.parse(key), "triple")


def _bounded(name: str) -> str:
    data = name.encode("utf-8", "surrogateescape")
    if len(data) <= NAME_MAX_BYTES:
        return name
    return f"{data[: NAME_MAX_BYTES // 2].decode(errors='ignore')}-{hashlib.sha256(data).hexdigest()[:16]}"


def _pi_folder(opened: Opened) -> str:
    """As pi names it: the working directory with everything that separates replaced."""
    cwd = keys.parse(opened.key).peer if opened.channel == "pi" else f"turnlog-{opened.agent}"
    return f"--{_bounded(re.sub(r'[/:]|' + re.escape(chr(92)), '-', cwd.lstrip('/')))}--"


def _folders(path: Path) -> list[os.DirEntry[str]]:
    try:
        return [entry for entry in listing(path) if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _head(path: Path) -> bytes:
    try:
        fd = open_private(path, os.O_RDONLY)
    except (OSError, UsageError):
        return b""
    try:
        return os.pread(fd, HEAD_BYTES, 0)
    finally:
        os.close(fd)


def place_at(root: Path, layout: str | None, dialect: str | None) -> Place:
    """Told by its files where it is not given; refused where they contradict."""
    found = detect(root)
    if layout is None:
        place = found or _place(root, LAYOUTS["turnlog"], dialect)
    elif layout not in LAYOUTS:
        raise UsageError(f"unknown layout {layout!r}", hint=f"Known: {', '.join(LAYOUTS)}.")
    else:
        place = _place(root, LAYOUTS[layout], dialect)
        if found is not None and found.base == place.base and found.layout != place.layout:
            raise UsageError(
                f"{root} is laid out as {found.layout.name}, not as {layout}",
                hint=f"Leave the layout away, or write layout={found.layout.name}.",
            )
    return Place(place.layout, place.base, _written(place.layout, dialect))


def _written(layout: Layout, dialect: str | None) -> Written:
    if dialect is None or dialect == layout.written.dialect:
        return layout.written
    if dialect not in _STYLES:
        raise UsageError(f"unknown dialect {dialect!r}", hint=f"Known: {', '.join(_STYLES)}.")
    if layout.foreign:
        raise UsageError(
            f"the layout {layout.name} is written in {layout.written.dialect}, not in {dialect}",
            hint="The tool it belongs to would not read that. Leave the dialect away, or choose another layout.",
        )
    return Written(dialect, _STYLES[dialect])


def _place(root: Path, layout: Layout, dialect: str | None) -> Place:
    inside = not layout.base or root.name == layout.base
    return Place(layout, root if inside else root / layout.base, layout.written)


def detect(root: Path) -> Place | None:
    """Whose directory this is; None if it is nobody's, or empty."""
    for layout in LAYOUTS.values():
        place = _place(root, layout, None)
        if _is_folder(place.base) and _is_laid_out(place):
            return place
    return None


def _is_laid_out(place: Place) -> bool:
    match place.layout.name:
        case "turnlog":
            return (place.base / "turnlog.json").is_file() or _is_written(place, NATIVE)
        case "claw0":
            return any(True for _ in place.shelves()) and (place.base.name == ".sessions" or _is_written(place, None))
        case "claw0-keyed":
            return any(True for _ in place.shelves())
        case "pi":
            return any(_PI_FILE.match(name) for name in _transcripts(place))
        case _:
            return _is_written(place, place.layout.written)


def _is_written(place: Place, wanted: Written | None) -> bool:
    """Whether the first transcripts there that say anything say this; None: in any style of the layout's dialect."""
    for n, path in enumerate(_transcript_paths(place)):
        written = detect_dialect(_head(path))
        if written is not None:
            return written.dialect == place.layout.written.dialect if wanted is None else written == wanted
        if n == LOOKED_AT:
            break
    return False


def _transcripts(place: Place) -> Iterator[str]:
    return (path.name for path in _transcript_paths(place))


def _transcript_paths(place: Place) -> Iterator[Path]:
    for shelf in place.shelves():
        for entry in listing(place.folder(shelf)):
            if entry.name.endswith(".jsonl") and entry.is_file(follow_symlinks=False):
                yield Path(entry.path)
