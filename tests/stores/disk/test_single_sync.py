"""One sync in a thread, answered through an eventfd: each answer reaches its own request, whatever happens to loops."""

import asyncio
import errno
import os
import threading

import pytest

from turnlog.stores.disk.single_sync import SingleSync
from turnlog.stores.disk.syncing import Syncer

from ...waiting import until

pytestmark = pytest.mark.skipif(not hasattr(os, "eventfd"), reason="only Linux has eventfd")


class Held:
    """A sync that waits until it is let go."""

    def __init__(self):
        self.begun = threading.Event()
        self.go = threading.Event()

    def __call__(self, fd):
        self.begun.set()
        assert self.go.wait(30)


async def asked(single, fd=7):
    loop = asyncio.get_running_loop()
    answer = loop.create_future()
    assert single.start(loop, fd, answer.set_result)
    return await asyncio.wait_for(answer, 30)


def test_each_request_gets_its_own_outcome():
    def sync(fd):
        if fd == 5:
            raise OSError(errno.EIO, "broken")

    async def go():
        single = SingleSync(sync)
        found = [await asked(single, fd) for fd in (4, 5, 6)]
        single.close()
        return found

    first, second, third = asyncio.run(go())
    assert (first, second.errno, third) == (None, errno.EIO, None)


def test_an_answer_for_a_loop_that_was_closed_is_not_taken_for_the_next_request():
    held = Held()
    single = SingleSync(held)

    async def leave():
        assert single.start(asyncio.get_running_loop(), 7, lambda error: pytest.fail("nobody waits for it"))

    asyncio.run(leave())
    held.go.set()

    async def go():
        await until(lambda: single._answers)
        held.begun.clear()
        held.go.clear()
        told = []
        assert single.start(asyncio.get_running_loop(), 8, told.append)
        await asyncio.to_thread(held.begun.wait, 30)
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert told == [], "the old answer was told as that of a sync that still runs"
        held.go.set()
        await until(lambda: told == [None])
        single.close()

    asyncio.run(go())


def test_a_close_waits_for_the_answer_and_the_thread_then_closes_the_eventfd():
    held = Held()

    async def go():
        single = SingleSync(held)
        told = []
        assert single.start(asyncio.get_running_loop(), 7, told.append)
        number = single._eventfd
        single.close()
        os.fstat(number)
        held.go.set()
        await until(lambda: told == [None])
        await until(lambda: not is_open(number))
        assert not single.start(asyncio.get_running_loop(), 7, told.append), "it is closed"

    def is_open(number):
        try:
            os.fstat(number)
        except OSError:
            return False
        return True

    asyncio.run(go())


@pytest.mark.parametrize("why", ["no eventfd", "a loop without readers"])
def test_where_it_is_not_possible_a_sync_goes_to_the_threads_of_all_others(why, monkeypatch):
    synced = []

    async def go():
        loop = asyncio.get_running_loop()
        if why == "no eventfd":
            monkeypatch.delattr(os, "eventfd")
        else:

            def refuse(*_):
                raise NotImplementedError

            monkeypatch.setattr(loop, "add_reader", refuse)
        syncer = Syncer(sync=lambda fd: synced.append((fd, threading.current_thread().name)))
        await syncer.request(7)
        syncer.close()

    asyncio.run(go())
    assert synced == [(7, "turnlog-sync")]
