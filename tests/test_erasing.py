"""Words are found in sessions, summaries, titles, forks and the convlog, listed, and erased where that is asked for."""

import asyncio
import json
from contextlib import asynccontextmanager
from functools import partial

import pytest

import turnlog
from turnlog import Denied, Principal, UsageError
from turnlog.convlog import Filter, Record, channel_of, open_convlog
from turnlog.core import keys
from turnlog.core.entries import Compaction, Facts, Title
from turnlog.testing import ScriptedProvider, answered, raises, said

from .cli.running import run
from .stores import postgres
from .stores.test_erasing import files_with

KEY = "agent:main:telegram:direct:42"
URLS = {"jsonl": "jsonl:{}/store", "sqlite": "sqlite:{}/store/sessions.db"}


@asynccontextmanager
async def opened(url, tmp_path):
    """The library, and what an edge adds: the convlog."""
    options = {"home": tmp_path / "home", "provider": ScriptedProvider(), "store_durability": "os"}
    async with turnlog.open(url, **options) as t, open_convlog(url) as convlog:
        t.erase = partial(t.erase, convlog=convlog)
        yield t


async def filled(t, url):
    """A session with words in every place, a fork of it, and another session with the same words."""
    row = await t.sessions.open(KEY)
    store = t.store
    await store.append(row.id, [said("my card is 4111 Zebra"), answered("Noted: zebra.")], lease="own")  # 3, 4
    await store.append(row.id, [said("hello"), answered("hi")], lease="own")
    fork = await t.sessions.fork(row.id)
    await store.append(row.id, [Compaction(summary="The zebra card.", first_kept=5, covers=(3, 4))], lease="own")  # 7
    await store.append(row.id, [Title(title="zebra", by="auto"), Facts(app="app", put={"k": b"\x01zebra"})])
    other = await t.sessions.new("agent:main:cli:direct:user", label="zebra label")
    await store.append(other.id, [said("a zebra"), answered("ok")], lease="own")
    async with open_convlog(url) as convlog:
        channel = channel_of(keys.parse(KEY))
        for text in ("my card is 4111 Zebra", "hello"):
            line = Record("2026-01-01T00:00:00.000Z", "user", text, channel, "telegram", "Zed")
            await convlog.write("main", channel, line)
    return row, fork, other


def places(found):
    return sorted((one.made, one.seq) for one in found)


@pytest.mark.parametrize("kind", [*URLS, "postgresql"])
def test_words_are_listed_first_and_erased_with_what_was_made_of_them(kind, tmp_path):
    async def work():
        url = URLS[kind].format(tmp_path) if kind in URLS else postgres.url_of(tmp_path)
        async with opened(url, tmp_path) as t:
            row, fork, other = await filled(t, url)
            before = await t.store.read(row.id)
            listed = await t.erase(row.id, text="ZEBRA", redact=True, derived=True)
            assert not listed.applied
            assert places(listed.entries) == [("entry", 3), ("entry", 4), ("entry", 9)]
            assert places(listed.derived) == [("convlog", 0), ("fork", 3), ("fork", 4), ("summary", 7), ("title", 8)]
            assert "zebra" not in json.dumps(turnlog_json(listed)).lower()
            assert await t.store.read(row.id) == before

            await raises(UsageError, t.erase(row.id, text="zebra", apply=True))
            await raises(UsageError, t.erase(row.id, text="zebra", derived=True, apply=True))
            assert await t.store.read(row.id) == before

            await t.erase(row.id, text="zebra", redact=True, derived=True, apply=True)
            for name in (row.id, fork.id):
                assert "zebra" not in str(await t.store.read(name)).lower()
            assert (await t.store.read(row.id))[-1].by == "owner"
            assert (await t.sessions.get(row.id)).title == "hello"
            assert places((await t.erase(row.id, text="zebra")).derived) == []
            async with open_convlog(url) as convlog:
                said_there = (await convlog.messages("main", channel_of(keys.parse(KEY)))).items
            assert [(one.content, one.sender) for one in said_there] == [("[erased]", ""), ("hello", "Zed")]

            everywhere = await t.erase(text="zebra", redact=True, apply=True)
            assert [one.session_id for one in everywhere.entries] == [other.id]
            assert [one.made for one in everywhere.kept] == ["label"]
            if kind in URLS:
                folder = tmp_path / "store"
                assert files_with(folder, "a zebra", "card is", "4111") == []

    asyncio.run(work())


def turnlog_json(report):
    from msgspec import to_builtins

    return to_builtins(report)


def test_entries_by_number_bring_their_summaries_copies_and_lines(tmp_path):
    async def work():
        url = URLS["sqlite"].format(tmp_path)
        async with opened(url, tmp_path) as t:
            row, fork, _ = await filled(t, url)
            done = await t.erase(row.id, seqs=[3], redact=True, derived=True, apply=True)
            assert places(done.entries) == [("entry", 3)]
            assert places(done.derived) == [("convlog", 0), ("fork", 3), ("summary", 7), ("title", 8)]
            assert [one.erased for one in await t.store.read(fork.id)][2:4] == [True, False]
            async with open_convlog(url) as convlog:
                assert (await convlog.list(Filter(q="4111"))).total == 0

    asyncio.run(work())


def test_a_key_and_a_waiting_reply_are_listed_as_kept_however_they_are_written(tmp_path):
    async def work():
        async with opened("memory:", tmp_path) as t:
            await t.sessions.open("agent:main:cli:direct:ann%20smith")
            await t.store.ledger.put_if_absent("outbox", "1", {"text": ["dear Ann\n", 'the code is\n"4111"']})
            assert [one.made for one in (await t.erase(text="Ann Smith")).kept] == ["label"]
            assert [one.made for one in (await t.erase(text='is\n"4111"')).kept] == ["ledger"]

    asyncio.run(work())


def test_only_an_administrator_erases_and_says_what(tmp_path):
    async def work():
        async with opened("memory:", tmp_path) as t:
            row = await t.sessions.open("agent:main:web:direct:ann")
            await t.store.append(row.id, [said("zebra"), answered("ok")], lease="own")
            ann = Principal("ann", frozenset({"chat"}))
            await raises(Denied, t.erase(row.id, seqs=[3], redact=True, apply=True, by=ann))
            root = Principal("root", frozenset({"admin"}))
            await t.erase(row.id, seqs=[3], redact=True, apply=True, by=root)
            assert (await t.store.read(row.id))[-1].by == "root"
            for wrong in ({}, {"seqs": [2], "text": "zebra"}, {"text": " a "}):
                await raises(UsageError, t.erase(row.id, **wrong))
            await raises(UsageError, t.erase(seqs=[2]))

    asyncio.run(work())


def test_a_process_that_keeps_a_session_warm_does_not_show_the_model_what_was_erased(tmp_path):
    async def work():
        url = URLS["sqlite"].format(tmp_path)
        provider = ScriptedProvider()
        async with turnlog.open(url, home=tmp_path, provider=provider, store_durability="os") as t:
            async for _ in t.send(KEY, "my zebra"):
                pass
            row = await t.session(KEY)
            seq = next(one.seq for one in await t.store.read(row.id) if one.__struct_config__.tag == "user")
            async with opened(url, tmp_path) as other:
                await other.erase(row.id, seqs=[seq], redact=True, apply=True)
            async for _ in t.send(KEY, "and now?"):
                pass
            assert "zebra" in str(provider.prompts[0].messages)
            assert "zebra" not in str(provider.prompts[-1].messages)
            assert "[erased]" in str(provider.prompts[-1].messages)

    asyncio.run(work())


def test_the_command_lists_and_with_yes_erases(tmp_path):
    async def begin():
        async with turnlog.open_store(f"sqlite:{tmp_path}/memory/sessions.db") as store:
            sessions = turnlog.Sessions(store)
            row = await sessions.new(KEY, label="cards")
            await store.append(row.id, [said("card 4111"), answered("ok")], lease="own")
            await store.append(row.id, [said("later"), answered("ok")], lease="own")

    asyncio.run(begin())
    erase = ("sessions", "erase", "cards", "--text", "4111", "--redact")
    listed = run(*erase, "--json", home=tmp_path)
    assert [one["seq"] for one in json.loads(listed.stdout)["entries"]] == [3]
    assert json.loads(listed.stdout)["applied"] is False
    assert "Nothing was changed" in run(*erase, home=tmp_path).stdout
    without = run(*erase[:-1], home=tmp_path).stdout
    assert "still counts: --redact erases it" in without
    assert without.endswith("Nothing was changed. Give --redact and --yes to erase for good.\n")
    assert run("sessions", "erase", "--text", "4111", home=tmp_path).returncode == 2
    assert run(*erase[:-1], "--yes", home=tmp_path).returncode == 2
    assert "erased" in run(*erase, "--yes", home=tmp_path).stdout
    assert files_with(tmp_path, "4111") == []
    assert run(*erase, "--yes", home=tmp_path).stdout == "Nothing found.\n"
    assert "[erased]" in run("sessions", "show", "cards", home=tmp_path).stdout
    assert (
        json.loads(run("doctor", str(tmp_path / "memory" / "sessions.db"), "--json", home=tmp_path).stdout)["problems"]
        == []
    )
