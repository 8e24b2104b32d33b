"""What every store promises about erasing: the words are gone for good, and everything else stays as it was."""

import asyncio
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from ..core import history
from ..core.entries import Erasure, Facts, Foreign, Title
from ..core.erasing import ERASED
from ..core.query import Query
from ..core.session import describe
from ..errors import NotFound, UsageError
from ..stores import Store
from . import answered, check_messages, entry, opened, raises, said
from .base import Contract, claim, session_claim, store_claim


def call(call_id: str, word: str) -> Any:
    block = {"type": "tool_use", "id": call_id, "name": "look", "input": {"word": word}}
    return entry(type="assistant", content=[block], stop="tool_use")


def result(call_id: str, word: str) -> Any:
    return entry(type="tool_result", tool_use_id=call_id, content=word)


def put(**values: Any) -> Facts:
    return Facts(app="app", put=values)


class ErasingContract(Contract):
    async def all_of(self, store: Store) -> str:
        """Everything that the store says about its session, as one text."""
        row = await store.describe("s1")
        listed = (await store.find(Query())).items
        return str([to_builtins(await store.read("s1")), to_builtins(row), to_builtins(listed)])

    async def check_whole(self, store: Store) -> None:
        log = await store.read("s1")
        assert [one.seq for one in log] == list(range(1, len(log) + 1))
        assert await store.describe("s1") == describe(None, log)
        if messages := history.build(log).messages:
            check_messages(messages)

    @store_claim
    async def test_rewound_entries_and_dropped_facts_are_erased_without_being_asked_twice(self, store: Store) -> None:
        await store.append("s1", [opened("s1"), Facts(app="app", put={"a": "zebra"}), Facts(app="app", put={"a": 2})])
        await store.append("s1", [said("keep"), answered("kept")], lease="own")
        await store.append("s1", [said("zebra"), answered("a zebra"), entry(type="rewind", to=5)], lease="own")
        before = await store.read("s1")
        assert await store.erase("s1", [2, 6, 7], by="ann") == [2, 6, 7]
        after = await store.read("s1")
        assert "zebra" not in await self.all_of(store)
        same = [(one.seq, one.ts, type(one)) for one in before]
        assert [(one.seq, one.ts, type(one)) for one in after[:-1]] == same
        assert [one.seq for one in after if one.erased] == [2, 6, 7]
        assert [one for one in after[:-1] if not one.erased] == [one for one in before if one.seq not in (2, 6, 7)]
        assert isinstance(after[-1], Erasure)
        assert (after[-1].by, after[-1].entries, bool(after[-1].ts)) == ("ann", 3, True)
        assert [fact.value for fact in await store.facts("s1", "app")] == [2]
        await self.check_whole(store)
        assert await store.erase("s1", [2, 6]) == []  # nothing left to do, and nothing is written
        assert len(await store.read("s1")) == len(after)

    @store_claim
    async def test_what_still_counts_is_erased_only_by_redaction(self, store: Store) -> None:
        await store.append("s1", [opened("s1"), put(a=1)])
        await self.talk(store, "s1", 3)
        await store.append("s1", [Foreign(raw={"x": "y"}), Title(title="t")])
        fold = entry(type="compaction", summary="zebras", first_kept=5, covers=[3, 4])
        await store.append("s1", [fold], lease="own")
        before = await store.read("s1")
        for seq in (2, 3, 5, 9, 10, 11):
            assert "redact" in (await raises(UsageError, store.erase("s1", [seq]))).hint
        for seq in (0, 1, 99):
            await raises(UsageError, store.erase("s1", [seq], redact=True))
        assert await store.read("s1") == before
        assert await store.erase("s1", [2, 3, 5, 9, 10, 11], redact=True) == [2, 3, 5, 9, 10, 11]
        for word in ("question 1", "question 2", "zebra", "'y'"):
            assert word not in await self.all_of(store)
        assert await store.facts("s1", "app") == []
        await self.check_whole(store)

    @session_claim
    async def test_an_erased_message_is_shown_as_such_and_a_call_goes_with_its_results(self, store: Store) -> None:
        turn = [said("q"), call("c1", "zebra"), result("c1", "zebra found"), answered("done")]
        await store.append("s1", [*turn, said("again"), call("c2", "ox"), result("c2", "ox"), answered("ok")],
                           lease="own")  # fmt: skip
        assert await store.erase("s1", [4], redact=True) == [3, 4]
        assert await store.erase("s1", [6], redact=True) == [6]
        messages = history.build(await store.read("s1")).messages
        check_messages(messages)
        assert [word in str(messages) for word in ("zebra", ERASED, "ox")] == [False, True, True]
        assert [one["role"] for one in messages] == ["user", "assistant", "user", "assistant", "user", "assistant"]
        assert await store.erase("s1", [7], redact=True) == [7, 8]
        await self.check_whole(store)

    @store_claim
    async def test_words_of_a_turn_are_erased_where_they_were_received(self, store: Store) -> None:
        await store.append(
            "s1", [opened("s1"), entry(type="received", content="zebra", mode="steer", sender="zebedee")]
        )
        await store.append("s1", [entry(type="user", **{"from": [2]}), answered("hi")], lease="own")
        assert await store.erase("s1", [3], redact=True) == [2, 3]
        told = await self.all_of(store)
        assert not any(word in told for word in ("zebra", "zebedee"))
        assert history.build(await store.read("s1")).messages[0] == {"role": "user", "content": ERASED}
        await self.check_whole(store)

    @claim
    async def test_no_search_and_no_list_finds_erased_words(self, place: Path) -> None:
        async with self.open(place) as store, self.open(place) as second:
            other = second if self.durable else store
            await store.append("s1", [opened("s1")])
            await store.append("s1", [said("the zebra"), answered("a zebra")], lease="own")
            await store.append("s1", [said("the horse"), answered("a horse")], lease="own")
            assert len(await store.search("zebra")) == len(await other.search("zebra")) == 2
            assert (await other.find(Query(q="zebra"))).total == 1
            await store.erase("s1", [2, 3], redact=True)
            for one in (store, other):
                assert await one.search("zebra") == await one.search("erased") == []
                assert (await one.find(Query(q="zebra"))).total == 0
                assert (await one.describe("s1")).title == "the horse"
                assert len(await one.search("horse")) == 2
            await store.reindex()
            assert [len(await store.search(word)) for word in ("zebra", "horse")] == [0, 2]

    @store_claim
    async def test_an_older_value_of_an_erased_fact_does_not_come_back(self, store: Store) -> None:
        await store.append("s1", [opened("s1"), Facts(app="app", put={"a": 1, "b": 1}), Facts(app="app", put={"a": 2})])
        await store.append("s1", [Facts(app="app", drop=("b",))])
        assert await store.erase("s1", [4]) == [4]  # it ended a fact
        assert await store.erase("s1", [3], redact=True) == [3]
        for _ in range(2):
            assert await store.facts("s1", "app") == []
            await store.reindex()
        await store.append("s1", [put(a=3)])
        assert [fact.value for fact in await store.facts("s1", "app")] == [3]
        await self.check_whole(store)

    @session_claim
    async def test_redaction_waits_for_a_running_turn_and_takes_the_lease_it_is_given(self, store: Store) -> None:
        await self.talk(store, "s1", 2)
        async with store.lease("s1") as lease:
            waiting = asyncio.create_task(store.erase("s1", [2], redact=True))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            assert await store.erase("s1", [4], redact=True, lease=lease) == [4]
        assert await waiting == [2]
        await raises(UsageError, store.erase("s2", [4], redact=True, lease=lease))

    @session_claim
    async def test_erasing_concerns_only_the_session_that_is_meant(self, store: Store) -> None:
        old = (await store.describe("s1")).incarnation
        await raises(NotFound, store.erase("nosuch", [1]))
        await store.delete("s1")
        await store.append("s1", [opened("s1")])
        await self.talk(store, "s1", 1)
        await raises(NotFound, store.erase("s1", [2], redact=True, incarnation=old))
        assert not any(one.erased for one in await store.read("s1"))

    @claim
    async def test_an_erased_log_goes_on_and_opens_again(self, place: Path) -> None:
        async with self.with_session(place) as store:
            await self.talk(store, "s1", 30)
            await store.erase("s1", list(range(2, 40)), redact=True)
            await self.talk(store, "s1", 2, start=31)
            log = await store.read("s1")
            if not self.durable:
                return
        async with self.open(place) as store:
            assert await store.read("s1") == log
            assert await store.read("s1", after=38, limit=2) == log[38:40]
            await self.check_whole(store)
            await store.reindex()
            await self.check_whole(store)
