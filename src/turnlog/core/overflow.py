"""What a provider's refusal means: too large, busy, content refused, or another refusal.

Status and code decide first, the text second. Before a text counts as overflow, similar texts are excluded: rate limits
that count tokens, quotas, keys called tokens, and limits on the answer's length. A wrong "too large" costs a summary
and shortens a conversation for nothing; a missed one ends a turn that could have been saved.

A refusal of content names a picture, a document, a block of a message, or a content policy. It makes Turnlog leave that
content out of later prompts, so in doubt a refusal does not count as one of content: parameters, tools, the model's
name, keys, permissions, quotas and sizes are excluded first, and an unknown text stays an ordinary refusal.
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
"""With these statuses and no text, at least one provider means: too large."""

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
CONTENT_STATUSES = frozenset({None, 400, 422})
"""None: an error inside a stream."""
CONTENT_CODES = frozenset(
    {
        *("content_filter", "content_policy_violation", "ResponsibleAIPolicyViolation", "data_inspection_failed"),
        *("DataInspectionFailed", "invalid_prompt", "invalid_image", "invalid_image_format", "invalid_image_mode"),
        *("invalid_image_url", "invalid_base64_image", "image_parse_error", "image_too_large", "image_too_small"),
        *("image_file_too_large", "image_file_not_found", "image_content_policy_violation"),
        *("unsupported_image_media_type", "empty_image_file", "failed_to_download_image"),
    }
)
CONTENT_STOP = "refusal"
"""The stop reason of an answer that a filter ended (Anthropic's word; OpenAI says content_filter)."""

_NOT_CONTENT = re.compile(
    r"^tools[.\[]|\binput_schema\b|invalid schema for (?:function|tool)|tool_choice|cache_control|response_format"
    r"|\b(?:unsupported|unknown|unrecognized|extra|missing required) (?:parameter|argument|field)|extra inputs"
    r"|temperature|\btop_[pk]\b|max_(?:completion_|output_)?tokens|stop_sequences|anthropic-(?:version|beta)"
    r"|model\b.{0,80}(?:not found|not exist|not available|deprecated|retired)|(?:unknown|invalid|no such) model"
    r"|invalid model",
    re.IGNORECASE,
)
_CONTENT = re.compile(
    r"\bmessages\.\d+\.content\.\d+|\bmessages\.\d+: |\bmessages\.?\[\d+\]"  # a place in a message
    r"|could not process (?:image|document|pdf)|unable to process (?:the )?(?:input )?image|failed to process image"
    r"|image exceeds|image dimensions? exceed|image.{0,60}media type|(?:invalid|unsupported) image"
    r"|provided image is not valid|invalid base64|image.{0,20}could not be (?:loaded|decoded)|cannot identify image"
    r"|only image types are supported|(?:timeout|error) while downloading|unable to download (?:the )?(?:file|image)"
    r"|failed to (?:download|fetch) (?:the )?(?:file|image)"
    r"|image_url is only supported|does(?: not|n't) support (?:image|vision|picture|document|pdf|audio)"
    r"|not a multimodal model|at most \d+ image|the pdf specified|pdf pages|password.protected"
    r"|thinking. block|redacted_thinking|text content blocks must|text field in the contentblock"
    r"|tool_use. ids were found|tool_result. blocks?|role 'tool' must be|'tool_calls' must be followed"
    r"|content filter|content_filter|content management policy|content policy|content moderation"
    r"|flagged as potentially violating|safety system|usage polic|usage guidelines"
    r"|content exists risk|inappropriate content|considered high risk|new_sensitive|prohibited.content"
    r"|敏感内容|不安全或敏感|违规内容|不合规内容|内容安全",
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


class ProviderRefusal(Struct, frozen=True):
    """`tokens` and `window`: the sizes that the provider named; 0 if it named none."""

    kind: Literal["overflow", "busy", "content", "refused"]
    tokens: int = 0
    window: int = 0


def classify(*, status: int | None = None, code: str = "", text: str = "", param: str = "") -> ProviderRefusal:
    """`param`: the parameter that the provider names as the reason, if any."""
    if code in OVERFLOW_CODES:
        return _overflow(text)
    if status in DENIED_STATUSES:
        return ProviderRefusal("refused")
    if code in BUSY_CODES or status in BUSY_STATUSES:
        return ProviderRefusal("busy")
    if _RATE.search(text):
        # The request exceeds what a minute ever allows: waiting cannot help, and compaction may not help either.
        return ProviderRefusal("refused") if _never_fits(text) else ProviderRefusal("busy")
    if code in CONTENT_CODES and status in CONTENT_STATUSES:
        return ProviderRefusal("content")
    if _DENIED.search(text):
        return ProviderRefusal("refused")
    if _OVERFLOW.search(text) or status == 413 or (status in SILENT_STATUSES and not text.strip()):
        return _overflow(text)
    return ProviderRefusal("content" if _is_about_content(status, text, param) else "refused")


def _is_about_content(status: int | None, text: str, param: str) -> bool:
    if status not in CONTENT_STATUSES or _NOT_CONTENT.search(text):
        return False
    if param and not _MAYBE_CONTENT_PARAM.match(param):
        return False
    return _CONTENT.search(text) is not None or _MESSAGE_PARAM.match(param) is not None


_MAYBE_CONTENT_PARAM = re.compile(r"(?:messages|input|prompt|image|content|file)", re.IGNORECASE)
_MESSAGE_PARAM = re.compile(r"(?:messages|input)\.?\[\d+\]")
"""A place in a message, as OpenAI names it: messages.[1].content.[0]."""


_REQUESTED = re.compile(r"Limit (?P<limit>[\d,]+), (?:Used [\d,]+, )?Requested (?P<asked>[\d,]+)", re.IGNORECASE)


def _never_fits(text: str) -> bool:
    found = _REQUESTED.search(text)
    return found is not None and _number(found["asked"]) > _number(found["limit"])


def _overflow(text: str) -> ProviderRefusal:
    for pattern in _SIZES:
        if found := pattern.search(text):
            sizes = found.groupdict()
            return ProviderRefusal("overflow", _number(sizes.get("tokens", "0")), _number(sizes["window"]))
    return ProviderRefusal("overflow")


def _number(text: str) -> int:
    return int(text.replace(",", "") or 0)


def is_silent(*, input_tokens: int, window: int, stop: str | None) -> bool:
    """Whether a reply came although the prompt did not fit: the provider cut the prompt, or had no room for
    the answer.
    """
    return stop == "model_context_window_exceeded" or 0 < window < input_tokens
