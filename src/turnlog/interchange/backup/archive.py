"""The file of a backup: gzipped JSON lines, closed by a line with a digest of all lines before it.

    {"turnlog": "backup", "version": 1, "made": …}
    {"turnlog": "session", "id": ID}   its entries, as native lines   {"turnlog": "session_end", "id": ID, …}
    {"turnlog": "fact", …}  {"turnlog": "said", …}  {"turnlog": "memo", …}     the ledger, the convlog, the memory
    {"turnlog": "end", "counts": {…}, "digest": …, "sha256": …}

A session that was deleted while it was read ends with "dropped" instead. A file without its last line, or with
another digest, is not a backup: it was cut off or changed.
"""

import gzip
import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec
from msgspec import Struct

from ...errors import Corrupt, UsageError

VERSION = 1
LEVEL = 5
"""Of gzip: more costs several times the processor for a few percent."""
LINE_MAX_BYTES = 256 * 2**20
"""An entry has at most 32 MiB, which JSON can write with up to six bytes for one."""
_FRAME = b'{"turnlog":'
"""How every line begins that is not an entry."""
_FIRST = b'{"turnlog": "backup"'
"""How the first line begins."""


class BackupCounts(Struct, frozen=True):
    sessions: int = 0
    entries: int = 0
    facts: int = 0
    said: int = 0
    """Records of the convlog."""
    memos: int = 0


class BackupSummary(Struct, frozen=True):
    """What a backup holds."""

    counts: BackupCounts
    digest: str
    """Equal to the one that `turnlog copy` prints for the same sessions."""
    made: str


class ArchiveWriter:
    def __init__(self, file: BinaryIO) -> None:
        self._file = gzip.GzipFile(fileobj=file, mode="wb", compresslevel=LEVEL, mtime=0)
        self._sha256 = hashlib.sha256()
        self.counts = Counter[str]()
        """How many lines of each kind there are, without those of entries."""

    def add(self, kind: str, **values: Any) -> None:
        self.counts[kind] += 1
        self._add_line(_encoded({"turnlog": kind, **values}))

    def add_entry(self, line: bytes) -> None:
        self._add_line(b" " + line if line.startswith(_FRAME) else line)

    def _add_line(self, line: bytes) -> None:
        self._sha256.update(line + b"\n")
        self._file.write(line + b"\n")

    def finish(self, counts: BackupCounts, digest: str) -> None:
        last = {"turnlog": "end", "counts": counts, "digest": digest, "sha256": self._sha256.hexdigest()}
        self._file.write(_encoded(last) + b"\n")
        self._file.close()


def is_like_one(path: Path) -> bool:
    """Whether a file begins as a backup does, or is empty. The rest of it may be damaged."""
    if not path.is_file():
        return False
    try:
        with gzip.open(path, "rb") as file:
            return file.read(len(_FIRST)) in (_FIRST, b"")
    except (EOFError, zlib.error, OSError):
        return False


def _encoded(value: Any) -> bytes:
    return json.dumps(msgspec.to_builtins(value)).encode()


class ArchiveReader:
    """Reads lines in order. `summary` is known, and the digest proven, once all have been read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.summary: BackupSummary | None = None

    def lines(self) -> Iterator[tuple[dict[str, Any] | None, bytes]]:
        """(value, line) of all lines between the first and the last; entries are not decoded here: None."""
        sha256 = hashlib.sha256()
        made = ""
        for number, line in enumerate(self._raw(), 1):
            value = self._object(line, number) if line.startswith(_FRAME) else None
            if number == 1:
                made = self._made(value)
            elif value is not None and value.get("turnlog") == "end":
                self.summary = self._ended(value, sha256.hexdigest(), made)
            elif self.summary is not None:
                raise self._damaged(f"line {number} is after the end")
            else:
                yield value, line.rstrip(b"\n")
            sha256.update(line)
        if self.summary is None:
            raise self._damaged("its last line is missing: it was cut off")

    def _raw(self) -> Iterator[bytes]:
        try:
            with gzip.open(self._path, "rb") as file:
                while line := cast("BinaryIO", file).readline(LINE_MAX_BYTES):
                    yield line
        except FileNotFoundError as error:
            raise UsageError(f"there is no file {self._path}", hint="Give the path of a backup.") from error
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise self._damaged(str(error)) from error
        except OSError as error:
            raise UsageError(f"{self._path} cannot be read: {error.strerror}") from error

    def _object(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            value = json.loads(line)  # lone surrogates are valid here
        except ValueError as error:
            raise self._damaged(f"line {number} is not JSON") from error
        if not isinstance(value, dict):
            raise self._damaged(f"line {number} is not a JSON object")
        return cast("dict[str, Any]", value)

    def _made(self, value: dict[str, Any] | None) -> str:
        if value is None or value.get("turnlog") != "backup":
            raise UsageError(f"{self._path} is not a backup", hint="`turnlog backup FILE` makes one.")
        if value.get("version") != VERSION:
            raise UsageError(
                f"{self._path} is a backup of version {value.get('version')!r}",
                hint="Restore it with the version of Turnlog that made it, or with a newer one.",
            )
        return str(value.get("made", ""))

    def _ended(self, value: dict[str, Any], found: str, made: str) -> BackupSummary:
        if value.get("sha256") != found:
            raise self._damaged("its digest differs: it was changed after it was made")
        try:
            return BackupSummary(msgspec.convert(value.get("counts"), BackupCounts), str(value.get("digest")), made)
        except msgspec.ValidationError as error:
            raise self._damaged("its last line does not say what it holds") from error

    def _damaged(self, why: str) -> Corrupt:
        return Corrupt(
            f"the backup {self._path} is damaged: {why}", hint="Use another backup; nothing was written from this one."
        )
