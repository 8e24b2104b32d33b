"""Kills processes that run turns, at random moments, and checks the store after each kill.

Everything acknowledged must be there once and unchanged since it was first seen, and the prompt must be valid. The
store is temporary. A killed process is not a power cut: the operating system keeps what it was given.
"""

import asyncio
import os
import random
import select
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from msgspec import Struct, field

from ..core import history
from ..core.entries import Assistant, Compaction, Entry, Received, User, text_of
from ..core.events import Done
from ..core.query import Query
from ..errors import StoreError
from . import InvalidMessages, check_messages
from .bench import offline

KINDS = {
    "sqlite": "sqlite:{}/sessions.db",
    "jsonl": "jsonl:{}/store",
    "v3": "jsonl:{}/store?dialect=v3",
    "claw0": "jsonl:{}/store?layout=claw0",
}
KEY = "agent:main:cli:direct:user"
OFTEN = {"compaction_triggers": ["messages:12"], "compaction_keep": "turns:2"}
"""A compaction every few turns, so that some are cut short too."""
KILLS_A_STORE = 50
"""The kills per store; then a new store is used, because reading a long log again and again proves nothing more."""
START_S, TALK_S = 10.0, 0.06
"""How long a process may take to say something, and how long it then continues at most."""
EARLY = 0.2
"""The share of processes that are killed while they open the store."""


class TortureCounts(Struct):
    kind: str
    seed: int
    kills: int = 0
    accepted: int = 0
    answered: int = 0
    compactions: int = 0
    seconds: float = 0.0


class Witness(Struct):
    """The state of one store as seen so far."""

    accepted: set[int] = field(default_factory=set[int])
    answered: dict[int, int] = field(default_factory=dict[int, int])
    """Number of a message → the latest seq at which its answer was seen."""
    entries: list[Entry] = field(default_factory=list[Entry])
    highest: int = 0


def run_rounds(tally: TortureCounts, kills: int, seconds: float | None, place: str | None) -> None:
    rng = random.Random(tally.seed)  # noqa: S311 - moments to kill at, not secrets
    begin = time.monotonic()
    while tally.kills < kills and not (seconds and tally.seconds >= seconds):
        with _folder(place) as folder:
            witness = Witness()
            for _ in range(min(KILLS_A_STORE, kills - tally.kills)):
                kill_once(tally.kind, folder, witness, rng)
                tally.kills += 1
                asyncio.run(_look(tally, folder, witness))
                tally.seconds = round(time.monotonic() - begin, 1)
                if seconds and tally.seconds >= seconds:
                    break
            _add(tally, witness)


@contextmanager
def _folder(place: str | None) -> Generator[Path]:
    """Keeps the folder if something was lost: it is the evidence."""
    folder = Path(tempfile.mkdtemp(prefix="turnlog-torture-", dir=place))
    try:
        yield folder
    except StoreError:
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder)


def _add(tally: TortureCounts, witness: Witness) -> None:
    tally.accepted += len(witness.accepted)
    tally.answered += len(witness.answered)
    tally.compactions += sum(isinstance(entry, Compaction) for entry in witness.entries)


def kill_once(kind: str, folder: Path, witness: Witness, rng: random.Random) -> None:
    """Forks the process, which saves its start, so that hundreds of them take seconds."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ours)
        _child(kind, folder, witness.highest, theirs)
    os.close(theirs)
    try:
        if rng.random() > EARLY:
            select.select([ours], [], [], START_S)
        time.sleep(rng.random() * TALK_S)
    finally:
        os.kill(pid, signal.SIGKILL)
        told = _all_of(ours)
        _, status = os.waitpid(pid, 0)
    for line in told.decode().split("\n")[:-1]:  # the part after the last newline was not finished
        _note(witness, *map(int, line.split()))
    if not os.WIFSIGNALED(status):
        raise _lost(folder, "a process ended by itself; what it said is above")


def _child(kind: str, folder: Path, first: int, pipe: int) -> NoReturn:
    """Never returns into the parent's code."""
    try:
        asyncio.run(_talk(KINDS[kind].format(folder), folder, first, pipe))
    except KeyboardInterrupt:
        pass
    except BaseException as error:  # noqa: BLE001 - a process that is about to end tells why
        os.write(2, f"{error!r}\n".encode())
    finally:
        os._exit(1)


async def _talk(url: str, folder: Path, first: int, pipe: int) -> None:
    """Runs forever. Every third message does not wait for the previous answer."""
    async with offline(url, folder, **OFTEN) as t:
        await t.resume()
        number = first
        while True:
            number += 1
            ticket = await t.accept(KEY, f"message {number}")
            os.write(pipe, b"%d\n" % number)
            if number % 3 == 0:
                continue
            async for event in t.queue.follow(ticket):
                if isinstance(event, Done):
                    os.write(pipe, b"%d %d\n" % (number, (await t.session(KEY)).last_seq))


def _all_of(fd: int) -> bytes:
    told = b""
    while piece := os.read(fd, 65_536):
        told += piece
    os.close(fd)
    return told


def _note(witness: Witness, number: int, answered_at: int | None = None) -> None:
    witness.accepted.add(number)
    witness.highest = max(witness.highest, number)
    if answered_at is not None:
        witness.answered[number] = answered_at


async def _look(tally: TortureCounts, folder: Path, witness: Witness) -> None:
    async with offline(KINDS[tally.kind].format(folder), folder, **OFTEN) as t:
        row = await t.session(KEY)
        entries = (loaded := await t.sessions.transcript(row.id)).entries
        active = (await t.sessions.list(Query(key=KEY, status="active"))).total
        shown, prompt = await t.history(row), await t.prompt(row)
    told = f"after kill {tally.kills} of seed {tally.seed}: "
    if loaded.damage or active != 1 or shown != history.build(entries):
        raise _lost(folder, told + "the session cannot be read as it was written")
    if wrong := breach(witness, entries):
        raise _lost(folder, told + wrong)
    try:
        check_messages(prompt.messages)
    except InvalidMessages as error:
        if any(isinstance(entry, User) for entry in entries):
            raise _lost(folder, f"{told}the prompt is not valid: {error}") from error
    witness.entries = entries
    witness.highest = max([witness.highest, *_numbers(entries)])


def breach(witness: Witness, entries: list[Entry]) -> str:
    """The broken promise; empty if none is."""
    if [entry.seq for entry in entries] != list(range(1, len(entries) + 1)):
        return "entries are missing in between"
    if entries[: len(witness.entries)] != witness.entries:
        return "entries that were there have changed or are gone"
    stored = _numbers(entries)
    if lost := sorted(witness.accepted - stored.keys()):
        return f"message {lost[0]} was acknowledged and is not there"
    if doubled := sorted(number for number, times in stored.items() if times > 1):
        return f"message {doubled[0]} is there {stored[doubled[0]]} times"
    answers = [entry.seq for entry in entries if isinstance(entry, Assistant)]
    at = {number: entry.seq for entry in entries for number in _numbers([entry])}
    for number, seq in witness.answered.items():
        if not any(at[number] < answer <= seq for answer in answers):
            return f"the answer to message {number} was acknowledged and is not there"
    return ""


def _numbers(entries: list[Entry]) -> Counter[int]:
    """How often each message is stored: as a user entry, or as a message that still waits."""
    texts = [text_of(entry.content) for entry in entries if isinstance(entry, Received | User)]
    return Counter(int(text.removeprefix("message ")) for text in texts if text)


def _lost(folder: Path, what: str) -> StoreError:
    return StoreError(what, hint=f"The store is kept in {folder}.")
