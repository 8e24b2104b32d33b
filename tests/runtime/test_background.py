"""Work in the background: whatever it meets, it goes on, ever more slowly, and says so."""

import asyncio
import logging

import pytest

from turnlog.errors import StoreUnavailable
from turnlog.runtime import background
from turnlog.runtime.background import FAILING_S, MAX_S, Loop, run_forever, run_until_done


class Time:
    """A clock that moves only while somebody sleeps."""

    def __init__(self):
        self.now = 0.0
        self.pauses = []

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


class Over(BaseException):
    """Ends a loop in a test: no Exception does."""


def run(step, name="x", **how):
    time = Time()
    with pytest.raises(Over):
        asyncio.run(run_forever(name, step, clock=time, sleep=time.sleep, **how))
    return time


def failing_times(times, error):
    calls = []

    async def step():
        calls.append(1)
        if len(calls) <= times:
            raise error
        raise Over

    return calls, step


def test_pauses_between_failures_grow_up_to_a_cap_and_the_work_goes_on():
    calls, step = failing_times(200, KeyError("what"))
    time = run(step)
    assert len(calls) == 201
    for number, pause in enumerate(time.pauses[:6]):
        assert 2**number / 2 <= pause <= 2**number
    assert all(MAX_S / 2 <= pause <= MAX_S for pause in time.pauses[6:])
    assert len(set(time.pauses[6:])) > 1, "not all at once"


def test_after_a_success_the_pause_is_the_usual_one_and_the_next_failure_is_a_first_one_again():
    outcomes = iter([KeyError(), KeyError(), KeyError(), None, KeyError(), Over()])

    async def step():
        if error := next(outcomes):
            raise error

    pauses = run(step, every_s=7.0).pauses
    assert pauses[3] == 7.0
    assert pauses[2] >= 2.0
    assert pauses[4] <= 1.0


def test_a_step_that_ran_for_long_before_it_failed_begins_anew():
    time = Time()
    lengths = iter([0, 0, 0, FAILING_S + 1, 0])

    async def step():
        time.now += next(lengths, 0)
        if next(counted) == 5:
            raise Over
        raise KeyError

    counted = iter(range(10))
    with pytest.raises(Over):
        asyncio.run(run_forever("x", step, clock=time, sleep=time.sleep))
    assert time.pauses[2] >= 2.0
    assert time.pauses[3] <= 1.0


def test_being_cancelled_ends_it_at_once():
    async def main():
        begun = asyncio.Event()

        async def step():
            begun.set()
            await asyncio.sleep(3600)

        task = asyncio.create_task(run_forever("x", step))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_work_that_ends_by_itself_is_tried_until_it_does():
    time, outcomes = Time(), iter([KeyError(), ValueError(), None])

    async def step():
        if error := next(outcomes):
            raise error

    asyncio.run(run_until_done("x", step, clock=time, sleep=time.sleep))
    assert len(time.pauses) == 2


def test_failures_are_counted_and_logged_with_a_traceback_unless_the_error_is_ours(caplog):
    before = background.failures().get("counted", 0)
    errors = iter([KeyError("odd"), StoreUnavailable("gone", hint="Wait."), Over()])

    async def step():
        raise next(errors)

    with caplog.at_level(logging.ERROR):
        run(step, "counted")
    assert background.failures()["counted"] - before == 2
    odd, ours = caplog.records
    assert odd.exc_info[0] is KeyError
    assert ours.exc_info is None
    assert "gone Wait." in ours.getMessage()


def test_it_is_failing_after_a_minute_of_failures_and_not_after_a_success_or_when_it_has_ended():
    time = Time()
    with Loop("told", clock=time) as loop:
        loop.begin()
        loop.failed(KeyError())
        time.now += FAILING_S - 1
        assert "told" not in background.failing()
        time.now += 1
        assert "told" in background.failing()
        loop.begin()
        assert "told" in background.failing(), "an attempt is no success"
        time.now += FAILING_S
        assert "told" not in background.failing(), "one that has lasted for a minute is"
        loop.failed(KeyError())
        loop.begin()
        loop.succeeded()
        time.now += 1000
        assert "told" not in background.failing()
        loop.failed(KeyError())
        time.now += FAILING_S
        assert "told" in background.failing()
    assert "told" not in background.failing()


def test_of_many_things_to_do_one_that_fails_stops_no_other(caplog):
    done = []
    for number in range(3):
        with background.going_on("many"):
            if number == 1:
                raise KeyError
            done.append(number)
    assert done == [0, 2]
