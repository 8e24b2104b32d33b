"""The estimator against three real tokenisers: before any report, and after five of the same style of conversation.

Six prompts of each style; each of them is measured after reports of the other five.
"""

import json
import urllib.request

import pytest

from tests.core.test_tokens_real import load
from tests.providers.llama import llama_server
from turnlog.core import tokens
from turnlog.core.tokens import MESSAGE_TOKENS, UNCALIBRATED

from .texts import CHINESE, STYLES, TALES

ENCODINGS = {"o200k": "o200k_base", "cl100k": "cl100k_base"}
NAMES = (*ENCODINGS, "smollm")
MESSAGES = 4


@pytest.fixture(scope="module")
def smollm():
    """The tokeniser of a GGUF file, as llama.cpp has it."""
    with llama_server(n_ctx=512) as base_url:
        address = base_url.removesuffix("/v1") + "/tokenize"

        def count(text):
            body = json.dumps({"content": text}).encode()
            request = urllib.request.Request(address, body, {"content-type": "application/json"})
            with urllib.request.urlopen(request, timeout=120) as answer:
                return len(json.load(answer)["tokens"])

        yield count


@pytest.fixture
def tokeniser(name, request):
    return load(ENCODINGS[name]) if name in ENCODINGS else request.getfixturevalue("smollm")


def conversation(text):
    size = -(-len(text) // MESSAGES)
    parts = [text[start : start + size] for start in range(0, len(text), size)]
    return [{"role": ("user", "assistant")[n % 2], "content": part} for n, part in enumerate(parts)]


def real(prompt, tokeniser):
    return sum(tokeniser(message["content"]) + MESSAGE_TOKENS for message in prompt)


def ratios(texts, tokeniser):
    """Estimate to truth, of each text after reports of the others."""
    prompts = [conversation(text) for text in texts]
    reports = [(tokens.count_prompt(prompt), real(prompt, tokeniser)) for prompt in prompts]
    found = []
    for n, (counts, truth) in enumerate(reports):
        scale = UNCALIBRATED
        for other in reports[:n] + reports[n + 1 :]:
            scale = tokens.calibrate(scale, *other)
        assert scale.reports == len(texts) - 1
        found.append(round(tokens.total(counts, scale) / truth, 3))
    return found


@pytest.mark.parametrize("style", ["english", "code", "json"])
@pytest.mark.parametrize("name", ["o200k"])
def test_without_any_report_the_estimate_is_within_twenty_percent(name, style, tokeniser):
    for text in STYLES[style]():
        prompt = conversation(text)
        assert tokens.of_messages(prompt) == pytest.approx(real(prompt, tokeniser), rel=0.20), text[:100]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", ["o200k"])
def test_without_any_report_the_estimate_is_never_far_below(name, style, tokeniser):
    for text in STYLES[style]():
        prompt = conversation(text)
        assert tokens.of_messages(prompt) >= 0.85 * real(prompt, tokeniser), text[:100]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", NAMES)
def test_after_five_reports_of_its_style_the_estimate_is_off_by_less_than_ten_percent_on_average(
    name, style, tokeniser
):
    found = ratios(STYLES[style](), tokeniser)
    print(name, style, found)
    assert sum(abs(ratio - 1) for ratio in found) / len(found) <= 0.10, found
    assert all(0.8 <= ratio <= 1.2 for ratio in found), found


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", NAMES)
def test_after_five_reports_of_its_style_each_estimate_is_within_ten_percent(name, style, tokeniser):
    found = ratios(STYLES[style](), tokeniser)
    assert all(0.9 <= ratio <= 1.1 for ratio in found), found


# It spells nearly all characters out, and five reports on one subject do not tell that it knows no words. First prices
# with which this passes put the same texts at 0.86 for cl100k. Where such a file runs, its own tokeniser counts.
SPELLS = "1.09 to 1.17 for a tokeniser that knows no Chinese words"


@pytest.mark.parametrize(
    "name", [*ENCODINGS, pytest.param("smollm", marks=pytest.mark.xfail(strict=True, reason=SPELLS))]
)
def test_after_five_reports_of_one_subject_short_texts_of_another_are_within_ten_percent(name, tokeniser):
    scale = UNCALIBRATED
    for text in CHINESE[:5]:
        prompt = conversation(text)
        scale = tokens.calibrate(scale, tokens.count_prompt(prompt), real(prompt, tokeniser))
    found = [tokens.of_messages(p, scale=scale) / real(p, tokeniser) for p in map(conversation, TALES)]
    print(name, found)
    assert all(0.9 <= ratio <= 1.1 for ratio in found), found
