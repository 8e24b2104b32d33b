"""Settings: later wins, every value has an origin, and nothing misspelt is silently without effect."""

import asyncio

import pytest

import turnlog
from turnlog import UsageError, settings
from turnlog.core.compaction import Keep, Trigger


def load(tmp_path, toml="", env=None, **flags):
    (tmp_path / "config.toml").write_text(toml, encoding="utf-8")
    return settings.load(home=tmp_path, env=env or {}, flags=flags)


def test_later_wins_and_each_value_says_where_it_came_from(tmp_path):
    toml = '[session]\npreset = "zeroclaw"\n[server]\nport = 1\n[queue]\ncap = 5\n[agents.ops]\nsystem = "Be brief."\n'
    loaded = load(tmp_path, toml, {"TURNLOG_SERVER_PORT": "2", "TURNLOG_QUEUE_MODE": "collect"}, server_port=3)
    assert (loaded.server.port, loaded.queue.cap, loaded.queue.mode) == (3, 5, "collect")
    assert loaded.agents["ops"].system == "Be brief."
    origins = {row["key"]: row["origin"] for row in settings.explain(loaded)}
    assert origins["server.port"] == "flag"
    assert origins["queue.cap"] == "config.toml"
    assert origins["queue.mode"] == "environment TURNLOG_QUEUE_MODE"
    assert origins["compaction.inject"] == "preset zeroclaw"
    assert origins["server.host"] == "default"
    assert load(tmp_path, toml, compaction_inject="pair").compaction.inject == "pair", "a knob over its preset"


@pytest.mark.parametrize(
    ("toml", "near"),
    [
        ("[sesion]\nenabled = true", "session"),
        ("[session]\nhistory_limt = 3", "session.history_limit"),
        ('[session]\npreset = "zeroclav"', "zeroclaw"),
        ("session = 1", "[session]"),
        ("[session]\nhistory_limit = 'x'", "settings.md"),
        ("[session]\nhistory_limit = 0", "history_limit"),
        ("[model]\nwindow = 5", "model.window"),
        ('[session]\nreset = "hourly"', "daily:04:00"),
        ('[session]\nreset = "daily:24:00"', "daily:04:00"),
        ('[session]\nreset = "idle:0"', "idle:60"),
        ('[compaction]\nkeep = "turns:0"', "turns:20"),
        ('[compaction]\ntriggers = ["tokens"]', "tokens:80000"),
        ("[agents.Ops]\nsystem = ''", "a-z"),
        ("[agents.ops]\nsistem = ''", "agents.ops.system"),
        ("[agents.ops]\nsystem = 5", "agents.ops.system; see docs/reference/settings.md"),
        ("[agents]\nops = 5", "[agents.ops]"),
        ("[channels]\ntelegram = 5", "[channels.telegram]"),
        ('[queue]\nmode = "all"', "steer, followup, collect, interrupt"),
        ("not toml at all", "line"),
    ],
)
def test_a_wrong_setting_is_an_error_that_says_what_is_right(tmp_path, toml, near):
    with pytest.raises(UsageError) as caught:
        load(tmp_path, toml)
    assert near in caught.value.hint


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("TURNLOG_SEVER_PORT", "TURNLOG_SERVER_PORT"),
        ("TURNLOG_SERVER_PRT", "TURNLOG_SERVER_PORT"),
        ("TURNLOG_PORT", "TURNLOG_SERVER_PORT"),
        ("TURNLOG_HOEM", "TURNLOG_HOME"),
        ("TURNLOG_REQUESTLOG", "TURNLOG_REQUEST_LOG"),
        ("TURNLOG_STORE", "TURNLOG_STORE_URL"),
        ("TURNLOG_MODEL", "TURNLOG_MODEL_NAME"),
        ("TURNLOG_X", "TURNLOG_"),
    ],
)
def test_an_unknown_variable_is_an_error_that_names_the_nearest(tmp_path, name, near):
    with pytest.raises(UsageError, match=name) as caught:
        load(tmp_path, env={name: "1"})
    assert near in caught.value.hint
    assert load(tmp_path, env={"TURNLOG_REQUEST_LOG": "x", "PATH": "y"}).server.port == 8600


def test_a_wrong_value_says_where_it_came_from(tmp_path):
    with pytest.raises(UsageError, match=r"queue\.cap \(environment TURNLOG_QUEUE_CAP\) has the wrong form"):
        load(tmp_path, env={"TURNLOG_QUEUE_CAP": "many"})
    with pytest.raises(UsageError, match=r"queue\.cap \(config\.toml\) has the wrong form: Expected `int` >= 1"):
        load(tmp_path, "[queue]\ncap = 0")


def test_a_config_that_is_not_text_is_an_error(tmp_path):
    (tmp_path / "config.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError):
        settings.load(home=tmp_path, env={})


@pytest.mark.parametrize(
    ("preset", "keep", "inject", "estimator", "first", "window"),
    [
        ("default", Keep("tokens", 20_000), "user", "calibrated", Trigger("window", 16_384), 128_000),
        ("zeroclaw", Keep("from_last_user"), "assistant", "chars16", Trigger("tokens", 12_000), 128_000),
        ("sessions", Keep("messages", 24), "system", "chars16", Trigger("messages", 40), 128_000),
        ("zyhive", Keep("turns", 20), "system", "bytes4", Trigger("tokens", 80_000), 128_000),
        ("claw0", Keep("fraction", 0.5), "pair", "chars4", Trigger("overflow"), 180_000),
        ("claw0-keyed", Keep("fraction", 0.5), "pair", "chars4", Trigger("overflow"), 180_000),
        ("openclaw", Keep("tokens", 20_000), "user", "calibrated", Trigger("window", 20_000), 128_000),
    ],
)
def test_each_preset_is_the_policy_of_its_system(tmp_path, preset, keep, inject, estimator, first, window):
    limits = settings.limits_of(load(tmp_path, session_preset=preset))
    assert (limits.keep, limits.inject, limits.estimator) == (keep, inject, estimator)
    assert (limits.triggers[0], limits.window) == (first, window)


def test_history_limit_is_the_message_trigger_and_bounds_what_is_kept(tmp_path):
    limits = settings.limits_of(load(tmp_path, session_preset="sessions", session_history_limit=10))
    assert (limits.triggers[0], limits.keep) == (Trigger("messages", 10), Keep("messages", 6))
    own = settings.limits_of(load(tmp_path, compaction_triggers=["messages:7"], session_history_limit=10))
    assert own.triggers[0] == Trigger("messages", 7)


def test_a_small_window_keeps_a_small_tail(tmp_path):
    assert settings.limits_of(load(tmp_path), window=8_000).keep == Keep("tokens", 3_200)
    assert settings.limits_of(load(tmp_path, compaction_keep="tokens:9000"), window=8_000).keep == Keep("tokens", 3_200)


def test_open_uses_the_store_of_the_settings(tmp_path):
    async def go():
        async with turnlog.open(home=tmp_path) as t:
            row = await t.sessions.open("main:cli:user")
        assert (tmp_path / "memory/sessions.db").exists()
        async with turnlog.open(f"jsonl:{tmp_path}/j", home=tmp_path, store_durability="os") as t:
            assert (await t.sessions.open("main:cli:user")).id != row.id
            assert t.settings.store.durability == "os"

    asyncio.run(go())


def test_flags_are_named_as_in_a_file_or_as_arguments_and_free_sections_come_whole(tmp_path):
    loaded = load(tmp_path, **{"server.port": 1, "queue_cap": 5, "agents": {"ops": {"system": "Be brief."}}})
    assert (loaded.server.port, loaded.queue.cap, loaded.agents["ops"].system) == (1, 5, "Be brief.")
    with pytest.raises(UsageError, match="agents is"):
        load(tmp_path, agents=["ops"])


def test_the_origin_of_the_home_is_the_one_that_counted(tmp_path):
    def origin(**given):
        return settings.explain(settings.load(**given))[0]["origin"]

    assert origin(home=tmp_path, env={"TURNLOG_HOME": "/elsewhere"}) == "flag"
    assert origin(env={"TURNLOG_HOME": str(tmp_path)}) == "environment TURNLOG_HOME"
    assert origin(env={"HOME": str(tmp_path)}) == "default"


@pytest.mark.parametrize(
    ("given", "near"),
    [("store", "store_url"), ("stor_url", "store_url"), ("store.ur", "store.url"), ("session_ttll", "session_ttl")],
)
def test_an_unknown_keyword_is_answered_with_a_name_of_the_same_form(tmp_path, given, near):
    with pytest.raises(UsageError, match=f"unknown setting '{given}'") as caught:
        settings.load(home=tmp_path, flags={given: "x"})
    assert caught.value.hint == f"Did you mean {near!r}?"
