"""The context windows of known model families, and how long an answer to ask for.

Public figures of November 2026, only for the providers' own models: a compatible server may serve anything under such a
name, so there the settings decide.
"""

from msgspec import Struct


class WindowSize(Struct, frozen=True):
    """`window`: as `Provider.window`; `output`: the default tokens of one answer."""

    window: int
    output: int


UNKNOWN_OUTPUT = 16_384
"""The default for a model that is not in the table: every model in use allows it, and few answers need more."""

_CLAUDE = {
    **dict.fromkeys(("claude-haiku-4-5", "claude-opus-4-5", "claude-sonnet-4-5"), WindowSize(200_000, 64_000)),
    **dict.fromkeys(
        (
            *("claude-opus-4-6", "claude-opus-4-7", "claude-opus-4-8", "claude-sonnet-4-6"),
            *("claude-fable-5", "claude-haiku-5", "claude-mythos-5", "claude-opus-5", "claude-sonnet-5"),
        ),
        WindowSize(1_000_000, 128_000),
    ),
    # These refuse a prompt that together with max_tokens exceeds the window, so the default is small: what the guard
    # keeps free by default, or the model's own limit if that is lower.
    "claude-3-": WindowSize(200_000, 4_096),
    "claude-3-5-": WindowSize(200_000, 8_192),
    **dict.fromkeys(("claude-3-7-", "claude-opus-4-", "claude-sonnet-4-"), WindowSize(200_000, 16_384)),
}

_GPT = {
    "gpt-4": 8_192,
    "gpt-3.5-turbo": 16_385,
    "gpt-4-32k": 32_768,
    **dict.fromkeys(("chatgpt-4o", "gpt-4-turbo", "gpt-4o", "o1-mini", "o1-preview"), 128_000),
    **dict.fromkeys(("gpt-5-chat", "gpt-5.1-chat", "gpt-5.2-chat"), 128_000),
    **dict.fromkeys(("o1", "o3", "o4-mini"), 200_000),
    **dict.fromkeys(("gpt-5", "gpt-5.4-mini", "gpt-5.4-nano"), 272_000),
    **dict.fromkeys(("gpt-5.4", "gpt-5.5", "gpt-5.6", "gpt-6"), 922_000),
    "gpt-4.1": 1_047_576,
}
"""From gpt-5 on these are the limits of the input alone (of 400,000 and 1,050,000 in total): the room for the answer is
separate, and a larger prompt is refused however short the answer is.
"""


def of_claude(name: str) -> WindowSize | None:
    prefix = _longest(name, _CLAUDE)
    return _CLAUDE[prefix] if prefix else None


def of_gpt(name: str) -> int | None:
    prefix = _longest(name, _GPT)
    return _GPT[prefix] if prefix else None


def _longest(name: str, families: dict[str, WindowSize] | dict[str, int]) -> str:
    return max((prefix for prefix in families if name.startswith(prefix)), key=len, default="")
