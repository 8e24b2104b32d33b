"""What real refusals mean, by provider, and the look-alikes that are not overflow."""

import pytest

from turnlog.core.overflow import Verdict, classify, is_silent

TOO_LARGE = [
    (400, "invalid_request_error", "prompt is too long: 213462 tokens > 200000 maximum", 213_462, 200_000),
    (
        400,
        "invalid_request_error",
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length or "
        "`max_tokens` and try again",
        188_240,
        200_000,
    ),
    (413, "request_too_large", "Request exceeds the maximum size", 0, 0),
    (400, "", "ValidationException: Input is too long for requested model.", 0, 0),
    (400, "", "The model returned an error: max input tokens exceeded", 0, 0),
    (400, "context_length_exceeded", "Your input exceeds the context window of this model.", 0, 0),
    (
        400,
        "context_length_exceeded",
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens.",
        9_001,
        8_192,
    ),
    (
        400,
        "INVALID_ARGUMENT",
        "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
        1_200_000,
        1_048_576,
    ),
    (400, "", "This model's maximum prompt length is 131072 but the request contains 537812 tokens.", 537_812, 131_072),
    (400, "", "Please reduce the length of the messages or completion.", 0, 0),
    (400, "", "This endpoint's maximum context length is 32,768 tokens. You requested about 40,123.", 40_123, 32_768),
    (400, "", "prompt token count of 130000 exceeds the limit of 128000", 0, 0),
    (
        400,
        "exceed_context_size_error",
        "the request (9000 tokens) exceeds the available context size (8192 tokens)",
        0,
        0,
    ),
    (400, "", "The number of tokens to keep is greater than the context length", 0, 0),
    (400, "", "invalid params, context window exceeds limit (2013)", 0, 0),
    (400, "", "Your request exceeded model token limit: 262144", 0, 0),
    (400, "", "Prompt contains 40960 tokens, too large for model with 32768 maximum context length", 0, 32_768),
    (400, "", "too many tokens: total tokens exceeds the model's context", 0, 0),
    (400, "", "ollama: truncating input because it is too long", 0, 0),
    (None, "", "Error in stream: prompt is too long", 0, 0),
    (400, "", "错误：上下文过长，请压缩上下文", 0, 0),
    (400, "", "", 0, 0),
    (413, "", "", 0, 0),
    (413, "", "Payload Too Large", 0, 0),
    (400, "", "the author's prompt is too long", 0, 0),
    (None, "model_context_window_exceeded", "", 0, 0),
]

LATER = [
    (
        429,
        "rate_limit_error",
        "This would exceed your organization's rate limit of 40,000 input tokens per minute",
    ),
    (429, "", "prompt is too long"),
    (413, "", "Request too large for model on tokens per minute (TPM): Limit 6000, Used 5000, Requested 2000"),
    (400, "", "Rate limit reached for gpt-4 on tokens per min. Too many requests"),
    (529, "overloaded_error", "Overloaded"),
    (500, "", "context canceled"),
    (503, "", ""),
    (None, "overloaded_error", "Overloaded"),
    (None, "", "ThrottlingException: too many tokens, please wait"),
]

NO = [
    (401, "authentication_error", "invalid x-api-key"),
    (401, "", "The access token expired; context: login"),
    (403, "", "Your token does not have permission"),
    (404, "", "model not found"),
    (402, "", ""),
    (400, "", "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens for this model"),
    (400, "", "max_tokens must be at least 1 and less than the context length"),
    (400, "insufficient_quota", "You exceeded your current quota, please check your plan and billing details"),
    (400, "", "Invalid token in request header: bad api key"),
    (
        413,
        "",
        "Too large on tokens per minute (TPM): Limit 6000, Requested 8111, reduce the length of the messages",
    ),
    (400, "", "messages: roles must alternate"),
    (400, "", "unexpected token in JSON at position 3"),
    (400, "", "余额不足"),
    (None, "", "connection reset"),
]


@pytest.mark.parametrize(("status", "code", "text", "tokens", "window"), TOO_LARGE)
def test_each_providers_way_to_say_too_large_is_understood(status, code, text, tokens, window):
    verdict = classify(status=status, code=code, text=text)
    assert verdict.kind == "overflow"
    if window:
        assert (verdict.tokens, verdict.window) == (tokens, window)


@pytest.mark.parametrize(("status", "code", "text"), LATER)
def test_a_limit_on_the_rate_is_not_overflow(status, code, text):
    assert classify(status=status, code=code, text=text) == Verdict("busy")


@pytest.mark.parametrize(("status", "code", "text"), NO)
def test_what_neither_waiting_nor_compacting_can_mend_is_refused(status, code, text):
    assert classify(status=status, code=code, text=text) == Verdict("refused")


def test_an_overflow_can_be_silent():
    assert is_silent(input_tokens=9_000, window=8_000, stop="end_turn")
    assert is_silent(input_tokens=0, window=0, stop="model_context_window_exceeded")
    assert not is_silent(input_tokens=7_999, window=8_000, stop="end_turn")
    assert not is_silent(input_tokens=9_000, window=0, stop="end_turn")
