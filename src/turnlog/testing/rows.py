"""What every store promises about a session's row."""

import asyncio

from ..core.marks import MARKS_KEPT
from ..core.session import describe
from ..stores import Store
from . import answered, entry, opened, said
from .base import Contract, session_claim, store_claim


class RowContract(Contract):
    @store_claim
    async def test_append_answers_with_the_row_that_describe_has_after_it(self, store: Store) -> None:
        assert (await store.append("s1", [opened("s1")])).row == await store.describe("s1")
        async with store.lease("s1") as lease:
            for body in (said("hi"), answered("hello"), entry(type="rewind", to=2), entry(type="title", title="x")):
                appended = await store.append("s1", [body], lease=lease)
                assert appended.row == await store.describe("s1")
        racing = [store.append("s1", [entry(type="title", title=f"t{n}")]) for n in range(10)]
        for appended in await asyncio.gather(*racing):
            assert appended.row.last_seq == appended[-1].seq
            assert appended.row == describe(None, await store.read("s1", before=appended[-1].seq + 1))

    @session_claim
    async def test_the_row_is_the_fold_of_the_entries(self, store: Store) -> None:
        await self.talk(store, "s1", 4)
        async with store.lease("s1") as lease:
            fold = entry(type="compaction", summary="s", first_kept=6, covers=[2, 5], tokens_before=90, tokens_after=10)
            await store.append("s1", [fold], lease=lease)
            await store.append("s1", [entry(type="pin", target=3)])
            await store.append("s1", [entry(type="rewind", to=9)], lease=lease)
            await store.append("s1", [entry(type="rewind", to=11)], lease=lease)
            await store.append("s1", [entry(type="undo", target=10)], lease=lease)
        await store.append("s1", [entry(type="title", title="mine")])
        assert await store.describe("s1") == describe(None, await store.read("s1"))

    @session_claim
    async def test_a_row_after_many_rewinds_is_small_and_still_the_fold_of_the_entries(self, store: Store) -> None:
        await self.talk(store, "s1", 60)
        async with store.lease("s1") as lease:
            for n in range(80):
                end = (await store.describe("s1")).last_seq
                again = [said(f"again {n}"), answered("no"), entry(type="rewind", to=end - 20 if n % 3 else end)]
                await store.append("s1", again, lease=lease)
            await store.append("s1", [entry(type="rewind", to=121)], lease=lease)
            await store.append("s1", [entry(type="rewind", to=21)], lease=lease)
            await store.append("s1", [said("on"), answered("and on")], lease=lease)
        row = await store.describe("s1")
        assert len(row.marks) <= MARKS_KEPT
        assert row == describe(None, await store.read("s1"))
