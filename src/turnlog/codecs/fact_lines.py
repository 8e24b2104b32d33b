"""Lines of facts whose values are pairs of a text and bytes, as an adapter stores what a framework has serialised.

The JSON decoder decodes the bytes too, which takes half the time of decoding an entry and then its bytes. A line with
one fact has its fields in a known order, so the checksum is made of the line itself. If it differs for one of them, the
checksums are made of what was decoded; if it still differs, the line holds something else or is damaged, and the
general decoder decides.
"""

import zlib
from collections.abc import Sequence

import msgspec
from msgspec import Struct, field

from ..core.entries import Facts
from . import native

LINES_MIN = 16
"""For fewer it is not worth trying."""
_TYPE, _APP = b'{"type":"facts",', b',"app":'


class PackedBytes(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """As `core.facts.packed` writes bytes."""

    data: bytes = field(name="$bytes")


class FactsOfBytes(Facts, frozen=True, kw_only=True, tag="facts", gc=False):
    put: dict[str, tuple[str, PackedBytes]] = field(  # pyright: ignore[reportIncompatibleVariableOverride] - frozen
        default_factory=dict[str, tuple[str, PackedBytes]]
    )


_decoder = msgspec.json.Decoder(FactsOfBytes)


def decode(lines: Sequence[bytes]) -> list[FactsOfBytes] | None:
    """None if they are few, or one of them is something else."""
    if len(lines) < LINES_MIN:
        return None
    try:
        if all(map(_is_sound, lines)):
            return list(map(_decoder.decode, lines))
        # This decoder would also take a line whose `type` is missing because its name is damaged.
        return native.decode_each(lines, _decoder) if all(line.startswith(_TYPE) for line in lines) else None
    except (msgspec.DecodeError, native.Undecodable):
        return None


def _is_sound(line: bytes) -> bool:
    """Whether its checksum is that of `type`, `seq`, `ts`, `app` and `put`, which are all that it holds."""
    app = line.find(_APP)
    summed = b'{%b,%b,"type":"facts"}' % (line[app + 1 : -20], line[len(_TYPE) : app])
    return line[-20:] == b',"crc32":"%08x"}' % zlib.crc32(summed) and line.startswith(_TYPE)
