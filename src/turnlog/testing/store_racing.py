"""What a store promises to callers that use one session at the same time."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from ..core.query import Query
from ..core.session import describe
from ..errors import Busy, NotFound
from ..stores import Store
from . import entry, opened, raises, said
from .base import GIVES_UP_S, Contract, claim, enter, session_claim, store_claim


class RacingContract(Contract):
    @store_claim
    async def test_only_one_has_the_lease_and_the_next_waits(self, store: Store) -> None:
        order: list[str] = []

        async def turn(name: str) -> None:
            async with store.lease("s1") as lease:
                order.append(f"{name} in")
                await asyncio.sleep(0.02)
                order.append(f"{name} out")
                assert lease.live

        await asyncio.gather(*(turn(name) for name in "abc"))
        assert [step.split()[1] for step in order] == ["in", "out"] * 3
        async with store.lease("s1") as first:
            await raises(Busy, enter(store.lease("s1", wait_s=0.05)))
            async with store.lease("s2"):
                pass
        async with store.lease("s1", wait_s=GIVES_UP_S) as second:
            assert second.epoch > first.epoch

    @session_claim
    async def test_a_lease_that_comes_with_its_first_append_keeps_others_away_from_then_on(self, store: Store) -> None:
        async with store.lease("s1", wait_s=0, with_append=True) as lease:
            [first] = await store.append("s1", [said("one")], lease=lease, expect=1)
            await raises(Busy, enter(store.lease("s1", wait_s=0)))
            await store.append("s1", [said("two")], lease=lease)
            assert lease.live
        assert (first.seq, lease.live) == (2, False)
        async with store.lease("s1", wait_s=GIVES_UP_S) as second:
            assert second.epoch > lease.epoch

    @claim
    async def test_a_lease_that_comes_with_its_first_append_is_refused_while_somebody_has_it(self, place: Path) -> None:
        if not self.durable:
            return

        async def begin() -> None:
            async with two.lease("s1", wait_s=0, with_append=True) as lease:
                await two.append("s1", [said("not now")], lease=lease)

        async with self.open(place) as one, self.open(place) as two:
            await one.append("s1", [opened("s1")])
            async with one.lease("s1"):
                assert (await raises(Busy, begin())).holder
            assert len(await one.read("s1")) == 1
            await begin()
            assert len(await one.read("s1")) == 2

    @claim
    async def test_two_openings_of_one_place_see_each_other(self, place: Path) -> None:
        if not self.durable:
            return
        async with self.open(place) as one, self.open(place) as two:
            await one.append("s1", [opened("s1")])
            await self.talk(two, "s1", 2)
            await self.talk(one, "s1", 2, start=3)
            assert [e.seq for e in await two.read("s1")] == list(range(1, 10))
            assert (await two.find(Query())).items == (await one.find(Query())).items
            assert (await two.describe("s1")).message_count == 8
            seen = [item.seq async for item in _first(two.watch("s1", after=7), 2)]
            assert seen == [8, 9]
            async with one.lease("s1"):
                busy = await raises(Busy, enter(two.lease("s1", wait_s=0.05)))
                assert busy.holder
            await one.delete("s1")
            await raises(NotFound, two.append("s1", [entry(type="title", title="x")]))
            assert (await two.find(Query())).total == 0
            assert await one.ledger.put_if_absent("space", "k", 1) is None
            assert await two.ledger.put_if_absent("space", "k", 2) == 1

    @session_claim
    async def test_racing_appends_give_each_its_own_seq(self, store: Store) -> None:
        titles = [store.append("s1", [entry(type="title", title=f"t{n}")]) for n in range(50)]
        got = await asyncio.gather(*titles)
        assert sorted(e[0].seq for e in got) == list(range(2, 52))
        assert [e.seq for e in await store.read("s1")] == list(range(1, 52))

    @session_claim
    async def test_readers_during_appends_see_whole_appends_and_disturb_nothing(self, store: Store) -> None:
        await store.append("s1", [said("x" * 400_000)], lease="own")
        writing = True

        async def look() -> None:
            while writing:
                row = await store.describe("s1")
                entries = await store.read("s1")
                assert [e.seq for e in entries] == list(range(1, len(entries) + 1))
                assert len(entries) >= row.last_seq
                assert len(entries) % 3 == 2, "half an append was seen"
                await store.find(Query())
                await asyncio.sleep(0)

        async def give_up() -> None:
            while writing:
                task = asyncio.create_task(store.read("s1"))
                await asyncio.sleep(0.001)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

        readers = [asyncio.create_task(look()) for _ in range(3)] + [asyncio.create_task(give_up())]
        for n in range(20):
            await store.append("s1", [entry(type="title", title=f"{n}-{m}") for m in range(3)])
        writing = False
        await asyncio.gather(*readers)
        entries = await store.read("s1")
        assert len(entries) == 62
        assert await store.describe("s1") == describe(None, entries)

    @session_claim
    async def test_a_cancelled_append_is_there_or_not_but_never_half(self, store: Store) -> None:
        for n in range(20):
            task = asyncio.create_task(store.append("s1", [entry(type="title", title=f"{n}-{m}") for m in range(3)]))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await store.append("s1", [entry(type="title", title="end")])
        entries = await store.read("s1")
        assert [e.seq for e in entries] == list(range(1, len(entries) + 1))
        assert (len(entries) - 2) % 3 == 0


async def _first(items: AsyncIterator[Any], count: int) -> AsyncIterator[Any]:
    async for item in items:
        yield item
        count -= 1
        if not count:
            break
