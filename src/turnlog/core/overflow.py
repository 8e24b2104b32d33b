"""What a provider's refusal means: too large, come back later, or no.

Status and code first, text second; and before any text is taken for overflow, the look-alikes are excluded: rate
limits that count tokens, quotas, keys called tokens, and limits on the answer's length. A wrong "too large" costs a
summary and shortens a talk for nothing; a wrong "no" ends a turn that could have been saved.
"""

import re
from typing import Literal

from msgspec import Struct

OVERFLOW_CODES = frozenset(
    {"context_length_exceeded", "request_too_large", "model_context_window_exceeded", "context_window_exceeded"}
)
BUSY_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
BUSY_CODES = frozenset({"rate_limit_error", "rate_limit_exceeded", "overloaded_error", "api_error", "server_error"})
DENIED_STATUSES = frozenset({401, 402, 403, 404})
SILENT_STATUSES = frozenset({400, 413})
"""With these and no word at all, at least one provider means: too large."""

_RATE = re.compile(
    r"rate.?limit|too many requests|tokens per (?:minute|day|hour)|\bTPM\b|\bRPM\b|\bTPD\b|requests per|throttl"
    r"|overloaded|try again (?:in|later)|请求过于频繁|限流",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"quota|billing|insufficient|credit|payment|api.?key|\bauth(?:entication|orization|orized)?\b|unauthor|permission"
    r"|access token|token (?:has )?expired"
    r"|max_(?:completion_|output_)?tokens.{0,60}(?:output|maximum allowed|must be|less than|greater than|at least)"
    r"|maximum allowed number of output tokens|window (?:is )?too small|reasoning is mandatory|余额不足",
    re.IGNORECASE,
)
_OVERFLOW = re.compile(
    r"prompt is too long"  # Anthropic
    r"|input is too long|max input token"  # Bedrock
    r"|exceeds? (?:the )?(?:model'?s )?(?:maximum )?context (?:window|length|size|limit)"  # OpenAI, Azure, Anthropic
    r"|context.?length.?exceeded|model_context_window_exceeded"
    r"|input token count.{0,40}exceeds the maximum|maximum number of (?:input )?tokens"  # Google
    r"|maximum prompt length is"  # xAI
    r"|reduce the length of (?:the |your )?(?:messages|prompt|input)"  # Groq, OpenAI
    r"|maximum context length is"  # OpenRouter, vLLM
    r"|exceeds the limit of [\d,]+"  # GitHub Copilot
    r"|exceeds the available context size"  # llama.cpp
    r"|greater than the context length"  # LM Studio
    r"|context window exceeds limit"  # MiniMax
    r"|exceeded model token limit"  # Kimi
    r"|too large for model with [\d,]+ maximum context"  # Mistral
    r"|total tokens exceeds?|context.{0,20}exceed|truncating input.{0,40}too long"  # Cohere, DeepSeek, Ollama
    r"|上下文过长|上下文超出|上下文长度超|超出最大上下文|请压缩上下文",
    re.IGNORECASE,
)
_SIZES = (
    re.compile(r"(?P<tokens>[\d,]+) tokens? > (?P<window>[\d,]+)"),
    re.compile(r"(?P<tokens>[\d,]+) \+ [\d,]+ > (?P<window>[\d,]+)"),
    re.compile(r"count.{0,20}?(?P<tokens>[\d,]+).{0,60}?maximum.{0,40}?(?P<window>[\d,]+)", re.IGNORECASE),
    re.compile(r"length is (?P<window>[\d,]+).{0,80}?(?P<tokens>[\d,]{2,})", re.IGNORECASE),
    re.compile(r"\((?P<tokens>[\d,]+)(?: tokens)?\).{0,60}?context size \((?P<window>[\d,]+)", re.IGNORECASE),
    re.compile(r"too large for model with (?P<window>[\d,]+)", re.IGNORECASE),
)


class Verdict(Struct, frozen=True):
    """`tokens` and `window`: what the provider said of the sizes; 0 where it said nothing."""

    kind: Literal["overflow", "busy", "refused"]
    tokens: int = 0
    window: int = 0


def classify(*, status: int | None = None, code: str = "", text: str = "") -> Verdict:
    if code in OVERFLOW_CODES:
        return _overflow(text)
    if status in DENIED_STATUSES:
        return Verdict("refused")
    if code in BUSY_CODES or status in BUSY_STATUSES:
        return Verdict("busy")
    if _RATE.search(text):
        # Asked for more at once than a minute ever allows: waiting cannot help, and nor can compaction be relied on.
        return Verdict("refused") if _never_fits(text) else Verdict("busy")
    if _DENIED.search(text):
        return Verdict("refused")
    if _OVERFLOW.search(text) or status == 413 or (status in SILENT_STATUSES and not text.strip()):
        return _overflow(text)
    return Verdict("refused")


_REQUESTED = re.compile(r"Limit (?P<limit>[\d,]+), (?:Used [\d,]+, )?Requested (?P<asked>[\d,]+)", re.IGNORECASE)


def _never_fits(text: str) -> bool:
    found = _REQUESTED.search(text)
    return found is not None and _number(found["asked"]) > _number(found["limit"])


def _overflow(text: str) -> Verdict:
    for pattern in _SIZES:
        if found := pattern.search(text):
            sizes = found.groupdict()
            return Verdict("overflow", _number(sizes.get("tokens", "0")), _number(sizes["window"]))
    return Verdict("overflow")


def _number(text: str) -> int:
    return int(text.replace(",", "") or 0)


def is_silent(*, input_tokens: int, window: int, stop: str | None) -> bool:
    """A reply that came although the prompt did not fit: cut by the provider, or stopped for want of room."""
    return stop == "model_context_window_exceeded" or 0 < window < input_tokens
