"""Which model a request means."""

import pytest

from turnlog.core.principals import Principal
from turnlog.errors import Denied
from turnlog.server.compatible import models
from turnlog.server.compatible.errors import Unknown
from turnlog.server.compatible.models import Target
from turnlog.settings import load

ANN = Principal("ann")
TOML = """
[agents.helper]
model = "scripted:/srv/answers.jsonl"
[api.models]
"gpt-*" = "openai:gpt-5.6"
"gpt-4*" = "default"
"gpt-4.1" = "anthropic:claude-opus-5-5"
"[x]?" = "agent:helper"
"""


@pytest.fixture
def settings(tmp_path, monkeypatch):
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)

    def make(toml=TOML, **flags):
        (tmp_path / "config.toml").write_text(toml)
        return load(home=tmp_path, env={}, flags={name.replace("_", "."): value for name, value in flags.items()})

    return make


def target(settings, name, who=ANN):
    return models.target_of(settings, name, who)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("agent:main", Target(agent="main")),
        ("turnlog/helper", Target(agent="helper")),
        ("gpt-5", Target(model="openai:gpt-5.6")),
        ("gpt-4o", Target()),
        ("gpt-4.1", Target(model="anthropic:claude-opus-5-5")),
        ("[x]?", Target(agent="helper")),
        ("anything", Target(model="offline")),
        ("offline", Target(model="offline")),
        ("scripted:/srv/answers.jsonl", Target(model="scripted:/srv/answers.jsonl")),
    ],
)
def test_the_first_that_fits_is_taken(settings, name, meant):
    assert target(settings(model_name="offline"), name) == meant


def test_a_name_of_no_provider_is_one_of_the_default_provider(settings):
    assert target(settings(model_name="openai:gpt-6"), "o3") == Target(model="openai:o3")
    assert target(settings(model_name="anthropic"), "claude-x") == Target(model="anthropic:claude-x")


def test_an_api_without_its_key_does_not_exist(settings, monkeypatch):
    with pytest.raises(Unknown):
        target(settings(model_name="offline"), "openai:gpt-6")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert target(settings(model_name="offline"), "openai:gpt-6") == Target(model="openai:gpt-6")


def test_files_of_the_server_cannot_be_named(settings):
    assert target(settings(model_name="offline"), "scripted:/etc/passwd").model == "offline"
    assert target(settings(model_name="openai:x"), "local:/etc/passwd").model == "openai:local:/etc/passwd"


@pytest.mark.parametrize("name", ["agent:nobody", "agent:", "turnlog/../x"])
def test_an_agent_that_there_is_not_is_unknown(settings, name):
    with pytest.raises(Unknown) as caught:
        target(settings(), name)
    assert caught.value.code == "model_not_found"
    assert "[api.models]" in caught.value.hint


def test_a_token_with_agents_may_use_these_and_nothing_else(settings):
    who = Principal("ann", frozenset({"chat"}), frozenset({"helper"}))
    assert target(settings(), "agent:helper", who).agent == "helper"
    for name in ("agent:main", "gpt-5", "offline"):
        with pytest.raises(Unknown):
            target(settings(), name, who)
    assert [entry.id for entry in models.listed(settings(), who)] == ["agent:helper"]


@pytest.mark.parametrize(
    ("host", "relay", "may"),
    [
        ("127.0.0.1", None, True),
        ("::1", None, True),
        ("localhost", None, True),
        ("0.0.0.0", None, False),
        ("example.org", None, False),
        ("0.0.0.0", True, True),
        ("127.0.0.1", False, False),
    ],
)
def test_relaying_is_open_by_default_on_loopback_only(settings, host, relay, may):
    made = settings(server_host=host, api_relay=relay, model_name="offline")
    assert models.may_relay(made) == may
    if not may:
        with pytest.raises(Denied, match="does not relay"):
            target(made, "m")
        assert target(made, "agent:main")
        assert all(entry.id.startswith("agent:") for entry in models.listed(made, ANN))


def test_the_list_has_agents_and_aliases_with_their_sizes(settings):
    found = {entry.id: entry for entry in models.listed(settings(model_name="anthropic:claude-opus-5-5"), ANN)}
    assert set(found) == {"claude-opus-5-5", "gpt-4.1", "[x]?", "agent:main", "agent:helper"}
    assert found["gpt-4.1"].window == 1_000_000
    assert models.as_openai(found["agent:main"])["context_window"] == 1_000_000
    assert models.as_anthropic(found["agent:helper"]) == {
        "type": "model",
        "id": "agent:helper",
        "display_name": "agent:helper",
        "created_at": "2026-01-01T00:00:00Z",
    }


def test_a_model_without_a_name_is_not_found(settings):
    with pytest.raises(Unknown):
        target(settings(), "")
