"""`turnlog bench`: what appending, resuming and a turn cost on this machine, in a store that is thrown away afterwards.

Everything is durable as in earnest, and one file sync alone is measured beside it, because no append can cost less.
It compares nothing with anything: `benchmarks/` in the repository does.
"""

import asyncio
import os
import platform
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct, to_builtins

from .. import __version__
from ..core import compaction, history
from ..core.compaction import Keep
from ..core.entries import Assistant, Entry, Opened, User
from ..core.events import Done, TextDelta
from ..errors import ProviderError, UsageError
from ..sessions import Sessions
from ..stores import open_store
from ..stores.files import disk_errors, open_private, write_all
from .options import common, flags_now
from .output import table, write, write_json

if TYPE_CHECKING:
    from ..library import Turnlog

KINDS = {"sqlite": "sqlite:{}/sessions.db", "jsonl": "jsonl:{}/store"}
SESSION = "bench"
KEY = "agent:main:cli:direct:bench"
APPENDS, SYNCS, RESUMES, TURNS = 200, 100, 20, 50
"""So few that all of it takes seconds; enough for a median."""
KEPT = 40
"""Messages that the compaction leaves in the tail."""
BATCH = 500
WORDS = "What was said about the release, and what is still open after the meeting of yesterday? " * 4


class Figure(Struct, frozen=True):
    what: str
    count: int
    median_ms: float
    slowest_ms: float


@click.command()
@click.option("--kind", type=click.Choice(list(KINDS)), default="sqlite", help="Which store [sqlite].")
@click.option("--messages", type=click.IntRange(100, 100_000), default=2_000, help="In the session resumed [2000].")
@click.option("--dir", "place", type=click.Path(exists=True, file_okay=False), help="On which disk [temporary files'].")
@common
def bench(kind: str, messages: int, place: str | None) -> None:
    """Measure append, resume and a turn of the offline model, on a temporary store.

    Figures are of one process with the program loaded: its start is not in them.

    \b
    turnlog bench
    turnlog bench --kind jsonl --dir /srv/data --messages 20000
    """
    refuse_store("bench")
    with disk_errors("the temporary store cannot be used"), tempfile.TemporaryDirectory(dir=place) as folder:
        figures = asyncio.run(measure(KINDS[kind], Path(folder), messages))
    on = {"version": __version__, "python": platform.python_version(), "system": platform.platform()}
    on |= {"kind": kind, "dir": place or tempfile.gettempdir()}
    if flags_now().json:
        write_json({**on, "figures": to_builtins(figures)})
        return
    write(" · ".join(on.values()))
    cells = [(f.what, f"{f.median_ms:,.2f} ms", f"{f.slowest_ms:,.2f} ms", f"{f.count} times") for f in figures]
    for line in table([("", "median", "slowest", ""), *cells]):
        write(line)


def refuse_store(command: str) -> None:
    if flags_now().store:
        raise UsageError(f"{command} uses a store of its own", hint="Choose with --kind and --dir instead.")


async def measure(url: str, folder: Path, messages: int) -> list[Figure]:
    """Each part in a directory of its own, so that none finds the other's files warm."""
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
                raise ProviderError(f"turn {number + 1} did not end well")
    return first, whole


@asynccontextmanager
async def offline(url: str, home: Path, **more: Any) -> "AsyncGenerator[Turnlog]":
    """With the offline model; a home of its own, so that the user's configuration does not count."""
    from ..wiring import open as open_turnlog

    flags: dict[str, Any] = {"model_name": "offline", "session_enabled": True, "store_durability": "full", **more}
    async with open_turnlog(url, home=home, **flags) as t:
        yield t
