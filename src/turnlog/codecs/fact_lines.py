"""Lines of facts whose values are pairs of a text and bytes, as an adapter stores what a framework has serialised.

The JSON decoder decodes the bytes too, which takes half the time of decoding an entry and then its bytes. Nothing is
taken for granted: the checksum is made of what was decoded, so it differs if the line holds anything else, and then the
general decoder decides.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct, field

from ..core.entries import Facts
from . import native

LINES_MIN = 16
"""For fewer it is not worth trying."""


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
        return native.decode_each(lines, _decoder)
    except native.Undecodable:
        return None
