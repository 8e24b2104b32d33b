"""Measures an append, a resume and a turn on this machine, in a temporary store.

Everything is durable as usual. One file sync is measured too, because no append can cost less. Comparisons with other
libraries are in `benchmarks/` of the repository.
"""

import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..core import compaction, history
from ..core.compaction import Keep
from ..core.entries import Assistant, Entry, Opened, User
from ..core.events import Done, TextDelta
from ..errors import ProviderError
from ..sessions import Sessions
from ..stores import open_store
from ..stores.disk.files import open_private, write_all

if TYPE_CHECKING:
    from ..library import Turnlog

KINDS = {"sqlite": "sqlite:{}/sessions.db", "jsonl": "jsonl:{}/store"}
SESSION = "bench"
KEY = "agent:main:cli:direct:bench"
APPENDS, SYNCS, RESUMES, TURNS = 200, 100, 20, 50
"""Few enough to take seconds, and enough for a median."""
KEPT = 40
"""The messages that the compaction keeps."""
BATCH = 500
WORDS = "What was said about the release, and what is still open after the meeting of yesterday? " * 4


class Figure(Struct, frozen=True):
    what: str
    count: int
    median_ms: float
    slowest_ms: float


async def measure(url: str, folder: Path, messages: int) -> list[Figure]:
    """Each part has its own directory, so that none finds the files of another in the cache."""
    places = [folder / name for name in ("sync", "append", "resume", "turn")]
    for place in places:
        place.mkdir(mode=0o700)
    resumed = url.format(places[2])
    await _fill(resumed, messages)
    figures = [
        figure("a file sync by itself", _sync(places[0] / "file")),
        figure("append of a question and its answer, durable", await _append(url.format(places[1]))),
        figure(f"resume of {messages:,} messages: open, load, build", await _resume(resumed)),
    ]
    await _fold(resumed)
    figures.append(figure(f"the same, compacted to {KEPT}", await _resume(resumed)))
    first, whole = await _turn(url.format(places[3]), places[3])
    return [*figures, figure("turn of the offline model, to its first text", first), figure("to its end", whole)]


def figure(what: str, samples_s: list[float]) -> Figure:
    return Figure(what, len(samples_s), round(median(samples_s) * 1000, 3), round(max(samples_s) * 1000, 3))


def _sync(path: Path) -> list[float]:
    fd = open_private(path, os.O_WRONLY | os.O_CREAT)
    samples: list[float] = []
    try:
        for _ in range(SYNCS):
            begin = time.perf_counter()
            write_all(fd, WORDS.encode())
            os.fsync(fd)
            samples.append(time.perf_counter() - begin)
    finally:
        os.close(fd)
    return samples


def _exchange(number: int) -> list[Entry]:
    return [User(content=f"{number}. {WORDS}"), Assistant(content=f"{number}. {WORDS}", stop="end_turn")]


_OPENED = Opened(id=SESSION, key=KEY, agent="main", channel="cli")


async def _append(url: str) -> list[float]:
    samples: list[float] = []
    async with open_store(url) as store:
        await store.append(SESSION, [_OPENED])
        async with store.lease(SESSION) as lease:
            for number in range(APPENDS):
                begin = time.perf_counter()
                await store.append(SESSION, _exchange(number), lease=lease)
                samples.append(time.perf_counter() - begin)
    return samples


async def _fill(url: str, messages: int) -> None:
    bodies = [body for number in range(messages // 2) for body in _exchange(number)]
    async with open_store(url, durability="os") as store:
        await store.append(SESSION, [_OPENED])
        async with store.lease(SESSION) as lease:
            for first in range(0, len(bodies), BATCH):
                await store.append(SESSION, bodies[first : first + BATCH], lease=lease)


async def _fold(url: str) -> None:
    async with open_store(url) as store, store.lease(SESSION) as lease:
        plan = compaction.plan(await store.read(SESSION), Keep("messages", KEPT))
        assert plan is not None  # there are at least a hundred messages
        fold = compaction.complete(plan, WORDS, trigger="manual", tokens_before=2, tokens_after=1)
        await store.append(SESSION, [fold], lease=lease)


async def _resume(url: str) -> list[float]:
    samples: list[float] = []
    for _ in range(RESUMES):
        begin = time.perf_counter()
        async with open_store(url) as store:
            built = history.build((await Sessions(store).load(SESSION)).entries)
            samples.append(time.perf_counter() - begin)
        assert built.messages
    return samples


async def _turn(url: str, home: Path) -> tuple[list[float], list[float]]:
    first: list[float] = []
    whole: list[float] = []
    async with offline(url, home) as t:
        for number in range(TURNS):
            begin = time.perf_counter()
            async for event in t.send(KEY, f"{number}. {WORDS}"):
                passed = time.perf_counter() - begin
                if isinstance(event, TextDelta) and len(first) == number:
                    first.append(passed)
                elif isinstance(event, Done):
                    whole.append(passed)
            if len(whole) != number + 1:
                raise ProviderError(f"turn {number + 1} failed")
    return first, whole


@asynccontextmanager
async def offline(url: str, home: Path, **more: Any) -> "AsyncGenerator[Turnlog]":
    """Uses the offline model and its own home, so that the user's configuration has no effect."""
    from ..wiring import open as open_turnlog

    flags: dict[str, Any] = {"model_name": "offline", "session_enabled": True, "store_durability": "full", **more}
    async with open_turnlog(url, home=home, **flags) as t:
        yield t
