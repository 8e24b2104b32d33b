"""What a store promises about deleted sessions: nothing reaches a later session that has the same id."""

import asyncio
from pathlib import Path

from msgspec.structs import replace

from ..core.query import Query
from ..errors import NotFound
from ..stores import Store
from . import FixedClock, answered, entry, opened, raises, said
from .base import GIVES_UP_S, Contract, claim, session_claim, store_claim


class DeletingContract(Contract):
    @session_claim
    async def test_delete_removes_the_session_and_a_late_writer_cannot_revive_it(self, store: Store) -> None:
        async with store.lease("s1") as lease:
            await store.append("s1", [said("hi")], lease=lease)
            await store.delete("s1")
            await raises(NotFound, store.append("s1", [answered("late")], lease=lease))
        await raises(NotFound, store.read("s1"))
        assert (await store.find(Query())).total == 0
        await store.append("s1", [opened("s1")])
        assert len(await store.read("s1")) == 1

    @claim
    async def test_who_held_a_deleted_session_reaches_nothing_of_the_next_one_of_its_id(self, place: Path) -> None:
        async with self.open(place, clock=FixedClock()) as store:
            await store.append("s1", [opened("s1")])
            held = (await store.describe("s1")).incarnation
            async with store.lease("s1") as lease:
                await store.append("s1", [said("hi")], lease=lease, incarnation=held)
                assert len(await store.read("s1", incarnation=held)) == 2
                await store.delete("s1", incarnation=held)
                await raises(NotFound, store.append("s1", [answered("late")], lease=lease, incarnation=held))
                await store.append("s1", [opened("s1"), said("somebody else's")], lease=lease)
                before = await store.read("s1")
                await raises(NotFound, store.append("s1", [answered("late")], lease=lease, incarnation=held))
                await raises(NotFound, store.append("s1", [answered("late")], expect=2, lease=lease, incarnation=held))
            await raises(NotFound, store.append("s1", [entry(type="received", content="x")], incarnation=held))
            await raises(NotFound, store.read("s1", incarnation=held))
            await raises(NotFound, store.read("s1", after=1, limit=1, incarnation=held))
            await raises(NotFound, store.describe("s1", incarnation=held))
            await raises(NotFound, store.delete("s1", incarnation=held))
            assert [e async for e in store.watch("s1", after=0, incarnation=held)] == []
            assert await store.read("s1") == before
            now = (await store.describe("s1")).incarnation
            assert now != held
            assert (await store.append("s1", [entry(type="title", title="x")], incarnation=now))[0].seq == 3

    @claim
    async def test_two_openings_agree_on_which_session_is_meant(self, place: Path) -> None:
        if not self.durable:
            return
        clock = FixedClock()
        async with self.open(place, clock=clock) as one, self.open(place, clock=clock) as two:
            await one.append("s1", [opened("s1")])
            async with one.lease("s1") as lease:
                await one.append("s1", [said("hi")], lease=lease)
                held = (await one.describe("s1")).incarnation
                assert (await two.describe("s1", incarnation=held)).last_seq == 2
                await two.delete("s1")
                await two.append("s1", [opened("s1"), entry(type="title", title="new")])
                await raises(NotFound, one.append("s1", [answered("late")], lease=lease, incarnation=held))
            await raises(NotFound, one.read("s1", incarnation=held))
            assert [getattr(e, "title", "") for e in await one.read("s1")] == ["", "new"]
            made = await two.describe("s1")
            assert await one.describe("s1", incarnation=made.incarnation) == made
        async with self.open(place, clock=clock) as again:
            assert await again.describe("s1") == made
            assert (await again.find(Query())).items == [made]
            await again.reindex()
            assert await again.describe("s1") == made

    @store_claim
    async def test_a_copy_is_an_incarnation_of_its_own(self, store: Store) -> None:
        [first] = await store.append("s1", [opened("s1")])
        held = (await store.describe("s1")).incarnation
        await store.delete("s1")
        await store.append("s1", [replace(first, seq=0)])
        assert (await store.describe("s1")).incarnation != held

    @session_claim
    async def test_watching_ends_with_the_session_also_if_its_id_is_given_away_at_once(self, store: Store) -> None:
        watching = store.watch("s1", after=0)
        assert (await anext(watching)).seq == 1
        await store.delete("s1")
        await store.append("s1", [opened("s1"), entry(type="title", title="somebody else's")])
        async with asyncio.timeout(GIVES_UP_S):
            assert [item async for item in watching] == []
