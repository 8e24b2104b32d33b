"""The native dialect: one JSON object per line, the fields of `core.entries`, `\\n` at the end.

A line ends with `crc32`, a checksum of the entry's values. The order of keys, blanks and escapes do not matter, so a
line that another program rewrote stays valid, while a flipped bit is damage. A line without a checksum is not checked.
Either all entries of an append count or none: all its lines but the last carry `until`, the seq of the last, and a file
that ends before that seq was cut in the middle of the append. The checksum covers `until`.

What a newer version wrote is kept. An entry of a type that this version does not know is a `foreign` entry that holds
the whole line; fields that it does not know are in `unknown`. Both are written back as they came, so that a copy holds
what the original holds. Unknown fields count only where the checksum covers them: a damaged name would be one, too.

An erased entry (`core/erasing`) has `"erased": true` in place of its words, and may be followed by blanks: it was
overwritten in place.

Lone surrogates are written as \\u escapes, so a file is always valid UTF-8 and gives back what was stored.
"""

import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..core import erasing
from ..core.entries import ENTRY_MAX_BYTES, FORMAT_VERSION, NESTING_MAX, TYPES, Entry, Foreign, Opened, User
from ..core.talk import is_plain_talk
from ..errors import StoreError, UsageError

CHECKSUM = "crc32"
UNTIL = "until"
PEEK_BYTES = 64
"""In a line that Turnlog wrote, `type` and `seq` come first, `crc32` and `until` last, within this many bytes."""
LINES_AT_ONCE = 1024

_encoder = msgspec.json.Encoder()
_sorting_encoder = msgspec.json.Encoder(order="sorted")
_decoder = msgspec.json.Decoder(Entry)
_any_decoder = msgspec.json.Decoder()
FIELDS = {
    name: {field.encode_name for field in msgspec.structs.fields(kind)} - {"unknown"} | {"type"}
    for name, kind in TYPES.items()
}
"""The fields that a line of each type may have. Others are of a newer version: they are kept and written back."""
_SEQ = re.compile(rb'\{"type":"[a-z_]+","seq":(\d+)[,}]')
_MARKS = re.compile(rb',"crc32":"([0-9a-f]{8})"(?:,"until":(\d+)|)\}\s*\Z')
_MAYBE_WHOLE_FLOAT = re.compile(rb"\.0(?=[\]},])")
_WHOLE_FLOAT = re.compile(rb"(?<=[\[:,])(-?\d+)\.0(?=[\]},])")


class Undecodable(ValueError):
    """The line is not an entry."""


class _Frame(Struct, gc=False):
    until: int | None = None


_frame_decoder = msgspec.json.Decoder(_Frame)


def encode(entry: Entry) -> bytes:
    """One line without its newline and without a checksum."""
    written: Any = entry if entry.unknown is None else _as_it_came(entry)
    if entry.erased and entry.unknown is None:
        written = erasing.line_of(entry)
    line = dump(written)
    if line.count(b"[") + line.count(b"{") > NESTING_MAX and depth(msgspec.to_builtins(written)) > NESTING_MAX:
        raise too_deep()
    return line


def dump(value: Any) -> bytes:
    """The fields of an entry as one line without its newline, in any dialect."""
    try:
        line = _encoder.encode(value)
    except UnicodeEncodeError:
        line = encode_plain(value)
    except RecursionError:
        raise too_deep() from None
    except TypeError as error:
        raise UsageError(f"the entry has a value that is not JSON: {error}", hint="Use plain JSON values.") from error
    if len(line) > ENTRY_MAX_BYTES:
        raise UsageError(
            f"the entry has {len(line):,} bytes; the limit is {ENTRY_MAX_BYTES:,}",
            hint="Store it as a file, and append its path.",
        )
    return line


def _as_it_came(entry: Entry) -> dict[str, Any]:
    """The values of a line that a newer version wrote, at the seq and time that the entry has now."""
    unknown = entry.unknown or {}
    values: dict[str, Any] = msgspec.to_builtins(replace(entry, unknown=None))
    line: Any = entry.raw if isinstance(entry, Foreign) and "type" in unknown else None
    if isinstance(line, dict) and unknown["type"] not in TYPES:
        common = {name: values[name] for name in ("seq", "ts", "after") if name in values}
        return {**unknown, **common, **cast("dict[str, Any]", line), **common}
    return {**values, **{name: value for name, value in unknown.items() if name not in values}}


def encode_stored(entry: Entry, until: int | None = None) -> bytes:
    """One line as stores keep it, without its newline. Refuses an entry that could not be read back."""
    line, end = _stored(entry, until)
    return line + end


def _stored(entry: Entry, until: int | None) -> tuple[bytes, bytes]:
    """The line in two parts: what the entry holds, and the marks after it."""
    line, crc = _plain_line(entry) or _checked_line(entry)
    if until is None:
        return line[:-1], b',"crc32":"%08x"}' % crc
    end = b"%d" % until
    return line[:-1], b',"crc32":"%08x","until":%b}' % (zlib.crc32(end, crc), end)


def _plain_line(entry: Entry) -> tuple[bytes, int] | None:
    """The line of a plain entry, and its checksum without `until`. None if it must be read back to be sure."""
    if not is_plain_talk(entry):
        return None
    try:
        line = _encoder.encode(entry)
    except (UnicodeEncodeError, TypeError):  # two lone surrogates may be read back as one character
        return None
    if len(line) > ENTRY_MAX_BYTES:
        return None
    return line, zlib.crc32(_without_whole_floats(_sorting_encoder.encode(entry)))


def _checked_line(entry: Entry) -> tuple[bytes, int]:
    line = encode(entry)
    try:
        known = entry.unknown is None and not entry.erased
        return line, _checksum(_read_back(line) if known else _readable_values(line))
    except Undecodable as error:
        raise UsageError(f"the entry could not be read back: {error}", hint="Check the types of its fields.") from error


def _read_back(line: bytes) -> Entry:
    """As `decode`, for a line that has just been written: all that it holds is known here."""
    try:
        entry = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _decode_values(line)
    if _is_empty(entry):
        raise _no_content()
    return entry


def _readable_values(line: bytes) -> dict[str, Any]:
    values = _values(line)
    _entry_of(values)
    return values


def encode_plain(value: Any) -> bytes:
    """Any Struct, or plain values, as one line; lone surrogates are escaped as in entries."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()


def too_deep() -> UsageError:
    return UsageError(f"the entry is nested deeper than {NESTING_MAX} levels", hint="Flatten it, or store it as text.")


def depth(value: Any) -> int:
    """The nesting depth of plain JSON values, without recursion."""
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
    last = entries[-1]
    parts: list[bytes] = []
    for entry in entries:
        parts += _stored(entry, None if entry is last else last.seq)
        parts.append(b"\n")
    return b"".join(parts)


def decode(line: bytes) -> Entry:
    try:
        entry = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _decode_values(line)
    return entry if _is_sound(line, entry, _summed(entry)) else _decode_values(line)


def decode_lines(data: bytes) -> list[Entry]:
    """Decodes complete lines. Raises Undecodable without naming the line: the caller then decodes line by line."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return _decode_all(data, lines)


def decode_each(lines: Sequence[bytes]) -> list[Entry]:
    """The same for lines without their newlines. Many are decoded in pieces that stay in the processor's cache."""
    entries: list[Entry] = []
    for first in range(0, len(lines), LINES_AT_ONCE):
        piece = lines[first : first + LINES_AT_ONCE]
        entries += _decode_all(b"\n".join(piece), piece)
    return entries


def _decode_all(data: bytes, lines: Sequence[bytes]) -> list[Entry]:
    try:
        entries = _decoder.decode_lines(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Undecodable(str(error)) from error
    if len(lines) != len(entries) or not all(map(_is_sound, lines, entries, _each_summed(entries))):
        raise Undecodable("a line is empty, or its checksum is not that of our own form")
    return entries


def _is_sound(line: bytes, entry: Entry, summed: bytes) -> bool:
    """Whether Turnlog wrote the line and it is unchanged; otherwise its values must be checked."""
    if entry.unknown is not None or entry.erased:
        return False
    if line[-20:-10] == b',"crc32":"':  # faster than a regular expression, and true for nearly every line
        return line[-10:] == b'%08x"}' % zlib.crc32(summed)
    found = _MARKS.search(line, max(0, len(line) - PEEK_BYTES))
    if found is not None:
        return found[1] == b"%08x" % zlib.crc32(found[2] or b"", zlib.crc32(summed))
    return b'"crc32"' not in line and not _is_empty(entry)


def _is_empty(entry: Entry) -> bool:
    return isinstance(entry, User) and entry.content is None and not entry.from_


def _checksum(values: Any, until: bytes = b"") -> int:
    return zlib.crc32(until, zlib.crc32(_summed(values)))


def _summed(values: Any) -> bytes:
    """What the checksum is made of: the same bytes for an entry and for the plain values of its line."""
    try:
        data = _sorting_encoder.encode(values)
    except UnicodeEncodeError:
        data = json.dumps(msgspec.to_builtins(values), sort_keys=True, separators=(",", ":")).encode()
    return _without_whole_floats(data)


def _without_whole_floats(data: bytes) -> bytes:
    """Some programs write 1.0 as 1."""
    return _WHOLE_FLOAT.sub(rb"\1", data) if _may_have_whole_floats(data) else data


def _may_have_whole_floats(data: bytes) -> bool:
    # `b".0" in data` takes three times as long as the pattern.
    return b"." in data and _MAYBE_WHOLE_FLOAT.search(data) is not None


def _each_summed(entries: Sequence[Entry]) -> Iterable[bytes]:
    """The same for many entries that were decoded: one call of the encoder, unless one of them needs a second look."""
    data = _sorting_encoder.encode_lines(entries)
    return map(_summed, entries) if _may_have_whole_floats(data) else data.split(b"\n")


def _decode_values(line: bytes) -> Entry:
    """Decodes a line that Turnlog did not write itself, with lone surrogates, of an unknown type, or damaged."""
    return from_values(_values(line))


def from_values(line: Mapping[str, Any]) -> Entry:
    """The entry from the plain values of a line, whose checksum is verified. Raises Undecodable."""
    values = {**line}
    stated, until = values.pop(CHECKSUM, None), values.pop(UNTIL, None)
    entry = _entry_of(values)
    if stated is None:
        return entry if "type" in (entry.unknown or ()) else replace(entry, unknown=None)
    if _is_newer(entry):  # a newer format may have another checksum; `check_version` refuses it
        return entry
    if stated != f"{_checksum(values, b'' if until is None else str(until).encode()):08x}":
        raise Undecodable("its checksum is wrong: the line was changed since it was written")
    return entry


def _entry_of(values: dict[str, Any]) -> Entry:
    values = erasing.completed(values)
    known = FIELDS.get(str(values.get("type")), {"type"})
    unknown = {name: value for name, value in values.items() if name not in known}
    try:
        entry = msgspec.convert({name: values[name] for name in values if name in known}, Entry)
    except (msgspec.ValidationError, RecursionError) as error:
        if (foreign := _unknown(values)) is not None:
            return foreign
        raise Undecodable(str(error)) from error
    if _is_empty(entry):
        raise _no_content()
    return replace(entry, unknown=unknown) if unknown else entry


def _no_content() -> Undecodable:
    return Undecodable("Object missing required field `content`")


def _is_newer(entry: Entry) -> bool:
    return isinstance(entry, Opened) and entry.version > FORMAT_VERSION


def _values(line: bytes) -> dict[str, Any]:
    line = line.removeprefix(b"\xef\xbb\xbf")
    try:
        values = _any_decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if b"\\u" not in line:
            raise Undecodable(str(error)) from error
        values = _with_surrogates(line)
    if not isinstance(values, dict):
        raise Undecodable("not an object")
    return cast("dict[str, Any]", values)


def _with_surrogates(line: bytes) -> Any:
    """Parses lone surrogates, which the fast decoder refuses."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise Undecodable(str(error)) from error


def _unknown(values: dict[str, Any]) -> Foreign | None:
    match values:
        case {"type": str(kind), "seq": int(seq)} if kind not in TYPES and seq > 0:
            ts, after = values.get("ts"), values.get("after")
            return Foreign(
                seq=seq,
                ts=ts if isinstance(ts, str) else "",
                after=after if isinstance(after, int) else None,
                raw=values,
                unknown={"type": kind},
                erased=values.get("erased") is True,
            )
        case _:
            return None


def check_version(opened: Entry, where: str) -> None:
    if isinstance(opened, Opened) and _is_newer(opened):
        raise StoreError(
            f"{where} has format version {opened.version}; this Turnlog knows up to {FORMAT_VERSION}",
            hint="Upgrade Turnlog to read it. Nothing was changed.",
        )


def seq_of(head: bytes) -> int | None:
    """The seq from the first bytes of a line that Turnlog wrote, without decoding it; None for every other line."""
    found = _SEQ.match(head)
    return int(found[1]) if found else None


def until_of(line: bytes) -> int | None:
    """The last seq of the append that this line belongs to, if more lines of it follow."""
    try:
        return _frame_decoder.decode(line).until
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _until_slowly(line)


def _until_slowly(line: bytes) -> int | None:
    try:
        until = _values(line).get(UNTIL)
    except Undecodable:
        return None
    return until if isinstance(until, int) else None
