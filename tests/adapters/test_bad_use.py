"""What every adapter promises about strange ids, strange values, and stores that are too new or gone."""

import asyncio
import os
import shutil
import sqlite3
import threading

import pytest

import turnlog
from turnlog.errors import StoreError, StoreUnavailable, TurnlogError, UsageError

from .driving import ADAPTERS, every_adapter, find_spec, run

IDS = [
    *("a", "A", "a ", " a", "a/b", "a:b", "a%3Ab", "../../etc/passwd", "%", "%00", "agent:main:cli:direct:user"),
    *("ses-1794918737751-mkgpj9", "thread", "x:thread:y", "你好", "\u202eabc", "e\u0301", "\u00e9", "😀", "\n", "\t"),
    *("-", "?", "#", "'", '"', "$(id)", "NULL", "x" * 200),
]
VALUES = [
    *("\ud800 alone", "a\0b", "", "\u2028", "\x1b[31m", "x" * 70_000),
    *(None, [], {}, [None], {"a": None}, {"a": {"b": [None, {"c": None}]}}, {"": ""}),
    *(0, -1, 2**53 + 1, 2**63 - 1, 2**64, -(2**70), 2**4095, 1.5, 1e300, 5e-324, -0.0, True, False, 1.0),
    *({"type": "foreign"}, {"$bytes": "AAAA"}, {"erased": True}, {"crc32": "00000000"}, {"type": "facts", "seq": 1}),
]


@every_adapter
@pytest.mark.parametrize("scheme", ["sqlite", "jsonl"])
def test_ids_of_any_text_are_sessions_of_their_own(adapter, scheme, tmp_path):
    async def work():
        url = f"{scheme}:{tmp_path}/store"
        ours = adapter(url)
        kept = [name for name in IDS if name == name.strip()] if adapter.framework == "google_adk" else IDS
        for n, name in enumerate(kept):
            await ours.write(name, n)
        assert {name: await adapter(url).read(name) for name in kept} == {name: [n] for n, name in enumerate(kept)}
        assert await adapter(url).read("never written") == []

    run(work())


@every_adapter
@pytest.mark.parametrize("scheme", ["sqlite", "jsonl"])
def test_values_come_back_equal_or_are_refused_with_nothing_stored(adapter, scheme, tmp_path):
    async def work():
        url = f"{scheme}:{tmp_path}/store"
        ours, wanted = adapter(url), []
        for value in VALUES:
            try:
                await ours.write("ann", value)
            except TurnlogError:
                pass
            else:
                # LangGraph's own serializer replaces lone surrogates.
                wanted.append("? alone" if value == "\ud800 alone" and adapter.framework == "langgraph" else value)
            assert repr(await ours.read("ann")) == repr(wanted), repr(value)
        assert repr(await adapter(url).read("ann")) == repr(wanted)
        assert len(wanted) > len(VALUES) - 5

    run(work())


@every_adapter
@pytest.mark.parametrize("bad", ["", "a\0b", "x" * 901, 7, b"a"])
def test_ids_that_no_key_can_hold_are_refused_by_a_usage_error(adapter, bad):
    if adapter.framework == "langgraph" and not isinstance(bad, str):
        pytest.skip("LangGraph's ids are made texts, as its own savers do it")

    async def work():
        with pytest.raises(UsageError):
            await adapter("memory:").read(bad)
        if adapter.framework != "google_adk" or bad:  # ADK's services make an id if there is none
            with pytest.raises(UsageError):
                await adapter("memory:").write(bad, 1)

    run(work())


def test_the_same_id_of_two_frameworks_on_one_store_is_two_sessions(tmp_path):
    here = [kind for kind in ADAPTERS if find_spec(kind.package.split(".")[0])]

    async def work():
        url = f"sqlite:{tmp_path}/a.db"
        for kind in here:
            await kind(url).write("ann", kind.framework)
        for kind in here:
            assert await kind(url).read("ann") == [kind.framework]

    run(work())


@every_adapter
def test_a_value_over_the_limit_is_refused_and_nothing_is_stored(adapter, tmp_path):
    async def work():
        ours = adapter(f"sqlite:{tmp_path}/a.db")
        await ours.write("ann", "small")
        with pytest.raises(UsageError):
            await ours.write("ann", "x" * (33 << 20))
        assert await ours.read("ann") == ["small"]
        await ours.write("ann", "again")
        assert await ours.read("ann") == ["small", "again"]

    run(work())


@every_adapter
def test_a_store_of_a_newer_schema_is_refused_and_left_as_it_is(adapter, tmp_path):
    path = tmp_path / "a.db"

    async def made():
        async with turnlog.open(f"sqlite:{path}") as t:
            await t.sessions.open("agent:main:cli:direct:user")

    run(made())
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 9999")
    db.close()
    before = path.read_bytes()

    async def work():
        with pytest.raises(StoreError):
            await adapter(f"sqlite:{path}").write("ann", 1)

    run(work())
    assert path.read_bytes() == before


@every_adapter
def test_a_store_that_was_removed_meanwhile_is_an_error_of_turnlogs(adapter, tmp_path):
    async def work():
        ours = adapter(f"jsonl:{tmp_path}/store")
        await ours.write("ann", 1)
        shutil.rmtree(tmp_path / "store")
        (tmp_path / "store").write_text("a file now")
        with pytest.raises(TurnlogError):
            await ours.write("ann", 2)

    run(work())


@every_adapter
def test_a_folder_that_was_removed_meanwhile_is_not_made_again(adapter, tmp_path):
    async def work():
        ours = adapter(f"jsonl:{tmp_path}/store")
        await ours.write("ann", 1)
        shutil.rmtree(tmp_path / "store")
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await ours.write("ann", 2)
        assert not (tmp_path / "store").exists()

    run(work())


@every_adapter
def test_nothing_is_said_to_be_stored_in_a_database_that_was_removed_or_replaced(adapter, tmp_path):
    async def work():
        ours, path = adapter(f"sqlite:{tmp_path}/a.db"), tmp_path / "a.db"
        await ours.write("ann", 1)
        await ours.write("ann", 2)
        path.rename(tmp_path / "b.db")
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="removed"):
                await ours.write("ann", 3)
            with pytest.raises(StoreUnavailable, match="removed"):
                await ours.read("ann")
            path.write_bytes(b"")
        path.unlink()
        (tmp_path / "b.db").rename(path)
        await ours.write("ann", 3)
        assert await ours.read("ann") == [1, 2, 3]

    run(work())


@every_adapter
def test_a_wrong_url_is_refused_at_first_use_and_named(adapter):
    async def work():
        for url, named in (("mysql:x", "mysql"), ("sqlite://x", "sqlite"), ("", "''")):
            with pytest.raises(UsageError, match=named):
                await adapter(url).write("ann", 1)

    run(work())


@every_adapter
def test_trio_threads_and_other_loops_use_one_store(adapter, tmp_path):
    import trio

    url = f"sqlite:{tmp_path}/a.db"
    trio.run(adapter(url).write, "ann", "trio")
    others = [threading.Thread(target=lambda n=n: asyncio.run(adapter(url).write(f"t{n}", n))) for n in range(4)]
    for one in others:
        one.start()
    for one in others:
        one.join()
    assert run(adapter(url).read("ann")) == ["trio"]
    assert [run(adapter(url).read(f"t{n}")) for n in range(4)] == [[0], [1], [2], [3]]


@every_adapter
def test_a_forked_child_and_its_parent_write_both(adapter, tmp_path):
    url = f"sqlite:{tmp_path}/a.db"
    ours = adapter(url)
    run(ours.write("ann", "before"))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            asyncio.run(ours.write("ann", "child"))
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    run(ours.write("ann", "parent"))
    assert run(adapter(url).read("ann")) == ["before", "child", "parent"]


@pytest.mark.parametrize("scheme", ["sqlite", "jsonl"])
@pytest.mark.parametrize("kind", [one for one in ADAPTERS if one.framework in ("langgraph", "claude_agent_sdk")])
def test_what_is_written_after_a_session_was_archived_is_found_again(kind, scheme, tmp_path):
    if find_spec(kind.package) is None:
        pytest.skip(f"needs {kind.package}")

    async def work():
        url = f"{scheme}:{tmp_path}/store"
        ours = kind(url)
        await ours.write("ann", 1)
        await archive_all(url)
        await ours.write("ann", 2)
        assert await ours.read("ann") == [2]
        assert await kind(url).read("ann") == [2]

    run(work())


@pytest.mark.parametrize("scheme", ["sqlite", "jsonl"])
def test_items_that_are_added_after_a_session_was_archived_are_found_again(scheme, tmp_path):
    pytest.importorskip("agents")
    from turnlog.adapters.openai_agents import TurnlogSession

    async def work():
        url = f"{scheme}:{tmp_path}/store"
        session, items = TurnlogSession("ann", url), [{"role": "user", "content": f"{n}"} for n in range(4)]
        await session.add_items(items[:1])
        for n in (1, 2):
            await archive_all(url)
            await session.add_items([items[n]])
            assert await session.get_items() == [items[n]]
        await session.add_items(items[3:])
        assert await TurnlogSession("ann", url).get_items() == items[2:]
        session.close()

    run(work())


async def archive_all(url):
    async with turnlog.open(url) as t:
        for row in (await t.sessions.list()).items:
            await t.sessions.set_status(row.id, "archived")
