"""The native dialect: one JSON object a line, the fields of `core.entries`, `\\n` at the end.

The entries of one append stand or fall together. All but the last of them carry `until`, the seq of the last; a file
that ends before it was cut in the middle of that append, and those lines never counted.

Lone surrogates are written as \\u escapes, so that a file is always valid UTF-8 and gives back what was stored.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct

from ..core.entries import ENTRY_MAX_BYTES, FORMAT_VERSION, NESTING_MAX, Entry, Opened
from ..errors import StoreError, UsageError

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Entry)
_UNTIL = re.compile(rb'"until":(\d+)\}\s*\Z')
_SEQ = re.compile(rb'"seq":(\d+)[,}]')
PEEK_BYTES = 64
"""`type` and `seq` stand first in a line, within this many bytes."""


class Undecodable(ValueError):
    """The line is not an entry."""


def encode(entry: Entry) -> bytes:
    """One line without its newline."""
    try:
        line = _encoder.encode(entry)
    except UnicodeEncodeError:
        line = encode_plain(entry)
    except RecursionError:
        raise _too_deep() from None
    except TypeError as error:
        raise UsageError(f"the entry holds something JSON cannot: {error}", hint="Use plain JSON values.") from error
    if len(line) > ENTRY_MAX_BYTES:
        raise UsageError(
            f"the entry has {len(line):,} bytes; the limit is {ENTRY_MAX_BYTES:,}", hint="Store it as a file."
        )
    if line.count(b"[") + line.count(b"{") > NESTING_MAX and depth(msgspec.to_builtins(entry)) > NESTING_MAX:
        raise _too_deep()
    return line


def encode_plain(value: Struct) -> bytes:
    """Any Struct of ours as one line; lone surrogates escaped as in entries."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()


def _too_deep() -> UsageError:
    return UsageError(f"the entry is nested deeper than {NESTING_MAX} levels", hint="Flatten it, or store it as text.")


def depth(value: Any) -> int:
    """Nesting of plain JSON values, without recursion."""
    deepest = 0
    todo: list[tuple[Any, int]] = [(value, 1)]
    while todo and deepest <= NESTING_MAX:
        item, level = todo.pop()
        if isinstance(item, dict | list):
            deepest = max(deepest, level)
            inside = cast("dict[str, Any] | list[Any]", item)
            todo.extend((child, level + 1) for child in (inside.values() if isinstance(inside, dict) else inside))
    return deepest


def encode_append(entries: Sequence[Entry]) -> bytes:
    """The bytes of one append."""
    lines = [encode(entry) for entry in entries]
    last = lines.pop()
    if not lines:
        return last + b"\n"
    mark = b',"until":%d}\n' % entries[-1].seq
    return b"".join([line[:-1] + mark for line in lines]) + last + b"\n"


def decode(line: bytes) -> Entry:
    try:
        return _decoder.decode(line)
    except msgspec.ValidationError as error:
        raise Undecodable(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if b"\\u" in line:
            return _decode_escaped(line)
        raise Undecodable(str(error)) from error


def _decode_escaped(line: bytes) -> Entry:
    """Lone surrogates, which the fast decoder refuses."""
    try:
        return msgspec.convert(json.loads(line), Entry)
    except (ValueError, RecursionError) as error:
        raise Undecodable(str(error)) from error


def decode_lines(data: bytes | str) -> list[Entry]:
    """Whole lines only. Raises Undecodable without saying which: the caller then goes line by line."""
    try:
        return _decoder.decode_lines(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Undecodable(str(error)) from error


def check_version(opened: Entry, where: str) -> None:
    if isinstance(opened, Opened) and opened.version > FORMAT_VERSION:
        raise StoreError(
            f"{where} has format version {opened.version}; this Turnlog knows up to {FORMAT_VERSION}",
            hint="Upgrade Turnlog to read it. Nothing was changed.",
        )


def seq_of(line: bytes) -> int | None:
    """The seq of the line that begins here, without decoding it; None if it is damaged there."""
    end = line.find(b"\n", 0, PEEK_BYTES)
    found = _SEQ.search(line, 0, PEEK_BYTES if end < 0 else end)
    return int(found[1]) if found else None


def until_of(line: bytes) -> int | None:
    """The last seq of the append this line belongs to, if more of it follows."""
    found = _UNTIL.search(line, max(0, len(line) - PEEK_BYTES))
    return int(found[1]) if found else None
