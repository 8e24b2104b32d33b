"""What models were used for: tokens by model, as providers reported them, and their cost by `core/prices`.

What was spent stays spent: neither a rewind nor an undone compaction lowers it. A fork begins with none, because its
copies were paid for by their source. Summaries are not in it, because their usage is not in the log, and erased answers
are no longer in it.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from . import prices
from .entries import Assistant, clean

MODELS_MAX = 8
"""Models that a row tells apart; the others are counted together, without a name and so without a price."""
COUNT_MAX = 2**53
"""A larger number is no count of tokens, and not every program can read it."""


class ModelUse(Struct, frozen=True, array_like=True, omit_defaults=True, gc=False):
    """The tokens of all calls of one model."""

    model: str = ""
    """Empty: unknown, or several."""
    input: int = 0
    """Without what was read from the cache or written to it."""
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    @property
    def tokens(self) -> int:
        return self.input + self.output + self.cache_read + self.cache_write


class Cost(Struct, frozen=True):
    """US dollars, approximately."""

    dollars: float
    whole: bool
    """False: some of the models have no price, so it was more."""


def use_of(entry: Assistant) -> ModelUse | None:
    """None if the provider reported nothing."""
    figures = entry.usage
    if not figures:
        return None
    counts = [0 if (value := figures.get(name)) is None else value if is_count(value) else 0 for name in _NAMES]
    # A row is JSON that must be readable: half a character in a name would hide every session of a list.
    return ModelUse(clean(entry.model or ""), *counts) if any(counts) else None


_NAMES = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def is_count(value: Any) -> bool:
    return isinstance(value, int) and value.__class__ is not bool and 0 <= value <= COUNT_MAX


def added(used: tuple[ModelUse, ...], more: ModelUse) -> tuple[ModelUse, ...]:
    """In the order in which the models were used first."""
    if len(used) == 1 and used[0].model == more.model:  # nearly always
        return (joined(used[0], more),)
    known = [one.model for one in used]
    if more.model not in known and len(used) >= MODELS_MAX:
        more = ModelUse("", more.input, more.output, more.cache_read, more.cache_write)
    if more.model not in known:
        return (*used, more)
    at = known.index(more.model)
    return (*used[:at], joined(used[at], more), *used[at + 1 :])


def joined(one: ModelUse, other: ModelUse) -> ModelUse:
    sums = (
        one.input + other.input,
        one.output + other.output,
        one.cache_read + other.cache_read,
        one.cache_write + other.cache_write,
    )
    return ModelUse(one.model, *(sums if max(sums) <= COUNT_MAX else [min(count, COUNT_MAX) for count in sums]))


_COUNTS = ("input", "output", "cache_read", "cache_write")


def cost_of(used: Iterable[ModelUse]) -> Cost | None:
    """None if none of the models has a price."""
    costs = [
        prices.cost(one.model, dict(zip(_NAMES, (getattr(one, name) for name in _COUNTS), strict=True))) for one in used
    ]
    known = [cost for cost in costs if cost is not None]
    return Cost(sum(known), len(known) == len(costs)) if known else None
