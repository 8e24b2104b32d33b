"""Masks secrets of known shapes in exports, logs and convlogs; never in the prompt or in a transcript.

Only shapes that a provider documents are masked, each by its own prefix, alphabet and length. Guessing by randomness
would hit digests, ids and base64 pictures, and readers would stop trusting a text with masks everywhere. A masked
secret keeps its first characters, so that a person can tell which key it was.
"""

import re
from typing import Any, cast

SHOWN_CHARS = 4
"""Enough characters to recognise a kind of key, too few to guess one."""

MASK = "[masked]"

_KINDS: tuple[tuple[str, str], ...] = (
    ("private key", r"-----BEGIN (?P<k>[A-Z ]*PRIVATE KEY(?: BLOCK)?)-----.*?(?:-----END (?P=k)-----|\Z)"),
    ("Turnlog", r"tl_[0-9a-f]{12}_[A-Za-z0-9_-]{20,}"),
    ("Anthropic", r"sk-ant-[A-Za-z0-9_-]{20,}"),
    ("OpenRouter", r"sk-or-v1-[0-9a-f]{40,}"),
    ("OpenAI", r"sk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{20,}|sk-[A-Za-z0-9]{32,}"),
    ("Google", r"AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,}"),
    ("AWS id", r"(?:AKIA|ASIA)[A-Z2-7]{16}"),
    ("AWS secret", r"(?P<aws>(?i:aws_?secret_?access_?key)[\"']?\s*[:=]\s*[\"']?)[A-Za-z0-9/+]{40}"),
    ("GitHub", r"gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{60,}"),
    ("GitLab", r"glpat-[A-Za-z0-9_-]{20,}"),
    ("Slack", r"xox[abeoprs]-[A-Za-z0-9-]{10,}|xapp-[0-9]-[A-Za-z0-9-]{10,}"),
    ("Slack hook", r"(?P<hook>https://hooks\.slack\.com/services/)[A-Za-z0-9/_-]{20,}"),
    ("Telegram", r"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}"),
    ("Discord", r"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}"),
    ("Hugging Face", r"hf_[A-Za-z0-9]{30,}"),
    ("Groq", r"gsk_[A-Za-z0-9]{40,}"),
    ("Stripe", r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    ("npm", r"npm_[A-Za-z0-9]{36}"),
    ("registry token", r"pypi-AgE[A-Za-z0-9_-]{50,}"),
    ("SendGrid", r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
    ("JSON web token", r"eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),
    ("bearer", r"(?P<bearer>(?i:bearer)\s+)[A-Za-z0-9._~+/-]{20,}=*"),
    ("password in a URL", r"(?P<url>[a-z][a-z0-9+.-]{1,20}://[^\s:/@]{1,64}:)[^\s:/@]{3,}(?=@)"),
)
_BEFORE = r"(?<![A-Za-z0-9_-])"
"""A key begins a word: `task-…` holds no `sk-…`."""

_ANY = re.compile(f"{_BEFORE}(?:{'|'.join(f'(?:{shape})' for _, shape in _KINDS)})", re.DOTALL)
"""The lookbehind is tested once and not for each shape: fifteen times as fast on prose."""
_KEPT = ("aws", "hook", "bearer", "url")
"""Groups that name what follows; they are not masked."""
_RUN_CHARS = 17
_RUN = re.compile(f"[A-Za-z0-9_-]{{{_RUN_CHARS}}}")
_MARKS = ("://", "-----BEGIN ", "eyJ", "xox")
_NAMES = ("bearer", "secret")
"""Each shape has a run of _RUN_CHARS such characters, one of these marks, or one of these names in any case. Most
texts have none of them, and looking for these is several times as fast as looking for all shapes.
"""


def mask(text: str) -> str:
    return _ANY.sub(_masked, text) if _may_hold_secret(text) else text


def _may_hold_secret(text: str) -> bool:
    folded = text.casefold()
    if any(mark in text for mark in _MARKS) or any(name in folded for name in _NAMES):
        return True
    longest = max(map(len, text.split()), default=0)
    return longest >= _RUN_CHARS and _RUN.search(text) is not None


def _masked(found: re.Match[str]) -> str:
    for group in _KEPT:
        if found[group] is not None:
            return f"{found[group]}{MASK}"
    if found["k"] is not None:
        return f"-----BEGIN {found['k']}----- {MASK}"
    return f"{found[0][:SHOWN_CHARS]}…{MASK}"


def mask_all(value: Any) -> Any:
    """Masks every text in plain JSON, including names of fields."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, list):
        return [mask_all(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {mask(name): mask_all(item) for name, item in fields.items()}
    return value
