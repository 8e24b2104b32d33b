"""Which dialect a file is written in, told from its first lines; and the codec of each."""

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


class Written(Struct, frozen=True):
    """How a file is written. `style`: whose variant of the dialect it is."""

    dialect: str
    style: str = ""


NATIVE = Written("native")
CODECS = MappingProxyType(
    {
        "v3": Codec("v3", v3.decode, v3_writing.encode_append),
        "flat": Codec("flat", flat.decode, flat.encode_append),
    }
)
DIALECTS = ("native", *CODECS)
HEAD_BYTES = 64 * 1024
"""So much of a file is looked at; with a first line longer than this, its beginning must do."""
_NATIVE_HEAD = b'{"type":"session","seq":1,'
_V3_TYPES = ("message", "compaction", "model_change", "thinking_level_change", "custom", "custom_message", "label")


def detect(head: bytes) -> Written | None:
    """From the first line that says so; None if none of them does."""
    if head.startswith(_NATIVE_HEAD):
        return NATIVE
    for line in head.split(b"\n"):
        try:
            raw = parse(line)
        except Undecodable:
            continue
        if isinstance(raw, dict) and (written := _by_line(cast("dict[str, Any]", raw))):
            return written
    return None


def _by_line(raw: dict[str, Any]) -> Written | None:
    match raw:
        case {"type": str(), "seq": int()}:
            return NATIVE
        case {"type": "session", "created": created}:
            return Written("flat", "claw0-keyed" if isinstance(created, str) else "claw0")
        case {"type": "session", "createdAt": int() | float()} | {"type": "session", "agentId": str()}:
            return Written("v3", "zyhive")
        case {"type": "session"}:
            return Written("v3", "pi")
        case {"type": str(kind)} if kind in _V3_TYPES:
            return Written("v3", "zyhive" if isinstance(raw.get("timestamp"), int | float) else "pi")
        case {"type": "user" | "assistant" | "tool_use" | "tool_result" | "turnlog"}:
            return Written("flat", "claw0-keyed" if isinstance(raw.get("ts"), str) else "claw0")
        case _:
            return None
