"""What each feature of a text costs in the tokenisers of each family of models, and which family a model belongs to.

The prices were fitted on 157 kinds of text (prose and messages of programs in 30 languages, source code and data files,
generated rows and identifiers) to tokenisers that come in packages, and a little upwards: what is estimated too small
costs more than what is estimated too large. `benchmarks/estimates.py` measures them. Claude's prices are those of the
last tokeniser that Anthropic published, for Claude 2; newer ones spend more, which the first reports teach. For models
that are not listed, prices fitted to o200k are assumed, which are not measured for them.
"""

import re
from collections.abc import Mapping
from typing import Final

from .token_features import Counts

UNKNOWN: Final = "unknown"
"""The family of models that are not listed. It has prices that were fitted to o200k alone, and learns faster."""

_CLASSES: Final = (
    ("words", "long", "longer", "clusters", "humps", "capitals", "shouts", "mixed"),
    ("groups", "figures", "numbers"),
    ("runs", "pairs", "rulers", "joins", "links", "schemes", "signs"),
    ("ends", "closes", "indents"),
    ("han", "traditional"),
    ("loose",),
    ("rare",),
    ("kana", "hangul", "wide"),
    ("latin", "latin_rare", "latin_more", "romance", "german", "foreign"),
    ("greek", "cyrillic", "hebrew", "arabic", "indic", "thai", "cyrillic_more", "arabic_more"),
    ("emoji",),
    ("fixed",),
    ("exact",),
)
"""Features that are learnt together: a few reports cannot determine the price of each."""
CLASSES: Final = len(_CLASSES)
CLASS_OF: Final = tuple(
    next(number for number, names in enumerate(_CLASSES) if feature in names) for feature in Counts.__struct_fields__
)
"""The class of each feature."""

# fmt: off
PRICES: Final[Mapping[str, tuple[float, ...]]] = {
    "unknown": (
        1.07, 0.19, 0, 0, 0, 0, 0, 1, 0.28, 0, 0, 1.33, 0, 0.93, 0.56, 0.5,
        -0.41, 0, 0, 0, 1.5, 0.3, 0.8, 0.96, 0.37, 0.58, 0.25, 0, 0.79, 0.92, 0.6, 2.1,
        2.3, 0.1, 0.43, 0.43, 0.55, 0.55, 2.65, 0.5, 0, 0, 0, 1, 1,
    ),
    "o200k": (
        0.73, 0.66, -0.31, 3.43, 0.07, -0.15, 3.65, 0.36, 0.13, -0.2, 0.32, 1, 0, 1.07, 0.95, 0.12,
        -0.06, 0.19, -0.66, -3.26, 1.11, 0, 0.86, 0.97, 0.46, 0.38, 0.51, -0.06, 0.72, 0.79, 1.01, 0.9,
        1.11, 0, 0.44, 0.31, 0.44, 0.42, 2.09, 0.39, 0, 0.92, -0.19, 1, 1,
    ),
    "cl100k": (
        0.72, 0.71, -0.29, 3.82, 0.75, 1.57, 6.58, 0.4, 0.18, -0.48, 0.32, 1.01, 0, 1.08, 0.93, 0.12,
        -0.05, 0.18, -0.68, -3.58, 1.09, 0, 0.86, 1.09, 0.69, 0.67, 0.58, -0.23, 0.9, 1.38, 1.32, 1.84,
        1.67, 0.72, 1.05, 0.53, 1.19, 0.86, 2.99, 1.33, -0.39, 2.11, 0.13, 1, 1,
    ),
    "qwen": (
        0.65, 0.89, -0.54, 3.58, 0.95, 1.57, 6.36, 0.32, 0.39, -0.89, 0.24, 0.47, 0.8, 1.2, 0.88, 0.05,
        0.07, 0.33, -0.83, -3.44, 1.11, 0, 0.82, 2.48, 0.5, 0.07, 0.56, -0.42, 0.65, 0.92, 1.61, 1.6,
        1.31, 0, 1.02, 0.36, 0.45, 0.46, 1.33, 1.21, -0.61, 2.9, 1.53, 1, 1,
    ),
    "qwen3.5": (
        0.71, 0.65, -0.16, 3.44, 0.39, -0.04, 3.97, 0.47, 0.35, -0.74, 0.3, 0.14, 0.93, 1.14, 1.02, 0.05,
        0.08, 0.21, -0.78, -3.21, 1.05, 0.69, 0.93, 1.1, 0.41, 0.1, 0.61, -0.59, 0.54, 0.68, 1.76, 0.86,
        0.79, 0, 0.44, 0.32, 0.56, 0.4, 2.85, 0.8, -0.25, 0.78, -0.04, 1, 1,
    ),
    "deepseek": (
        0.77, 0.57, 0.1, 2.04, 0.61, 1.75, 4.74, 0.75, 0.56, -0.75, 0.28, 0.93, 0.02, 0.91, 1, 0.06,
        0.08, 0.31, -0.66, -1.97, 1.54, 0, 0.62, 1.47, 0.4, 0.24, 0.35, -0.39, 0.76, 0.87, 1.31, 1.69,
        1.98, 0.07, 0.55, 0.35, 0.54, 0.46, 1.96, 0.69, -0.31, 1.86, -0.08, 1, 1,
    ),
    "tekken": (
        0.7, 0.71, -0.07, 2.73, 0.38, 0.68, 5.49, 0.66, 0.57, -0.83, 0.36, 0.14, 0.93, 1.14, 0.94, 0.14,
        0.39, 0.28, -0.62, -1.88, 1.3, 0, 0.79, 0.82, 0.91, 0.06, 0.42, -0.13, 0.67, 0.67, 1.68, 0.83,
        1.06, 0, 0.46, 0.33, 0.52, 0.36, 3.97, 0.51, 0.01, 0.86, 0.2, 1, 1,
    ),
    "mistral": (
        0.58, 1.4, -1.29, 2.56, 1.36, 2.83, 9.01, 0.79, 0.48, -0.54, 0.38, 0.17, 0.95, 0.63, 0.88, -0.02,
        0.34, 0.67, -0.42, -4.37, 1.63, 0.53, 1.41, 1.33, 0.85, 0.31, 0.39, -0.23, 1.08, 1.45, 1.42, 1.79,
        2.03, 2.13, 1.2, 0.49, 1.24, 1.1, 2.7, 1.33, -0.29, 0.05, 0.87, 1, 1,
    ),
    "claude": (
        0.75, 0.96, -0.8, 2.87, 1.19, 2.9, 9.84, 0.59, 0.19, -0.19, 0.34, 0.82, 0.09, 0.8, 0.83, -0.18,
        0.49, 0.64, -0.51, -4.81, 1.39, 0.64, 0.24, 1.67, 0.59, 0.6, 0.61, -0.21, 0.9, 1.53, 1.05, 1.74,
        2.36, 2.46, 1.3, 0.6, 1.07, 1.12, 2.71, 1.95, -0.14, 1.44, 0.64, 1, 1,
    ),
    "llama3": (
        0.67, 0.78, -0.18, 3.67, 1.14, 1.89, 7.27, 0.37, 0.28, -0.69, 0.37, 1.01, 0, 1.09, 0.92, 0.09,
        0, 0.26, -0.76, -3.6, 1.15, 0, 0.85, 0.93, 0.46, 0.52, 0.28, -0.17, 0.63, 0.81, 1.1, 1.38,
        1.16, 0, 0.47, 0.34, 1.19, 0.46, 3, 1.33, -0.82, 0.33, -0.44, 1, 1,
    ),
    "llama4": (
        0.74, 0.62, -0.11, 2.47, 0.31, 0.41, 3.72, 0.53, 0.48, -0.98, 0.27, 1.03, 0, 1.01, 0.91, 0.07,
        0.03, 0.23, -0.67, -2.48, 1.05, 0, 0.91, 0.72, 0.19, 0.62, 0.25, -0.41, 0.59, 0.7, 1.25, 0.82,
        0.53, 0, 0.43, 0.28, 0.54, 0.44, 2.17, 0.45, -0.13, 0.85, -0.3, 1, 1,
    ),
}
# fmt: on
"""Tokens of each feature, in the order of `Counts`."""

_NAMES: Final = tuple(
    (re.compile(pattern), family)
    for pattern, family in (
        (r"gpt-4o|gpt-4\.1|gpt-4\.5|gpt-[5-9]|gpt-oss|chatgpt|codex|\bo[1-9]\b", "o200k"),
        (r"gpt-4|gpt-3|text-embedding", "cl100k"),
        (r"claude", "claude"),
        (r"qwen[-_]?(?:3\.[5-9]|[4-9])", "qwen3.5"),
        (r"qwen|qwq|qvq", "qwen"),
        (r"deepseek", "deepseek"),
        (r"nemo|pixtral|ministral|devstral|magistral|codestral-2[5-9]|mistral-(?:small|medium|large)", "tekken"),
        (r"mi[sx]tral|codestral|zephyr", "mistral"),
        (r"llama[-_]?4", "llama4"),
        (r"llama", "llama3"),
    )
)
"""The first pattern that occurs in a model's name decides."""


def family_of(model: str) -> str:
    """`model` is a name such as `openai:qwen3-32b`; of a file, its name."""
    _, _, name = model.casefold().partition(":")
    return next((family for pattern, family in _NAMES if pattern.search(name)), UNKNOWN)
