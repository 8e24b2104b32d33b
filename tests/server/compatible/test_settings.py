"""What each setting of [api] changes."""

import json

import pytest

from tests.providers.wire import Said
from turnlog.server.compatible import chat_completions, messages
from turnlog.server.compatible.reading import RequestFields
from turnlog.settings import ApiSettings

from .serving import HI, serving


def read(api, headers=None, **fields):
    body = json.dumps({"model": "m", "messages": HI, **fields}).encode()
    return chat_completions.read(body, headers or {}, api)


@pytest.mark.parametrize(
    ("api", "fields", "headers", "stored"),
    [
        (ApiSettings(), {"store": False}, {}, True),
        (ApiSettings(store_false="nothing"), {"store": False}, {}, False),
        (ApiSettings(store_false="nothing"), {}, {}, True),
        (ApiSettings(), {}, {"turnlog-store": "none"}, False),
        (ApiSettings(), {"store": True}, {"turnlog-store": "None "}, False),
    ],
)
def test_what_store_false_means_is_a_setting_and_the_header_always_counts(api, fields, headers, stored):
    assert read(api, headers, **fields).is_stored == stored


def test_fields_that_name_a_person_are_no_names_unless_the_settings_say_so():
    fields = {"user": "u", "safety_identifier": "s", "prompt_cache_key": "k"}
    assert read(ApiSettings(), **fields).name is None
    assert read(ApiSettings(session_from=("safety_identifier", "user")), **fields).name == "s"


@pytest.mark.parametrize(
    ("headers", "metadata", "name"),
    [
        ({"x-session-id": "a", "session-id": "b"}, {"session_id": "c"}, "a"),
        ({"session_id": "b"}, {"session_id": "c"}, "b"),
        ({"x-claude-code-session-id": "d"}, {}, "d"),
        ({}, {"session_id": "c"}, "c"),
        ({}, {"user_id": '{"device_id": "x", "session_id": "e"}'}, "e"),
        ({}, {"user_id": "user_123"}, None),
        ({}, {"user_id": "{broken"}, None),
        ({}, {}, None),
    ],
)
def test_the_first_name_counts_on_both_wires(headers, metadata, name):
    assert read(ApiSettings(), headers, metadata=metadata).name == name
    body = json.dumps({"model": "m", "max_tokens": 9, "messages": HI, "metadata": metadata}).encode()
    fields = RequestFields(body)
    assert messages.read(fields, fields.messages(), headers, ApiSettings()).name == name


def test_answers_can_be_plain_and_the_routes_switched_off(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(
        '[api]\nannounce = false\nreasoning = "none"\n[api.models]\n"gpt-*" = "openai:other"\n"mine" = "agent:main"\n'
    )
    with serving(tmp_path / "home") as relay:
        relay.say(Said(thinking="hm", text="Hello"))
        answer = relay.chat(model="gpt-5").json()
        assert "turnlog" not in answer
        assert "reasoning_content" not in answer["choices"][0]["message"]
        assert answer["model"] == "gpt-5"
        assert relay.sent()["model"] == "other"
        listed = [model.id for model in relay.openai().models.list()]
        assert listed == ["gpt", "mine", "agent:main"]
        assert relay.openai().models.retrieve("agent:main").owned_by == "turnlog"
        assert [model.id for model in relay.anthropic().models.list()] == listed
    with serving(tmp_path / "off", env={"TURNLOG_API_ENABLED": "false"}) as relay:
        assert relay.chat().status_code == 404
        assert "OPENAI_BASE_URL" not in relay.server.said
