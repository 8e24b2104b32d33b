"""Real processes, killed and racing: nothing acknowledged is lost, nothing is doubled, seqs have no gaps."""

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import turnlog
from turnlog.testing import opened, raises

from .. import warm
from ..waiting import GIVES_UP_S
from . import postgres

ROOT = Path(__file__).parents[2]
CRASHES = int(os.environ.get("CRASHES", "20"))
"""On each of five stores; `make torture` makes thousands."""
URLS = {
    "jsonl": "jsonl:{}/store",
    "v3": "jsonl:{}/store?dialect=v3",
    "claw0": "jsonl:{}/store?layout=claw0",
    "sqlite": "sqlite:{}/sessions.db",
    "postgresql": postgres.Urls(),
}


def python(*args, **options):
    return subprocess.run([sys.executable, *args], cwd=ROOT, capture_output=True, text=True, timeout=3000, **options)


@pytest.mark.parametrize("kind", URLS)
def test_killed_at_random_points_nothing_is_lost_or_doubled(kind, tmp_path):
    seed = random.SystemRandom().randrange(10**6)
    done = python("-m", "tests.stores.crash", URLS[kind].format(tmp_path), str(CRASHES), str(seed))
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"{CRASHES} crashes" in done.stdout
    print(kind, done.stdout)


RACER = """
import asyncio, sys, turnlog
from turnlog.testing import entry
url, me, turns = sys.argv[1], sys.argv[2], int(sys.argv[3])
async def main():
    async with turnlog.open_store(url) as store:
        for n in range(turns):
            async with store.lease("s1") as lease:
                for part in ("begin", "end"):
                    await store.append("s1", [entry(type="user", content=f"{me} {n} {part}")], lease=lease)
            await store.append("s1", [entry(type="title", title=f"{me} {n}")])
asyncio.run(main())
"""


@pytest.mark.parametrize("kind", URLS)
def test_racing_processes_get_seqs_without_gaps_and_one_turn_at_a_time(kind, tmp_path):
    url = URLS[kind].format(tmp_path)
    turns, racers = 8, 4

    async def prepare():
        async with turnlog.open_store(url) as store:
            await store.append("s1", [opened("s1")])

    async def look():
        async with turnlog.open_store(url) as store:
            return await store.read("s1"), await store.describe("s1")

    asyncio.run(prepare())
    running = [warm.start_code(RACER, url, f"r{n}", turns) for n in range(racers)]
    assert [process.wait(timeout=GIVES_UP_S) for process in running] == [0] * racers
    entries, row = asyncio.run(look())
    assert [e.seq for e in entries] == list(range(1, 1 + turns * racers * 3 + 1))
    said = [e.content for e in entries if hasattr(e, "content")]
    assert len(set(said)) == len(said) == turns * racers * 2
    for begin, end in zip(said[::2], said[1::2], strict=True):
        assert begin.replace("begin", "end") == end, "two turns ran at once"
    assert row.message_count == turns * racers * 2


OPENER = """
import asyncio, sys, turnlog
async def main():
    async with turnlog.open_store(sys.argv[1]) as store:
        sessions = turnlog.Sessions(store)
        sys.stdin.readline()
        rows = await asyncio.gather(*(sessions.open(f"main:cli:p{n}") for n in range(20)))
        print(" ".join(row.id for row in rows))
asyncio.run(main())
"""


@pytest.mark.parametrize("kind", URLS)
def test_racing_openers_get_one_session_a_key(kind, tmp_path):
    url = URLS[kind].format(tmp_path)
    racers = [warm.start_code(OPENER, url, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    answers = {racer.communicate(timeout=GIVES_UP_S)[0] for racer in racers}
    assert len(answers) == 1, answers

    async def look():
        async with turnlog.open_store(url) as store:
            return (await store.find(turnlog.Query())).total, (await store.find(turnlog.Query(status="active"))).total

    assert asyncio.run(look()) == (20, 20)


@pytest.mark.parametrize("kind", URLS)
def test_a_lease_ends_with_its_process(kind, tmp_path):
    url = URLS[kind].format(tmp_path)
    code = (
        "import asyncio,sys,turnlog\n"
        "async def main():\n"
        "    async with turnlog.open_store(sys.argv[1]) as store, store.lease('s1'):\n"
        "        print('held', flush=True)\n"
        "        await asyncio.sleep(600)\n"
        "asyncio.run(main())"
    )
    holder = warm.start_code(code, url, stdout=subprocess.PIPE)
    holder.stdout.readline()

    async def take():
        async with turnlog.open_store(url) as store:
            busy = await raises(turnlog.Busy, enter(store, wait_s=0.1))
            assert f"process {holder.pid}" in busy.holder
            waiting = asyncio.create_task(enter(store))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            holder.kill()
            holder.wait()
            if kind == "postgresql":  # there it ends when it is not renewed
                postgres.expire_leases(url)
            async with asyncio.timeout(GIVES_UP_S):
                await waiting

    async def enter(store, wait_s=None):
        async with store.lease("s1", wait_s=wait_s):
            pass

    asyncio.run(take())
    holder.wait()
    holder.stdout.close()
