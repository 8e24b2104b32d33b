"""What a turn costs, from the usage that the model reported. List prices change: every figure is approximate.

The cost of a model without a price here is None, never 0: a wrong figure is worse than none.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct


class Price(Struct, frozen=True):
    """US dollars per million tokens."""

    input: float
    output: float
    cache_read: float = 0.0
    cache_write: float = 0.0


FREE = Price(0.0, 0.0)
PRICES: tuple[tuple[str, Price], ...] = (
    ("anthropic:claude-opus", Price(5.0, 25.0, 0.5, 6.25)),
    ("anthropic:claude-sonnet", Price(3.0, 15.0, 0.3, 3.75)),
    ("anthropic:claude-haiku", Price(1.0, 5.0, 0.1, 1.25)),
    ("openai:gpt-5-nano", Price(0.05, 0.4, 0.005)),
    ("openai:gpt-5-mini", Price(0.25, 2.0, 0.025)),
    ("openai:gpt-5", Price(1.25, 10.0, 0.125)),
    ("openai:gpt-4o-mini", Price(0.15, 0.6, 0.075)),
    ("openai:gpt-4o", Price(2.5, 10.0, 1.25)),
    ("openai:gpt-4.1", Price(2.0, 8.0, 0.5)),
    ("local", FREE),
    ("offline", FREE),
    ("scripted", FREE),
)
"""Prices by family, the first match counts; longer names come before shorter ones."""


def price_of(model: str | None) -> Price | None:
    return next((price for name, price in PRICES if _is_of(model or "", name)), None)


def _is_of(model: str, family: str) -> bool:
    """gpt-5 and gpt-5-2026 are one family, gpt-5.9 is not: its price is unknown."""
    return model == family or model.startswith((f"{family}-", f"{family}:"))


def cost(model: str | None, usage: Mapping[str, Any] | None) -> float | None:
    """US dollars, approximately; None if this model has no price here."""
    price = price_of(model)
    if price is None:
        return None
    figures = usage or {}
    weights = {
        "input_tokens": price.input,
        "output_tokens": price.output,
        "cache_read_input_tokens": price.cache_read,
        "cache_creation_input_tokens": price.cache_write,
    }
    return (
        sum(weight * (count if isinstance(count := figures.get(name), int) else 0) for name, weight in weights.items())
        / 1_000_000
    )
