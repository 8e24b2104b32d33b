"""What real refusals mean, by provider, and the look-alikes that are not overflow."""

import pytest

from turnlog.core.overflow import ProviderRefusal, classify, is_silent

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


CONTENT = [
    (400, "", "Could not process image", ""),
    (400, "", "Timeout while downloading https://example.org/a.png.", ""),
    (400, "", "Error while downloading https://example.org/a.png.", ""),
    (400, "", "Invalid MIME type. Only image types are supported.", ""),
    (400, "", "Unable to download the file. Please verify the URL and try again.", ""),
    (
        400,
        "",
        "messages.58.content.2.image.source.base64: image exceeds 5 MB maximum: 6500712 bytes > 5242880 bytes",
        "",
    ),
    (400, "", "messages.0.content.1.image.source.base64.data: Invalid base64 data", ""),
    (
        400,
        "",
        "messages.1.content.0.image.source.base64: The image was specified using the image/jpeg media type, but",
        "",
    ),
    (400, "", "At least one of the image dimensions exceed max allowed size: 8000 pixels", ""),
    (400, "", "messages.3.content.0: Invalid `signature` in `thinking` block", ""),
    (400, "", "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`.", ""),
    (400, "", "messages: text content blocks must be non-empty", ""),
    (400, "", "messages.2: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1", ""),
    (400, "", "The PDF specified was not valid.", ""),
    (None, "", "Output blocked by content filtering policy", ""),
    (400, "content_policy_violation", "Your request was rejected as a result of our safety system.", ""),
    (400, "content_filter", "The response was filtered due to the prompt triggering Azure OpenAI's policy.", "prompt"),
    (
        400,
        "",
        "The response was filtered due to the prompt triggering Microsoft's content management policy.",
        "prompt",
    ),
    (400, "ResponsibleAIPolicyViolation", "filtered", ""),
    (400, "invalid_image_format", "You uploaded an unsupported image.", ""),
    (400, "", "You uploaded an unsupported image. Please make sure your image is valid.", ""),
    (400, "", "Invalid image data.", "messages.[1].content.[1].image_url.url"),
    (400, "", "Expected a string.", "messages.[1].content"),
    (400, "", "Invalid type for 'messages[3].content[0].text': expected a string, but got null instead.", ""),
    (400, "", "Invalid content type. image_url is only supported by certain models.", ""),
    (400, "invalid_prompt", "Invalid prompt: your prompt was flagged as potentially violating our usage policy.", ""),
    (
        400,
        "",
        "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
        "messages.[3].role",
    ),
    (422, "", "image could not be loaded", ""),
    (400, "data_inspection_failed", "Input data may contain inappropriate content.", ""),
    (400, "", "Content Exists Risk", ""),
    (400, "content_filter", "The request was rejected because it was considered high risk", ""),
    (400, "", "系统检测到输入或生成内容可能包含不安全或敏感内容，请您避免输入易产生敏感内容的提示语", ""),
    (400, "", "This model does not support image input", ""),
    (400, "", "At most 1 image(s) may be provided in one request.", ""),
]

NOT_CONTENT = [
    (403, "", "Content violates usage guidelines", ""),
    (400, "", "tools.0.custom.input_schema: JSON schema is invalid. It must match JSON Schema draft 2020-12", ""),
    (400, "", "Invalid schema for function 'look': None is not of type 'object'", "tools[0].function.parameters"),
    (400, "", "Unsupported parameter: 'max_tokens' is not supported with this model.", "max_tokens"),
    (400, "", "temperature: range: 0..1", ""),
    (400, "", "Invalid value: 'x'", "tool_choice"),
    (400, "", "A maximum of 4 blocks with cache_control may be provided. Found 5.", ""),
    (400, "", "The model `gpt-9` does not exist or you do not have access to it.", "model"),
    (400, "", "messages.0: extra inputs are not permitted", ""),
    (400, "", "something odd happened", ""),
    (500, "", "Could not process image", ""),
]


@pytest.mark.parametrize(("status", "code", "text", "param"), CONTENT)
def test_a_refusal_of_what_was_said_is_told_from_all_others(status, code, text, param):
    assert classify(status=status, code=code, text=text, param=param) == ProviderRefusal("content")


@pytest.mark.parametrize(("status", "code", "text", "param"), NOT_CONTENT)
def test_in_doubt_a_refusal_is_not_one_of_content(status, code, text, param):
    assert classify(status=status, code=code, text=text, param=param).kind != "content"


@pytest.mark.parametrize(("status", "code", "text", "tokens", "window"), TOO_LARGE)
def test_each_providers_way_to_say_too_large_is_understood(status, code, text, tokens, window):
    verdict = classify(status=status, code=code, text=text)
    assert verdict.kind == "overflow"
    if window:
        assert (verdict.tokens, verdict.window) == (tokens, window)


@pytest.mark.parametrize(("status", "code", "text"), LATER)
def test_a_limit_on_the_rate_is_not_overflow(status, code, text):
    assert classify(status=status, code=code, text=text) == ProviderRefusal("busy")


@pytest.mark.parametrize(("status", "code", "text"), NO)
def test_what_neither_waiting_nor_compacting_can_mend_is_refused(status, code, text):
    assert classify(status=status, code=code, text=text) == ProviderRefusal("refused")


def test_an_overflow_can_be_silent():
    assert is_silent(input_tokens=9_000, window=8_000, stop="end_turn")
    assert is_silent(input_tokens=0, window=0, stop="model_context_window_exceeded")
    assert not is_silent(input_tokens=7_999, window=8_000, stop="end_turn")
    assert not is_silent(input_tokens=9_000, window=0, stop="end_turn")
