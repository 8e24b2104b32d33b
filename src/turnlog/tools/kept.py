"""Keeps the former content of files that the file tools replace, so that a person can undo it.

One record a write, below a folder of its session: `DIR/SESSION/TIME-RANDOM.json`, 0600. A record is written before the
file is replaced, with at most `FILE_MAX_BYTES` of content; when all records together exceed `ALL_MAX_BYTES`, the oldest
go. Records older than `DAYS` are deleted, and those of a session with the session.
"""

import hashlib
import os
import secrets
import shutil
import time
from base64 import b64decode, b64encode
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from ..errors import Conflict, NotFound
from .fence import Bounds
from .workspace import directory, explained, remove, replace, split, whole

FILE_MAX_BYTES = 1024 * 1024
"""Of one file; the content of a larger one is not kept, and the result of the call says so."""
ALL_MAX_BYTES = 100 * 1024 * 1024
DAYS = 30
_DAY_MS = 86_400_000


class KeptFile(Struct, frozen=True, kw_only=True):
    """The former content of one file."""

    session: str
    workspace: str
    path: str
    at: int
    """Unix ms."""
    before: str | None
    """Base64; None: there was no such file."""
    after: str
    """The SHA-256 of what was written: a file that changed since is not undone."""


class KeptFiles:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, session: str, workspace: Path, path: str, before: bytes | None, after: bytes) -> bool:
        """Whether it is kept: a file that is too large is not."""
        if before is not None and len(before) > FILE_MAX_BYTES:
            return False
        self._prune()
        now = time.time_ns() // 1_000_000
        record = KeptFile(
            session=session,
            workspace=str(workspace),
            path=path,
            at=now,
            before=None if before is None else b64encode(before).decode(),
            after=hashlib.sha256(after).hexdigest(),
        )
        place = self._folder / session
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.mkdir(mode=0o700, exist_ok=True)
        file = os.open(place / f"{now:013d}-{secrets.token_hex(4)}.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "wb") as stream:
            stream.write(msgspec.json.encode(record))
            stream.flush()
            os.fsync(file)
        return True

    def records(self, session: str | None = None) -> list[tuple[Path, KeptFile]]:
        """The newest first, none older than `DAYS`."""
        there = (file for file in self._files(session) if file.name >= _oldest())
        found = sorted(there, key=lambda file: file.name, reverse=True)
        read: list[tuple[Path, KeptFile]] = []
        for file in found:
            with suppress(OSError, msgspec.DecodeError, msgspec.ValidationError):
                read.append((file, msgspec.json.decode(file.read_bytes(), type=KeptFile)))
        return read

    def undo(self, session: str | None = None, path: str | None = None, *, force: bool = False) -> KeptFile:
        """Gives the newest of these files its former content. Conflict if it changed since, unless `force`."""
        found = next((one for one in self.records(session) if path in (None, one[1].path)), None)
        if found is None:
            raise NotFound("no former content is kept for this", hint="See `turnlog files list`.")
        file, record = found
        with explained(record.path):
            _restore(record, force=force)
        file.unlink(missing_ok=True)
        return record

    def forget(self, session: str) -> None:
        """Deletes what was kept for a session."""
        shutil.rmtree(self._folder / session, ignore_errors=True)

    def _files(self, session: str | None) -> list[Path]:
        return list(self._folder.glob(f"{session or '*'}/*.json"))

    def _prune(self) -> None:
        oldest, total = _oldest(), 0
        for file in sorted(self._files(None), key=lambda file: file.name, reverse=True):
            with suppress(OSError):
                total += file.stat().st_size
                if file.name < oldest or total > ALL_MAX_BYTES:
                    file.unlink()


def _oldest() -> str:
    """The name that sorts before every record that may be used."""
    return f"{time.time_ns() // 1_000_000 - DAYS * _DAY_MS:013d}"


def _restore(record: KeptFile, *, force: bool) -> None:
    parts = split(record.path)
    bounds = Bounds(frozenset(), frozenset(), [], ())
    with directory(Path(record.workspace), parts[:-1], bounds) as fd:
        now = whole(fd, parts[-1], bounds)
        if not force and (now is None or hashlib.sha256(now).hexdigest() != record.after):
            raise Conflict(
                f"{record.path} has changed since the tool wrote it", hint="Use --force to replace it all the same."
            )
        if record.before is None:
            remove(fd, parts[-1])
        else:
            replace(fd, parts[-1], b64decode(record.before), bounds)
