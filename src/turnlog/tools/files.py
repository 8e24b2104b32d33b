"""read_file, list_dir, write_file, edit_file: the files of one workspace, as text, in limited parts.

They run no code, follow no link and never read a whole large file. `writing` decides how files are written. The files
belong to the person who works there: new ones get the permissions of the umask, unlike those of the stores.
"""

import codecs
import hashlib
import heapq
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Annotated

from msgspec import Meta, structs

from ..core import names
from ..errors import UsageError
from .base import BUILT_IN_MAX_CHARS, Context, Tool
from .fence import CLOSED_NOTE, Bounds, Fence
from .functions import tool
from .kept import KeptFiles
from .workspace import directory, explained, prepare, regular_file, split
from .writing import FileWriter, named as _named

LINES_DEFAULT = 2_000
"""The lines of a file that are shown by default."""

SCAN_MAX_BYTES = 1 << 30
"""How far lines are counted in a file: about a second of reading."""

LIST_MAX = 1_000
"""The names of a directory that are shown."""

_CHUNK_BYTES = 64 * 1024
_SHOWN_MAX_CHARS = BUILT_IN_MAX_CHARS - 500
"""Leaves room for the note at the end."""

_Path = Annotated[str, "relative to the workspace"]


def file_tools(workspace: Path, fence: Fence | None = None, kept: KeptFiles | None = None) -> list[Tool]:
    """`fence`: the places of the workspace that they may not reach. `kept`: where former contents are kept."""
    root = prepare(workspace)
    writer = FileWriter(root, fence or Fence(), kept)
    fence = fence or Fence()

    def read_file(
        path: _Path,
        offset: Annotated[int, Meta(ge=1, description="first line to show")] = 1,
        limit: Annotated[int, Meta(ge=1, description="how many lines to show")] = LINES_DEFAULT,
    ) -> str:
        """Read a text file of the workspace. Long files are shown in parts."""
        with explained(path):
            return _read(root, fence.look(), path, offset, limit)

    def list_dir(path: _Path = ".") -> str:
        """List a directory of the workspace: directories end in /, files show their size in bytes."""
        with explained(path):
            return _list(root, fence.look(), path)

    def write_file(path: _Path, content: Annotated[str, "the whole text of the file"], context: Context) -> str:
        """Write a text file of the workspace, replacing what was there. Missing directories are made."""
        with explained(path):
            return writer.write(context.session_id, path, content)

    def edit_file(
        path: _Path,
        old: Annotated[str, "the exact text to replace; it must occur once"],
        new: Annotated[str, "the text in its place"],
        context: Context,
    ) -> str:
        """Replace one passage of a text file of the workspace, exactly."""
        with explained(path):
            return writer.write(context.session_id, path, writer.edited(path, old, new))

    writing = {"cap_chars": BUILT_IN_MAX_CHARS, "effects": ("writes",)}
    place = hashlib.sha256(str(root).encode()).hexdigest()[:16]
    return [
        tool(read_file, parallel=True, cap_chars=BUILT_IN_MAX_CHARS, effects=("reads",)),
        tool(list_dir, parallel=True, cap_chars=BUILT_IN_MAX_CHARS, effects=("reads",)),
        structs.replace(tool(write_file, **writing), preview=writer.preview, place=place),
        structs.replace(tool(edit_file, **writing), preview=writer.preview, place=place),
    ]


def _read(root: Path, bounds: Bounds, path: str, offset: int, limit: int) -> str:
    parents, name = _named(path)
    with directory(root, parents, bounds) as fd, regular_file(fd, name, bounds) as file:
        size = os.fstat(file).st_size
        head = os.pread(file, _CHUNK_BYTES, 0)
        if b"\0" in head:
            return _describe(path, size, head)
        try:
            return _show(_from_line(file, offset), path, size, offset, limit)
        except UnicodeDecodeError:
            return _describe(path, size, head)


def _describe(path: str, size: int, head: bytes) -> str:
    return f"{path} is not UTF-8 text. It has {size:,} bytes and begins with {head[:16].hex(' ')}."


def _from_line(file: int, line: int) -> Iterator[bytes]:
    """The bytes from a line on, in chunks; nothing if there are fewer lines."""
    skip = line - 1
    for chunk in _chunks(file):
        ends = chunk.count(b"\n") if skip else 0
        if ends < skip:
            skip -= ends
            continue
        yield chunk.split(b"\n", skip)[skip] if skip else chunk
        skip = 0


def _chunks(file: int) -> Iterator[bytes]:
    read = 0
    while chunk := os.read(file, _CHUNK_BYTES):
        yield chunk
        read += len(chunk)
        if read > SCAN_MAX_BYTES:
            raise UsageError("that line is too far into the file", hint="Ask for an earlier one.")


def _show(chunks: Iterator[bytes], path: str, size: int, offset: int, limit: int) -> str:
    text, is_end = _decode(chunks, limit)
    if not text:
        return "(empty file)" if size == 0 else f"[{path} has fewer than {offset} lines]"
    shown = _cut("\n".join(text.split("\n", limit)[:limit]))
    if is_end and len(shown) >= len(text.removesuffix("\n")):
        return text
    last = offset + shown.count("\n")
    return f"{shown}\n[lines {offset} to {last} of {path}, {size:,} bytes in all; go on with offset={last + 1}]"


def _decode(chunks: Iterator[bytes], limit: int) -> tuple[str, bool]:
    """(somewhat more than can be shown, whether that is the end of the file)"""
    decoder = codecs.getincrementaldecoder("utf-8")()
    text = ""
    for chunk in chunks:
        text += decoder.decode(chunk)
        if len(text) > _SHOWN_MAX_CHARS or text.count("\n") > limit:
            return text, False
    return text + decoder.decode(b"", final=True), True


def _cut(text: str) -> str:
    """Cuts to complete lines, unless a single line is too long."""
    if len(text) <= _SHOWN_MAX_CHARS:
        return text
    end = text.rfind("\n", 0, _SHOWN_MAX_CHARS)
    if end > 0:
        return text[:end]
    return f"{text[: _SHOWN_MAX_CHARS - 100]} [... the rest of this line cannot be shown]"


def _list(root: Path, bounds: Bounds, path: str) -> str:
    with directory(root, split(path), bounds) as fd, os.scandir(fd) as entries:
        counter = count()
        numbered = ((entry.name, next(counter), entry) for entry in entries)
        lines = [_line(fd, entry, bounds) for _, _, entry in heapq.nsmallest(LIST_MAX, numbered)]
        total = next(counter)
    if total > len(lines):
        lines.append(f"[{total - len(lines):,} more, of {total:,} in all]")
    return "\n".join(lines) or "(empty directory)"


def _line(fd: int, entry: os.DirEntry[str], bounds: Bounds) -> str:
    name = _printable(entry.name)
    if bounds.closes(fd, entry.name, within=False):
        return f"{name} ({CLOSED_NOTE})"
    if entry.is_symlink():
        return f"{name} (symbolic link, not followed)"
    if entry.is_dir(follow_symlinks=False):
        return f"{name}/"
    if not entry.is_file(follow_symlinks=False):
        return f"{name} (special file)"
    try:
        return f"{name} {entry.stat(follow_symlinks=False).st_size}"
    except FileNotFoundError:
        return f"{name} (gone)"


def _printable(name: str) -> str:
    """Names may contain line breaks and bytes that are not text; shown this way, a name stays on one line."""
    return "".join(char if names.is_one_line(char) else repr(char)[1:-1] for char in name)
