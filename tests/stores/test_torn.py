"""A file or a write-ahead log cut at any byte: what was whole before the cut is there, nothing else, and it goes on."""

import asyncio
import os
import shutil

import pytest

from turnlog import NotFound, open_store
from turnlog.core import history
from turnlog.testing import answered, check_messages, entry, opened, said

CALL = {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": "中"}}
APPENDS = [
    [opened("s1"), entry(type="selected", n=1)],
    [said("héllo")],
    [entry(type="assistant", content=[CALL]), entry(type="tool_result", tool_use_id="c1", content="x\ny")],
    [said("a"), answered("b"), said("c\ud800")],
    [answered("done")],
]


async def write_appends(url, path):
    """The file's length after each append: what was acknowledged by then."""
    ends = [0]
    async with open_store(url, durability="os") as store:
        async with store.lease("s1") as lease:
            for bodies in APPENDS:
                await store.append("s1", bodies, lease=lease)
                ends.append(os.path.getsize(path))
        return ends, await store.read("s1")


async def reopen(root, expected, fresh_session):
    notices = []
    async with open_store(f"jsonl:{root}", durability="os", on_notice=notices.append) as store:
        if fresh_session:
            await store.append("s1", [opened("s1")], expect=0)
            return notices
        assert await store.read("s1") == expected
        check_messages(history.build([*expected, said("next")]).messages)
        async with store.lease("s1") as lease:
            await store.append("s1", [said("next")], expect=len(expected), lease=lease)
    async with open_store(f"jsonl:{root}", durability="os") as store:
        again = await store.read("s1")
        assert again[:-1] == expected
        assert again[-1].content == "next"
    return notices


@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.slow)])
def test_torn_at_any_byte(tmp_path, step):
    path = "agents/main/sessions/s1.jsonl"
    whole = tmp_path / "whole"
    ends, entries = asyncio.run(write_appends(f"jsonl:{whole}", whole / path))
    data = (whole / path).read_bytes()
    assert ends[-1] == len(data)
    counts = [sum(map(len, APPENDS[:n])) for n in range(len(APPENDS) + 1)]
    around = {at + n for at, byte in enumerate(data) if byte == ord("\n") for n in range(-3, 2)}
    for cut in sorted(around | set(range(0, len(data) + 1, step))):
        root = tmp_path / "cut"
        (root / path).parent.mkdir(parents=True)
        (root / path).write_bytes(data[:cut])
        appends = max(n for n, end in enumerate(ends) if end <= cut + 1)  # the last newline alone may be missing
        notices = asyncio.run(reopen(root, entries[: counts[appends]], appends == 0))
        torn = cut > ends[appends]
        assert bool(notices) == torn, f"cut at {cut}: a torn tail is reported, and only that"
        assert (root / path).read_bytes()[: ends[appends]] == data[: ends[appends]] or appends == 0
        shutil.rmtree(root)


def test_a_torn_tail_is_left_alone_by_readers(tmp_path):
    path = tmp_path / "agents/main/sessions/s1.jsonl"
    _, entries = asyncio.run(write_appends(f"jsonl:{tmp_path}", path))
    path.write_bytes(path.read_bytes()[:-3])
    size = path.stat().st_size

    async def look():
        async with open_store(f"jsonl:{tmp_path}") as store:
            assert await store.read("s1") == entries[:-1]
            await store.search("done")

    asyncio.run(look())
    assert path.stat().st_size == size


def test_somebody_else_mending_a_torn_tail_is_noticed(tmp_path):
    """Another process drops the torn bytes and appends just as many: ours must not cut that off again."""
    path = tmp_path / "agents/main/sessions/s1.jsonl"

    async def run():
        async with open_store(f"jsonl:{tmp_path}", durability="os") as one:
            await one.append("s1", [opened("s1")])
            before = path.stat().st_size
            await one.append("s1", [entry(type="title", title="t")])
            length = path.stat().st_size - before
            with path.open("ab") as file:
                file.write(b"x" * length)
            assert len(await one.read("s1")) == 2
            async with open_store(f"jsonl:{tmp_path}", durability="os") as two:
                await two.append("s1", [entry(type="title", title="u")])
            assert path.stat().st_size == before + 2 * length
            await one.append("s1", [entry(type="title", title="v")])
            assert [getattr(e, "title", "") for e in await one.read("s1")] == ["", "t", "u", "v"]

    asyncio.run(run())


@pytest.mark.parametrize("step", [8_209, pytest.param(1_237, marks=pytest.mark.slow)])
def test_a_write_ahead_log_cut_anywhere_gives_whole_appends(tmp_path, step):
    whole = tmp_path / "whole"

    async def write():
        async with open_store(f"sqlite:{whole}/s.db", durability="os") as store:
            async with store.lease("s1") as lease:
                for bodies in APPENDS:
                    await store.append("s1", bodies, lease=lease)
            shutil.copytree(whole, tmp_path / "live")
            return await store.read("s1")

    entries = asyncio.run(write())
    wal = (tmp_path / "live/s.db-wal").read_bytes()
    counts = [sum(map(len, APPENDS[:n])) for n in range(len(APPENDS) + 1)]
    seen = set()

    async def check(root):
        async with open_store(f"sqlite:{root}/s.db") as store:
            try:
                found = await store.read("s1")
            except NotFound:
                found = []
            assert len(found) in counts
            assert found == entries[: len(found)]
            if found:
                assert (await store.describe("s1")).last_seq == len(found)
                await store.append("s1", [entry(type="title", title="next")], expect=len(found))
            seen.add(len(found))

    for cut in range(0, len(wal) + 1, step):
        root = tmp_path / "cut"
        root.mkdir()
        shutil.copy(tmp_path / "live/s.db", root / "s.db")
        (root / "s.db-wal").write_bytes(wal[:cut])
        asyncio.run(check(root))
        shutil.rmtree(root)
    assert len(seen) > 3


@pytest.mark.parametrize("tail", [b"\x00" * 300, b"\xff\xfe{", b'{"type":"user","seq":99', b"\n"[:0] + b"   "])
def test_any_rubbish_after_the_last_newline_is_dropped(tmp_path, tail):
    path = tmp_path / "agents/main/sessions/s1.jsonl"
    _, entries = asyncio.run(write_appends(f"jsonl:{tmp_path}", path))
    with path.open("ab") as file:
        file.write(tail)
    notices = asyncio.run(reopen(tmp_path, entries, False))
    assert len(notices) == 1
    assert "torn" in notices[0].what
