"""An announcement in the index of a JSONL store stays until its append is over, whichever process looks meanwhile."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import turnlog
from turnlog import Query, open_store
from turnlog.core.entries import Assistant, Facts
from turnlog.stores.jsonl.fact_index import NOTHING, FactIndexFile
from turnlog.testing import ScriptedProvider, entry, opened, said

ROOT = Path(__file__).parents[3]
NAMES = ["s1", "s2", "s3", "s4", "s5"]

HELD = """
import asyncio, os, signal, sys
from pathlib import Path
import turnlog
from turnlog.testing import entry, opened

async def main(root, switch, end):
    async with turnlog.open_store(f"jsonl:{root}") as store:
        for name in ("s0", "s1", "s2"):
            await store.append(name, [opened(name, peer=name)])
        [index] = Path(root).rglob("sessions.index.jsonl")
        while index.read_text().count('"row"') < 3:
            await asyncio.sleep(0.01)
        await store.append("s0", [entry(type="title", title="flushed")])
        open(switch, "w").close()
        held = [
            asyncio.create_task(store.append(name, [*first, entry(type="received", content=f"hello from {name}")]))
            for name, first in (("s1", []), ("s2", []), *((n, [opened(n, peer=n)]) for n in ("s3", "s4", "s5")))
        ]
        while "flushed" not in index.read_text():
            await asyncio.sleep(0.01)
        os.unlink(switch)
        await asyncio.gather(*held)
        if end == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    made = tmp_path_factory.mktemp("shim") / "shim.so"
    source = Path(__file__).parents[1] / "shim.c"
    done = subprocess.run(["cc", "-shared", "-fPIC", "-o", made, source, "-ldl"], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("needs a C compiler")
    return made


def run_held(shim, root, switch, end):
    """Rows are flushed while the syncs of five appends are under way; then those are acknowledged."""
    switch = str(switch)
    env = {**os.environ, "LD_PRELOAD": str(shim), "HOLD_SYNC": switch, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", HELD, str(root), switch, end],
        env=env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == (-signal.SIGKILL if end == "kill" else 0), done.stderr


def test_a_flush_during_a_sync_does_not_make_the_index_forget_the_append(shim, tmp_path):
    run_held(shim, tmp_path / "store", tmp_path / "hold", "close")

    async def look():
        async with open_store(f"jsonl:{tmp_path}/store") as store:
            listed = {row.id: row for row in (await store.find(Query())).items}
            assert listed.keys() == {"s0", *NAMES}
            for name in NAMES:
                assert listed[name] == await store.describe(name)
                assert listed[name].title == f"hello from {name}"

    asyncio.run(look())


def test_after_a_kill_every_acknowledged_message_is_found_and_answered(shim, tmp_path):
    run_held(shim, tmp_path / "store", tmp_path / "hold", "kill")

    async def resume():
        url = f"jsonl:{tmp_path}/store"
        async with turnlog.open(url, home="/nonexistent", provider=ScriptedProvider()) as t:
            assert await t.resume() == len(NAMES)
            await t.queue.idle()
            for name in NAMES:
                assert isinstance((await t.store.read(name))[-1], Assistant), name

    asyncio.run(resume())


async def listed(store):
    return {row.id: row for row in (await store.find(Query())).items}


def test_a_session_made_anew_under_a_deleted_ones_id_is_listed_by_who_did_both(tmp_path):
    async def run():
        async with open_store(f"jsonl:{tmp_path}/store") as store, open_store(f"jsonl:{tmp_path}/store") as other:
            await store.append("s1", [opened("s1"), entry(type="title", title="old")])
            await store.delete("s1")
            await store.append("s1", [opened("s1"), entry(type="received", content="new")])
            for one in (store, other):
                assert (await listed(one))["s1"] == await store.describe("s1")
        async with open_store(f"jsonl:{tmp_path}/store") as store:
            assert (await listed(store))["s1"] == await store.describe("s1")

    asyncio.run(run())


@pytest.mark.parametrize("remade", [False, True])
def test_rows_that_are_written_late_do_not_bring_a_deleted_session_back_into_the_list(remade, tmp_path):
    """One store has yet to write the row of its append when another deletes the session, or makes it anew."""

    async def run():
        async with open_store(f"jsonl:{tmp_path}/store") as late, open_store(f"jsonl:{tmp_path}/store") as other:
            await late.append("s0", [opened("s0", peer="x")])
            await late.append("s1", [opened("s1"), *(entry(type="title", title=f"old {n}") for n in range(5))])
            await other.delete("s1")
            if remade:
                await other.append("s1", [opened("s1"), entry(type="title", title="new")])
            late._flush_now()
            for one in (late, other):
                found = await listed(one)
                assert found.keys() == ({"s0", "s1"} if remade else {"s0"})
                if remade:
                    assert found["s1"] == await other.describe("s1") == await late.describe("s1")
            other._flush_now()
            late._flush_now()
            for one in (late, other):
                assert (await listed(one)).keys() == ({"s0", "s1"} if remade else {"s0"})
        async with open_store(f"jsonl:{tmp_path}/store") as store:
            assert (await listed(store)).keys() == ({"s0", "s1"} if remade else {"s0"})

    asyncio.run(run())


def test_rewriting_the_index_keeps_what_several_writers_have_announced_of_one_session(tmp_path):
    async def run():
        url = f"jsonl:{tmp_path}/store"
        async with open_store(url) as one, open_store(url) as two, open_store(url) as reader:
            await one.append("s1", [opened("s1")])
            await two.append("s1", [entry(type="title", title="a")])
            await listed(one)  # which now knows of the other's announcement
            [folder] = one._folders.all()
            folder.rewrite()
            one._flush_now()
            await two.append("s1", [entry(type="title", title="b")])  # announced once, before
            assert (await listed(reader))["s1"].title == "b"

    asyncio.run(run())


def test_a_reader_does_not_take_the_row_of_a_deleted_session_for_a_new_file_of_the_same_size(tmp_path):
    """File systems give the number of a deleted file to the next one."""

    async def run():
        url = f"jsonl:{tmp_path}/store"
        async with open_store(url) as writer:
            await writer.append("s1", [opened("s1")])
            async with open_store(url) as reader:
                before = (await listed(reader))["s1"]
                await writer.delete("s1")
                await writer.append("s1", [opened("s1")])
                async with writer.lease("s1") as lease:
                    await writer.append("s1", [said("hello")], lease=lease)
                assert await reader.describe("s1") == await writer.describe("s1") != before

    asyncio.run(run())


def test_a_store_that_is_being_removed_is_not_made_again_by_what_is_written_later(tmp_path, capfd):
    root = tmp_path / "store"

    async def work():
        async with open_store(f"jsonl:{root}") as store:
            await store.append("s1", [opened("s1", peer="s1")])
            for path in sorted(root.rglob("*"), reverse=True):
                if path.is_file():
                    path.unlink()
            there = {path for path in root.rglob("*") if path.is_dir()}
            store._flush_now()
            assert {path for path in root.rglob("*") if path.is_dir() or path.name.startswith("sessions")} == there
            shutil.rmtree(root)

    asyncio.run(work())
    assert not root.exists()
    assert capfd.readouterr() == ("", "")


def test_an_index_that_was_removed_is_made_again_by_the_next_append(tmp_path):
    async def work():
        async with open_store(f"jsonl:{tmp_path}") as store:
            await store.append("s1", [opened("s1", peer="s1")])
            [index] = tmp_path.rglob("sessions.index.jsonl")
            index.unlink()
            store._flush_now()
            await store.append("s1", [entry(type="title", title="later")])
            await store.append("s2", [opened("s2", peer="s2")])
            assert index.exists()
        async with open_store(f"jsonl:{tmp_path}") as store:
            return sorted((row.id, row.title) for row in (await store.find(Query())).items)

    assert asyncio.run(work()) == [("s1", "later"), ("s2", "")]


def test_an_index_of_facts_that_is_opened_during_an_append_knows_where_the_file_ended(tmp_path, monkeypatch):
    told = []
    written = FactIndexFile.written
    monkeypatch.setattr(FactIndexFile, "written", lambda self, *given: told.append(given[1]) or written(self, *given))

    async def work():
        async with open_store(f"jsonl:{tmp_path}") as store:
            await store.append("s1", [opened("s1", peer="s1"), Facts(app="a", put={"k": 1})])
        async with open_store(f"jsonl:{tmp_path}") as store:
            request = store._syncer.request

            def opens_the_index(fd):
                store._facts.of(store._files.known("s1").folder)._open()
                return request(fd)

            monkeypatch.setattr(store._syncer, "request", opens_the_index)
            await store.append("s1", [entry(type="title", title="later")])
            return await store.facts("s1", "a")

    assert [fact.value for fact in asyncio.run(work())] == [1]
    assert [before == NOTHING for before in told] == [True, False]
