"""What each feature of a text costs in the tokenisers of each family of models, and which family a model belongs to.

The prices were fitted on 500 kinds of text (prose and messages of programs in 90 languages, source code and data files,
generated rows and identifiers) to tokenisers that come in packages, and a little upwards: what is estimated too small
costs more than what is estimated too large. `benchmarks/estimates.py` measures them. Claude's prices are those of the
last tokeniser that Anthropic published, for Claude 2; newer ones spend more, which the first reports teach. For models
that are not listed, prices fitted to o200k are assumed, which are not measured for them.
"""

import re
from collections.abc import Mapping
from typing import Final

from .token_counts import Counts

UNKNOWN: Final = "unknown"
"""The family of models that are not listed. It has the prices of o200k, but for Chinese, and learns faster."""

_CLASSES: Final = (
    ("words", "long", "humps"),
    ("longer", "clusters", "uncommon", "uncommon_letters", "spelt", "capitals", "shouts", "spelt_capitals", "mixed"),
    ("groups", "figures", "numbers"),
    ("runs", "pairs", "rulers", "joins", "links", "schemes", "commas", "tabs"),
    ("signs", "sign_pairs", "quotes", "lines", "bars", "repeated"),
    ("ends", "closes", "indents"),
    ("han", "traditional"),
    ("loose", "looser"),
    ("rare",),
    ("kana", "kana_pairs", "hangul", "wide"),
    ("latin", "latin_rare", "latin_more", "romance", "german", "vietnamese"),
    (
        *("greek", "cyrillic", "hebrew", "arabic", "indic", "thai", "lao", "bengali", "gujarati", "tamil", "telugu"),
        *(
            "malayalam",
            "georgian",
            "khmer",
            "armenian",
            "cyrillic_more",
            "arabic_more",
            "arabic_rare",
            "others",
            "russian",
            "spelt_cyrillic",
        ),
    ),
    ("emoji", "joiners"),
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
_PRICES: Final[Mapping[str, tuple[float, ...]]] = {
    "o200k": (
        0.94, -0.05, 0, 0.09, -0.9, 0.03, 0.98, -0.15, -1.2, 1.01, 0, 0.39, 0, 0.12, 0.93, 0, 1.18, 1.08,
        0.49, -0.83, -0.54, -0.23, 0.72, 0.68, 0.49, 1.32, 0, 0.92, 1.34, -1.43, -0.36, -0.18, 0, -0.05,
        0.99, 0.48, 0, 0.42, 0.49, 0.04, 1.05, -1.41, 0.79, 0.6, 0, 0, 0, 0.37, 0.42, 0.11, 0.47, 0.4, 1.81,
        0.08, 0.6, -1.08, 0.73, 0.39, 0.03, 1.54, 0.04, 0.25, 0.14, 0.11, 0.01, -0.05, 0.26, 0, -0.13, 1.02,
        1, 1,
    ),
    "cl100k": (
        0.94, -0.06, 0.08, -0.5, -0.9, 0, 1.29, 0.22, 0.55, 0.99, 0, 0.41, 0, -0.11, 1, 0, 1.18, 1, 0.48,
        -0.76, -0.53, -0.18, 1.24, 0.69, 0.43, 1.18, 0, 1.03, 1.37, -0.83, -0.39, -0.19, 0.15, -0.52, 0.75,
        0.6, 0.42, 0.42, 0.5, 0.2, 1.04, -0.55, 1.01, 0.36, 0.23, 0.34, 0.22, 2.09, 0.91, 0.25, 0.99, 0.66,
        2.98, 0.89, 0.6, -0.65, 0.99, 1.07, -0.14, 1.08, 0.23, 0.76, 1.01, 0.82, 0.65, 1.34, 1.04, 1.2, 0.3,
        1.63, 1, 1,
    ),
    "qwen": (
        0.96, -0.1, -0.03, -0.5, -0.9, 0.03, 1.19, 0.04, 0.25, 1.09, 0, 0.4, 0, -0.13, 0.1, 0.95, 1.31,
        0.99, 0.46, -0.76, -0.53, -0.18, 1.19, 0.68, 0.34, 1.31, 0, 0.98, 1.4, -2.74, -0.31, -0.16, 0.18,
        0.42, 3, 0.4, 0.13, 0.12, 0.72, -0.64, 0.92, -1.15, 0.68, 0.5, 0.22, 0.01, 0, 1.13, 0.91, 0, 0.34,
        0.32, 0.98, 0.63, 0.6, -1.8, 1.4, 1.04, -0.45, 0.34, 0.08, 0.63, 0.75, 0.52, 0.36, 0.58, 0.82, 0.76,
        1.16, 1.45, 1, 1,
    ),
    "qwen3.5": (
        0.94, -0.1, -0.06, 0, -0.9, 0.05, 1, -0.33, -1.2, 1.16, 0, 0.4, 0, 0.05, 0, 0.97, 1.23, 1.12, 0.38,
        -0.62, -0.44, -0.34, 0.73, 0.66, 0.42, 1.35, 0.58, 1.07, 0.99, -0.2, 0.04, -0.12, 0.06, -0.39, 1.65,
        0.41, 0, 0.09, 0.74, -0.7, 0.99, -1.94, 0.57, 0.42, 0, 0, 0, 0.82, 0.38, 0.13, 0.53, 0.33, 2.8,
        0.32, 0.6, -1.4, 0.64, 0.74, -0.19, 0.39, -0.01, 0.18, 0.11, 0.14, 0.13, 0.16, 0.68, 0.79, 0.15,
        1.74, 1, 1,
    ),
    "deepseek": (
        0.94, -0.1, 0.13, 0, -0.9, 0.07, 1, 0.13, -0.16, 1.03, 0, 0.71, 0, 0, 0.98, 0, 1.11, 0.99, 0.63,
        -1.03, -0.52, 0.21, 0.56, 0.4, 0.68, 1.31, 0, 0.95, 1.29, -1.93, -0.29, 0.06, 0.5, -0.27, 0.86, 0.4,
        0, 0.29, 0.5, -0.53, 1.09, -1.58, 0.77, 0.08, 0.2, 0.35, 0.33, 0.64, 0.48, 0.08, 0.52, 0.37, 1.98,
        0.38, 0.6, -0.84, 1.03, 0.65, -0.26, 1.3, -0.16, 0.41, 0.17, 0.17, 0.28, 0, 0.55, 0.73, 0.22, 1.77,
        1, 1,
    ),
    "tekken": (
        0.94, -0.1, 0.1, 0.38, -0.9, 0.06, 0.96, -0.35, -1.2, 1.05, 0, 0.99, 0, 0.18, 0, 0.99, 1.14, 1.01,
        0.64, -0.83, -0.62, 0.25, 0.1, 0.5, 0.6, 1.4, 0, 0.95, 1.01, 0.57, 0.02, -0.35, 1.14, -0.56, -1.78,
        0.78, 0, 0.09, 0.87, -0.35, 0.86, -0.93, 0.6, 0.24, 0, 0, 0.02, 0.35, 0.39, 0.15, 0.47, 0.28, 4.7,
        0.39, 0.6, -1.17, 0.66, 0.41, 0.14, 2.52, 0.18, 0.3, 0.1, 0.12, 0.18, 0.04, 2.53, 0.43, 0.14, 2.83,
        1, 1,
    ),
    "mistral": (
        0.95, -0.06, -0.03, -0.5, -0.9, 0.11, 1.17, 0.14, 0.46, 1.2, 0, 1, 0, -0.18, 0.12, 0.99, 0.78, 0.88,
        0.58, -0.82, -0.27, 0.44, 0.8, 0.27, 0.89, 1.33, 0.82, 1.8, 1.49, -0.12, -0.55, -1.34, -1.29, 0.98,
        3, 0.88, 0, 0, 1.28, -0.42, 1.14, -0.38, 1.05, 0.38, 0.16, 0.37, 0.64, 1.05, 0.99, 0.35, 0.91, 0.82,
        2.68, 1.3, 0.6, 0.06, 0.4, 1.04, -0.02, 1.84, 0.08, 1.43, 0.39, 0.57, 1.21, -0.12, 0.1, 0.91, 0.31,
        0.62, 1, 1,
    ),
    "claude": (
        0.95, -0.03, 0.07, -0.5, -0.9, 0.03, 1.35, 0.64, 1, 0.91, 0, 0.63, 0, -0.11, 0.7, 0.17, 0.33, 0.91,
        0.61, -1.02, -0.44, 0.42, 0.95, 0.4, 1.02, 1.14, 0.86, 0.67, 1.18, -1.16, -0.28, 0.62, 0.75, -1.14,
        0.57, 0.47, 0.37, 0.49, 0.46, 0.07, 1.03, -0.33, 1.16, 0.4, 0.24, 0.69, 1.15, 2.14, 1.24, 0.4, 0.88,
        0.93, 2.87, 0.93, 0.6, 0, 0.76, 1.22, 0.64, 1.99, 0.71, 1.71, 1.35, 1, 1.1, -0.36, 1.36, 1, 0.48,
        1.07, 1, 1,
    ),
    "llama3": (
        0.94, -0.09, 0.05, -0.5, -0.9, 0.02, 1.22, 0.54, 0.84, 1.05, 0, 0.4, 0, -0.07, 0.99, 0, 1.18, 1.01,
        0.48, -0.77, -0.52, -0.19, 1.33, 0.68, 0.42, 1.25, 0, 1.02, 1.21, -1.29, -0.18, -0.04, 0.3, -0.25,
        0.25, 0.48, 0.06, 0.41, 0.55, -0.38, 0.87, -1.05, 0.7, 0.62, 0, 0, 0, 1.89, 0.4, 0.13, 1.12, 0.39,
        2.99, 0.31, 0.6, -1.75, 0.82, 0.57, -0.08, 1.4, 0.83, 1.36, 1.59, 1.4, 1.23, 1.57, 1.27, 0.94, 0.14,
        2.52, 1, 1,
    ),
    "llama4": (
        0.94, -0.06, -0.1, 0.22, -0.9, 0.07, 0.86, -0.1, -1.13, 1.09, 0, 0.47, 0, 0.11, 0.95, 0.02, 1.05,
        1.01, 0.59, -1.04, -0.66, 0.03, 0.31, 0.64, 0.53, 1.34, 0, 0.99, 1.2, -1.34, -0.21, -0.21, 0.09,
        -0.22, -0.55, 0.2, 0.4, 0.25, 0.42, -0.59, 1.06, -2.14, 0.61, 0.3, 0, 0, 0, 1.08, 0.36, 0.11, 0.5,
        0.37, 2.26, 0.31, 0.6, -1.11, 0.6, 0.37, -0.03, 0.41, 0.23, 0.38, 0.55, 0.28, 0.2, 0.04, 0.22, 0.58,
        -0.1, 1.29, 1, 1,
    ),
}
# fmt: on
_CHINESE: Final = {"han": 0.37, "loose": 0.58, "looser": 0.0, "rare": 0.25, "traditional": 0.0}
"""Prices of a model that is not listed, from which five reports lead to o200k's as well as to cl100k's."""
PRICES: Final[Mapping[str, tuple[float, ...]]] = {
    **_PRICES,
    UNKNOWN: tuple(
        _CHINESE.get(feature, price) for feature, price in zip(Counts.__struct_fields__, _PRICES["o200k"], strict=True)
    ),
}
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
