"""Recognises the dialect of a file from its first lines, and lists the codec of each."""

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias, cast

from msgspec import Struct

from ..core.entries import Entry
from . import flat, v3, v3_writing
from .lines import Reading, parse
from .native import Undecodable

Encode: TypeAlias = Callable[[Sequence[Entry], Reading], tuple[bytes, str | None]]


class Codec(Struct, frozen=True):
    """One foreign dialect. `decode(line, seq, reading)`; `encode_append(entries, reading)`."""

    name: str
    decode: Callable[[bytes, int, Reading], Entry]
    encode_append: Encode


class FileDialect(Struct, frozen=True):
    """How a file is written. `style`: which program's variant of the dialect it is."""

    dialect: str
    style: str = ""


NATIVE = FileDialect("native")
CODECS = MappingProxyType(
    {
        "v3": Codec("v3", v3.decode, v3_writing.encode_append),
        "flat": Codec("flat", flat.decode, flat.encode_append),
    }
)
HEAD_BYTES = 64 * 1024
"""The number of bytes that are examined; if the first line is longer, its beginning must be enough."""
_NATIVE_HEAD = b'{"type":"session","seq":1,'
_V3_TYPES = ("message", "compaction", "model_change", "thinking_level_change", "custom", "custom_message", "label")


def detect(head: bytes) -> FileDialect | None:
    """Decides by the first line that is typical for a dialect; None if no line is. Native lines count wherever they
    are.

    No other dialect numbers its lines, so a native file is recognised even if its first line is damaged.
    """
    if head.startswith(_NATIVE_HEAD):
        return NATIVE
    found: FileDialect | None = None
    for line in head.split(b"\n"):
        try:
            raw = parse(line)
        except Undecodable:
            continue
        written = _by_line(cast("dict[str, Any]", raw)) if isinstance(raw, dict) else None
        if written is NATIVE:
            return NATIVE
        found = found or written
    return found


def _by_line(raw: dict[str, Any]) -> FileDialect | None:
    match raw:
        case {"type": str(), "seq": int()} | {"type": str(), "crc32": str()}:
            return NATIVE
        case {"type": "session", "created": created}:
            return FileDialect("flat", "claw0-keyed" if isinstance(created, str) else "claw0")
        case {"type": "session", "createdAt": int() | float()} | {"type": "session", "agentId": str()}:
            return FileDialect("v3", "zyhive")
        case {"type": "session"}:
            return FileDialect("v3", "pi")
        case {"type": str(kind)} if kind in _V3_TYPES:
            return FileDialect("v3", "zyhive" if isinstance(raw.get("timestamp"), int | float) else "pi")
        case {"type": "user" | "assistant" | "tool_use" | "tool_result" | "turnlog"}:
            return FileDialect("flat", "claw0-keyed" if isinstance(raw.get("ts"), str) else "claw0")
        case _:
            return None
