"""Foreign files read in bounded memory: lines of JSON, each with its place; one unreadable line costs that line.

A file is read up to the size it had when it was opened, so that an owner who is still writing does no harm. Nothing
that is not a regular file is opened, and no symbolic link is followed.
"""

import json
import os
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec

from ..core.entries import ENTRY_MAX_BYTES
from ..errors import UsageError
from ..stores.files import unavailable
from .draft import Record

CHUNK = 1 << 20
LINE_MAX_BYTES = ENTRY_MAX_BYTES
"""A longer line could not be stored as one entry; it is left out and reported."""

Read = Callable[[int], None]
"""Told how many bytes of the file have been read so far."""


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
        return os.read(fd, min(count, os.fstat(fd).st_size))  # the buffer is made before it is filled


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


def records(path: Path, read: Read | None = None) -> Iterator[Record]:
    """Every line that is not blank."""
    with opened(path) as fd:
        for number, line, whole in _lines(chunks(fd, path, read)):
            place = f"line {number}"
            if line is None:
                yield Record(place, None, f"longer than {LINE_MAX_BYTES:,} bytes", last=not whole)
            elif line.strip():
                yield _record(place, line, whole)


def _lines(data: Iterator[bytes]) -> Iterator[tuple[int, bytes | None, bool]]:
    """(number, line or None if it is too long, whether it is ended by a newline)."""
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


def _record(place: str, line: bytes, whole: bool) -> Record:
    text, problem = decoded(line.removeprefix(b"\xef\xbb\xbf"))
    try:
        value = parsed(text)
    except ValueError as error:
        return Record(place, text, problem or f"no JSON: {error}", last=not whole)
    if not isinstance(value, dict):
        return Record(place, text, "no JSON object", last=not whole)
    return Record(place, cast("Any", value), problem)


def decoded(data: bytes) -> tuple[str, str]:
    """(text, what was wrong with it)."""
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
        return json.loads(text)  # slower, and takes lone surrogates
    except RecursionError:
        raise ValueError("nested too deep") from None
