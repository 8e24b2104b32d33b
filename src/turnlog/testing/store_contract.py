"""What every store promises, as tests. All stores pass the same suite: a difference between two stores is a
bug in one.
"""

import asyncio
from pathlib import Path
from typing import Any, cast

from ..core import history
from ..core.entries import Assistant, Status, Title, ToolResult, User
from ..errors import Conflict, NotFound, UsageError
from ..stores import Store
from . import check_messages, entry, opened, raises, said
from .base import GIVES_UP_S, claim, session_claim, store_claim
from .store_deleting import DeletingContract
from .store_erasing import ErasingContract
from .store_facts import FactsContract
from .store_finding import FindingContract
from .store_racing import RacingContract


class StoreContract(RacingContract, DeletingContract, FindingContract, FactsContract, ErasingContract):
    """Subclass it and implement `open`; set `durable = False` if nothing survives a close."""

    @store_claim
    async def test_append_gives_seqs_without_gaps_and_read_gives_them_back(self, store: Store) -> None:
        first = await store.append("s1", [opened("s1")])
        await self.talk(store, "s1", 3)
        entries = await store.read("s1")
        assert [e.seq for e in entries] == list(range(1, 8))
        assert entries[0] == first[0]
        assert all(e.ts.endswith("Z") for e in entries)

    @session_claim
    async def test_an_append_of_nothing_is_refused(self, store: Store) -> None:
        await raises(UsageError, store.append("s1", []))

    @claim
    async def test_an_entry_that_could_not_be_read_again_is_refused_and_nothing_is_stored(self, place: Path) -> None:
        bad: list[Any] = [
            *({"type": "user", "content": "x"}, "hello", None),
            *(User(content=cast("Any", given)) for given in (5, None, ["hello"], {"a": 1}, b"x", [{"type": "nosuch"}])),
            Assistant(content=[{"type": "tool_use", "id": "c", "name": "n", "input": {"a": float("nan")}}]),
            ToolResult(tool_use_id="c", content="x", is_error=cast("Any", "no")),
            Status(value=cast("Any", "nosuch")),
            Title(title=cast("Any", 5)),
        ]
        async with self.with_session(place) as store, store.lease("s1") as lease:
            for body in bad:
                await raises(UsageError, store.append("s1", [said("hi"), body], lease=lease))
            assert len(await store.read("s1")) == 1
            assert (await store.describe("s1")).last_seq == 1

    @session_claim
    async def test_parts_of_another_providers_shape_are_stored_as_blocks(self, store: Store) -> None:
        parts = [
            {"type": "input_text", "text": "look"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        ]
        [stored] = await store.append("s1", [User(content=parts)], lease="own")
        assert stored == (await store.read("s1"))[1]
        assert isinstance(stored, User)
        assert stored.content == [
            {"type": "text", "text": "look"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        ]

    @claim
    async def test_what_was_appended_is_there_after_reopening(self, place: Path) -> None:
        if not self.durable:
            return
        async with self.with_session(place) as store:
            await self.talk(store, "s1", 5)
            before, row = await store.read("s1"), await store.describe("s1")
        async with self.open(place) as store:
            assert await store.read("s1") == before
            assert await store.describe("s1") == row

    @store_claim
    async def test_a_session_begins_with_a_session_entry_and_has_only_one(self, store: Store) -> None:
        await raises(NotFound, store.append("s1", [entry(type="title", title="x")]))
        await store.append("s1", [opened("s1")])
        await raises(Conflict, store.append("s1", [opened("s1")]))
        await raises(UsageError, store.append("s1", [entry(type="title", title="x"), opened("s1")]))
        assert len(await store.read("s1")) == 1

    @store_claim
    async def test_append_with_a_stale_seq_conflicts_and_writes_nothing(self, store: Store) -> None:
        await store.append("s1", [opened("s1")], expect=0)
        await store.append("s1", [entry(type="title", title="a")], expect=1)
        await raises(Conflict, store.append("s1", [entry(type="title", title="b")], expect=1))
        await raises(Conflict, store.append("s1", [entry(type="title", title="b")], expect=0))
        assert len(await store.read("s1")) == 2

    @session_claim
    async def test_an_append_is_all_or_none(self, store: Store) -> None:
        await raises(UsageError, store.append("s1", [entry(type="title", title="a"), entry(type="pin", target=99)]))
        assert len(await store.read("s1")) == 1

    @session_claim
    async def test_messages_need_a_lease_and_an_ended_one_does_not_do(self, store: Store) -> None:
        await raises(UsageError, store.append("s1", [said("hi")]))
        async with store.lease("s1") as lease:
            await store.append("s1", [said("hi")], lease=lease)
        await raises(Conflict, store.append("s1", [said("late")], lease=lease))
        async with store.lease("other") as wrong:
            await raises(UsageError, store.append("s1", [said("hi")], lease=wrong))
        assert len(await store.read("s1")) == 2

    @session_claim
    async def test_read_takes_ranges_and_pages_both_ways(self, store: Store) -> None:
        await self.talk(store, "s1", 10)

        async def seqs(**range_: Any) -> list[int]:
            return [e.seq for e in await store.read("s1", **range_)]

        assert await seqs(after=18) == [19, 20, 21]
        assert await seqs(after=5, limit=2) == [6, 7]
        assert await seqs(before=4) == [1, 2, 3]
        assert await seqs(before=10, limit=3) == [7, 8, 9]
        assert await seqs(after=3, before=6) == [4, 5]
        assert await seqs(after=21) == await seqs(before=1) == []
        assert await seqs(limit=1) == [1]

    @store_claim
    async def test_what_does_not_exist_is_not_found(self, store: Store) -> None:
        await raises(NotFound, store.read("nobody"))
        await raises(NotFound, store.describe("nobody"))
        await raises(NotFound, store.delete("nobody"))
        assert [e async for e in store.watch("nobody", after=0)] == []

    @store_claim
    async def test_ids_that_could_be_paths_or_keys_are_refused(self, store: Store) -> None:
        for bad in ("../x", "a/b", "a:b", "中文", "x" * 65, "", ".", "-x", "a b", "a\n", "a\x00"):
            await raises(UsageError, store.append(bad, [opened(bad)]))
            await raises(UsageError, store.read(bad))
            await raises(UsageError, store.delete(bad))
            await raises(UsageError, _enter_lazily(store, bad))

    @session_claim
    async def test_any_text_comes_back_as_it_was(self, store: Store) -> None:
        texts = [
            *("", " ", "\x00", "a\x00b", "\ud800", "x\udfffy", "\U0001f600", '中文\n\r\t"\\', "\u2028\u2029"),
            "e\u0301",
        ]
        async with store.lease("s1") as lease:
            for text in texts:
                await store.append("s1", [said(text)], lease=lease)
                block = {"type": "tool_use", "id": "x", "name": "n", "input": {text: [text, 1, 1.5, None, True]}}
                await store.append("s1", [entry(type="assistant", content=[block])], lease=lease)
        found = await store.read("s1")
        assert [e.content for e in found[1::2]] == texts  # type: ignore[union-attr]
        assert [e.content[0]["input"] for e in found[2::2]] == [  # type: ignore[union-attr,index]
            {text: [text, 1, 1.5, None, True]} for text in texts
        ]

    @session_claim
    async def test_a_20_mb_entry_is_stored_and_one_over_the_limit_is_refused(self, store: Store) -> None:
        async with store.lease("s1") as lease:
            await store.append("s1", [said("x" * 20_000_000)], lease=lease)
            await raises(UsageError, store.append("s1", [said("x" * 34_000_000)], lease=lease))
            await store.append("s1", [said("after")], lease=lease)
        entries = await store.read("s1")
        assert [len(e.content) for e in entries[1:]] == [20_000_000, 5]  # type: ignore[union-attr]
        assert (await store.describe("s1")).message_count == 2
        assert [e.seq for e in await store.read("s1", after=2)] == [3]

    @session_claim
    async def test_json_too_deep_to_read_back_is_refused(self, store: Store) -> None:
        for levels in (500, 50_000):
            deep: Any = "x"
            for _ in range(levels):
                deep = [deep]
            await raises(UsageError, store.append("s1", [entry(type="foreign", raw=deep)]))
        assert len(await store.read("s1")) == 1

    @session_claim
    async def test_a_compaction_that_leaves_a_gap_is_refused(self, store: Store) -> None:
        await self.talk(store, "s1", 5)
        async with store.lease("s1") as lease:

            async def fold(first_kept: int, covers: list[int]) -> None:
                body = entry(type="compaction", summary="s", first_kept=first_kept, covers=covers)
                await store.append("s1", [body], lease=lease)

            await raises(UsageError, fold(6, [3, 5]))
            await raises(UsageError, fold(6, [2, 4]))
            await raises(UsageError, fold(99, [2, 98]))
            await fold(6, [2, 5])
            await raises(UsageError, fold(6, [6, 5]))
            await raises(UsageError, fold(9, [7, 8]))
            await raises(UsageError, store.append("s1", [entry(type="undo", target=3)], lease=lease))
            await fold(8, [6, 7])
            await raises(UsageError, store.append("s1", [entry(type="undo", target=12)], lease=lease))
            await store.append("s1", [entry(type="undo", target=13)], lease=lease)
            await store.append("s1", [entry(type="undo", target=12)], lease=lease)
        assert (await store.describe("s1")).boundary == 1

    @session_claim
    async def test_watch_gives_what_is_there_and_what_comes_and_ends_with_the_session(self, store: Store) -> None:
        seen: list[int] = []

        async def follow() -> None:
            async for item in store.watch("s1", after=0):
                seen.append(item.seq)

        task = asyncio.create_task(follow())
        await self.talk(store, "s1", 3)
        async with asyncio.timeout(GIVES_UP_S):
            while len(seen) < 7:
                await asyncio.sleep(0.01)
        await store.delete("s1")
        async with asyncio.timeout(GIVES_UP_S):
            await task
        assert seen == list(range(1, 8))

    @session_claim
    async def test_what_is_read_builds_a_valid_prompt(self, store: Store) -> None:
        await self.talk(store, "s1", 2)
        call = {"type": "tool_use", "id": "c1", "name": "read_file", "input": {"path": "x"}}
        await store.append("s1", [said("go"), entry(type="assistant", content=[call])], lease="own")
        check_messages(history.build(await store.read("s1")).messages)


async def _enter_lazily(store: Store, session_id: str) -> None:
    async with store.lease(session_id):
        pass
