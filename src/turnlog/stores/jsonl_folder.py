"""The files of one folder: which sessions they are, and what the tool they belong to says of them."""

import os
from collections.abc import Callable
from pathlib import Path

from ..core.entries import Opened
from . import Notice, foreign_index
from .files import listing
from .foreign_index import Told
from .jsonl_file import Home
from .layouts import Place


class Folder:
    def __init__(self, place: Place, name: str, notice: Callable[[Notice], None]) -> None:
        self._place = place
        self._name = name
        self._path = place.folder(name)
        self._notice = notice
        self._names: dict[str, str] = {}
        self._told: dict[str, Told] = {}
        self._noted: set[str] = set()

    def path_of(self, session_id: str) -> Path:
        return self._path / self._names.get(session_id, f"{session_id}.jsonl")

    def home(self, session_id: str) -> Home:
        told = self._told.get(session_id, Told())
        opened = foreign_index.stand_in(self._place, self._name, session_id, told)
        return Home(self.path_of(session_id), self._name, opened, self._place.written)

    def new_home(self, opened: Opened) -> Home:
        self._names[opened.id] = self._place.file_name(opened)
        return Home(self.path_of(opened.id), self._name, opened, self._place.written)

    def has(self, session_id: str) -> bool:
        if self._place.layout.arrangement != "agents" and session_id not in self._names:
            self.list()
        path = self.path_of(session_id)
        return path.exists() and not path.is_symlink()

    def list(self) -> dict[str, os.DirEntry[str]]:
        """id → its file, as the folder has them now."""
        found: dict[str, os.DirEntry[str]] = {}
        for entry in listing(self._path):
            session_id = self._place.id_in(entry.name, self._path)
            if session_id is None:
                continue
            if not entry.is_file(follow_symlinks=False):
                if entry.is_symlink():
                    self._note("a symbolic link is not followed", entry.path)
            elif session_id in found:
                self._note("a second file of the same session is left alone", entry.path, session_id)
            else:
                found[session_id] = entry
        self._names = {session_id: entry.name for session_id, entry in found.items()}
        return found

    def _note(self, what: str, where: str, session_id: str = "") -> None:
        """Once: the folder is listed again and again."""
        if where not in self._noted:
            self._noted.add(where)
            self._notice(Notice(what=what, where=where, session_id=session_id))

    def listen(self) -> None:
        """What the other tool's own index says of its sessions."""
        try:
            self._told = foreign_index.told(self._place, foreign_index.read(self._place, self._name))
        except foreign_index.Unreadable as error:
            where = str(self._place.published(self._name))
            self._note(f"this index cannot be read ({error}); the sessions are found all the same", where)

    def size_of(self, session_id: str) -> int:
        try:
            return os.stat(self.path_of(session_id), follow_symlinks=False).st_size
        except OSError:
            return 0


class Looked:
    """How far a long look at many files has come, in bytes."""

    def __init__(self, progress: Callable[[int, int], None] | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def add(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)
