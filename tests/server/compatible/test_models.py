"""Which model a request means."""

import pytest

from turnlog.core.principals import Principal
from turnlog.errors import Denied, UsageError
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


OWN = "http://127.0.0.1:8600"


@pytest.mark.parametrize(
    ("model", "env", "is_own"),
    [
        (None, {"OPENAI_BASE_URL": f"{OWN}/v1"}, True),
        (None, {"OPENAI_BASE_URL": "http://localhost:8600/v1"}, True),
        (None, {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": OWN}, True),
        (None, {"OPENAI_BASE_URL": "http://127.0.0.1:8080/v1"}, False),
        (None, {"OPENAI_BASE_URL": "http://10.0.0.7:8600/v1"}, False),
        (None, {"OPENAI_BASE_URL": "http://[half"}, False),
        (None, {"OPENAI_API_KEY": "k", "ANTHROPIC_BASE_URL": OWN}, False),  # the lines of Claude Code: not used here
        ("offline", {"OPENAI_BASE_URL": f"{OWN}/v1"}, False),
    ],
)
def test_a_server_that_would_call_itself_does_not_start(settings, model, env, is_own):
    """The lines for clients are easily set in the shell that starts the server too."""
    flags = {"model_name": model} if model else {}
    if is_own:
        with pytest.raises(UsageError, match="is the address of this server"):
            models.check_upstreams(settings("", **flags), env)
    else:
        models.check_upstreams(settings("", **flags), env)


def test_an_alias_that_leads_back_to_the_server_is_refused_too(settings):
    given = settings('[api.models]\n"m" = "anthropic:m"\n', model_name="offline", server_host="10.0.0.7")
    with pytest.raises(UsageError, match="ANTHROPIC_BASE_URL"):
        models.check_upstreams(given, {"ANTHROPIC_BASE_URL": "http://10.0.0.7:8600"})


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
