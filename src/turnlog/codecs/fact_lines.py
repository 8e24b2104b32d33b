"""Lines of facts whose values are pairs of a text and bytes, as an adapter stores what a framework has serialised.

The JSON decoder decodes the bytes too, which takes half the time of decoding an entry and then its bytes. A line with
one fact has its fields in a known order, so the checksum is made of the line itself. If it differs, the line holds
something else or is damaged, and the general decoder decides.
"""

import zlib
from collections.abc import Sequence

import msgspec
from msgspec import Struct, field

LINES_MIN = 16
"""For fewer it is not worth trying."""
_TYPE, _APP = b'{"type":"facts",', b',"app":'
_BEGUN = zlib.crc32(b"{")


class PackedBytes(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """As `core.facts.packed` writes bytes."""

    data: bytes = field(name="$bytes")


class PackedPair(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """A text and bytes."""

    text: str
    packed: PackedBytes


class FactsOfBytes(Struct, frozen=True, gc=False):
    """The part of a `facts` entry that a look-up needs."""

    seq: int
    app: str
    put: dict[str, PackedPair]


_decoder = msgspec.json.Decoder(FactsOfBytes)


def decode(lines: Sequence[bytes]) -> list[FactsOfBytes] | None:
    """None if they are few, or one of them is something else."""
    if len(lines) < LINES_MIN or not all(map(_is_sound, lines)):
        return None
    try:
        return list(map(_decoder.decode, lines))
    except msgspec.DecodeError:
        return None


def _is_sound(line: bytes) -> bool:
    """Whether its checksum is that of `type`, `seq`, `ts`, `app` and `put`, which are all that it holds."""
    app = line.find(_APP)
    crc = zlib.crc32(b',%b,"type":"facts"}' % line[len(_TYPE) : app], zlib.crc32(line[app + 1 : -20], _BEGUN))
    return line[-20:] == b',"crc32":"%08x"}' % crc and line.startswith(_TYPE)
