"""The files of one folder: which sessions they are, and what the index of their own program says about them."""

import os
from collections.abc import Callable, Container, Set
from pathlib import Path

from ...core import keys
from ...core.entries import Opened
from ...core.session import Session
from ...errors import NotFound, StoreError, UsageError
from .. import Notice
from ..disk.files import listing, open_dir
from . import foreign_index
from .foreign_index import ForeignIndexRow
from .index_lines import IndexedRow
from .layouts import Place
from .transcript import Home, SessionFile


class Folder:
    def __init__(self, place: Place, name: str, notice: Callable[[Notice], None]) -> None:
        self._place = place
        self._name = name
        self._path = place.folder(name)
        self._notice = notice
        self._names: dict[str, str] = {}
        self._told: dict[str, ForeignIndexRow] = {}
        self._heard: tuple[int, ...] | None = None
        self._noted: set[str] = set()

    def path_of(self, session_id: str) -> Path:
        return self._path / self._names.get(session_id, f"{session_id}.jsonl")

    def home(self, session_id: str) -> Home:
        told = self._told.get(session_id, ForeignIndexRow())
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

    def list(self, known: Container[str] = ()) -> dict[str, os.DirEntry[str]]:
        """id → its file, as the folder is now. `known`: ids that need no check."""
        if self._place.layout.arrangement == "agents":
            return self._list_plain(known)
        found: dict[str, os.DirEntry[str]] = {}
        for entry in listing(self._path):
            session_id = self._place.id_in(entry.name, self._path)
            if session_id is None or not self._is_file(entry):
                continue
            if session_id in found:
                self._note("a second file of the same session is left alone", entry.path, session_id)
            else:
                found[session_id] = entry
        self._names = {session_id: entry.name for session_id, entry in found.items()}
        return found

    def compare(self, known: Set[str]) -> tuple[Set[str], Set[str]]:
        """The ids that have a file and are not known, and the known ones that have none."""
        if self._place.layout.arrangement != "agents":
            files = self.list(known).keys()
            return files - known, known - files
        count = 0
        others: list[str] = []
        # With a hundred thousand files, a list or a set of them costs as much as reading the directory.
        with open_dir(self._path) as fd, os.scandir(fd) as entries:
            for entry in entries:
                name = entry.name
                if name.endswith(".jsonl") and name[:-6] in known and entry.is_file(follow_symlinks=False):
                    count += 1
                elif self._is_file(entry):
                    others.append(name)
        is_id = keys.SESSION_ID.match
        new = {name[:-6] for name in others if name.endswith(".jsonl") and is_id(name[:-6])}
        return new, known - self._list_plain(known).keys() if count < len(known) else set()

    def _list_plain(self, known: Container[str]) -> dict[str, os.DirEntry[str]]:
        """The same where files are named after their sessions, in half the time: there may be 100,000 of them."""
        named = [(entry.name[:-6], entry) for entry in listing(self._path) if entry.name.endswith(".jsonl")]
        is_id = keys.SESSION_ID.match
        return {name: entry for name, entry in named if (name in known or is_id(name)) and self._is_file(entry)}

    def _is_file(self, entry: os.DirEntry[str]) -> bool:
        if entry.is_file(follow_symlinks=False):
            return True
        if entry.is_symlink():
            self._note("a symbolic link is not followed", str(self._path / entry.name))
        return False

    def _note(self, what: str, where: str, session_id: str = "") -> None:
        """Reports it once, because the folder is listed again and again."""
        if where not in self._noted:
            self._noted.add(where)
            self._notice(Notice(what=what, where=where, session_id=session_id))

    def titled(self, row: Session) -> Session:
        """The row with the title of the other program's index."""
        told = self._told.get(row.id)
        return row if told is None else foreign_index.titled(row, told)

    def listen(self) -> bool:
        """Reads the other program's own index; returns whether it was replaced since the last call."""
        found = self._index_now()
        if found == self._heard:
            return False
        self._heard = found
        try:
            self._told = foreign_index.told(self._place, foreign_index.read(self._place, self._name))
        except foreign_index.Unreadable as error:
            where = str(self._place.published(self._name))
            self._note(f"this index cannot be read ({error}); the sessions are found all the same", where)
        return True

    def _index_now(self) -> tuple[int, ...]:
        try:
            about = os.stat(self._place.published(self._name) or self._path)
        except OSError:
            return ()
        return about.st_ino, about.st_size, about.st_mtime_ns

    def size_of(self, session_id: str) -> int:
        try:
            return os.stat(self.path_of(session_id), follow_symlinks=False).st_size
        except OSError:
            return 0

    def fold(self, session_id: str, known: IndexedRow | None, told: "Looked | None" = None) -> IndexedRow | None:
        """Its row, computed from the file; from where `known` ends, if that is the same file. None: it has no row."""
        home = self.home(session_id)
        path = home.path
        try:
            file = SessionFile.open(home, create=False)
        except NotFound:
            return None
        except (StoreError, UsageError) as error:
            self._notice(Notice(what=str(error), where=str(path), session_id=session_id))
            return None
        try:
            if known:
                file.adopt(known.row, known.size, known.ino)
            file.refresh(told.add if told else None)
            return None if file.row is None else IndexedRow(file.row, file.size, file.ino)
        except StoreError as error:
            self._notice(Notice(what=str(error), where=str(path), session_id=session_id))
            return None
        finally:
            file.close()


class Looked:
    """The progress of reading many files, in bytes."""

    def __init__(self, progress: Callable[[int, int], None] | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def add(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(min(self._done, self._total), self._total)


def differs(entry: os.DirEntry[str], kept: IndexedRow) -> bool:
    """Whether the file is not the one that the row was computed from, or has another size."""
    try:
        there = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return True
    return there.st_size != kept.size or there.st_ino != kept.ino
