"""A name becomes a provider; without a name the environment speaks; what is meant by a mistake is guessed in words."""

import asyncio
import subprocess
import sys

import pytest

from turnlog import UsageError
from turnlog.providers.opening import DEFAULT_NAMES, choose, open_provider


@pytest.mark.parametrize(
    ("env", "kind"),
    [
        ({}, "offline"),
        ({"ANTHROPIC_API_KEY": "k"}, "anthropic"),
        ({"OPENAI_API_KEY": "k"}, "openai"),
        ({"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}, "openai"),
        ({"ANTHROPIC_API_KEY": "k", "OPENAI_API_KEY": "k"}, "anthropic"),
        ({"ANTHROPIC_API_KEY": "", "OPENAI_API_KEY": ""}, "offline"),
    ],
)
def test_the_environment_speaks_where_no_name_is_given(env, kind):
    assert choose(env) == kind
    provider = open_provider(None, env=env)
    assert provider.model.partition(":")[0] == kind
    asyncio.run(provider.close())


@pytest.mark.parametrize(
    ("name", "env", "model"),
    [
        ("anthropic", {"ANTHROPIC_API_KEY": "k"}, f"anthropic:{DEFAULT_NAMES['anthropic']}"),
        ("anthropic:", {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_MODEL": "m"}, "anthropic:m"),
        ("anthropic:x", {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_MODEL": "m"}, "anthropic:x"),
        ("openai", {"OPENAI_API_KEY": "k"}, f"openai:{DEFAULT_NAMES['openai']}"),
        ("openai", {"OPENAI_BASE_URL": "http://127.0.0.1:1", "OPENAI_MODEL": "qwen3:8b"}, "openai:qwen3:8b"),
        ("openai:qwen3:8b", {"OPENAI_BASE_URL": "http://127.0.0.1:1"}, "openai:qwen3:8b"),
        ("offline", {"ANTHROPIC_API_KEY": "k"}, "offline"),
    ],
)
def test_a_name_says_provider_and_model(name, env, model):
    provider = open_provider(name, env=env, window=12_345)
    assert provider.model == model
    assert provider.window == 12_345
    asyncio.run(provider.close())


def test_files_are_named_after_the_colon(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.jsonl").write_text('{"text": "hi"}\n')
    assert open_provider(f"scripted:{tmp_path}/a.jsonl").model == "scripted:a.jsonl"
    assert open_provider("scripted:~/a.jsonl").window is None
    pytest.importorskip("xllamacpp")
    with pytest.raises(UsageError, match=r"m\.gguf"):
        open_provider("local:~/m.gguf")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("antropic:claude", "anthropic[:NAME]"),
        ("opena1", "openai[:NAME]"),
        ("ofline", "offline"),
        ("offline:x", "offline"),
        ("scripted", "scripted:FILE"),
        ("scripted:", "scripted:FILE"),
        ("claude-sonnet-5", "anthropic:claude-sonnet-5"),
        ("gpt-5.5", "openai:gpt-5.5"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_and_all_forms(name, meant):
    with pytest.raises(UsageError) as caught:
        open_provider(name, env={})
    assert f"did you mean {meant}?" in str(caught.value)
    for form in ("anthropic[:NAME]", "openai[:NAME]", "local[:PATH.gguf]", "offline", "scripted:FILE"):
        assert form in caught.value.hint


def test_only_what_is_meant_is_imported():
    code = "import sys; from turnlog.providers import opening; opening.open_provider('offline'); print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(run.stdout.split()) & {"anthropic", "openai", "httpx", "xllamacpp", "turnlog.providers.scripted"}


@pytest.mark.parametrize("name", [":", "foo:bar", "x"])
def test_a_name_near_to_no_provider_gets_no_suggestion(name):
    with pytest.raises(UsageError) as caught:
        open_provider(name, env={})
    assert str(caught.value) == f"{name!r} is not a known model"
    assert "offline" in caught.value.hint
