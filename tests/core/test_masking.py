"""Secrets of known shapes are masked; what only looks like one is left alone."""

import pytest

from turnlog.core.masking import MASK, mask, mask_all


def made(prefix, alphabet, count):
    """Put together here, so that no file of the project holds a text in the shape of a key."""
    return prefix + (alphabet * count)[:count]


WORD = "aB3dE5fG7hJ9kL1mN"
HEX = "0a1b2c3d4e5f6789"

SECRETS = {
    "Anthropic": made("sk-ant-api03-", WORD, 90),
    "OpenAI project": made("sk-proj-", WORD, 60),
    "OpenAI": made("sk-", WORD, 48),
    "OpenRouter": made("sk-or-v1-", HEX, 64),
    "Google": made("AIza", WORD, 35),
    "Google token": made("ya29.", WORD, 40),
    "AWS id": made("AKIA", "ABCDEFGH234567", 16),
    "AWS session id": made("ASIA", "ABCDEFGH234567", 16),
    "GitHub": made("ghp_", WORD, 36),
    "GitHub app": made("ghs_", WORD, 36),
    "GitHub fine-grained": made("github_pat_", WORD, 82),
    "GitLab": made("glpat-", WORD, 20),
    "Slack bot": made("xoxb-", "1234567890-", 40),
    "Slack app": made("xapp-1-", "A0B1C2D3", 30),
    "Telegram": made("123456789:AA", WORD, 33),
    "Discord": made("M", WORD, 24)[:25] + "." + made("", WORD, 6) + "." + made("", WORD, 38),
    "Hugging Face": made("hf_", WORD, 34),
    "Groq": made("gsk_", WORD, 52),
    "Stripe": made("sk_live_", WORD, 24),
    "npm": made("npm_", WORD, 36),
    "registry": made("py" + "pi-AgE", WORD, 60),
    "SendGrid": made("SG.", WORD, 22) + "." + made("", WORD, 43),
    "JSON web token": made("eyJ", WORD, 20) + "." + made("eyJ", WORD, 30) + "." + made("", WORD, 40),
}


@pytest.mark.parametrize("kind", SECRETS)
@pytest.mark.parametrize(
    "around", ["{}", "key={}", 'export K="{}"', "({})", "用{}。", "https://x.example/?k={}", "{}\n{}"]
)
def test_a_secret_of_a_known_shape_is_masked_wherever_it_stands(kind, around):
    secret = SECRETS[kind]
    text = mask(around.replace("{}", secret))
    assert secret not in text
    assert secret[-12:] not in text
    assert MASK in text
    assert secret[:4] in text, "one can tell which key it was"


@pytest.mark.parametrize(
    ("text", "kept", "gone"),
    [
        ("Authorization: Bearer abcDEF1234567890abcDEF==", "Authorization: Bearer ", "abcDEF1234567890abcDEF"),
        ("aws_secret_access_key = " + made("", WORD + "/+", 40), "aws_secret_access_key = ", made("", WORD + "/+", 40)),
        ('"AWS_SECRET_ACCESS_KEY": "' + made("", WORD, 40) + '"', "AWS_SECRET_ACCESS_KEY", made("", WORD, 40)),
        ("postgresql://ann:correct-horse@db.example/x", "postgresql://ann:", "correct-horse"),
        (
            "https://hooks.slack." + "com/services/T000/B000/" + made("", WORD, 24),
            "https://hooks.slack." + "com/services/",
            made("", WORD, 24),
        ),
    ],
)
def test_what_names_a_secret_stays(text, kept, gone):
    masked = mask(text)
    assert kept in masked
    assert gone not in masked


@pytest.mark.parametrize("kind", ["RSA PRIVATE KEY", "PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"])
def test_private_keys_are_masked_whole_also_when_they_are_cut_off(kind):
    body = "\n".join([made("MII", WORD, 60)] * 4)
    whole = f"before\n-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\nafter"
    assert mask(whole) == f"before\n-----BEGIN {kind}----- {MASK}\nafter"
    assert body[:20] not in mask(whole[:120])


@pytest.mark.parametrize(
    "text",
    [
        "task-force-of-the-harbour-authority-2026",
        "disk-usage-" + "a" * 40,
        "sk-short",
        "The AKIA prefix is how AWS ids begin.",
        "AKIA" + "lowercaseletters",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "sha256:" + HEX * 4,
        "uuid 8d4e6a10-2f3b-4c5d-9e8f-0a1b2c3d4e5f",
        "toolu_01" + WORD,
        "call_" + WORD * 2,
        "ses-1767261600000-k3v9qa",
        "bearer of good news",
        "12:30:45 and 10:AA",
        "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
        "-----BEGIN CERTIFICATE-----",
        "see https://example.org:8443/a@b and mail ann@example.org",
        "eyJ.eyJ.x",
        "ghp_tooshort",
        "hf_hub_download and npm_config_cache",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ",
        "価格は 1234567890 円",
    ],
)
def test_look_alikes_are_left_alone(text):
    assert mask(text) == text


def test_masking_reaches_every_text_of_plain_json_and_nothing_else():
    secret = SECRETS["GitHub"]
    value = {"a": [secret, 1, None, True, 1.5], secret: {"b": f"x {secret}"}}
    masked = mask_all(value)
    assert secret not in str(masked)
    assert masked["a"][1:] == [1, None, True, 1.5]
    assert mask_all(masked) == masked, "masking twice changes nothing"


def test_masking_a_long_text_takes_time_in_proportion():
    import time

    def spent(text):
        started = time.thread_time()
        mask(text)
        return time.thread_time() - started

    for piece in ("-----BEGIN PRIVATE KEY-----", "sk-", "a:", "eyJ" + "a" * 30 + ".", "x://y:", "Bearer "):
        spent(piece * 100)
        assert spent(piece * 20_000) < 5, piece


SHORTEST = {
    "private key": "-----BEGIN PRIVATE KEY-----",
    "Turnlog": made("tl_" + HEX[:12] + "_", WORD, 20),
    "Anthropic": made("sk-ant-", WORD, 20),
    "OpenRouter": made("sk-or-v1-", HEX, 40),
    "OpenAI": made("sk-", WORD, 32),
    "OpenAI admin": made("sk-admin-", WORD, 20),
    "Google": made("AIza", WORD, 35),
    "Google token": made("ya29.", WORD, 20),
    "AWS id": made("AKIA", "ABCDEFGH234567", 16),
    "AWS secret": "Aws_SecretAccess_Key:" + made("", "ab/+", 40),
    "GitHub": made("gho_", WORD, 36),
    "GitLab": made("glpat-", WORD, 20),
    "Slack bot": made("xoxb-", WORD, 10),
    "Slack app": made("xapp-1-", WORD, 10),
    "Slack hook": "https://hooks.slack." + "com/services/" + made("", "ab/", 20),
    "Telegram": made("12345678:AA", WORD, 33),
    "Discord": made("M", WORD, 23) + "." + made("", WORD, 6) + "." + made("", WORD, 27),
    "Hugging Face": made("hf_", WORD, 30),
    "Groq": made("gsk_", WORD, 40),
    "Stripe": made("rk_test_", WORD, 16),
    "npm": made("npm_", WORD, 36),
    "registry": made("py" + "pi-AgE", WORD, 50),
    "SendGrid": made("SG.", WORD, 22) + "." + made("", WORD, 43),
    "JSON web token": made("eyJ", WORD, 10) + "." + made("eyJ", WORD, 10) + "." + made("", WORD, 10),
    "bearer": "BEARER\t" + made("", "a.b~c+d/", 20),
    "password in a URL": "ab://c:def@",
}


@pytest.mark.parametrize("kind", SHORTEST)
@pytest.mark.parametrize("around", ["{}", "a word {} and", "用 {}。"])
def test_the_shortest_secret_of_each_shape_is_found(kind, around):
    assert MASK in mask(around.format(SHORTEST[kind]))
