"""Full disks, failing syncs, power cuts, read-only places: a clear error, nothing half-written, and it goes on."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import turnlog
from turnlog.core import history
from turnlog.testing import answered, check_messages, entry, opened, raises, said

ROOT = Path(__file__).parents[2]
URLS = {"jsonl": "jsonl:{}/store", "sqlite": "sqlite:{}/sessions.db"}


def quiet(*command):
    return subprocess.run(command, capture_output=True, check=False, text=True)


@contextmanager
def mounted(place, *options):
    place.mkdir(exist_ok=True)
    done = quiet("mount", *options, str(place))
    if done.returncode:
        pytest.skip(f"this machine does not allow mounting: {done.stderr.strip()}")
    try:
        yield place
    finally:
        quiet("umount", "-l", str(place))


@pytest.mark.parametrize("kind", URLS)
@pytest.mark.parametrize("durability", ["full", "os"])
def test_a_full_disk_refuses_clearly_and_the_session_goes_on_when_there_is_space(kind, durability, tmp_path):
    async def run(place):
        url = URLS[kind].format(place)
        async with turnlog.open_store(url, durability=durability) as store:
            await store.append("s1", [opened("s1")])
            acknowledged = 1
            async with store.lease("s1") as lease:
                ballast = place / "ballast"
                ballast.write_bytes(b"x" * 1_000_000)
                error = None
                for _ in range(400):
                    try:
                        await store.append("s1", [said("x" * 9_000), answered("y" * 9_000)], lease=lease)
                        acknowledged += 2
                    except turnlog.StoreUnavailable as refused:
                        error = refused
                        break
                assert error is not None, "the disk never got full"
                assert "full" in error.hint or "space" in error.hint
                assert len(await store.read("s1")) == acknowledged
                for _ in range(3):
                    await raises(turnlog.StoreUnavailable, store.append("s1", [said("z" * 60_000)], lease=lease))
                ballast.unlink()
                await store.append("s1", [said("again")], expect=acknowledged, lease=lease)
        async with turnlog.open_store(url, durability=durability) as store:
            entries = await store.read("s1")
            assert [e.seq for e in entries] == list(range(1, acknowledged + 2))
            assert entries[-1].content == "again"
            assert (await store.describe("s1")).last_seq == acknowledged + 1

    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=3m", "tmpfs") as place:
        asyncio.run(run(place))


def fill(path):
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 512)


def test_a_session_that_could_not_be_created_leaves_nothing(tmp_path):
    async def run(place):
        async with turnlog.open_store(f"jsonl:{place}/store") as store:
            await store.append("s0", [opened("s0")])
            fill(place / "ballast")
            await raises(turnlog.StoreUnavailable, store.append("s1", [opened("s1")]))
            assert not list((place / "store").rglob("s1.jsonl"))
            (place / "ballast").unlink()
            await store.append("s1", [opened("s1")])
            assert (await store.find(turnlog.Query())).total == 2

    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=1m", "tmpfs") as place:
        asyncio.run(run(place))


FAILING = """
import asyncio, os, sys, turnlog
from turnlog.testing import entry, opened, raises
async def main(url, switch):
    async with turnlog.open_store(url) as store:
        await store.append("s1", [opened("s1")])
        await store.append("s1", [entry(type="title", title="a")])
        for _ in range(3):
            open(switch, "w").close()
            error = await raises(turnlog.StoreUnavailable, store.append("s1", [entry(type="title", title="lost")] * 2))
            await raises(turnlog.StoreUnavailable, store.append("s2", [opened("s2")]))
            print(error, "|", error.hint)
            os.unlink(switch)
            assert [getattr(e, "title", "") for e in await store.read("s1")][-1] != "lost"
        await store.append("s1", [entry(type="title", title="b")], expect=2)
        await store.append("s2", [opened("s2")], expect=0)
    async with turnlog.open_store(url) as store:
        print([getattr(e, "title", "") for e in await store.read("s1")])
asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("kind", URLS)
def test_a_failing_sync_is_an_error_and_what_was_written_does_not_count(kind, tmp_path):
    shim = tmp_path / "shim.so"
    source = Path(__file__).with_name("shim.c")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler or quiet(compiler, "-shared", "-fPIC", "-o", str(shim), str(source), "-ldl").returncode:
        pytest.skip("this machine has no C compiler to make the failing fsync with")
    switch = tmp_path / "fail"
    environment = {**os.environ, "LD_PRELOAD": str(shim), "FAIL_SYNC": str(switch)}
    done = subprocess.run(
        [sys.executable, "-c", FAILING, URLS[kind].format(tmp_path), str(switch)],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "['', 'a', 'b']"


WRITER = """
import asyncio, sys, turnlog
from turnlog.testing import answered, opened, said
async def main(url):
    async with turnlog.open_store(url) as store:
        await store.append("s1", [opened("s1")])
        async with store.lease("s1") as lease:
            for n in range(1, 100_000):
                last = await store.append("s1", [said(f"q{n}"), answered(f"a{n}")], lease=lease)
                print(last[-1].seq, flush=True)
asyncio.run(main(sys.argv[1]))
"""


MANY = """
import asyncio, sys, turnlog
from turnlog.testing import answered, opened, said
async def talk(store, name):
    await store.append(name, [opened(name, peer=name)])
    async with store.lease(name) as lease:
        for n in range(1, 100_000):
            last = await store.append(name, [said(f"q{n}"), answered(f"a{n}")], lease=lease)
            print(name, last[-1].seq, flush=True)
async def main(url):
    async with turnlog.open_store(url) as store:
        await asyncio.gather(*(talk(store, f"s{n}") for n in range(40)))
asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.parametrize("kind", URLS)
def test_after_a_power_cut_everything_acknowledged_in_forty_sessions_is_there(kind, tmp_path):
    """Many at once are made durable together, by another way than one alone."""
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(64 * 1024 * 1024)
    if quiet("mkfs.ext4", "-q", "-F", str(image)).returncode:
        pytest.skip("this machine has no mkfs.ext4")
    acknowledged = {}
    copy = tmp_path / "cut.img"
    with mounted(tmp_path / "disk", "-o", "loop", str(image)) as place:
        writer = subprocess.Popen(
            [sys.executable, "-c", MANY, URLS[kind].format(place / "data")], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        for _ in range(700):
            name, seq = writer.stdout.readline().split()
            acknowledged[name] = int(seq)
        writer.send_signal(signal.SIGSTOP)
        shutil.copyfile(image, copy)
        writer.kill()
        writer.communicate()

    async def look(url):
        async with turnlog.open_store(url) as store:
            for name, seq in acknowledged.items():
                entries = await store.read(name)
                assert [e.seq for e in entries] == list(range(1, len(entries) + 1))
                assert len(entries) >= seq

    assert len(acknowledged) == 40
    with mounted(tmp_path / "after", "-o", "loop", str(copy)) as place:
        asyncio.run(look(URLS[kind].format(place / "data")))


@pytest.mark.parametrize("kind", URLS)
def test_after_a_power_cut_everything_acknowledged_is_there(kind, tmp_path):
    """A file system in a file, copied while it is written: the copy is what the disk had when the power went."""
    image = tmp_path / "disk.img"
    with image.open("wb") as file:
        file.truncate(48 * 1024 * 1024)
    if quiet("mkfs.ext4", "-q", "-F", str(image)).returncode:
        pytest.skip("this machine has no mkfs.ext4")
    cuts = []
    with mounted(tmp_path / "disk", "-o", "loop", str(image)) as place:
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, URLS[kind].format(place / "data")],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        acknowledged = 0
        for n in range(5):
            for _ in range(15 + n):
                acknowledged = int(writer.stdout.readline())
            writer.send_signal(signal.SIGSTOP)
            copy = tmp_path / f"cut{n}.img"
            shutil.copyfile(image, copy)
            cuts.append((copy, acknowledged))
            writer.send_signal(signal.SIGCONT)
        writer.kill()
        writer.communicate()

    async def look(url, acknowledged):
        async with turnlog.open_store(url) as store:
            entries = await store.read("s1")
            assert len(entries) >= acknowledged
            assert [e.seq for e in entries] == list(range(1, len(entries) + 1))
            check_messages(history.build(entries).messages)
            assert (await store.find(turnlog.Query())).items[0].last_seq == len(entries)
            await store.append("s1", [entry(type="title", title="on")])

    for copy, acknowledged in cuts:
        with mounted(tmp_path / "after", "-o", "loop", str(copy)) as place:
            asyncio.run(look(URLS[kind].format(place / "data"), acknowledged))


@pytest.mark.parametrize("kind", URLS)
def test_a_read_only_disk_is_said_so(kind, tmp_path):
    async def start(url):
        async with turnlog.open_store(url) as store:
            await store.append("s1", [opened("s1")])

    async def reopen(url):
        error = await raises(turnlog.StoreUnavailable, turnlog.open_store(url).__aenter__())
        assert "read" in f"{error} {error.hint}".lower()

    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=3m", "tmpfs") as place:
        url = URLS[kind].format(place)
        asyncio.run(start(url))
        if quiet("mount", "-o", "remount,ro", str(place)).returncode:
            pytest.skip("this machine does not allow remounting")
        asyncio.run(reopen(url))
