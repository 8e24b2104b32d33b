"""No setting is accepted and ignored: each is changed here, and a difference is seen.

A new setting needs a case in CASES (two values, and what differs). Those of the server are tried on real servers in
tests/server; here it is only seen that the server asks for each.
"""

import asyncio
import contextlib
import os
import re
import time
from pathlib import Path

import pytest

import turnlog
from tests.spans import Spans
from turnlog import settings
from turnlog.cli import app
from turnlog.cli.session_names import row_json
from turnlog.core.entries import Received, text_of
from turnlog.testing import FixedClock, ScriptedProvider

KEY = "agent:main:cli:direct:user"
DAY_MS = 86_400_000
LONG = "some words about the harbour and its lighthouse " * 20


def flags_of(name, value, given):
    return {**given, name.replace(".", "_", 1): value}


async def talk(place, flags, *texts, provider=None, look=None):
    """What `look` sees after these messages were answered."""
    provider = provider or ScriptedProvider(summaries=[{"text": "in short: harbour"}] * 9)
    async with turnlog.open(home=place, provider=provider, **{"store_url": "memory:", **flags}) as t:
        for text in texts:
            async for _ in t.send(KEY, text):
                pass
        await t.queue.idle()
        return await look(t, provider)


async def entries(t):
    return await t.store.read((await t.session(KEY)).id)


async def total(t, _):
    return (await t.sessions.list()).total


async def kinds(t, _):
    return [str(entry.__struct_config__.tag) for entry in await entries(t)]


async def compactions(t, _):
    found = [entry for entry in await entries(t) if type(entry).__name__ == "Compaction"]
    return [(entry.covers, entry.first_kept, entry.tokens_before, entry.summary) for entry in found]


async def written(t, _):
    """The result of a call that writes, where nobody can be asked."""
    t._parts.agents._workspace = t.settings.home / "work"
    t._parts.agents._provider = ScriptedProvider([WRITE, {"text": "so."}])
    await t.ask(KEY, "write")
    return [entry.content for entry in await entries(t) if type(entry).__name__ == "ToolResult"]


async def expiry_asked(t, _):
    t._parts.agents._workspace = t.settings.home / "work"
    t._parts.agents._provider = ScriptedProvider([WRITE])
    async for event in t.send(KEY, "write"):
        if type(event).__name__ == "ApprovalRequest":
            return round((event.expires - time.time() * 1000) / 60_000)
    return None


WRITE = {"tool_calls": [{"id": "c1", "name": "write_file", "input": {"path": "a.txt", "content": "x"}}]}


async def prompts(t, provider):
    return [prompt.messages for prompt in provider.prompts]


async def summaries_asked(t, provider):
    return [(prompt.max_output, text_of(prompt.messages[0]["content"])) for prompt in provider.summary_prompts]


async def limits(t, _):
    return await t.limits(KEY)


async def made(t, _):
    row = await t.new(turnlog.core.keys.parse(KEY), "word")
    other = await t.new(turnlog.core.keys.parse(KEY))
    return (row.id == "word", row.label, row.key == KEY, other.label is None)


async def pinned(t, _):
    try:
        return (await t.sessions.pin((await t.session(KEY)).id, 3)).pins
    except turnlog.UsageError as error:
        return str(error)


async def key_shown(t, _):
    return row_json(t, await t.session(KEY))["key"]


async def answering_model(t, _):
    return [entry.model for entry in await entries(t) if type(entry).__name__ in ("Assistant", "Compaction")]


async def models_offered(place, flags):
    async with turnlog.open("memory:", home=place, model_name="scripted:/dev/null", **flags) as t:
        return t.models("main")


async def outputs(t, provider):
    return [prompt.max_output for prompt in provider.prompts]


async def patience(t, _):
    return (await t.agent("main")).compactor.timeout_s, t.queue._closing_s


async def mode_stored(place, flags):
    gate = place / "gate"
    slow = ScriptedProvider([{"text": "slow", "until": str(gate)}])
    async with turnlog.open("memory:", home=place, provider=slow, **flags) as t:
        await t.accept(KEY, "first")
        await t.accept(KEY, "while it runs")
        gate.touch()
        await t.queue.idle()
        return [entry.mode for entry in await entries(t) if isinstance(entry, Received)]


async def resets(place, flags):
    clock = FixedClock(1_800_000_000_000)
    async with turnlog.open("memory:", home=place, provider=ScriptedProvider(), clock=clock, **flags) as t:
        for _ in range(2):
            async for _ in t.send(KEY, "hi"):
                pass
            clock.advance(hours=1)
        return await total(t, None)


async def refused(place, flags):
    gate = place / "gate"
    slow = ScriptedProvider([{"text": "slow", "until": str(gate)}])
    async with turnlog.open("memory:", home=place, provider=slow, **flags) as t:
        for n in range(4):
            try:
                await t.accept(KEY, f"message {n}", mode="collect")
            except turnlog.Busy:
                return n
        gate.touch()
        await t.queue.idle()
        return None


async def synced(place, flags):
    count = 0
    with pytest.MonkeyPatch.context() as patch:

        def note(fd):
            nonlocal count
            count += 1

        patch.setattr(os, "fsync", note)
        patch.setattr(os, "fdatasync", note, raising=False)
        await talk(place, {**flags, "store_url": f"jsonl:{place}/{flags['store_durability']}"}, "hi", look=total)
    return count


def after(*texts, look, provider=None, **given):
    async def observe(place, name, value):
        made = provider() if provider else None
        return await talk(place, flags_of(name, value, given), *texts, provider=made, look=look)

    return observe


async def told_in_traces(place, flags):
    spans = Spans()
    async with turnlog.open("memory:", home=place, model_name="offline", **flags) as t:
        await t.session("ann").ask("a plum")
    return "plum" in str([span.to_json() for span in spans()])


def of(function):
    async def observe(place, name, value):
        return await function(place, flags_of(name, value, {}))

    return observe


async def store_made(place, name, value):
    url = value.replace("HERE", str(place))
    await talk(place, {"store_url": url, "store_durability": "os"}, "hi", look=total)
    return sorted(path.name for path in place.iterdir())


async def model_opened(place, name, value):
    async with turnlog.open("memory:", home=place, **flags_of(name, value, {})) as t:
        async for _ in t.send(KEY, "hi"):
            pass
        with contextlib.suppress(turnlog.UsageError):
            await t.compact(KEY)
        return await answering_model(t, None)


def expired(status):
    async def observe(place, name, value):
        folder = place / "data"
        clock = FixedClock(int(time.time() * 1000) - 40 * DAY_MS)
        async with turnlog.open(home=folder, provider=ScriptedProvider(), clock=clock) as t:
            async for _ in t.send(KEY, "long ago"):
                pass
            if status:
                await t.sessions.set_status((await t.session(KEY)).id, status)
        variable = settings._variable(name)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TURNLOG_HOME", str(folder))
            patch.setenv(variable, str(value))
            assert await asyncio.to_thread(app.run, ["sessions", "expire", "--apply"]) == 0
        async with turnlog.open(home=folder, provider=ScriptedProvider()) as t:
            return [row.status for row in (await t.sessions.list(turnlog.Query())).items]

    return observe


TOOLS = [{"tool_calls": [{"id": "c1", "name": "search_history", "input": {"words": "x"}}]}, {"text": "found"}]


def with_tools():
    return ScriptedProvider(TOOLS)


def with_long_summary():
    return ScriptedProvider(summaries=[{"text": "harbour " * 100}])


FOLDS = {"compaction_triggers": ["messages:2"], "compaction_keep": "messages:2"}

CASES = {
    "session.enabled": ((True, False), after("hi", look=total)),
    "session.history_limit": ((4, 40), after(*[LONG] * 4, look=compactions, session_preset="sessions")),
    "session.preset": (("default", "claw0"), after(look=limits)),
    "session.ttl": ((30, 365), expired(None)),
    "session.trash_days": ((30, 365), expired("trashed")),
    "session.reset": (("off", "idle:30"), of(resets)),
    "session.key_format": (("canonical", "triple", "zeroclaw"), after(look=key_shown)),
    "session.stored": (("everything", "text"), after("hi", look=kinds, provider=with_tools)),
    "session.user_row": (("before", "with_reply"), after("hi", look=kinds)),
    "session.new_makes": (("session", "id", "label", "key"), after("hi", look=made)),
    "store.url": (("sqlite:HERE/one.db", "jsonl:HERE/two"), store_made),
    "store.durability": (("full", "os"), of(synced)),
    "model.name": (("offline", "scripted:/dev/null"), model_opened),
    "model.window": ((4_000, 90_000), after(look=limits)),
    "model.max_output": ((100, 200), after("hi", look=outputs)),
    "model.choices": (((), ("offline",)), of(models_offered)),
    "model.summary_model": ((None, "offline"), after(*[LONG] * 3, look=answering_model, **FOLDS)),
    "compaction.triggers": (
        (["messages:2"], ["manual"]),
        after(*[LONG] * 3, look=compactions, compaction_keep="messages:2"),
    ),
    "compaction.keep": (
        ("messages:2", "turns:3"),
        after(*[LONG] * 4, look=compactions, compaction_triggers=["messages:5"]),
    ),
    "compaction.inject": (("user", "system", "assistant", "pair"), after(*[LONG] * 3, look=prompts, **FOLDS)),
    "compaction.when": (("before_turn", "after_turn"), after(*[LONG] * 2, look=compactions, **FOLDS)),
    "compaction.pin_budget": ((0.1, 0.00001), after(LONG, look=pinned)),
    "compaction.estimator": (
        ("chars4", "chars16", "bytes4", "calibrated"),
        after(*[LONG] * 3, look=compactions, **FOLDS),
    ),
    "compaction.summary_tokens": ((100, 900), after(*[LONG] * 3, look=summaries_asked, **FOLDS)),
    "compaction.summary_chars": (
        (50, 5_000),
        after(*[LONG] * 3, look=compactions, provider=with_long_summary, **FOLDS),
    ),
    "compaction.summary_words": ((50, 500), after(*[LONG] * 3, look=summaries_asked, **FOLDS)),
    "compaction.identifiers": (
        ("append", "require"),
        after(*[f"{LONG} AB-100{n}" for n in range(4)], look=compactions, **FOLDS),
    ),
    "compaction.history_note": ((True, False), after(*[LONG] * 3, look=prompts, **FOLDS)),
    "compaction.summary_timeout_s": ((1, 60), after("hi", look=patience)),
    "queue.mode": (("steer", "collect"), of(mode_stored)),
    "queue.cap": ((1, 20), of(refused)),
    "telemetry.contents": ((False, True), of(told_in_traces)),
    "tools.approval": (("writes", "none"), after(look=written)),
    "tools.allow": ((("list_dir",), ("write_file",)), after(look=written)),
    "tools.deny": ((("list_dir",), ("write_file",)), after(look=written, tools_approval="none")),
    "tools.approval_s": ((60.0, 3_600.0), after(look=expiry_asked)),
}


@pytest.mark.parametrize("name", [name for name in settings._all_names() if not name.startswith(("server.", "api."))])
def test_a_setting_makes_a_difference(name, tmp_path):
    assert name in CASES, f"give {name} a case here: two values, and what differs between them"
    values, observe = CASES[name]
    seen = []
    for number, value in enumerate(values):
        place = tmp_path / str(number)
        place.mkdir()
        seen.append(asyncio.run(observe(place, name, value)))
    assert all(one != other for i, one in enumerate(seen) for other in seen[:i]), f"{name}: {seen}"


async def as_agent(place, **given):
    """(what the model was sent, who may answer, who answered, what the model may call, its files)"""
    lines = "".join(f"{name} = {value!r}\n" for name, value in given.items())
    (place / "config.toml").write_text(f"[agents.main]\n{lines}")
    (place / "files").mkdir()
    async with turnlog.open("memory:", home=place) as t:
        prompt = await t.prompt(KEY)
        mode = (await t.agent("main")).approval.mode
        return prompt.system, t.models("main"), (await t.model("main")).name, [tool.name for tool in prompt.tools], mode


@pytest.mark.parametrize("field", settings.AgentSettings.__struct_fields__)
def test_a_setting_of_an_agent_makes_a_difference(field, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = {
        "system": "Be brief.",
        "model": "scripted:/dev/null",
        "models": ["scripted:/dev/null"],
        "tools": [],
        "workspace": "files",
        "approval": "none",
    }
    seen = []
    for number, given in enumerate(({}, {field: values[field]})):
        place = tmp_path / str(number)
        place.mkdir()
        seen.append(asyncio.run(as_agent(place, **given)))
    assert seen[0] != seen[1]


@pytest.mark.parametrize("field", settings.ServerSettings.__struct_fields__)
def test_the_server_asks_for_each_of_its_settings(field):
    sources = (Path(turnlog.__file__).parent / "server").rglob("*.py")
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    assert re.search(rf"\.{field}\b", text), f"server.{field} is read by nobody"
