"""Where the transcripts of each program are, how they are named, and to which program a directory belongs.

Turnlog's own files go into `.turnlog` next to the program's files, which it ignores. Nothing here writes, and nothing
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

from ...codecs.dialects import HEAD_BYTES, NATIVE, FileDialect, detect as detect_dialect
from ...core import keys
from ...core.entries import Opened
from ...errors import UsageError
from ..disk.files import listing, open_private

OWN = ".turnlog"
NAME_MAX_BYTES = 200
"""The length of a file name made from a key; file systems allow 255."""
LOOKED_AT = 20
"""The number of transcripts examined to find out to which program a directory belongs."""


class Layout(Struct, frozen=True):
    name: str
    written: FileDialect
    arrangement: Literal["agents", "folders", "keyed"] = "agents"
    """`agents/AGENT/sessions/ID.jsonl`, or `--CWD--/TIME_ID.jsonl`, or `transcripts/KEY_ID.jsonl`."""
    base: str = ""
    """The subdirectory that contains everything."""

    @property
    def foreign(self) -> bool:
        return self.name != "turnlog"


LAYOUTS = MappingProxyType(
    {
        layout.name: layout
        for layout in (
            Layout("turnlog", NATIVE),
            Layout("zyhive", FileDialect("v3", "zyhive")),
            Layout("openclaw", FileDialect("v3", "pi")),
            Layout("pi", FileDialect("v3", "pi"), "folders"),
            Layout("claw0", FileDialect("flat", "claw0"), base=".sessions"),
            Layout("claw0-keyed", FileDialect("flat", "claw0-keyed"), "keyed", base=".sessions"),
        )
    }
)
_STYLES = MappingProxyType({"native": "", "v3": "pi", "flat": "claw0"})
_PI_FOLDER = re.compile(r"--.*--\Z", re.DOTALL)
_PI_FILE = re.compile(r"(\d{4}-\d\d-\d\dT[0-9-]+Z)_(.+)\.jsonl\Z")


class Place(Struct, frozen=True):
    """A directory and its layout."""

    layout: Layout
    base: Path
    written: FileDialect
    """How new sessions are written here."""

    @property
    def own(self) -> Path:
        """The directory for files that other programs must not see."""
        return self.base / OWN if self.layout.foreign else self.base

    def folders(self) -> Iterator[str]:
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

    def folder(self, folder: str) -> Path:
        return self.base / "agents" / folder / "sessions" if self.layout.arrangement == "agents" else self.base / folder

    def folder_for(self, opened: Opened) -> str:
        match self.layout.arrangement:
            case "agents":
                return keys.check_agent(opened.agent)
            case "keyed":
                return "transcripts"
            case _:
                return "." if _PI_FOLDER.match(self.base.name) else _pi_folder(opened)

    def index(self, folder: str) -> Path:
        """Turnlog's own index of that folder."""
        if not self.layout.foreign:
            return self.folder(folder) / "sessions.index.jsonl"
        name = "here" if folder == "." else _bounded(folder)
        return self.own / "index" / f"{name}.jsonl"

    def facts(self, folder: str) -> Path:
        """Turnlog's own index of the facts in that folder."""
        beside = self.index(folder)
        return beside.with_name(beside.name.removesuffix(".jsonl") + ".facts")

    def words_folder(self, *, read_only: bool) -> Path | None:
        """Where the index of words is; None: in memory, because nothing may be written here. Beside another program's
        files nothing is, before the first append of ours.
        """
        ours = not self.layout.foreign or self.own.is_dir()
        return self.own / "search" if ours and not read_only else None

    def published(self, folder: str) -> Path | None:
        """The index that other programs read, if this layout has one."""
        match self.layout.name:
            case "pi":
                return None
            case "claw0":
                return self.base / "agents" / folder / "sessions.json"
            case "claw0-keyed":
                return self.base / "sessions.json"
            case _:
                return self.folder(folder) / "sessions.json"

    def file_name(self, opened: Opened) -> str:
        match self.layout.arrangement:
            case "agents":
                return f"{opened.id}.jsonl"
            case "keyed":
                return f"{_bounded(_triple(opened.key).replace(':', '_'))}_{opened.id}.jsonl"
            case _:
                return f"{re.sub('[:.]', '-', opened.ts)}_{opened.id}.jsonl"

    def id_in(self, name: str, folder: Path) -> str | None:
        """The id of the session in a file of this name; None if it is not a transcript."""
        if not name.endswith(".jsonl"):
            return None
        found = name[:-6]
        if self.layout.arrangement == "keyed":
            found = _keyed_id(found, folder / name)
        elif self.layout.arrangement == "folders" and (parts := _PI_FILE.match(name)):
            found = parts[2]
        return found if keys.SESSION_ID.match(found) else None


def _keyed_id(stem: str, path: Path) -> str:
    """The part after the last `_`, unless the file itself says that its id contains one."""
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
    """pi's name of the folder: the working directory with all separators replaced."""
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
    """The layout of the files, or the given one; refused if they contradict each other."""
    found = detect(root)
    if layout is None:
        place = found or _place(root, LAYOUTS["turnlog"])
    elif layout not in LAYOUTS:
        raise UsageError(f"unknown layout {layout!r}", hint=f"Known: {', '.join(LAYOUTS)}.")
    else:
        place = _place(root, LAYOUTS[layout])
        if found is not None and found.base == place.base and found.layout != place.layout:
            raise UsageError(
                f"{root} is laid out as {found.layout.name}, not as {layout}",
                hint=f"Leave out the layout, or write layout={found.layout.name}.",
            )
    return Place(place.layout, place.base, _written(place.layout, dialect))


def _written(layout: Layout, dialect: str | None) -> FileDialect:
    if dialect is None or dialect == layout.written.dialect:
        return layout.written
    if dialect not in _STYLES:
        raise UsageError(f"unknown dialect {dialect!r}", hint=f"Known: {', '.join(_STYLES)}.")
    if layout.foreign:
        raise UsageError(
            f"the layout {layout.name} is written in {layout.written.dialect}, not in {dialect}",
            hint="Its own program could not read that. Leave out the dialect, or choose another layout.",
        )
    return FileDialect(dialect, _STYLES[dialect])


def _place(root: Path, layout: Layout) -> Place:
    inside = not layout.base or root.name == layout.base
    return Place(layout, root if inside else root / layout.base, layout.written)


def detect(root: Path) -> Place | None:
    """The layout of the directory; None if it is unknown, or empty."""
    for layout in LAYOUTS.values():
        place = _place(root, layout)
        if _is_folder(place.base) and _is_laid_out(place):
            return place
    return None


def _is_laid_out(place: Place) -> bool:
    match place.layout.name:
        case "turnlog":
            return (place.base / "turnlog.json").is_file() or _is_written(place, NATIVE)
        case "claw0":
            return any(True for _ in place.folders()) and (place.base.name == ".sessions" or _is_written(place, None))
        case "claw0-keyed":
            return any(True for _ in place.folders())
        case "pi":
            return any(_PI_FILE.match(name) for name in _transcripts(place))
        case _:
            return _is_written(place, place.layout.written)


def _is_written(place: Place, wanted: FileDialect | None) -> bool:
    """Whether the first typical transcripts have this dialect; None: any style of the layout's dialect."""
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
    for folder in place.folders():
        for entry in listing(place.folder(folder)):
            if entry.name.endswith(".jsonl") and entry.is_file(follow_symlinks=False):
                yield Path(entry.path)
