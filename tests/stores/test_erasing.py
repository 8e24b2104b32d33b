"""When `erase` returns, no file of the store holds the erased words: transcript, indexes, logs and free pages."""

import asyncio
import os
import random
import shutil
import sys

import pytest

from turnlog import open_store
from turnlog.core.entries import Assistant, Compaction, Facts, Failed, Foreign, Received, Title, ToolResult, User
from turnlog.core.query import Query
from turnlog.errors import Corrupt
from turnlog.testing import answered, opened, raises, said

from . import postgres

URLS = {
    "jsonl": "jsonl:{}/store",
    "jsonl, not synced": "jsonl:{}/store",
    "v3": "jsonl:{}/store?dialect=v3",
    "flat": "jsonl:{}/store?dialect=flat",
    "sqlite": "sqlite:{}/store/sessions.db",
}


def files_with(folder, *words):
    """The files of a folder that hold one of the words, in any case."""
    found = set()
    for root, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(root, name), "rb") as file:
                data = file.read().lower()
            found |= {os.path.join(root, name) for word in words if word.lower().encode() in data}
    return sorted(found)


def secrets(name="Zebrakey"):
    """Entries of every kind that hold words, each of them a word of its own. `name`: of a fact."""
    call = {"type": "tool_use", "id": "c1", "name": "look", "input": {"word": "Zebracall"}}
    return [
        opened("s1"),
        Received(content="Zebrareceived", sender="Zebrasender", message_id="Zebramessageid"),
        User(from_=(2,)),
        Assistant(content=[{"type": "text", "text": "Zebraanswer"}, call], raw={"x": "Zebraraw"}, stop="tool_use"),
        ToolResult(tool_use_id="c1", content="Zebraresult " * 2000),
        Assistant(content=[{"type": "text", "text": "Zebrasecond"}]),
        Title(title="Zebratitle"),
        Facts(app="app", put={name: b"Zebrabytes", "b": "Zebrafact"}),
        Foreign(raw=["Zebraforeign"]),
        User(content="Zebrauser"),
        Failed(code="provider", reason="Zebrareason"),
        Compaction(summary="Zebrasummary", first_kept=10, covers=(2, 9), focus="Zebrafocus"),
        said("the horse"),
        answered("a horse"),
    ]


@pytest.mark.parametrize("kind", URLS)
def test_no_file_holds_what_was_erased(kind, tmp_path):
    async def work():
        url, how = URLS[kind].format(tmp_path), "os" if "not synced" in kind else "full"
        async with open_store(url, durability=how) as store, open_store(url, durability=how) as other:
            await store.append("s1", secrets(), lease="own")
            for one in (store, other):
                assert await one.search("Zebraanswer")
                await one.facts("s1", "app")
                await one.find(Query())
            if "jsonl" in url:
                store._publish()
            assert files_with(tmp_path, "Zebra")
            await store.erase("s1", range(2, 13), redact=True, by="ann")
            assert files_with(tmp_path, "zebra", "WmVicm") == []  # also as base64
            assert await other.search("Zebraanswer") == []
            assert "Zebra" not in str(await other.read("s1"))
            assert (await other.describe("s1")).title == "the horse"
            for one in (store, other):
                await one.append("s1", [Title(title="later")])
        assert files_with(tmp_path, "zebra", "WmVicm") == []  # nobody wrote it again
        async with open_store(url) as store:
            log = await store.read("s1")
            assert [entry.seq for entry in log if entry.erased] == list(range(2, 13))
            assert len(await store.search("horse")) == 2

    asyncio.run(work())


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
def test_no_page_holds_what_was_erased_among_many_entries(kind, tmp_path):
    """Rows move between pages when others are written: no copy of an erased one stays behind."""

    async def work():
        dice = random.Random(5)
        async with open_store(URLS[kind].format(tmp_path), durability="os") as store:
            for name in ("s1", "s2", "s3"):
                await store.append(name, [opened(name)])
            for n in range(400):
                name = f"s{1 + n % 3}"
                words = f"{'zebra' if dice.random() < 0.3 else 'horse'}{n} " * dice.choice((1, 9, 90, 2000))
                bodies = [said(words), answered(f"no {n}"), Title(title=words[:50]), Facts(app="app", put={"k": words})]
                await store.append(name, bodies, lease="own")
            await store.search("horse1")
            for name in ("s1", "s2", "s3"):
                gone = [entry.seq for entry in await store.read(name) if "zebra" in str(entry)]
                assert gone
                dice.shuffle(gone)
                for at in range(0, len(gone), 40):
                    await store.erase(name, gone[at : at + 40], redact=True)
            assert files_with(tmp_path, "zebra") == []
            assert len(files_with(tmp_path, "horse")) > 0

    asyncio.run(work())


def test_a_line_without_room_for_the_mark_and_its_file_are_written_anew(tmp_path):
    async def work():
        async with open_store(f"jsonl:{tmp_path}/store") as store:
            await store.append("s1", [opened("s1"), Foreign(raw=1), Foreign(raw="zebra" * 4000), Title(title="x")])
            [path] = (tmp_path / "store").rglob("s1.jsonl")
            lines = path.read_text().splitlines()
            before = path.stat()
            await store.erase("s1", [3], redact=True)
            assert path.stat().st_size > before.st_size  # in place, and the file has one more line
            assert path.stat().st_ino == before.st_ino
            # Another program rewrote a short line without its checksum.
            short = '{"type":"title","seq":4,"ts":"' + lines[3].split('"ts":"')[1].split('"')[0] + '","title":""}'
            await store.append("s1", [Title(title="y")])
        path.write_text(path.read_text().replace(lines[3], short))
        async with open_store(f"jsonl:{tmp_path}/store") as store:
            assert path.stat().st_size < 2000  # the blanks are gone
            assert await store.erase("s1", [2, 4], redact=True) == [2, 4]
            assert [entry.erased for entry in await store.read("s1")][:4] == [False, True, True, True]
            await store.append("s1", [Title(title="z")])
            assert (await store.describe("s1")).title == "z"

    asyncio.run(work())


class Died(BaseException):
    pass


def erase_and_die(url, at):
    """In a child: erases, and dies at the n-th change of a file, in the middle of it. Returns whether it came to it."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    left = [at]

    def dying(call, half):
        def one(*args, **kwargs):
            left[0] -= 1
            if left[0] == 0:
                half(*args)
                os._exit(9)
            return call(*args, **kwargs)

        return one

    write, pwrite = os.write, os.pwrite
    os.write = dying(write, lambda fd, data: write(fd, bytes(data)[: len(data) // 2]))
    os.pwrite = dying(pwrite, lambda fd, data, start: pwrite(fd, bytes(data)[: len(data) // 2], start))
    for name in ("replace", "fsync", "unlink"):
        setattr(os, name, dying(getattr(os, name), lambda *args: None))

    async def work():
        async with open_store(url) as store:
            await store.erase("s1", [2, 3, 4, 5], redact=True)

    try:
        asyncio.run(work())
    finally:
        os._exit(0 if sys.exc_info()[0] is None else 1)


@pytest.mark.parametrize("kind", ["jsonl", "flat"])
def test_a_crash_leaves_entries_that_are_erased_or_not_and_never_damage(kind, tmp_path):
    async def begin():
        async with open_store(URLS[kind].format(tmp_path / "first"), durability="os") as store:
            await store.append("s1", [opened("s1")])
            for n in range(3):
                await store.append("s1", [said(f"zebra {n} " * 50), answered(f"zebra {n}")], lease="own")
            await store.search("zebra")
            return await store.read("s1")

    async def look(url, folder):
        async with open_store(url) as store:
            log = await store.read("s1")
            assert [entry.seq for entry in log] == list(range(1, len(log) + 1))
            gone = [entry.seq for entry in log if entry.erased]
            assert gone in ([], [2, 3, 4, 5])
            assert len(log) == len(before) + bool(gone)
            assert len(await store.search("zebra")) == (2 if gone else 6)
            if gone:
                assert files_with(folder, "zebra 0", "zebra 1") == []
            await store.erase("s1", [2, 3, 4, 5], redact=True)
            assert files_with(folder, "zebra 0", "zebra 1") == []
            return bool(gone)

    before = asyncio.run(begin())
    seen = set()
    for at in range(1, 200):
        folder = tmp_path / str(at)
        shutil.copytree(tmp_path / "first", folder)
        died = erase_and_die(URLS[kind].format(folder), at)
        seen.add(asyncio.run(look(URLS[kind].format(folder), folder)))
        shutil.rmtree(folder)
        if not died:
            break
    assert at > 8
    assert not died
    assert seen == {False, True}


def test_a_reader_finishes_what_a_crash_left_and_still_reports_damage(tmp_path):
    async def work():
        url = f"jsonl:{tmp_path}/store"
        async with open_store(url) as store:
            await store.append("s1", [opened("s1"), said("zebra " * 30), answered("zebra " * 30)], lease="own")
        [path] = (tmp_path / "store").rglob("s1.jsonl")
        whole = path.read_bytes()
        async with open_store(url) as reader:
            await reader.read("s1")
            for at in range(1, 40):
                if not erase_and_die(url, at):
                    break
                if path.read_bytes() != whole:
                    assert "zebra" not in str(await reader.read("s1", after=1, limit=3))
                    break
            path.write_bytes(path.read_bytes()[:200] + b"x" + path.read_bytes()[201:])
            await raises(Corrupt, reader.read("s1"))

    asyncio.run(work())


def test_postgresql_keeps_nothing_after_a_checkpoint(tmp_path):
    """What a superuser's checkpoint cannot reach is documented: archives, replicas, backups."""

    async def work(here):
        url = here.url(here.database(tmp_path), lease_s=postgres.LONG_S)
        async with open_store(url) as store:
            # The planner's samples may hold names of facts, which it needs to find them.
            await store.append("s1", secrets("key"), lease="own")
            assert await store.search("Zebraanswer")
            here.sql("ANALYZE", here.database(tmp_path))
            here.sql("CHECKPOINT")
            assert files_with(here.data, "zebra")
            await store.erase("s1", range(2, 13), redact=True)
            assert await store.search("Zebraanswer") == []
            here.sql("SELECT pg_switch_wal()")
            here.sql("CHECKPOINT")
            here.sql("CHECKPOINT")
            assert files_with(here.data, "zebra") == []
            assert len(await store.search("horse")) == 2

    here = postgres.Server(wal_recycle="off", full_page_writes="on")
    try:
        asyncio.run(work(here))
    finally:
        here.remove()
