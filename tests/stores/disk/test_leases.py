"""Leases as locks on files that stay open for a session's next turn: never two holders, and nothing left behind."""

import asyncio
import json
import os
import resource
import subprocess
import sys
import time

import pytest

from turnlog.errors import Busy, StoreUnavailable
from turnlog.stores.disk import leases
from turnlog.stores.disk.leases import FileLeases

HOLD = """
import asyncio, sys
from pathlib import Path
from turnlog.stores.disk.leases import FileLeases

async def hold():
    async with FileLeases(Path(sys.argv[1])).take("s", 60):
        print("held", flush=True)
        sys.stdin.read()

asyncio.run(hold())
"""


async def take(here, session_id="s", wait_s=0.0):
    async with here.take(session_id, wait_s):
        pass


async def refused(here, session_id="s"):
    try:
        await take(here, session_id)
    except Busy:
        return True
    return False


def names(folder):
    return sorted(path.name for path in folder.glob("*.lock"))


def test_the_next_turn_finds_its_file_and_a_close_leaves_none(tmp_path):
    async def story():
        here = FileLeases(tmp_path / "leases")
        await take(here)
        before = os.stat(tmp_path / "leases" / "s.lock").st_ino
        await take(here)
        assert os.stat(tmp_path / "leases" / "s.lock").st_ino == before
        here.close()
        assert names(tmp_path / "leases") == []
        await take(here)
        assert names(tmp_path / "leases") == [], "one that is released after the close leaves nothing either"

    asyncio.run(story())


def test_a_kept_file_is_no_lease(tmp_path):
    async def story():
        one, two = FileLeases(tmp_path), FileLeases(tmp_path)
        await take(one)
        async with two.take("s", 0):
            assert await refused(one)
        await take(one)

    asyncio.run(story())


def test_a_file_that_another_removed_is_not_mistaken_for_a_lock(tmp_path):
    async def story():
        one, two, three = FileLeases(tmp_path), FileLeases(tmp_path), FileLeases(tmp_path)
        await take(one)
        await take(two)
        two.close()
        assert names(tmp_path) == [], "the file that the first one still has open is gone"
        async with one.take("s", 0):
            assert names(tmp_path) == ["s.lock"]
            assert await refused(three)
            three.close()
            assert names(tmp_path) == ["s.lock"], "only its holder removes it"

    asyncio.run(story())


def test_few_files_stay_open(tmp_path, monkeypatch):
    monkeypatch.setattr(leases, "KEPT_MAX", 3)

    async def story():
        here = FileLeases(tmp_path)
        for number in range(10):
            await take(here, f"s{number}")
        assert names(tmp_path) == ["s7.lock", "s8.lock", "s9.lock"]
        async with here.take("s7", 0):
            await take(here, "s1")
            assert names(tmp_path) == ["s1.lock", "s7.lock", "s8.lock", "s9.lock"]

    asyncio.run(story())


def test_another_process_that_dies_leaves_a_file_and_no_lease(tmp_path):
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    async def story():
        here = FileLeases(tmp_path)
        with pytest.raises(Busy, match=f"process {other.pid} on "):
            await take(here)
        other.kill()
        other.communicate()
        assert names(tmp_path) == ["s.lock"]
        await take(here, wait_s=60)
        here.close()
        assert names(tmp_path) == []

    assert other.stdout.readline() == "held\n"
    asyncio.run(story())


def test_a_forked_child_neither_has_nor_ends_its_parents_lease(tmp_path):
    async def story():
        here, other = FileLeases(tmp_path), FileLeases(tmp_path)
        await take(here, "kept")
        async with here.take("s", 0):
            child = os.fork()
            if child == 0:
                here._release(next(iter(leases._open_fds), -1), "s")
                here.close()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0  # noqa: ASYNC222 - it ends at once
            assert await refused(other)
            assert "s.lock" in names(tmp_path)
        await take(other)

    asyncio.run(story())


def test_a_forked_child_takes_leases_of_its_own_without_touching_its_parents_files(tmp_path):
    async def story():
        here, other = FileLeases(tmp_path), FileLeases(tmp_path)
        await take(here, "kept")
        child = os.fork()
        if child == 0:
            os._exit(await in_child(here, other))
        assert os.waitpid(child, 0)[1] == 0  # noqa: ASYNC222 - it ends at once

    async def in_child(here, other):
        async with here.take("first", 0):  # gets the number of the file that was kept
            await take(here, "kept")
            return 0 if await refused(other, "first") else 1

    asyncio.run(story())


def test_kept_files_are_given_up_before_a_lease_is_refused_for_want_of_one(tmp_path):
    async def story():
        here = FileLeases(tmp_path)
        for number in range(20):
            await take(here, f"s{number}")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(leases._open_fds), hard))
        try:
            async with here.take("one-more", 0):
                assert names(tmp_path) == ["one-more.lock"]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    asyncio.run(story())


def test_a_folder_that_cannot_be_made_is_told_as_such(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailable, match="the lease cannot be taken"):
        asyncio.run(take(FileLeases(tmp_path / "file")))


def test_a_lease_always_names_its_holder_however_soon_after_another(tmp_path):
    """Two stores take turns, also within one tick of the file system's clock."""
    one, other = (leases.FileLeases(tmp_path / "leases") for _ in range(2))
    told = tmp_path / "leases" / "ses-a.lock"

    async def take(store):
        async with store.take("ses-a", 1):
            return json.loads(told.read_bytes())

    async def go():
        begin = time.monotonic()
        while time.monotonic() - begin < 3 * leases.MTIME_STEP_S:
            for _ in range(2):
                assert (await take(one))["pid"] == os.getpid()
            async with other.take("ses-a", 1):
                fd = os.open(told, os.O_WRONLY | os.O_TRUNC)  # as a process of another number would
                os.write(fd, b'{"pid":1,"host":"h","since":1}')
                os.close(fd)
        for _ in range(300):  # nobody else: the file is read no more
            assert (await take(one))["pid"] == os.getpid()
            await asyncio.sleep(0.001)
        assert leases._named

    asyncio.run(go())
    one.close(), other.close()
    assert leases._named.keys() <= leases._open_fds.keys()  # stores of other tests may be open


def test_tasks_wait_for_one_that_took_the_lease_without_waiting(tmp_path):
    store = leases.FileLeases(tmp_path / "leases")
    held = []

    async def hold(name, pause_s):
        async with store.take("ses-a", 5) as lease:
            assert lease.live
            assert not held
            held.append(name)
            await asyncio.sleep(pause_s)
            held.remove(name)

    async def go():
        await asyncio.gather(*(hold(n, 0.002) for n in range(5)))
        first = asyncio.create_task(hold("first", 0.3))
        await asyncio.sleep(0.05)
        with pytest.raises(Busy):
            async with store.take("ses-a", 0.01):
                pytest.fail("two holders")
        await asyncio.gather(first, hold("second", 0), hold("third", 0))
        assert not store._queues

    asyncio.run(go())
    store.close()
