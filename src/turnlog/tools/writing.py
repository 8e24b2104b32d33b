"""How the file tools write: atomically, with a diff for the person who is asked, and with the former content kept.

Dotfiles and executable files are refused: they decide what programs do, and a model must not change them.
"""

import asyncio
import stat
from contextlib import suppress
from difflib import unified_diff
from pathlib import Path
from typing import Any

from ..core.entries import clean
from ..errors import UsageError
from .fence import Fence
from .kept import KeptFiles
from .workspace import directory, explained, mode_of, replace, split, whole

WRITE_MAX_BYTES = 8 * 1024 * 1024
"""The size of one file. No model writes more in one answer."""
DIFF_MAX_BYTES = 512 * 1024
"""Above this size of old and new content together no diff is made: it takes too long, and nobody reads it."""


def named(path: str) -> tuple[tuple[str, ...], str]:
    """(its directory, its name)"""
    parts = split(path)
    if not parts or path.endswith("/"):
        raise UsageError(f"{path!r} is not the name of a file", hint="Use list_dir to see what is there.")
    return parts[:-1], parts[-1]


class FileWriter:
    def __init__(self, root: Path, fence: Fence, kept: KeptFiles | None) -> None:
        self._root = root
        self._fence = fence
        self._kept = kept

    def write(self, session: str, path: str, content: str) -> str:
        parents, name = named(path)
        self._check_name(path)
        raw = clean(content).encode()
        if len(raw) > WRITE_MAX_BYTES:
            raise UsageError(
                f"the content has {len(raw):,} bytes, which is too many",
                hint=f"A file may have {WRITE_MAX_BYTES:,} bytes.",
            )
        bounds = self._fence.look()
        with directory(self._root, parents, bounds, make=True) as fd:
            mode = mode_of(fd, name, bounds)
            if mode is not None and mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH):
                raise UsageError(f"{path} is executable", hint="Write to another file.")
            before = whole(fd, name, bounds) if mode is not None else None
            kept = self._kept is not None and self._kept.keep(session, self._root, path, before, raw)
            existed = replace(fd, name, raw, bounds)
        note = "" if kept or not self._kept else "; the former content was too large to be kept"
        return f"{'replaced' if existed else 'created'} {path}: {len(raw):,} bytes{note}"

    def _check_name(self, path: str) -> None:
        """Dotfiles configure programs. Turnlog's own data has its own error."""
        parts = split(path)
        if not any(part.startswith(".") for part in parts):
            return
        bounds = self._fence.look()
        with suppress(FileNotFoundError), directory(self._root, parts[:-1], bounds) as fd:
            mode_of(fd, parts[-1], bounds)
        raise UsageError(f"{path} is a dotfile or in a hidden directory", hint="Write to another file.")

    def edited(self, path: str, old: str, new: str) -> str:
        """The text of a file with one passage replaced. UsageError unless the passage occurs once."""
        text = self._text(path)
        if text is None:
            raise UsageError(f"{path} does not exist", hint="Use write_file to make it.")
        if not old or text.count(old) != 1:
            count = text.count(old) if old else 0
            raise UsageError(f"the text occurs {count} times in {path}", hint="Give a passage that occurs once.")
        return text.replace(old, new, 1)

    def _text(self, path: str) -> str | None:
        parents, name = named(path)
        bounds = self._fence.look()
        try:
            with directory(self._root, parents, bounds) as fd:
                found = whole(fd, name, bounds)
        except FileNotFoundError:
            return None
        try:
            return None if found is None else found.decode()
        except UnicodeDecodeError as error:
            raise UsageError(f"{path} is not UTF-8 text", hint="Only text files can be changed.") from error

    async def preview(self, given: dict[str, Any]) -> str:
        """The diff that the call would make."""
        return await asyncio.to_thread(self._preview, given)

    def _preview(self, given: dict[str, Any]) -> str:
        path = str(given.get("path", ""))
        with explained(path):
            before = self._text(path)
            if "old" in given:
                after = self.edited(path, str(given["old"]), str(given.get("new", "")))
            else:
                after = clean(str(given.get("content", "")))
        if len(before or "") + len(after) > DIFF_MAX_BYTES:
            return f"{path}: {len(before or ''):,} → {len(after):,} characters"
        was, now = (before or "").splitlines(keepends=True), after.splitlines(keepends=True)
        lines = unified_diff(was, now, fromfile=path if before is not None else "/dev/null", tofile=path)
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines) or "(no change)"
