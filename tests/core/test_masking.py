"""Secrets of known shapes are masked; everything else stands byte for byte."""

import pytest

from turnlog.core.masking import MASK, mask


@pytest.mark.parametrize(
    "secret",
    [
        "tl_0123456789ab_" + "Aa1_-" * 8,
        "sk-" + "a1B2" * 8,
        "sk-ant-api03-" + "x" * 30,
        "ghp_" + "a" * 36,
        "github_pat_" + "b" * 40,
        "xoxb-123456789012-abcdefghij",
        "123456789:" + "A" * 35,
        "AKIA" + "Z" * 16,
        "AIza" + "c" * 35,
        "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.SflKxwRJSMeKKF2QT4",
        "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\ncut",
    ],
)
def test_a_known_shape_is_masked_wherever_it_stands(secret):
    assert mask(secret) == MASK
    assert mask(f"before {secret} ").startswith(f"before {MASK}")


@pytest.mark.parametrize(
    "text", ["", "plain", "sk-short", "12:30", "git-hub", "AKIA", "https://example.org/a:b", "密码"]
)
def test_what_only_looks_a_little_like_one_stands(text):
    assert mask(text) == text
