"""Secrets of known shapes, made unreadable: for logs, exports and the convlog, never for the prompt."""

import re

MASK = "[masked]"

_SHAPES = (
    r"tl_[0-9a-f]{12}_[A-Za-z0-9_-]{20,}",  # ours
    r"sk-[A-Za-z0-9_-]{20,}",  # OpenAI, Anthropic and those who copy them
    r"gh[pousr]_[A-Za-z0-9]{30,}",
    r"github_pat_[A-Za-z0-9_]{30,}",
    r"xox[abeoprs]-[A-Za-z0-9-]{10,}",  # Slack
    r"\b\d{8,10}:[A-Za-z0-9_-]{35}\b",  # Telegram
    r"\bA(?:KIA|SIA)[A-Z0-9]{16}\b",  # AWS
    r"AIza[A-Za-z0-9_-]{35}",  # Google
    r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",  # JSON web tokens
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
)
_SECRET = re.compile("|".join(_SHAPES), re.DOTALL)
_HINTS = ("tl_", "sk-", "gh", "github_pat_", "xox", ":", "KIA", "SIA", "AIza", "eyJ", "PRIVATE KEY")


def mask(text: str) -> str:
    """Lets everything else stand, byte for byte."""
    if not any(hint in text for hint in _HINTS):
        return text
    return _SECRET.sub(MASK, text)
