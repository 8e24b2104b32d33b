"""Syncs: in threads unless the loop is the engine's, many by one flush; failures reach those they concern alone."""

import asyncio
import copy
import errno
import os
import random
import threading

import pytest

from turnlog.core.entries import Opened
from turnlog.runtime.engine import Engine
from turnlog.stores import open_store
from turnlog.stores.disk import syncing
from turnlog.stores.disk.syncing import Syncer, aside

from ...waiting import GIVES_UP_S


def files(tmp_path, count):
    fds = [os.open(tmp_path / f"f{n}", os.O_RDWR | os.O_CREAT) for n in range(count)]
    for fd in fds:
        os.write(fd, b"x" * 100)
    return fds


@pytest.mark.parametrize("count", [1, 2, 15, 64])
def test_every_request_is_answered(tmp_path, count):
    async def go():
        syncer = Syncer()
        for _ in range(3):
            await asyncio.gather(*(syncer.request(fd) for fd in fds))
        syncer.close()

    fds = files(tmp_path, count)
    asyncio.run(go())
    for fd in fds:
        os.close(fd)


@pytest.mark.parametrize("count", [1, 5, 40])
def test_a_failure_reaches_the_one_it_concerns_and_nobody_else(tmp_path, count):
    def sync(fd):
        if fd == fds[-1]:
            raise OSError(errno.EIO, "broken")

    async def go():
        syncer = Syncer(sync=sync)
        answers = await asyncio.gather(*(syncer.request(fd) for fd in fds), return_exceptions=True)
        assert [type(answer) for answer in answers] == [type(None)] * (count - 1) + [OSError]
        await syncer.request(-7)
        syncer.close()

    fds = files(tmp_path, count)
    asyncio.run(go())
    for fd in fds:
        os.close(fd)


def test_a_failed_flush_of_the_whole_asks_each_file(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(syncing, "syncfs", lambda fd: calls.append(fd) or -1)
    monkeypatch.setattr(syncing, "may_flush_whole", lambda fds: len(fds) > 1)

    async def go():
        syncer = Syncer()
        os.close(fds[0])
        answers = await asyncio.gather(*(syncer.request(fd) for fd in fds), return_exceptions=True)
        assert [type(answer) for answer in answers] == [OSError] + [type(None)] * 19
        syncer.close()

    fds = files(tmp_path, 20)
    asyncio.run(go())
    assert len(calls) == 1
    for fd in fds[1:]:
        os.close(fd)


def test_the_whole_is_only_flushed_for_many_files_and_while_little_else_waits(tmp_path, monkeypatch):
    fds = files(tmp_path, 20)
    monkeypatch.setattr(syncing, "_kernel_reports_errors", lambda: True)
    monkeypatch.setattr(syncing, "_dirty_kb", lambda: 100)
    assert syncing.may_flush_whole(fds)
    assert not syncing.may_flush_whole(fds[:15])
    monkeypatch.setattr(syncing, "_dirty_kb", lambda: 100_000)
    assert not syncing.may_flush_whole(fds)
    monkeypatch.setattr(syncing, "_kernel_reports_errors", lambda: False)
    assert not syncing.may_flush_whole(fds)
    for fd in fds:
        os.close(fd)


def test_a_cancelled_caller_hears_of_it_when_the_outcome_is_known():
    done = threading.Event()

    async def go():
        task = asyncio.create_task(aside(lambda: done.wait(60)))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
        done.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())


def test_an_error_in_a_thread_comes_back():
    def fail():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        asyncio.run(aside(fail))


def test_a_few_slow_pieces_of_work_do_not_make_a_disk_slow():
    cost = syncing.RecentCost()
    assert cost.typical_s == 0
    for _ in range(4):
        for seconds in (0.0004, 0.03, 0.0004, 0.02):  # half of them waited for a checkpoint or for the processor
            cost.add(seconds)
    assert cost.typical_s == 0.0004
    for _ in range(16):
        cost.add(0.0004)
    for _ in range(11):
        cost.add(0.01)
    assert cost.typical_s == 0.0004
    cost.add(0.01)
    assert cost.typical_s == 0.01
    for _ in range(5):
        cost.add(0.0004)
    assert cost.typical_s == 0.0004


def test_the_typical_cost_is_always_that_of_the_latest_pieces_of_work():
    cost, added = syncing.RecentCost(), []
    chance = random.Random(5)
    for _ in range(2_000):
        added.append(chance.choice((0.1, 0.2, 0.3, chance.random())))
        cost.add(added[-1])
        recent = sorted(added[-syncing.RECENT_COSTS :])
        assert cost.typical_s == recent[len(recent) // 4]


def test_a_callers_own_loop_never_waits_for_a_disk(tmp_path):
    threads = []

    async def sync_one_by_one():
        syncer = Syncer(lambda fd: threads.append(threading.current_thread()))
        for fd in files(tmp_path, 20):
            await syncer.request(fd)
        syncer.close()

    async def change(durability):
        async with open_store(f"sqlite:{tmp_path}/{durability}.db", durability=durability) as store:
            return [await store._writer.run(lambda db: threading.current_thread()) for _ in range(20)]

    asyncio.run(sync_one_by_one())
    threads += asyncio.run(change("full"))
    assert len(threads) == 40
    assert threading.main_thread() not in threads
    assert set(asyncio.run(change("os"))) == {threading.main_thread()}  # nothing is synced


def test_the_engines_loop_waits_longer_for_a_disk_than_a_callers_own(tmp_path):
    """So a call of an adapter passes through one other thread, and not through two."""

    async def append(store):
        for _ in range(syncing.RECENT_COSTS):
            store._writer._cost.add(0.01)
        await store.append("s1", [Opened(id="s1", key="agent:main:cli:direct:user", agent="main", channel="cli")])
        return store._writer._thread is not None

    async def work(name):
        async with open_store(f"sqlite:{tmp_path}/{name}.db") as store:
            return await append(store)

    assert asyncio.run(work("own"))
    engine = Engine()
    assert not engine.run(work("engine"))
    engine.close()


@pytest.mark.parametrize("missing", ["descriptor", "thread"])
def test_without_a_descriptor_or_a_thread_for_a_single_sync_it_is_done_another_way(tmp_path, monkeypatch, missing):
    def no_descriptor(*_):
        raise OSError(errno.EMFILE, "too many open files")

    def no_thread(*_):
        raise RuntimeError("can't start new thread")

    async def go():
        with monkeypatch.context() as patched:
            if missing == "descriptor":
                patched.setattr(os, "eventfd", no_descriptor)
            else:
                patched.setattr(threading.Thread, "start", no_thread)
            if missing == "descriptor":
                await syncer.request(fds[0])
            else:
                with pytest.raises(OSError, match="start new thread"):
                    await syncer.request(fds[0])
        for _ in range(3):
            await syncer.request(fds[0])
        syncer.close()

    syncer, fds = Syncer(), files(tmp_path, 1)
    asyncio.run(go())
    os.close(fds[0])


def test_a_forked_child_leaves_the_parents_single_sync_alone(tmp_path, monkeypatch):
    async def go():
        await syncer.request(fds[0])
        with monkeypatch.context() as child:
            child.setattr(os, "getpid", lambda: -1)
            copy.copy(syncer._single).close()
        await asyncio.wait_for(syncer.request(fds[0]), GIVES_UP_S)
        syncer.close()

    syncer, fds = Syncer(), files(tmp_path, 1)
    asyncio.run(go())
    os.close(fds[0])
