"""Background loops that run until they are cancelled and survive every failure.

    step → pause → step → …       after a failure the pause grows up to a cap; after a success it is the usual one

A failure is logged (with its traceback, unless it is a TurnlogError, which says what happened), counted, and retried.
Only cancelling ends the loop. The state is per process: `/metrics` shows the counts, `/healthz` names the loops that
have failed for a minute. Tasks use `run_forever`, threads use `Loop`.
"""

import asyncio
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, Self

from ..errors import TurnlogError

log = logging.getLogger("turnlog.background")

FIRST_S = 1.0
"""The pause after a first failure."""
MAX_S = 60.0
"""The longest pause: a recovery is noticed within a minute, even after hours."""
FAILING_S = 60.0
"""A loop that has had no success for this long is reported as failing. A loop that ran this long before a failure
starts again with short pauses.
"""
QUIET_S = 10.0
"""The same kind of failure is logged at most once in this time; it is always counted."""
DOUBLINGS_MAX = 30
"""Limits the exponent of the pause; MAX_S limits the pause long before."""

Step = Callable[[], Awaitable[Any]]

_lock = threading.Lock()
_failures: Counter[str] = Counter()
_loops: set["Loop"] = set()


class Loop:
    """The state of one background loop. It runs inside `with Loop(…)`."""

    def __init__(
        self,
        name: str,
        *,
        first_s: float = FIRST_S,
        max_s: float = MAX_S,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        """`name`: a label of a metric, so there must be few different ones. `first_s` and `max_s`: pauses after
        failures.
        """
        self.name = name
        self.sleep = sleep
        self._first_s = min(first_s, max_s)
        self._max_s = max_s
        self._clock = clock
        self._begun_at = clock()
        self._failing_since: float | None = None
        self._in_a_row = 0
        self._is_trying = False
        self._logged: tuple[type[Exception], float] | None = None

    def __enter__(self) -> Self:
        with _lock:
            _loops.add(self)
            _failures[self.name] += 0
        return self

    def __exit__(self, *_: object) -> None:
        with _lock:
            _loops.discard(self)

    async def attempt(self, step: Step) -> None:
        """Repeats the step until it succeeds."""
        while True:
            self.begin()
            try:
                await step()
            except Exception as error:  # noqa: BLE001 - it is reported, and the loop goes on
                pause_s = self.failed(error)
            else:
                self.succeeded()
                return
            await self.sleep(pause_s)

    def begin(self) -> None:
        self._begun_at = self._clock()
        self._is_trying = True

    def succeeded(self) -> None:
        self._failing_since = None
        self._in_a_row = 0
        self._is_trying = False

    def failed(self, error: Exception) -> float:
        """Logs and counts the failure; returns the pause before the next attempt."""
        self._is_trying = False
        now = self._clock()
        if now - self._begun_at >= FAILING_S:
            self.succeeded()
        self._failing_since = now if self._failing_since is None else self._failing_since
        longest = min(self._first_s * 2.0 ** min(self._in_a_row, DOUBLINGS_MAX), self._max_s)
        self._in_a_row += 1
        before = self._logged
        is_known = before is not None and before[0] is type(error) and now - before[1] < QUIET_S
        self._logged = before if is_known else (type(error), now)
        report(self.name, error, is_logged=not is_known)
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - so that many do not come back at once

    @property
    def is_failing(self) -> bool:
        """Whether it has had no success for a minute; a step that has been running that long counts as a success."""
        now = self._clock()
        if self._failing_since is None or (self._is_trying and now - self._begun_at >= FAILING_S):
            return False
        return now - self._failing_since >= FAILING_S


async def run_forever(name: str, step: Step, *, every_s: float = 0.0, **how: Any) -> None:
    """Runs the step again and again, `every_s` apart; `how`: the options of `Loop`."""
    with Loop(name, **how) as loop:
        while True:
            await loop.attempt(step)
            await loop.sleep(every_s)


async def run_until_done(name: str, step: Step, **how: Any) -> None:
    """Repeats the step until it returns by itself."""
    with Loop(name, **how) as loop:
        await loop.attempt(step)


@contextmanager
def going_on(name: str) -> Generator[None]:
    """Logs and counts a failure of one item and swallows it, so that the other items are done too."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - it is reported, and the other items go on
        report(name, error)


def report(name: str, error: Exception, *, is_logged: bool = True) -> None:
    with _lock:
        _failures[name] += 1
    if not is_logged:
        return
    if isinstance(error, TurnlogError):
        log.error("%s failed: %s %s", name, error, error.hint)
    else:
        log.error("%s failed", name, exc_info=error)


def failures() -> dict[str, int]:
    """How often each loop has failed in this process."""
    with _lock:
        return dict(_failures)


def failing() -> list[str]:
    """The names of the loops that have failed for a minute."""
    with _lock:
        loops = list(_loops)
    return sorted({loop.name for loop in loops if loop.is_failing})
