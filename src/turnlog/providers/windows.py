"""How much known model families can hold, and how long an answer to ask for.

Public figures of November 2026. Only for the makers' own names: what a compatible server offers under such a name is
its own affair, so it is asked of the settings instead.
"""

from msgspec import Struct


class Size(Struct, frozen=True):
    """`window`: as `Provider.window`; `output`: tokens to ask for in one answer where nobody says."""

    window: int
    output: int


UNKNOWN_OUTPUT = 16_384
"""Asked of a model that is not in the table: every model still served by name grants it, and few answers need more."""

_CLAUDE = {
    "claude-fable-5": Size(1_000_000, 128_000),
    "claude-haiku-4-5": Size(200_000, 64_000),
    "claude-haiku-5": Size(1_000_000, 128_000),
    "claude-mythos-5": Size(1_000_000, 128_000),
    "claude-opus-4-5": Size(200_000, 64_000),
    "claude-opus-4-6": Size(1_000_000, 128_000),
    "claude-opus-4-7": Size(1_000_000, 128_000),
    "claude-opus-4-8": Size(1_000_000, 128_000),
    "claude-opus-5": Size(1_000_000, 128_000),
    "claude-sonnet-4-5": Size(200_000, 64_000),
    "claude-sonnet-4-6": Size(1_000_000, 128_000),
    "claude-sonnet-5": Size(1_000_000, 128_000),
    # These refuse a prompt that together with max_tokens would pass the window, so little is asked for: what the
    # guard keeps free by default, or the model's own limit where that is lower.
    "claude-3-": Size(200_000, 4_096),
    "claude-3-5-": Size(200_000, 8_192),
    "claude-3-7-": Size(200_000, 16_384),
    "claude-opus-4-": Size(200_000, 16_384),
    "claude-sonnet-4-": Size(200_000, 16_384),
}

_GPT = {
    "chatgpt-4o": 128_000,
    "gpt-3.5-turbo": 16_385,
    "gpt-4": 8_192,
    "gpt-4-32k": 32_768,
    "gpt-4-turbo": 128_000,
    "gpt-4.1": 1_047_576,
    "gpt-4o": 128_000,
    "gpt-5": 272_000,
    "gpt-5-chat": 128_000,
    "gpt-5.1-chat": 128_000,
    "gpt-5.2-chat": 128_000,
    "gpt-5.4": 922_000,
    "gpt-5.4-mini": 272_000,
    "gpt-5.4-nano": 272_000,
    "gpt-5.5": 922_000,
    "gpt-5.6": 922_000,
    "gpt-6": 922_000,
    "o1": 200_000,
    "o1-mini": 128_000,
    "o1-preview": 128_000,
    "o3": 200_000,
    "o4-mini": 200_000,
}
"""From gpt-5 on these are the limits of the input alone (of 400,000 and 1,050,000 in all): the room for the answer is
set apart there, and a prompt of more is refused however short the answer."""


def of_claude(name: str) -> Size | None:
    prefix = _longest(name, _CLAUDE)
    return _CLAUDE[prefix] if prefix else None


def of_gpt(name: str) -> int | None:
    prefix = _longest(name, _GPT)
    return _GPT[prefix] if prefix else None


def _longest(name: str, families: dict[str, Size] | dict[str, int]) -> str:
    return max((prefix for prefix in families if name.startswith(prefix)), key=len, default="")
