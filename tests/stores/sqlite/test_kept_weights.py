"""A series of rewinds in SQLite: few of them read the log, and each row is the fold of the log."""

import asyncio

import pytest

from turnlog.core.entries import Rewind
from turnlog.core.session import describe
from turnlog.stores import open_store
from turnlog.stores.sqlite import kept_weights, statements
from turnlog.testing import answered, opened, said


@pytest.fixture
def url(tmp_path):
    return f"sqlite:{tmp_path}/s.db"


async def begin(store, turns):
    bodies = [body for n in range(turns) for body in (said(f"question {n}" * (n % 5 + 1)), answered(f"answer {n}"))]
    await store.append("s1", [opened("s1"), *bodies], lease="own")


async def append(store, *bodies):
    row = (await store.append("s1", bodies, lease="own")).row
    assert row == describe(None, await store.read("s1"))


def counting(monkeypatch):
    read, counted = statements.readable_in, []

    def counted_read(db, session_id, wanted):
        counted.append(wanted)
        return read(db, session_id, wanted)

    monkeypatch.setattr(statements, "readable_in", counted_read)
    return counted


def test_few_rewinds_of_a_series_read_the_log(url, monkeypatch):
    counted = counting(monkeypatch)

    async def run():
        async with open_store(url, durability="os") as store:
            await begin(store, 60)
            for to in range(120, 20, -1):
                await append(store, Rewind(to=to))
            assert len(counted) <= 100 // (kept_weights.AHEAD - 2) + 1

    asyncio.run(run())


def test_rewinds_among_messages(url):
    async def run():
        async with open_store(url, durability="os") as store:
            await begin(store, 30)
            for n in range(40):
                last = (await store.describe("s1")).last_seq
                await append(store, said(f"new question {n}"), answered(f"new answer {n}" * 3))
                await append(store, Rewind(to=last + 1))
                await append(store, Rewind(to=last if n % 3 else max(2, 60 - n)))

    asyncio.run(run())


def test_a_rewind_over_more_than_is_kept(url, monkeypatch):
    monkeypatch.setattr(kept_weights, "WEIGHTS_MAX", 24)

    async def run():
        async with open_store(url, durability="os") as store:
            await begin(store, 60)
            for to in (119, 118, 90, 89, 88, 10, 9, 8):
                await append(store, Rewind(to=to))
            await append(store, *[said("x"), answered("y")] * 20)
            await append(store, Rewind(to=140))

    asyncio.run(run())


def test_what_another_process_wrote_counts(url):
    async def run():
        async with open_store(url, durability="os") as one, open_store(url, durability="os") as other:
            await begin(one, 20)
            for n in range(6):
                last = (await one.describe("s1")).last_seq
                await append(one, Rewind(to=40 - 2 * n))
                await append(other, said("from another" * 9), answered("process" * 9))
                await append(one, Rewind(to=last + 2))
                await append(one, Rewind(to=39 - 2 * n))

    asyncio.run(run())


@pytest.mark.parametrize("by_another", [False, True])
def test_an_erased_message_weighs_what_is_left_of_it(url, by_another):
    async def run():
        async with open_store(url, durability="os") as store, open_store(url, durability="os") as other:
            await begin(store, 20)
            await append(store, Rewind(to=40))
            await (other if by_another else store).erase("s1", [36, 38], redact=True)
            for to in (39, 37, 35):
                await append(store, Rewind(to=to))

    asyncio.run(run())


@pytest.mark.parametrize("by_another", [False, True])
def test_a_session_that_was_deleted_leaves_nothing_to_the_next_one_of_its_id(url, by_another):
    async def run():
        async with open_store(url, durability="os") as store, open_store(url, durability="os") as other:
            await begin(store, 20)
            await append(store, Rewind(to=39))
            who = other if by_another else store
            await who.delete("s1")
            bodies = [body for n in range(20) for body in (said(f"longer than before {n}" * 20), answered("z"))]
            await who.append("s1", [opened("s1"), *bodies], lease="own")
            await append(store, Rewind(to=39))
            await append(store, Rewind(to=38))

    asyncio.run(run())
