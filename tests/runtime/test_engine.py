"""The engine's thread: blocking, asynchronous and iterating callers, cancellation, forks, and the end."""

import asyncio
import contextvars
import gc
import inspect
import os
import subprocess
import sys
import threading
from contextlib import asynccontextmanager

import pytest

import turnlog
from turnlog.errors import StoreUnavailable
from turnlog.runtime.engine import Engine, shared


@pytest.fixture
def engine():
    made = Engine()
    yield made
    made.close()


async def give(value):
    await asyncio.sleep(0)
    return value


async def fail(error):
    raise error


def names():
    return [thread.name for thread in threading.enumerate()]


def test_the_thread_starts_with_the_first_use_and_ends_with_close():
    engine = Engine()
    before = names().count("turnlog-engine")
    assert engine.run(give(1)) == 1
    assert names().count("turnlog-engine") == before + 1
    engine.close()
    engine.close()
    assert names().count("turnlog-engine") == before
    assert engine.run(give(2)) == 2
    engine.close()


def test_many_threads_use_one_loop(engine):
    async def which():
        return asyncio.get_running_loop()

    found = []
    threads = [threading.Thread(target=lambda: found.append(engine.run(which()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_blocking_works_inside_a_running_loop(engine):
    async def main():
        return engine.run(give("here"))

    assert asyncio.run(main()) == "here"


def test_an_error_reaches_the_caller(engine):
    with pytest.raises(turnlog.NotFound):
        engine.run(fail(turnlog.NotFound()))
    with pytest.raises(SystemExit):
        engine.run(fail(SystemExit(3)))
    assert engine.run(give(1)) == 1, "the thread goes on"


def test_waiting_in_the_engines_own_thread_is_refused_instead_of_a_deadlock(engine):
    async def inner():
        return engine.run(give(1))

    with pytest.raises(turnlog.UsageError, match="own event loop"):
        engine.run(inner())

    async def close():
        engine.close()

    with pytest.raises(turnlog.UsageError, match="own thread"):
        engine.run(close())

    async def awaited():
        return await engine.arun(give(1))

    assert engine.run(awaited()) == 1


def test_the_context_of_the_caller_is_that_of_the_coroutine(engine):
    name = contextvars.ContextVar("name", default="none")

    async def look():
        return name.get()

    name.set("ann")
    assert engine.run(look()) == "ann"


def test_a_cancelled_caller_learns_it_when_the_outcome_is_known(engine):
    may_end = threading.Event()
    ended = []

    async def work():
        await asyncio.to_thread(may_end.wait)
        ended.append(True)

    async def main():
        task = asyncio.create_task(engine.arun(work()))
        await asyncio.sleep(0)
        task.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not task.done()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended

    asyncio.run(main())


@pytest.mark.parametrize("times", [1, 2])
def test_a_cancellation_can_be_passed_on(engine, times):
    cancelled = []

    async def work(started):
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(True)

    async def main():
        started = threading.Event()
        task = asyncio.create_task(engine.arun(work(started), cancel=times == 1))
        await asyncio.sleep(0)
        await asyncio.to_thread(started.wait)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert cancelled == [True]


async def count(told):
    try:
        for number in range(1_000):
            yield number
    finally:
        told.append("closed")


def test_iterating_gives_the_items_and_leaving_closes_the_iterator(engine):
    told = []
    assert [number for _, number in zip(range(3), engine.iterate(count(told)), strict=False)] == [0, 1, 2]
    gc.collect()
    engine.close()
    assert told == ["closed"]


def test_an_iterator_is_closed_in_the_context_of_the_caller_that_leaves_it(engine):
    name, told = contextvars.ContextVar("name", default="none"), []

    async def items():
        try:
            yield 1
        finally:
            told.append(name.get())

    def leave(given):
        name.set(given)
        for _ in engine.iterate(items()):
            break

    for given in ("a", "b"):
        contextvars.copy_context().run(leave, given)
    engine.run(asyncio.sleep(0.01))
    assert told == ["a", "b"]


@asynccontextmanager
async def place(name, told):
    first = asyncio.current_task()
    told.append(f"{name} in")
    try:
        yield name
    finally:
        assert asyncio.current_task() is first, "as anyio demands"
        told.append(f"{name} out")


def test_what_was_entered_is_exited_by_exit_or_at_the_end_newest_first():
    told = []
    engine = Engine()
    a, b, c = (engine.enter(place(name, told)) for name in "abc")
    assert (a.value, b.is_open) == ("a", True)
    b.exit()
    b.exit()
    assert not b.is_open
    engine.close()
    assert told == ["a in", "b in", "c in", "b out", "c out", "a out"]
    c.exit()
    assert told[-1] == "a out"


def test_a_manager_that_cannot_be_entered_raises_and_is_not_kept(engine):
    @asynccontextmanager
    async def broken():
        raise turnlog.NotAStore
        yield

    with pytest.raises(turnlog.NotAStore):
        engine.enter(broken())

    async def main():
        with pytest.raises(turnlog.NotAStore):
            await engine.aenter(broken())

    asyncio.run(main())


def test_calls_that_a_close_cuts_short_say_so():
    engine = Engine()
    started = threading.Event()
    told = []

    async def forever():
        started.set()
        await asyncio.Event().wait()

    def wait():
        try:
            engine.run(forever())
        except turnlog.StoreUnavailable as error:
            told.append(error.hint)

    thread = threading.Thread(target=wait)
    thread.start()
    started.wait()
    engine.close()
    thread.join()
    assert told == ["Open it again."]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_starts_anew_and_leaves_the_parents_loop_alone():
    engine = shared()
    told = []
    held = engine.enter(place("parent", told))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            good = not held.is_open and engine.run(give(5)) == 5
            held.exit()
            engine.close()
            gc.collect()
            code = 0 if good and told == ["parent in"] else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert engine.run(give(6)) == 6
    held.exit()
    assert told == ["parent in", "parent out"]


EXIT = """
import asyncio, threading
from contextlib import asynccontextmanager
from turnlog.runtime.engine import shared

@asynccontextmanager
async def place():
    yield
    await asyncio.sleep(0)
    print("out", flush=True)

held = shared().enter(place())
threading.Thread(target=lambda: shared().run(asyncio.Event().wait()), daemon=True).start()
"""


def test_everything_is_exited_when_the_interpreter_exits():
    done = subprocess.run([sys.executable, "-W", "error", "-c", EXIT], capture_output=True, text=True, timeout=120)
    assert done.stdout == "out\n"
    assert done.returncode == 0, done.stderr


INTERRUPT = """
import asyncio, os, signal, threading
from turnlog.runtime.engine import shared

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it in what it runs in the background

async def work():
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        await asyncio.Event().wait()
    finally:
        print("cancelled", flush=True)

try:
    shared().run(work())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_control_c_reaches_a_waiting_caller_after_the_coroutine_has_ended():
    done = subprocess.run([sys.executable, "-W", "error", "-c", INTERRUPT], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("cancelled\ninterrupted\n", "")


def test_trio_callers_wait_in_a_thread(engine):
    trio = pytest.importorskip("trio")

    async def main():
        return await engine.arun(give("trio"))

    assert trio.run(main) == "trio"


@pytest.mark.filterwarnings("error")
def test_a_trio_caller_that_was_cancelled_before_leaves_no_coroutine_behind(engine):
    trio = pytest.importorskip("trio")
    never = give("trio")

    async def main():
        with trio.CancelScope() as scope:
            scope.cancel()
            await engine.arun(never)

    trio.run(main)
    assert inspect.getcoroutinestate(never) == inspect.CORO_CLOSED


def test_a_coroutine_that_is_cancelled_before_its_first_step_ends_with_an_error(engine):
    began, go_on = threading.Event(), threading.Event()

    async def block():
        began.set()
        go_on.wait(30)

    async def work():
        return 1

    thread = threading.Thread(target=engine.run, args=(block(),))
    thread.start()
    began.wait(30)
    job = engine._job(work())
    job.cancel()
    go_on.set()
    with pytest.raises(StoreUnavailable):
        job.outcome.result(30)
    thread.join()


@pytest.mark.parametrize("in_place_s", [0, 0.001])
@pytest.mark.parametrize("times", [1, 3])
def test_a_settled_caller_gets_its_cancellations_when_the_outcome_is_known(engine, times, in_place_s):
    done = []

    async def work():
        await asyncio.sleep(0.05)
        done.append(True)

    async def main():
        task = asyncio.create_task(engine.arun(work(), settle=True, in_place_s=in_place_s))
        for _ in range(times):
            await asyncio.sleep(0)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done == [True]

    asyncio.run(main())


def test_a_settled_caller_gets_the_error_and_the_context_of_its_task(engine):
    name = contextvars.ContextVar("name")

    async def fail():
        raise LookupError(name.get())

    async def main():
        name.set("ann")
        with pytest.raises(LookupError, match="ann"):
            await engine.arun(fail(), settle=True)

    asyncio.run(main())


@pytest.mark.parametrize("begun", [True, False])
def test_a_settled_caller_learns_that_the_engine_was_closed(engine, begun):
    """Also if its coroutine was never begun."""
    ready, go_on = threading.Event(), threading.Event()

    async def block():
        ready.set()
        if not begun:
            go_on.wait(30)

    async def work():
        await asyncio.sleep(60)

    async def main():
        blocking = threading.Thread(target=engine.run, args=(block(),))
        blocking.start()
        ready.wait(30)
        task = asyncio.create_task(engine.arun(work(), settle=True))
        await asyncio.sleep(0.01)
        closing = threading.Thread(target=engine.close)
        closing.start()
        go_on.set()
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(task, 30)
        closing.join()
        blocking.join()

    asyncio.run(main())
