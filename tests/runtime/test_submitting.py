"""Calls from other threads: each is called once, in order, in the loop's thread; nothing is left of a closed one."""

import asyncio
import contextvars
import gc
import os
import threading
import weakref
from functools import partial

import pytest

from turnlog.runtime import submitting
from turnlog.runtime.engine import Engine
from turnlog.runtime.submitting import submit_to

from ..waiting import GIVES_UP_S, until

MANY = 2_000


@pytest.fixture(params=["eventfd", "sockets"])
def _way(request, monkeypatch):
    if request.param == "sockets":
        monkeypatch.delattr(os, "eventfd", raising=False)


def descriptors():
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.usefixtures("_way")
def test_each_is_called_once_in_its_order_in_the_thread_of_the_loop():
    async def story():
        submit, seen = submit_to(asyncio.get_running_loop()), []

        def give(name):
            for n in range(MANY):
                submit(lambda n=n: seen.append((name, n, threading.get_ident())))

        threads = [threading.Thread(target=give, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        await until(lambda: len(seen) == 2 * MANY)
        assert {ident for _, _, ident in seen} == {threading.get_ident()}
        for name in "ab":
            assert [n for one, n, _ in seen if one == name] == list(range(MANY))

    asyncio.run(story())


@pytest.mark.usefixtures("_way")
def test_an_error_of_one_does_not_concern_the_others():
    async def story():
        loop, seen, errors = asyncio.get_running_loop(), [], []
        loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
        submit = submit_to(loop)
        for call in (lambda: 1 / 0, lambda: seen.append("after"), lambda: 1 / 0, lambda: seen.append("last")):
            submit(call)
        await until(lambda: len(seen) == len(errors) == 2)
        assert seen == ["after", "last"]

    asyncio.run(story())


@pytest.mark.skipif(not hasattr(os, "eventfd"), reason="only Linux has an eventfd")
def test_a_loop_that_was_closed_leaves_no_descriptor_and_may_still_be_told():
    async def story():
        submit = submit_to(asyncio.get_running_loop())
        assert submit_to(asyncio.get_running_loop()) == submit, "each loop has one"
        return submit

    asyncio.run(story())
    before = descriptors()
    late = [asyncio.run(story()) for _ in range(5)]
    assert descriptors() == before + 5
    for submit in late:
        submit(lambda: pytest.fail("nobody is there to call it"))
    late.clear()
    del submit
    assert descriptors() == before

    engine = Engine()
    engine.run(asyncio.sleep(0))
    engine.close()
    del engine
    assert descriptors() == before


@pytest.mark.skipif(not hasattr(os, "eventfd"), reason="only Linux has an eventfd")
def test_a_call_that_is_never_taken_keeps_neither_its_closed_loop_nor_a_descriptor():
    async def story():
        loop = asyncio.get_running_loop()
        return loop, submit_to(loop), loop.create_future()

    before = descriptors()
    loop, submit, waiting = asyncio.run(story())
    submit(partial(waiting.set_result, None))
    closed = weakref.ref(loop)
    del loop, submit, waiting
    assert descriptors() == before
    assert closed() is None


def test_a_loop_does_not_keep_the_context_of_its_first_caller():
    held = contextvars.ContextVar("held")

    async def call():
        held.set(given := threading.Event())
        submit_to(asyncio.get_running_loop())
        return weakref.ref(given)

    async def story():
        given = await asyncio.create_task(call())
        await asyncio.sleep(0)
        gc.collect()
        assert given() is None

    asyncio.run(story())


def test_a_loop_that_cannot_watch_a_descriptor_is_told_as_usual(monkeypatch):
    def refuse(*_):
        raise NotImplementedError

    async def story():
        loop, told = asyncio.get_running_loop(), asyncio.Event()
        monkeypatch.setattr(loop, "add_reader", refuse)
        assert submitting.submitted_calls(loop) is None
        threading.Thread(target=submit_to(loop), args=(told.set,)).start()
        async with asyncio.timeout(GIVES_UP_S):
            await told.wait()

    asyncio.run(story())


@pytest.mark.usefixtures("_way")
def test_a_job_that_is_cancelled_at_once_never_starts():
    async def never():
        pytest.fail("it has started")

    engine = Engine()
    engine.run(asyncio.sleep(0))
    blocked, go = threading.Event(), threading.Event()

    def block():
        blocked.set()
        go.wait(GIVES_UP_S)

    engine._loop.submit(block)
    assert blocked.wait(GIVES_UP_S)
    job = engine._job(never())
    job.cancel()
    go.set()
    assert "closed" in str(job.outcome.exception(GIVES_UP_S))
    engine.close()
