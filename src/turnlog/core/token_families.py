"""What each feature of a text costs in the tokenisers of each family of models, and which family a model belongs to.

The prices were fitted on 300 kinds of text (prose and messages of programs in 90 languages, source code and data files,
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
"""The family of models that are not listed. It has the prices of o200k, but for Chinese, and learns faster."""

_CLASSES: Final = (
    ("words", "long", "humps"),
    ("longer", "clusters", "uncommon", "uncommon_letters", "capitals", "shouts", "mixed"),
    ("groups", "figures", "numbers"),
    ("runs", "pairs", "rulers", "joins", "links", "schemes", "signs", "sign_pairs"),
    ("ends", "closes", "indents"),
    ("han", "traditional"),
    ("loose",),
    ("rare",),
    ("kana", "hangul", "wide"),
    ("latin", "latin_rare", "latin_more", "romance", "german"),
    (
        *("greek", "cyrillic", "hebrew", "arabic", "indic", "thai", "lao", "bengali", "gujarati", "tamil", "telugu"),
        *("malayalam", "georgian", "khmer", "armenian", "cyrillic_more", "arabic_more", "arabic_rare", "others"),
    ),
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
        0.96, 0.02, -0.26, 2.25, -0.2, 0.16, -0.5, -1.2, 0.96, 0, 0.23, 0.03, 1.09, 0, 1.13, 0.86, 0.68,
        -1.11, -0.39, -0.27, -1.5, 1.06, 0, 1.12, 1.25, -1.94, 0.37, 0.58, 0.25, 0, 0.7, 0.71, 0.45, 0.4,
        1.04, 0, 0.37, 0.38, 0.28, 0.42, 0.37, 1.99, 0.24, 0.36, 0.04, 1.57, 0.03, 0.33, 0.04, 0.12, 0.05,
        0.13, 0.45, 0.98, -0.16, 1.06, 1, 1,
    ),
    "o200k": (
        0.96, 0.02, -0.26, 2.25, -0.2, 0.16, -0.5, -1.2, 0.96, 0, 0.23, 0.03, 1.09, 0, 1.13, 0.86, 0.68,
        -1.11, -0.39, -0.27, -1.5, 1.06, 0, 1.12, 1.25, -1.94, 0.48, 0.23, 0.82, -0.12, 0.7, 0.71, 0.45,
        0.4, 1.04, 0, 0.37, 0.38, 0.28, 0.42, 0.37, 1.99, 0.24, 0.36, 0.04, 1.57, 0.03, 0.33, 0.04, 0.12,
        0.05, 0.13, 0.45, 0.98, -0.16, 1.06, 1, 1,
    ),
    "cl100k": (
        0.96, 0, -0.3, 2.18, -0.14, 0.2, -0.32, -0.85, 1.01, 0, 0.14, -0.11, 1.12, 0, 1.18, 0.81, 0.51,
        -0.78, -0.33, -0.32, -1.07, 1.03, 0, 1.26, 1.79, -1.2, 0.55, 0.83, 0.44, 0.35, 0.92, 1.06, 0, 0.99,
        1.65, 0.48, 2.14, 0.91, 0.38, 1, 0.69, 2.97, 0.83, 1.07, -0.14, 1.07, 0.22, 0.75, 0.39, 0.83, 0.68,
        1.3, 1.01, 2.82, 0.33, 1.57, 1, 1,
    ),
    "qwen": (
        0.97, 0, -0.3, 2.16, -0.2, 0.21, -0.45, -0.96, 1.01, 0, 0.11, -0.16, 0.29, 0.93, 1.46, 0.76, 0.56,
        -0.89, -0.3, -0.4, -1.1, 1.2, 0, 1.15, 2.92, -3, 0.46, 0, 1.18, -1.05, 0.61, 0.93, 0.39, 0.71, 1.15,
        0, 1.23, 1.02, 0.39, 0.45, 0.47, 0.99, 0, 1.15, -0.52, 0.25, 0.08, 0.65, 0.09, 0.5, 0.36, 0.8, 1.02,
        2.8, 1.13, 1.23, 1, 1,
    ),
    "qwen3.5": (
        0.96, 0, -0.3, 2.27, -0.2, 0.19, -0.59, -1.2, 1.06, 0, 0.18, -0.07, 0.18, 0.96, 1.41, 0.84, 0.62,
        -1.01, -0.34, -0.33, -1.4, 1.05, 0.62, 1.28, 1.81, -1.1, 0.45, 0, 1.03, -1.04, 0.48, 0.47, 0.1,
        0.35, 0.86, 0, 0.8, 0.33, 0.22, 0.47, 0.27, 2.76, 0.6, 0.68, -0.13, 0.45, -0.03, 0.22, 0.09, 0.17,
        0.19, 0.36, 0.86, 1.96, 0.18, 1.94, 1, 1,
    ),
    "deepseek": (
        0.95, 0, -0.3, 1.99, -0.18, 0.21, -0.51, -1.2, 1.1, 0, 0.5, -0.05, 1.09, 0, 1.15, 0.82, 0.56, -0.8,
        -0.15, -0.29, -0.52, 1.22, 0, 1.13, 1.75, -1.46, 0.43, 0, 1.07, -0.92, 0.69, 0.75, 0, 0.7, 1.29,
        0.21, 0.65, 0.46, 0.3, 0.48, 0.38, 1.96, 0.41, 0.64, -0.26, 1.3, -0.2, 0.43, -0.06, 0.19, 0.29, 0.3,
        0.86, 2.32, 0.22, 1.67, 1, 1,
    ),
    "tekken": (
        0.95, 0, -0.3, 2.35, -0.2, 0.2, -0.71, -1.2, 1.07, 0, 0.68, 0, 0.21, 0.95, 1.25, 0.8, 0.7, -0.91,
        -0.27, -0.29, -0.75, 1.28, 0, 1.04, 0.94, 0.56, 0.79, 0, 1.08, -0.44, 0.61, 0.71, 0.27, 0.22, 0.87,
        0, 0.43, 0.45, 0.35, 0.53, 0.37, 4.58, 0, 0.5, 0.07, 2.48, 0.05, 0.34, -0.01, 0.1, 0.08, 0.23, 2.71,
        1.52, 0.27, 2.67, 1, 1,
    ),
    "mistral": (
        0.96, 0, -0.3, 1.78, -0.08, 0.29, -0.79, -1.2, 1.06, 0, 0.78, -0.21, 0.5, 0.85, 0.85, 0.75, 0.54,
        -0.47, -0.01, 0.16, -1.47, 1.22, 0.54, 1.82, 1.89, -1.42, 0.8, 0.33, 0.68, 0.07, 1.06, 1.32, 0.3,
        0.74, 1.47, 1.08, 1.18, 1.13, 0.43, 1.1, 1.03, 2.6, 0.47, 1.19, -0.12, 1.78, 0.04, 1.48, 0.03, 0.55,
        1.2, -0.35, -0.14, 1.31, 0.49, 0.23, 1, 1,
    ),
    "claude": (
        0.95, 0, -0.3, 1.54, 0.04, 0.23, 0.03, 0.51, 0.96, 0, 0.36, -0.2, 1.09, 0.05, 0.17, 0.73, 0.47,
        -0.54, -0.07, 0.19, -1.31, 1.06, 0.99, 0.66, 0.96, -1.26, 0.44, 0.74, 0.52, 0.2, 0.97, 1.29, 0.19,
        0.95, 2.25, 1.61, 2.19, 1.31, 0.51, 0.92, 1, 3.09, 0.64, 1.28, 0.61, 1.89, 0.73, 1.62, 0.77, 0.97,
        1.1, -0.55, 1.12, 2.07, 0.52, 0.91, 1, 1,
    ),
    "llama3": (
        0.96, 0, -0.3, 2.2, -0.2, 0.21, 0.03, -0.53, 1.01, 0, 0.14, -0.08, 1.12, 0, 1.18, 0.8, 0.55, -0.83,
        -0.34, -0.33, -1.28, 1.03, 0, 1.25, 1.75, -0.96, 0.44, 0.41, 0.73, -0.48, 0.61, 0.83, 0.26, 0.68,
        1.06, 0, 1.95, 0.44, 0.37, 1.2, 0.47, 2.89, 0, 0.63, -0.13, 1.35, 0.81, 1.34, 0.93, 1.38, 1.21,
        1.77, 1.48, 2.64, 0.39, 2.32, 1, 1,
    ),
    "llama4": (
        0.96, 0.03, -0.3, 2.12, -0.2, 0.16, -0.31, -1.2, 1, 0, 0.23, -0.01, 1.11, 0, 1.06, 0.82, 0.67,
        -1.15, -0.4, -0.25, -1.34, 1.09, 0, 1.12, 1.27, -0.95, 0.25, 0.41, 0.93, -1.04, 0.5, 0.61, 0.06,
        0.33, 0.78, 0, 1.1, 0.36, 0.24, 0.5, 0.39, 2.19, 0.25, 0.39, -0.05, 0.39, 0.08, 0.45, 0.35, 0.28,
        0.18, 0.21, 0.41, 1.66, -0.05, 1.28, 1, 1,
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
