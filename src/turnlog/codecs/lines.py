"""What the codecs of foreign dialects share: JSON lines, times in any notation, and references to earlier lines.

Pure. A store finds the lines and passes a `FileContext` to read them.
"""

import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec

from ..core.entries import NESTING_MAX, Content, Entry, Foreign, Opened, Received
from .native import Undecodable, depth, dump as dump, too_deep

OURS = "turnlog"
"""The field or line type that holds what a foreign dialect cannot express."""
MILLISECONDS_FROM = 100_000_000_000
"""A number of this size is Unix milliseconds (1973 and later); a smaller one is seconds."""
CALLS_KEPT = 1_000
"""The number of tool names remembered for their results; a result comes right after its call."""

Raw = dict[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_decoder = msgspec.json.Decoder()


class FileContext:
    """The facts of a whole file that all its readers share.

    `line_at(seq)` returns one line; `fill()` reads all ids once, when an unknown id is asked for.
    """

    def __init__(
        self,
        *,
        line_at: Callable[[int], bytes | None] | None = None,
        fill: Callable[["FileContext"], None] | None = None,
    ) -> None:
        self.ids: dict[str, int] = {}
        self.calls: dict[str, str] = {}
        self.line_at = line_at or _no_line
        self._fill = fill

    def complete(self) -> None:
        fill, self._fill = self._fill, None
        if fill is not None:
            fill(self)

    def seq_of(self, line_id: str) -> int | None:
        if line_id not in self.ids:
            self.complete()
        return self.ids.get(line_id)

    def note_call(self, call_id: Any, name: Any) -> None:
        if isinstance(call_id, str) and isinstance(name, str):
            self.calls[call_id] = name
            if len(self.calls) > CALLS_KEPT:
                del self.calls[next(iter(self.calls))]


def _no_line(seq: int) -> bytes | None:
    return None


class Reading:
    """One pass over the lines of a file, or the state at its end for writing."""

    def __init__(self, opened: Opened, known: FileContext, style: str, last_id: str | None = None) -> None:
        self.opened = opened
        """Replaces the header if the file has none."""
        self.known = known
        self.style = style
        self.last_id = last_id


def parse(line: bytes) -> Any:
    if line.startswith(b"\xef\xbb\xbf"):
        line = line[3:]
    if not line.strip():
        return ""
    try:
        return _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return _parse_slowly(line, error)


def _parse_slowly(line: bytes, first: Exception) -> Any:
    """Parses lone surrogates and NaN, which the fast decoder refuses."""
    if line.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\x00" in line[:4]:
        raise Undecodable("this is UTF-16 or UTF-32, not UTF-8") from first
    try:
        return json.loads(line)
    except UnicodeDecodeError as error:
        raise Undecodable(f"not UTF-8: {error}") from error
    except (ValueError, RecursionError):
        raise Undecodable(str(first)) from first


def raw_at(seq: int, reading: "Reading") -> Raw | None:
    """A line of the file, if it is readable and an object."""
    line = reading.known.line_at(seq)
    try:
        raw = parse(line) if line is not None else None
    except Undecodable:
        return None
    return cast("Raw", raw) if isinstance(raw, dict) else None


def timestamp(value: Any) -> str:
    """RFC 3339 UTC with milliseconds from ISO, seconds or milliseconds; empty if it is not a time."""
    try:
        match value:
            case bool():
                return ""
            case int() | float() if math.isfinite(value):
                ms = round(value if abs(value) >= MILLISECONDS_FROM else value * 1000)
                return _text(_EPOCH + timedelta(milliseconds=ms))
            case str():
                moment = datetime.fromisoformat(value)
                return _text(moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC))
            case _:
                return ""
    except (ValueError, OverflowError):
        return ""


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def unix_ms(ts: str) -> int:
    try:
        moment = datetime.fromisoformat(ts)
    except ValueError:
        return 0
    return round(((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) / timedelta(milliseconds=1))


def content_of(value: Any) -> Content:
    """Any value in the place of content, as content; no text of it is dropped."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return [_block(item) for item in cast("list[Any]", value)]
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def _block(item: Any) -> dict[str, Any]:
    if isinstance(item, dict):
        return cast("dict[str, Any]", item)
    return {"type": "text", "text": item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)}


def fields_of(entry: Entry) -> Raw:
    """The fields as plain values, without those that every line has its own place for."""
    try:
        fields: Raw = msgspec.to_builtins(entry)
    except RecursionError:
        raise too_deep() from None
    del fields["type"]
    fields.pop("seq", None)
    return fields


def meaning_of(entry: Entry) -> Raw:
    """The fields of an entry to be written; refuses deeper nesting than native lines allow."""
    fields = fields_of(entry)
    if depth(fields) > NESTING_MAX:
        raise too_deep()
    return fields


def unsaid(entry: Entry, understood: Entry) -> Raw:
    """The fields that a reader of the plain foreign line would miss or misunderstand."""
    meant, read = meaning_of(entry), fields_of(understood)
    return {name: meant.get(name) for name in {**read, **meant} if not _is_same(meant.get(name), read.get(name))}


def _is_same(one: Any, other: Any) -> bool:
    """Equal, and with the same order of keys: a prompt must have the same bytes after a restart."""
    if isinstance(one, dict) and isinstance(other, dict):
        left, right = cast("Raw", one), cast("Raw", other)
        return [*left] == [*right] and all(_is_same(left[name], right[name]) for name in left)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        ones, others = cast("list[Any]", one), cast("list[Any]", other)
        return len(ones) == len(others) and all(map(_is_same, ones, others))
    return one == other


def completed(understood: Entry, ours: Mapping[str, Any]) -> Entry:
    """The entry completed by the fields of `unsaid`; unchanged if they no longer fit."""
    if not ours:
        return understood
    fields = {**fields_of(understood), **ours, "type": understood.__struct_config__.tag, "seq": understood.seq}
    try:
        return msgspec.convert(fields, Entry)
    except (msgspec.ValidationError, RecursionError):
        return understood


def received(fields: Any) -> Received | None:
    try:
        return msgspec.convert(fields, Received)
    except (msgspec.ValidationError, RecursionError):
        return None


def foreign(raw: Any, seq: int, ts: str = "", after: int | None = None) -> Foreign:
    return Foreign(seq=seq, ts=ts, after=after, raw=raw)


def framed(lines: list[Raw], session_id: str, last_seq: int) -> bytes:
    """The bytes of one append: all lines but the last say where it ends and to which session they belong.

    Another program may copy lines into another file; there the mark must have no effect.
    """
    for raw in lines[:-1]:
        raw[OURS] = {**raw.pop(OURS, {}), "until": f"{session_id}:{last_seq}"}
    return b"".join([dump(raw) + b"\n" for raw in lines])


def is_unfinished(line: bytes, session_id: str) -> bool:
    """Whether more lines of the same append must follow this one."""
    tail = line[-128:].rstrip()
    at = tail.rfind(b'"until":"')
    return tail.endswith(b'"}}') and at >= 0 and tail[at + 9 :].startswith(session_id.encode() + b":")
