"""Reads foreign files in bounded memory: lines of JSON, each with its place; an unreadable line does not affect others.

A file is read up to its size at opening, so that it does not matter if its owner is still writing. Only regular files
are opened, and no symbolic link is followed.
"""

import json
import os
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec

from ...core.entries import ENTRY_MAX_BYTES
from ...errors import UsageError
from ...stores.disk.files import unavailable
from .draft import SourceRecord

CHUNK = 1 << 20
LINE_MAX_BYTES = ENTRY_MAX_BYTES
"""A longer line could not be stored as one entry; it is left out and reported."""

Read = Callable[[int], None]
"""Called with the number of bytes read so far."""


@contextmanager
def opened(path: Path) -> Generator[int]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise unavailable(f"{path} cannot be read", error) from error
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise UsageError(f"{path} is not a regular file", hint="Name a file or a directory of files.")
        yield fd
    finally:
        os.close(fd)


def head(path: Path, count: int) -> bytes:
    with opened(path) as fd:
        return os.read(fd, min(count, os.fstat(fd).st_size))  # the buffer is allocated before it is filled


def chunks(fd: int, path: Path, read: Read | None) -> Iterator[bytes]:
    size = os.fstat(fd).st_size
    done = 0
    while done < size:
        try:
            data = os.read(fd, min(CHUNK, size - done))
        except OSError as error:
            raise unavailable(f"{path} cannot be read", error) from error
        if not data:
            return
        done += len(data)
        if read:
            read(done)
        yield data


EMPTY_LINE = "it is empty"


def records(path: Path, read: Read | None = None, *, blanks: bool = False) -> Iterator[SourceRecord]:
    """Every line that is not blank; `blanks`: those too, as unreadable ones."""
    with opened(path) as fd:
        for number, line, whole in _lines(chunks(fd, path, read)):
            place = f"line {number}"
            if line is None:
                yield SourceRecord(place, None, f"longer than {LINE_MAX_BYTES:,} bytes", last=not whole)
            elif line.strip():
                yield _record(place, line, whole)
            elif blanks and whole:
                yield SourceRecord(place, None, EMPTY_LINE)


def _lines(data: Iterator[bytes]) -> Iterator[tuple[int, bytes | None, bool]]:
    """(number, line or None if it is too long, whether it ends with a newline)."""
    number, rest, skipping = 1, bytearray(), False
    for piece in data:
        parts = piece.split(b"\n")
        for part in parts[:-1]:
            rest += b"" if skipping else part
            yield number, None if skipping or len(rest) > LINE_MAX_BYTES else bytes(rest), True
            number, rest, skipping = number + 1, bytearray(), False
        rest += b"" if skipping else parts[-1]
        if len(rest) > LINE_MAX_BYTES:
            skipping, rest = True, bytearray()
    if rest or skipping:
        yield number, None if skipping else bytes(rest), False


def _record(place: str, line: bytes, whole: bool) -> SourceRecord:
    text, problem = decoded(line.removeprefix(b"\xef\xbb\xbf"))
    try:
        value = parsed(text)
    except ValueError as error:
        return SourceRecord(place, text, problem or f"no JSON: {error}", last=not whole and not _is_object(text[:-1]))
    if not isinstance(value, dict):
        return SourceRecord(place, text, "no JSON object", last=not whole)
    return SourceRecord(place, cast("Any", value), problem)


def _is_object(text: str) -> bool:
    """Whether only the last character is wrong. Then it took the place of the newline, and the line is not torn."""
    try:
        return isinstance(parsed(text), dict)
    except ValueError:
        return False


def decoded(data: bytes) -> tuple[str, str]:
    """(text, the error or "")."""
    try:
        return data.decode(), ""
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace"), "not UTF-8; bytes that are none were replaced"


def parsed(text: str) -> Any:
    """JSON as plain values. Raises ValueError."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    try:
        return json.loads(text)  # slower, but accepts lone surrogates
    except RecursionError:
        raise ValueError("nested too deep") from None
