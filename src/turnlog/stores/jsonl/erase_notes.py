"""Erases entries of a transcript in place, so that no crash leaves a line that looks damaged.

A line is overwritten with a shorter one and blanks, which is not atomic. So the new lines are first written down, next
to the store's other files, and synced: from then on the entries count as erased. A process that finds the note
finishes the work, also after a crash: it writes the lines again, appends the `erasure` entry if it is missing, and
removes the words from everything that was derived from the file. The note holds no words of the erased entries.

A reader that finds a damaged line looks for a note before it reports damage. The blanks are removed later, when the
file is written anew (`write_anew`). If a new line is longer than the old one, the file is written anew at once.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from ...codecs import native
from ...core.entries import Entry, Erasure
from ...errors import Corrupt
from ..disk.files import make_dir, open_private, read_at, replace_file, sync_dir, write_all
from .lines import CHUNK, newline_after
from .transcript import SessionFile

SHRINK_MIN_BYTES = 4_096
SHRINK_PART = 8
"""A file is written again when at least this many of its bytes, and this share of it, are blanks."""


class ErasedLine(Struct, frozen=True, array_like=True):
    """Where a line is, without its newline, and what stands there from now on."""

    start: int
    size: int
    text: str


class EraseNote(Struct, frozen=True, kw_only=True):
    """The changes of one erasure; a crash may have left them half done."""

    incarnation: str
    ino: int
    end: int
    """The last entry before."""
    seqs: list[int]
    lines: list[ErasedLine]
    appended: list[str]

    @property
    def bodies(self) -> list[Entry]:
        return [native.decode(line.encode()) for line in self.appended]

    @property
    def has_room(self) -> bool:
        """Whether each new line fits into the place of the old one."""
        return all(len(line.text) <= line.size for line in self.lines)


class EraseNotes:
    """The notes of a store, one for each session at most. The folder is made with the first of them."""

    def __init__(self, folder: Path, *, durable: bool) -> None:
        self._folder = folder
        self._durable = durable

    def _path(self, session_id: str) -> Path:
        return self._folder / f"{session_id}.json"

    def sessions(self) -> list[str]:
        try:
            return sorted(path.stem for path in self._folder.glob("*.json") if not path.name.startswith("."))
        except OSError:
            return []

    def read(self, file: SessionFile) -> EraseNote | None:
        """None: there is none, or it is about another file."""
        try:
            note = msgspec.json.decode(self._path(file.id).read_bytes(), type=EraseNote)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None
        stamped = file.row.incarnation if file.row else note.incarnation
        return note if (note.ino, note.incarnation) == (file.ino, stamped) else None

    def write(self, file: SessionFile, note: EraseNote) -> None:
        make_dir(self._folder)
        replace_file(self._path(file.id), msgspec.json.encode(note), durable=self._durable)

    def remove(self, session_id: str) -> None:
        with suppress(FileNotFoundError):
            self._path(session_id).unlink()
            if self._durable:
                sync_dir(self._folder)


def note_of(file: SessionFile, emptied: Sequence[Entry], appended: Sequence[Entry]) -> EraseNote:
    """Under the file's lock."""
    assert file.row is not None
    lines: list[ErasedLine] = []
    for entry in emptied:
        start = file.seek(entry.seq)
        newline = newline_after(file.fd, start, file.size)
        end = file.size if newline is None else newline
        old = read_at(file.fd, start, end)
        try:
            text = file.lines.erased_line(entry, old, start)
        except native.Undecodable as error:
            raise Corrupt(f"{file.path}: entry {entry.seq} cannot be read ({error})", path=str(file.path)) from error
        lines.append(ErasedLine(start, len(old), text.decode()))
    kept = [native.encode(entry).decode() for entry in appended]
    return EraseNote(
        incarnation=file.row.incarnation,
        ino=file.ino,
        end=file.last_seq,
        seqs=[entry.seq for entry in emptied],
        lines=lines,
        appended=kept,
    )


def overwrite(file: SessionFile, note: EraseNote, *, durable: bool) -> None:
    """Under the file's lock; may be repeated."""
    fd = open_private(file.path, os.O_WRONLY)  # the file's own descriptor only appends
    try:
        for line in note.lines:
            _write_at(fd, line.text.encode().ljust(line.size), line.start)
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)


def _write_at(fd: int, data: bytes, start: int) -> None:
    written = os.pwrite(fd, data, start)
    while written < len(data):
        written += os.pwrite(fd, memoryview(data)[written:], start + written)


def is_appended(entries: Sequence[Entry], note: EraseNote) -> bool:
    """Whether the `erasure` entry of this note is among the entries after it."""
    meant = [body.ts for body in note.bodies if isinstance(body, Erasure)]
    return any(isinstance(entry, Erasure) and entry.ts in meant for entry in entries)


def write_anew(file: SessionFile, lines: Sequence[ErasedLine], ready: Callable[[int], None]) -> None:
    """Replaces the file by one without blanks, and with these lines. Under the file's lock; a process that has the old
    file open finds that it is gone, and opens the new one. `ready` is called with the new inode before that.
    """
    new = {line.start: line.text.encode() for line in lines}
    temporary = file.path.with_name(f".{file.path.name}.{os.getpid()}.tmp")
    fd = open_private(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        place = 0
        while place < file.size:
            newline = newline_after(file.fd, place, file.size)
            end = file.size if newline is None else newline
            line = new[place] if place in new else read_at(file.fd, place, end)
            write_all(fd, line.rstrip(b" ") + b"\n")
            place = end + 1
        os.fsync(fd)
        ready(os.fstat(fd).st_ino)
        os.replace(temporary, file.path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)
    sync_dir(file.path.parent)


def is_worth_shrinking(file: SessionFile) -> bool:
    """Whether blanks fill a good part of the file."""
    blanks, place = 0, 0
    while data := read_at(file.fd, place, min(file.size, place + CHUNK)):
        place += len(data)
        blanks += sum(len(line) - len(line.rstrip(b" ")) for line in data.split(b"\n"))
    return blanks >= max(SHRINK_MIN_BYTES, file.size // SHRINK_PART)
